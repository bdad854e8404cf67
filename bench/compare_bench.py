"""What bench/compare.py works with: inputs, programs that take part and the machine's rates, under one folder."""
import copy
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from compare_cases import JOBS, TORCH, TORCH_SETTINGS, demo_job, is_public
from contest import Contestant, Stopped
from llmc_trainer import build_llmc, llmc_commit, llmc_compiler, write_llmc_weights

HERE = Path(__file__).resolve().parent
NOT_AVAILABLE = "not available"  # instead of a variant's times
WITHIN = 1.15  # of the best variant's time: which of two is quicker is for the rounds to say


class Bench:
    """`programs`: what took part in the row at hand, and its version."""

    def __init__(self, triax, folder, count, hold=False, variants=None, llmc=None):
        """`llmc`: a checkout of llm.c, if there is one."""
        self.variants, self.llmc_checkout = variants, llmc
        self.programs = {}
        self.triax, self.folder, self.count, self.hold = triax, Path(folder).resolve(), count, hold
        os.environ["COMPARE_LOGS"] = str(self.folder)
        # Inductor's cache: what --prepare has compiled is not compiled again.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(self.folder / "inductor"))

    # ---- inputs

    def job(self, name, changes=None):
        """The path of a job file; `changes` {section: {key: value}} on top of the named job."""
        job = copy.deepcopy(JOBS[name] if name in JOBS else self.demo())
        label = name
        for section, values in (changes or {}).items():
            job.setdefault(section, {}).update(values)
            label += "".join(f"-{key}-{value}" for key, value in values.items())
        text = self.folder / "text.txt"
        if not text.exists():
            text.write_text("the quick brown fox jumps over the lazy dog. " * 50000)
        job |= {"name": label, "output_dir": str(self.folder / "runs" / label), "data": {"train": [{"path": str(text)}]}}
        path = self.folder / f"{label}.yaml"
        path.write_text(json.dumps(job, indent=1) + "\n")  # JSON is YAML
        return path

    def demo(self):
        import yaml

        return demo_job(yaml.safe_load((HERE.parent / "examples" / "demo.yaml").read_text()))

    def tokens(self, name):
        """Random tokens [global batch, sequence + 1], int32."""
        import numpy

        job = json.loads(self.job(name).read_text())
        training, vocabulary = job["training"], job["model"]["vocab_size"]
        shape = (training["global_batch_size"], training["sequence_length"] + 1)
        path = self.folder / f"tokens-{vocabulary}-{shape[0]}-{shape[1]}.bin"
        if not path.exists():
            numpy.random.default_rng(1).integers(0, vocabulary, shape, dtype="<i4").tofile(path)
        return path

    def weights(self, name):
        """The view of a checkpoint with the weights that `triax train` starts from. Not a matter of precision or batch."""
        job = json.loads(self.job(name).read_text())
        label = f"{job['model']['architecture']}-{job['model']['vocab_size']}-{job['model']['hidden_size']}"
        run = self.folder / "weights" / label
        path = run / "checkpoints" / "step-00000000" / "checkpoint.h5"
        if not path.exists():
            sets = ["checkpoint.save_initial=true", f"output_dir={run}", "training.precision=fp32",
                    "training.micro_batch_size=1", "training.global_batch_size=1", "training.sequence_length=16"]
            arguments = [word for one in sets for word in ("--set", one)]
            subprocess.run([self.triax, "train", self.job(name), "--quiet", *arguments], check=True)
            subprocess.run(["rm", "-r", run / "checkpoints" / "step-00000001"], check=True)
        return path

    # ---- programs

    def ours(self, label, name, changes=None, mpirun=False):
        job = self.job(name, changes)
        ranks = 1
        for key in ("tensor", "pipeline", "data"):
            ranks *= json.loads(job.read_text())["parallel"].get(key, 1)
        command = [self.triax, "bench", "step", job, "--turns", "--tokens", self.tokens(name)]
        if not mpirun:
            return Contestant(label, command + ["--ranks", str(ranks)])
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return Contestant(label, ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] + command, root)

    def torch(self, variant, name, settings=TORCH_SETTINGS, more=()):
        command = [sys.executable, HERE / "torch_step.py", self.job(name), "--tokens", self.tokens(name), "--weights",
                   self.weights(name), "--threads", str(cores()), *variants_of(name)[variant], *more]
        one = Contestant(f"PyTorch {variant}", command, settings)
        self.programs["PyTorch"] = one.ready["torch"]
        return one

    def llmc(self, name):
        """llm.c's trainer on the weights and tokens of a job. Memory and threads as PyTorch has them at its best."""
        program = build_llmc(self.llmc_checkout, self.folder / "llmc_turns")
        self.programs |= {"llm.c": llmc_commit(self.llmc_checkout), "by": llmc_compiler()}
        job, weights = json.loads(self.job(name).read_text()), self.folder / "weights" / "gpt2_124M.bin"
        write_llmc_weights(self.weights(name), job["model"], weights)
        training, optimizer = job["training"], job["optimizer"]
        numbers = [training["global_batch_size"], training["sequence_length"], optimizer["lr"], *optimizer["betas"],
                   optimizer["eps"]]
        return Contestant("llm.c", [program, weights, self.tokens(name), *map(str, numbers)],
                          TORCH_SETTINGS | {"OMP_NUM_THREADS": str(cores())})

    def plan(self, name, changes=None):
        said = subprocess.run([self.triax, "plan", self.job(name, changes), "--ranks", "1", "--json"], check=True,
                              capture_output=True, text=True)
        return json.loads(said.stdout)

    def warm_up(self, contestants):
        """Two steps: memory is touched in the first, and some of PyTorch's is only then laid out for good."""
        for one in contestants:
            one.turn(2)
            if available_memory() < 2**30:
                raise Stopped(f"with {one.name} less than 1 GiB of memory is left: all that take part must fit at once; "
                              "--torch VARIANT takes one of PyTorch's ways alone")
        if self.hold:
            print("warm", file=sys.stderr, flush=True)
            sys.stdin.readline()

    # ---- what the machine does, and which of PyTorch's ways is the best

    def measure_rates(self):
        """What the machine does now: `triax bench rates`."""
        said = subprocess.run([self.triax, "bench", "rates", "--seconds", "0.4"], check=True, capture_output=True, text=True)
        return json.loads(said.stdout)

    def prepare(self, row):
        """Times every variant of PyTorch that was not yet, in a process of its own, and stores the turns' medians."""
        name = JOB_OF_ROW.get(row)
        if not name:
            return
        known = self._times(name)
        times = json.loads(known.read_text()) if known.exists() else {}
        for variant in variants_of(name):
            if variant in times:
                continue
            try:
                with self.torch(variant, name) as one:
                    one.turn(2)
                    times[variant] = [statistics.median(one.turn(2)) for _ in range(3)]
                said = f"{statistics.median(times[variant]):.3f} s a step"
            except Stopped as stopped:
                if is_public(variant):
                    raise SystemExit(f"compare: {row}: {stopped}\nIts log is {stopped.log}. What "
                                     "compiles needs a C++ compiler and Python.h: scripts/setup --bench") from None
                times[variant] = said = NOT_AVAILABLE
            print(f"{row}: PyTorch {variant}: {said}", flush=True)
            known.write_text(json.dumps(times, indent=1) + "\n")

    def _times(self, name):
        return self.folder / f"pytorch-{name}.json"

    def best_variants(self, name):
        """PyTorch's public ways that in any of their turns were within 15 % of the best one's median, the best first;
        after them the best of the others, if it is quicker still; and the names of those that this PyTorch has not."""
        if self.variants:
            return self.variants, []
        times = json.loads(self._times(name).read_text()) if self._times(name).exists() else {}
        unknown = [variant for variant in variants_of(name) if variant not in times]
        if unknown:
            raise SystemExit(f"compare: {name}: nothing is known of PyTorch {'; '.join(unknown)}: run "
                             "bench/compare.py --prepare first")
        missing = [variant for variant, turns in times.items() if turns == NOT_AVAILABLE]
        seconds = {variant: statistics.median(turns) for variant, turns in times.items() if variant not in missing}
        ordered = sorted(seconds, key=seconds.get)
        public = [variant for variant in ordered if is_public(variant)]
        chosen = [variant for variant in public if min(times[variant]) <= WITHIN * seconds[public[0]]]
        return chosen + [variant for variant in ordered[:1] if not is_public(variant)], missing


# The rows that run PyTorch's quickest ways.
JOB_OF_ROW = {"gpt2": "gpt2", "gpt2-bf16": "gpt2-bf16", "llama": "llama", "small": "small"}


def variants_of(name):
    return TORCH[JOBS[name]["training"]["precision"]]


def cores():
    return len(os.sched_getaffinity(0))


def available_memory():
    """Bytes."""
    with open("/proc/meminfo") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
