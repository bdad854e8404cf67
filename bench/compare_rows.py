"""The rows of bench/compare.py: each is a function that measures and returns lines {case, value, target, met, note}."""
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from compare_cases import JOBS, TORCH, TORCH_SETTINGS, demo_job
from contest import Contestant, Numbers, Stopped, losses_apart, ratios, rounds
from llmc_trainer import build_llmc, write_llmc_weights

HERE = Path(__file__).resolve().parent
# Relative difference of losses over the steps that both did; bf16 rounds differently on the two sides.
SAME_LOSS = {"fp32": 2e-5, "bf16": 1e-2}


class Bench:
    """Inputs, programs and rates, under one folder."""

    def __init__(self, triax, folder, count, hold=False, variants=None, llmc=None):
        """`llmc`: a checkout of llm.c, if there is one."""
        self.variants, self.llmc_checkout = variants, llmc
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
        precision = JOBS[name]["training"]["precision"]
        command = [sys.executable, HERE / "torch_step.py", self.job(name), "--tokens", self.tokens(name), "--weights",
                   self.weights(name), "--threads", str(cores()), *TORCH[precision][variant], *more]
        return Contestant(f"PyTorch {variant}", command, settings)

    def llmc(self, name):
        """llm.c's trainer on the weights and tokens of a job. Memory and threads as PyTorch has them at its best."""
        program = build_llmc(self.llmc_checkout, self.folder / "llmc_turns")
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

    def warm_up(self, contestants, steps):
        for one in contestants:
            one.turn(steps)
        if self.hold:
            print("warm", file=sys.stderr, flush=True)
            sys.stdin.readline()

    # ---- what the machine does, and which of PyTorch's ways is the best

    def measure_rates(self):
        """What the machine does now: `triax bench rates`."""
        said = subprocess.run([self.triax, "bench", "rates", "--seconds", "0.4"], check=True, capture_output=True, text=True)
        return json.loads(said.stdout)

    def prepare(self, row):
        """Times every variant of PyTorch that was not yet, in a process of its own, and stores what it took."""
        name = JOB_OF_ROW.get(row)
        if not name:
            return
        known = self._times(name)
        times = json.loads(known.read_text()) if known.exists() else {}
        for variant in TORCH[JOBS[name]["training"]["precision"]]:
            if variant in times:
                continue
            try:
                with self.torch(variant, name) as one:
                    one.turn(2)
                    times[variant] = min(one.turn(2))
            except Stopped as stopped:
                print(stopped, file=sys.stderr)
                continue
            print(f"{row}: PyTorch {variant}: {times[variant]:.3f} s a step", flush=True)
            known.write_text(json.dumps(times, indent=1) + "\n")

    def _times(self, name):
        return self.folder / f"torch-{name}.json"

    def best_variants(self, name):
        """The best of PyTorch's ways, and before it the best of those that are public, where that is another."""
        if self.variants:
            return self.variants
        if not self._times(name).exists():
            raise SystemExit(f"compare: {name}: nothing is known of PyTorch's variants; run bench/compare.py --prepare first")
        times = json.loads(self._times(name).read_text())
        public = min((v for v in times if "oneDNN" not in v), key=times.get)
        return list(dict.fromkeys([public, min(times, key=times.get)]))


def cores():
    return len(os.sched_getaffinity(0))


def line(case, numbers, target=None, note="", form="{:.2f}"):
    """`numbers` shall be at least `target`."""
    value = numbers.text(form)
    if target is None:
        return {"case": case, "value": value, "note": note}
    return {"case": case, "value": value, "target": f"{target:g}", "met": numbers.median >= target, "note": note}


def floor_seconds(name, plan, rates):
    """The least time of a step: its multiplications at the machine's rate (of attention the causal half; without a table
    that is only looked up, which model FLOPs count, too), and what AdamW reads and writes of weights, gradients and
    moments at the rate of the triad (28 bytes a parameter; in bf16 30)."""
    model, training = JOBS[name]["model"], JOBS[name]["training"]
    precision = training["precision"]
    attention = 6 * model["num_hidden_layers"] * model["hidden_size"] * training["sequence_length"]
    tied = model["architecture"] == "gpt2"
    looked_up = 0 if tied else 6 * model["vocab_size"] * model["hidden_size"]
    flops = (plan["flops_per_token"] - attention - looked_up) * plan["tokens_per_step"]
    bytes_moved = plan["parameters"] * (30 if precision == "bf16" else 28)
    return flops / rates[f"held_{precision}"] + bytes_moved / rates["triad"]


