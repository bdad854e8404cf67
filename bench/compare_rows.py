"""The rows of bench/compare.py: each is a function that measures and returns lines {case, value, target, met, note}."""
import json
import statistics
import subprocess
import time
from pathlib import Path

from compare_bench import NOT_AVAILABLE
from compare_cases import JOBS, is_public
from compare_memory import memory
from compare_roofs import Roofs, against_roofs, floor_seconds
from compare_table import at_most, line
from contest import Numbers, Stopped, losses_apart, ratios, rounds

# Relative difference of losses over the steps that both did. bf16 rounds each value that it keeps by up to 2^-9, 0.002,
# and the two sides keep other ones (autocast's sums of the residuals and its norms are fp32); the first 20 steps on one
# batch make several of these of it: 0.008 was seen.
SAME_LOSS = {"fp32": 2e-5, "bf16": 1e-2}


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
    """Triax's tokens/s over PyTorch's. `others`: more of ours, [(label, job)]. Returns (lines, seconds by name, the name of
    PyTorch's quickest public way)."""
    precision = JOBS[name]["training"]["precision"]
    plan, rates = bench.plan(name), []
    variants, missing = bench.best_variants(name)
    contestants = []
    try:
        contestants.append(bench.ours("Triax", name))
        for variant in variants:
            contestants.append(bench.torch(variant, name))
        for label, job in others:
            contestants.append(bench.ours(label, job))
        same_threads(name, contestants)
        bench.warm_up(contestants)
        seconds = rounds(contestants, steps, bench.count, lambda: rates.append(bench.measure_rates()))
        ours, theirs = contestants[0], contestants[1 : 1 + len(variants)]
        lines = [beside(name, ours, one, plan, seconds, target, precision) for one in theirs]
        for one, (_, job) in zip(contestants[1 + len(variants) :], others):
            same_losses(name, one, ours, "fp32" if JOBS[job]["training"]["precision"] == precision else "bf16")
    finally:
        for one in contestants:
            one.close()
    lines += [{"case": f"{name}: Triax / PyTorch {variant}, tokens/s", "value": NOT_AVAILABLE,
               "note": "an operator that is not public, and that this PyTorch has not"} for variant in missing]
    lines += against_roofs(name, plan, seconds["Triax"], rates)
    public = [one.name for one in theirs if is_public(one.name)]
    return lines, seconds, min(public, key=lambda one: statistics.median(seconds[one]), default=theirs[0].name)


def beside(name, ours, one, plan, seconds, target, precision):
    """The line of one of PyTorch's ways."""
    rate = plan["tokens_per_step"] / statistics.median(seconds[one.name])
    note = f"{rate:.0f} tokens/s there; losses "
    apart = losses_apart(one, ours)
    if "bf16 weights" in one.name and apart > SAME_LOSS[precision]:
        # Without fp32 masters small updates are lost: it may train otherwise, and cannot be refused as an error.
        target, note = None, note + f"{apart:.1g} apart: not the same training"
    else:
        note += f"within {same_losses(name, one, ours, precision):.1g}"
    return line(f"{name}: Triax / {one.name}, tokens/s", ratios(seconds[one.name], seconds["Triax"]), target, note)


def gpt2_bf16(bench):
    lines, seconds, _ = against_torch(bench, "gpt2-bf16", 3, 1.3, [("Triax fp32", "gpt2")])
    lines.append(line("gpt2-bf16: Triax bf16 / Triax fp32, tokens/s", ratios(seconds["Triax fp32"], seconds["Triax"]), 0.9))
    narrow, wide = (kept_bytes(bench.plan(name)["stages"][0]) for name in ("gpt2-bf16", "gpt2"))
    lines.append(at_most("gpt2-bf16: activations, bf16 / fp32, planned", narrow / wide, 0.55,
                         f"{narrow / 2**20:.0f} and {wide / 2**20:.0f} MiB, as `triax plan` counts them, wherever they lie"))
    return lines


def kept_bytes(stage):
    """Of what is kept from forward to backward: a slot is as large as its largest chunk."""
    return stage["in_flight"] * max(sum(tensor["bytes"] for tensor in chunk) for chunk in stage["slot"])


def small(bench):
    """Also what of the lead is left with recompute: full, which PyTorch is not asked to do."""
    again = "Triax, recompute: full"
    lines, seconds, best = against_torch(bench, "small", 5, 1.5, [(again, "small-recomputed")])
    lines.append(line(f"small: {again} / {best}, tokens/s", ratios(seconds[best], seconds[again])))
    return lines


def one_against_many(bench, name, steps, grids, one_rank=None):
    """Tokens/s of grids over those of one rank with all cores. grids: [(label, changes, mpirun, target)]."""
    contestants = []
    try:
        contestants.append(bench.ours("one rank", name, one_rank))
        for label, changes, mpirun, _ in grids:
            contestants.append(bench.ours(label, name, changes, mpirun))
        bench.warm_up(contestants)
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
        both = [("threads", changes, False, None), ("mpirun", changes, True, None)]
        _, seconds = one_against_many(bench, name, steps, both)
        processes, threads = (statistics.median(seconds[way]) for way in ("mpirun", "threads"))
        lines.append(line(f"{name}: mpirun / threads, {label}", ratios(seconds["threads"], seconds["mpirun"]), 0.9,
                          f"{processes:.3f} and {threads:.3f} s a step"))
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
        bench.warm_up([ours, theirs])
        seconds = rounds([ours, theirs], steps, bench.count, lambda: rates.append(bench.measure_rates()))
        apart = same_losses(name, theirs, ours)
    other = statistics.median(seconds["llm.c"])
    roofs = Roofs(rates, "fp32")
    floor, lowest = (other / floor_seconds(name, plan, rate, roofs.bytes) for rate in (roofs.held, roofs.single))
    return [line(f"{name}: Triax / llm.c, tokens/s", ratios(seconds["llm.c"], seconds["Triax"]), target,
                 f"{plan['tokens_per_step'] / other:.0f} tokens/s there; the floor is {floor:.2f} times llm.c, at the "
                 f"highest rate of any single product {lowest:.2f}; losses within {apart:.1g}"),
            *against_roofs(name, plan, seconds["Triax"], rates)]


def beside_llmc(bench, name, elsewhere, target):
    """Without llm.c's source: numbers of another machine (docs/performance.md), which are no comparison."""
    plan = bench.plan(name)
    with bench.ours("Triax", name) as one:
        one.turn(2)
        rates = Numbers([plan["tokens_per_step"] / s for s in one.turn(2 * bench.count)])
    return {"case": f"{name}: Triax here, tokens/s; llm.c elsewhere {elsewhere}", "value": rates.text("{:.0f}"),
            "target": f"{target:g} times", "note": f"{rates.median / elsewhere:.1f} times, across two machines: no proof"}


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