def against_roofs(name, plan, seconds, rates):
    """Lines on steps of `seconds` beside the machine's rates of the same rounds."""
    precision = JOBS[name]["training"]["precision"]
    triad = max(now["triad"] for now in rates)
    shares = Numbers([floor_seconds(name, plan, now | {"triad": triad}) / step for now, step in zip(rates, seconds)])
    if shares.median > 1:
        raise Stopped(f"{name}: steps are shorter than their floor: something else ran while the machine's rates were measured")
    held = [now[f"held_{precision}"] for now in rates]
    best = max(now[f"gemm_{precision}"] for now in rates)
    speeds = [plan["flops_per_token"] * plan["tokens_per_step"] / step for step in seconds]
    return [
        line(f"{name}: Triax, tokens/s", Numbers([plan["tokens_per_step"] / step for step in seconds]), form="{:.0f}",
             note=f"products held {min(held) / 1e9:.0f} to {max(held) / 1e9:.0f} GFLOP/s, at best {best / 1e9:.0f}; triad {triad / 1e9:.1f} GB/s"),
        line(f"{name}: share of the floor", shares, 0.9),
        line(f"{name}: model FLOPs, share of the GEMM rate", Numbers([speed / rate for speed, rate in zip(speeds, held)]),
             0.85 if name == "gpt2" else None,
             f"of the highest rate of any single product {statistics.median(speeds) / best:.2f}")]


def same_threads(name, contestants):
    if len({one.ready["threads"] for one in contestants}) > 1:
        raise Stopped(f"{name}: the programs have different numbers of threads")


def same_losses(name, one, other, precision="fp32"):
    """How far their losses are apart, which is no more than rounding."""
    apart = losses_apart(one, other)
    if apart > SAME_LOSS[precision]:
        raise Stopped(f"{name}: losses of {one.name} differ from {other.name}'s by {apart:.2g}: not the same computation")
    return apart


def against_torch(bench, name, steps, target, others=()):
    """Triax's tokens/s over PyTorch's. `others`: more of ours, [(label, job)]. Returns (lines, seconds by name; of
    PyTorch's ways in the order of best_variants())."""
    precision = JOBS[name]["training"]["precision"]
    plan, rates = bench.plan(name), []
    variants = bench.best_variants(name)
    contestants = []
    try:
        contestants += [bench.ours("Triax", name)] + [bench.torch(v, name) for v in variants]
        contestants += [bench.ours(label, job) for label, job in others]
        same_threads(name, contestants)
        bench.warm_up(contestants, 1)
        seconds = rounds(contestants, steps, bench.count, lambda: rates.append(bench.measure_rates()))
        ours, lines = contestants[0], []
        for one in contestants[1 : 1 + len(variants)]:
            apart = same_losses(name, one, ours, precision)
            rate = plan["tokens_per_step"] / statistics.median(seconds[one.name])
            lines.append(line(f"{name}: Triax / {one.name}, tokens/s", ratios(seconds[one.name], seconds["Triax"]), target,
                              f"{rate:.0f} tokens/s there; losses within {apart:.1g}"))
        for one, (_, job) in zip(contestants[1 + len(variants) :], others):
            same_losses(name, one, ours, "fp32" if JOBS[job]["training"]["precision"] == precision else "bf16")
    finally:
        for one in contestants:
            one.close()
    lines += against_roofs(name, plan, seconds["Triax"], rates)
    return lines, seconds


def gpt2_bf16(bench):
    lines, seconds = against_torch(bench, "gpt2-bf16", 2, 1.3, [("Triax fp32", "gpt2")])
    lines.append(line("gpt2-bf16: Triax bf16 / Triax fp32, tokens/s", ratios(seconds["Triax fp32"], seconds["Triax"]), 0.9))
    narrow, wide = (bench.plan(name)["stages"][0]["memory"]["activations"] for name in ("gpt2-bf16", "gpt2"))
    lines.append(at_most("gpt2-bf16: activations, bf16 / fp32, planned", narrow / wide, 0.55,
                         f"{narrow / 2**20:.0f} and {wide / 2**20:.0f} MiB"))
    return lines


def small(bench):
    """The memory target is reached by recomputation alone (memory()): what of the lead is left then."""
    again = "Triax, recompute: full"
    lines, seconds = against_torch(bench, "small", 5, 1.5, [(again, "small-recomputed")])
    first = next(name for name in seconds if name.startswith("PyTorch"))
    lines.append(line(f"small: {again} / {first}, tokens/s", ratios(seconds[first], seconds[again]), 1.5))
    return lines


def at_most(case, value, target, note=""):
    return {"case": case, "value": f"{value:.2f}", "target": f"at most {target:g}", "met": value <= target, "note": note}


def memory(bench):
    """Peak beyond weights, their gradients and moments. Ours: the process's highest resident size less those three and less
    what is of files (program, libraries), so that stacks, heap and the gradient of a tied table's look-ups count.
    PyTorch's: its highest less its size between steps, when it holds its libraries and those three, and with the malloc
    that gives memory back. To compare like with like its gradients are kept between steps, as they are between
    micro-batches; the sizes of whole processes have them freed. A line has our program counted, too, and not theirs."""
    lines = []
    for name in ("gpt2", "gpt2-bf16", "llama", "small", "small-recomputed"):
        torch = name.removesuffix("-recomputed")
        plan = bench.plan(name)
        planned, gradients = plan["stages"][0]["memory"], 4 * plan["parameters"]
        states = planned["weights"] + planned["optimizer"] + gradients
        with bench.ours("Triax", name) as one:
            one.turn(2)
            whole, files = one.memory("VmHWM"), one.memory("RssFile")
        ours = whole - states - files
        precision = JOBS[name]["training"]["precision"]
        theirs = {variant: torch_peaks(bench, variant, torch, ["--keep-gradients"])[0]
                  for variant in TORCH[precision] if "oneDNN" not in variant}
        # Weights in bf16 alone are another computation, with half of the states.
        least = min((variant for variant in theirs if not variant.startswith("bf16")), key=theirs.get)
        sizes = lambda values: ", ".join(f"{variant} {size / 2**20:.0f}" for variant, size in values.items())  # noqa: E731
        lines.append(at_most(f"{name}: memory beyond weights, gradients, moments, Triax / PyTorch {least}",
                             ours / theirs[least], 0.6, f"MiB: Triax {ours / 2**20:.0f} (planned "
                             f"{(sum(planned.values()) - states) / 2**20:.0f}), PyTorch {sizes(theirs)}"))
        lines.append({"case": f"{name}: the same with our program and libraries, without theirs",
                      "value": f"{(ours + files) / theirs[least]:.2f}", "note": f"{files / 2**20:.0f} MiB of files"})
        _, freed = torch_peaks(bench, least, torch, [])
        lines.append({"case": f"{name}: whole process, Triax / PyTorch {least}, its gradients freed",
                      "value": f"{whole / freed:.2f}", "note": f"{whole / 2**20:.0f} and {freed / 2**20:.0f} MiB"})
    return lines


def torch_peaks(bench, variant, name, more):
    """Bytes of the highest resident size in a step: beyond that between steps, and as a whole."""
    with bench.torch(variant, name, {}, ["--trim", *more]) as one:
        one.turn(2)
        resting = one.memory("VmRSS")
        one.forget_peak()
        one.turn(2)
        peak = one.memory("VmHWM")
        return peak - resting, peak


def one_against_many(bench, name, steps, grids, one_rank=None):
    """Tokens/s of grids over those of one rank with all cores. grids: [(label, changes, mpirun, target)]."""
    contestants = []
    try:
        contestants.append(bench.ours("one rank", name, one_rank))
        contestants += [bench.ours(label, name, changes, mpirun) for label, changes, mpirun, _ in grids]
        bench.warm_up(contestants, 1)
        seconds = rounds(contestants, steps, bench.count)
        for one in contestants[1:]:
            same_losses(name, one, contestants[0])
    finally:
        for one in contestants:
            one.close()
    lines = [line(f"{name}: {label} / one rank", ratios(seconds["one rank"], seconds[label]), target,
                  f"{statistics.median(seconds[label]):.3f} and {statistics.median(seconds['one rank']):.3f} s a step")
             for label, _, _, target in grids if target]
    return lines, seconds


def grid(tensor, pipeline, data, micro):
    return {"parallel": {"tensor": tensor, "pipeline": pipeline, "data": data}, "training": {"micro_batch_size": micro}}


def ranks2(bench):
    return one_against_many(bench, "gpt2", 2, [("data 2", grid(1, 1, 2, 2), False, 0.95),
                                               ("tensor 2", grid(2, 1, 1, 4), False, 0.95)])[0]


def ranks8(bench):
    """One rank takes its batch in one piece, which is its best."""
    lines = one_against_many(bench, "gpt2-8", 1, [("2 x 2 x 2 threads", grid(2, 2, 2, 2), False, 0.85)])[0]
    whole = {"training": {"micro_batch_size": 16}}
    return lines + one_against_many(bench, "demo", 40, [("2 x 2 x 2 threads", grid(2, 2, 2, 2), False, 0.6)], whole)[0]


def mpirun(bench):
    lines = []
    for name, steps, changes, label in (("gpt2", 2, grid(1, 1, 2, 2), "data 2"), ("gpt2", 2, grid(2, 1, 1, 4), "tensor 2"),
                                        ("demo", 40, grid(2, 2, 2, 2), "2 x 2 x 2, oversubscribed")):
        _, seconds = one_against_many(bench, name, steps, [("threads", changes, False, None), ("mpirun", changes, True, None)])
        lines.append(line(f"{name}: mpirun / threads, {label}", ratios(seconds["threads"], seconds["mpirun"]), 0.9,
                          f"{statistics.median(seconds['mpirun']):.3f} and {statistics.median(seconds['threads']):.3f} s a step"))
    return lines


def start(bench):
    """From the program's start to the first line of metrics.jsonl, and as the run itself counts."""
    seconds, own = [], []
    for _ in range(bench.count + 1):
        job = bench.job("demo", {"parallel": {"tensor": 2, "pipeline": 2, "data": 2}, "training": {"steps": 1}})
        run = Path(json.loads(job.read_text())["output_dir"])
        subprocess.run(["rm", "-rf", run], check=True)
        begin = time.perf_counter()
        process = subprocess.Popen([bench.triax, "train", job, "--ranks", "8", "--quiet"], stdout=subprocess.DEVNULL)
        metrics = run / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.002)
        seconds.append(time.perf_counter() - begin)
        if process.wait():
            raise Stopped("triax train ended with a fault")
        own.append(json.loads((run / "summary.json").read_text())["startup"]["seconds"])
    numbers, counted = Numbers(seconds[1:]), Numbers(own[1:])
    return [{"case": "demo: start to the first step, 8 ranks, s", "value": numbers.text("{:.3f}"), "target": "under 1",
             "met": numbers.median < 1, "note": f"as summary.json counts: {counted.text('{:.3f}')}"}]


def llmc(bench):
    cases = (("llmc", 3, 48, 8), ("llmc-64", 5, 58, 6.5))
    if not bench.llmc_checkout:
        return [beside_llmc(bench, name, elsewhere, target) for name, _, elsewhere, target in cases]
    return [one for name, steps, _, target in cases for one in against_llmc(bench, name, steps, target)]


def against_llmc(bench, name, steps, target):
    """Triax's tokens/s over those of llm.c's CPU trainer."""
    plan, rates = bench.plan(name), []
    with bench.ours("Triax", name) as ours, bench.llmc(name) as theirs:
        same_threads(name, [ours, theirs])
        bench.warm_up([ours, theirs], 1)
        seconds = rounds([ours, theirs], steps, bench.count, lambda: rates.append(bench.measure_rates()))
        apart = same_losses(name, theirs, ours)
    other = statistics.median(seconds["llm.c"])
    triad = max(now["triad"] for now in rates)
    floor = Numbers([of_llmc / floor_seconds(name, plan, now | {"triad": triad})
                     for now, of_llmc in zip(rates, seconds["llm.c"])])
    return [line(f"{name}: Triax / llm.c, tokens/s", ratios(seconds["llm.c"], seconds["Triax"]), target,
                 f"{plan['tokens_per_step'] / other:.0f} tokens/s there; the floor is {floor.median:.2f} times llm.c; "
                 f"losses within {apart:.1g}"), *against_roofs(name, plan, seconds["Triax"], rates)]


def beside_llmc(bench, name, elsewhere, target):
    """Without llm.c's source: numbers of another machine (docs/performance.md), which are no comparison."""
    plan = bench.plan(name)
    with bench.ours("Triax", name) as one:
        one.turn(2)
        rates = Numbers([plan["tokens_per_step"] / s for s in one.turn(2 * bench.count)])
    return {"case": f"{name}: Triax here, tokens/s; llm.c elsewhere {elsewhere}", "value": rates.text("{:.0f}"),
            "target": f"{target:g} times", "note": f"{rates.median / elsewhere:.1f} times, across two machines: no proof"}


JOB_OF_ROW = {"gpt2": "gpt2", "gpt2-bf16": "gpt2-bf16", "llama": "llama", "small": "small"}
ROWS = {
    "gpt2": lambda bench: against_torch(bench, "gpt2", 3, 1.3)[0],
    "small": small,
    "llama": lambda bench: against_torch(bench, "llama", 3, 1.4)[0],
    "gpt2-bf16": gpt2_bf16,
    "llmc": llmc,
    "memory": memory,
    "ranks2": ranks2,
    "ranks8": ranks8,
    "mpirun": mpirun,
    "start": start,
}
