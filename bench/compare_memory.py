"""Row memory of bench/compare.py: what a step takes beyond the weights, the gradients and the moments."""
from compare_bench import variants_of
from compare_cases import is_public
from compare_table import at_most, plain

TARGET = 0.6
# Of each parameter on both sides, whatever the precision: an fp32 weight or master, and two fp32 moments. Copies in bf16
# (our weights, autocast's) are beyond these.
WEIGHT_AND_MOMENTS, GRADIENT = 12, 4


def memory(bench):
    """Ours: the process's highest resident size less the pages of files (program, libraries), less 16 bytes a parameter,
    so that stacks, heap, bf16 copies and the gradient of a tied table's look-ups count. PyTorch's: its highest less what
    is resident between steps, with a malloc that gives memory back; its libraries don't count, as ours don't. Its
    gradients are counted in two ways, both of which are to be met:

    kept     as between the micro-batches of a step: they are there between steps, and so not beyond.
    freed    after each step, PyTorch's default: they are not there between steps, and 4 bytes a parameter are taken off
             its peak, although not all of them are there when its activations are.

    Each line takes PyTorch's public way that needs least. Weights in bf16 alone are another computation, with half of
    the states: they are listed, no opponent."""
    return [line for name in ("gpt2", "gpt2-bf16", "llama", "small") for line in lines_of(bench, name)]


def lines_of(bench, name):
    lines = []
    parameters = bench.plan(name)["parameters"]
    ours, files, planned = our_peak(bench, name)
    variants = [variant for variant in variants_of(name) if is_public(variant)]
    kept = {variant: torch_peaks(bench, variant, name, ["--keep-gradients"])[0] for variant in variants}
    peaks = {variant: torch_peaks(bench, variant, name, []) for variant in variants}
    above = {variant: peak for variant, (peak, _) in peaks.items()}
    freed = {variant: peak - gradients(variant) * parameters for variant, peak in above.items()}
    whole = {variant: size for variant, (_, size) in peaks.items()}
    states = (WEIGHT_AND_MOMENTS + GRADIENT) * parameters
    beyond = ours - states
    sizes = f"MiB: Triax {mib(beyond)} (planned {mib(planned - states)}), PyTorch "
    case = f"{name}: memory beyond weights, gradients, moments"
    for way, theirs in (("kept", kept), ("freed", freed)):
        least = least_of(theirs)
        lines.append(at_most(f"{case}, Triax / PyTorch {least}, gradients {way}", beyond / theirs[least], TARGET,
                             sizes + listed(theirs)))
    least = least_of(kept)
    lines.append(plain(f"{name}: gradients kept, with our program and libraries, without theirs",
                       (beyond + files) / kept[least], f"{mib(files)} MiB of files"))
    least, without = least_of(above), ours - WEIGHT_AND_MOMENTS * parameters
    lines.append(plain(f"{name}: memory beyond weights and moments, Triax / PyTorch {least}, gradients freed",
                       without / above[least], f"{mib(without)} and {mib(above[least])} MiB; no gradients taken off"))
    least = least_of(whole)
    lines.append(plain(f"{name}: whole process, Triax / PyTorch {least}, gradients freed",
                       (ours + files) / whole[least], f"{mib(ours + files)} and {mib(whole[least])} MiB"))
    if name == "small":
        again, _, planned = our_peak(bench, "small-recomputed")
        least = least_of(kept)
        lines.append(plain(f"{case}, Triax with recompute: full / PyTorch {least} without, gradients kept",
                           (again - states) / kept[least],
                           f"MiB: Triax {mib(again - states)} (planned {mib(planned - states)})"))
    return lines


def mib(size):
    return f"{size / 2**20:.0f}"


def listed(sizes):
    return "; ".join(f"{variant} {mib(size)}" for variant, size in sizes.items())


def gradients(variant):
    """Bytes of a gradient."""
    return 2 if variant.startswith("bf16 weights") else GRADIENT


def least_of(sizes):
    return min((variant for variant in sizes if not variant.startswith("bf16 weights")), key=sizes.get)


def our_peak(bench, name):
    """Bytes: the highest resident size without files, the files, and what is planned."""
    planned = sum(bench.plan(name)["stages"][0]["memory"].values())
    with bench.ours("Triax", name) as one:
        one.turn(2)
        files = one.memory("RssFile")
        return one.memory("VmHWM") - files, files, planned


def torch_peaks(bench, variant, name, more):
    """Bytes of the highest resident size in a step: beyond that between steps, and as a whole."""
    with bench.torch(variant, name, {}, ["--trim", *more]) as one:
        one.turn(2)
        resting = one.memory("VmRSS")
        one.forget_peak()
        one.turn(2)
        peak = one.memory("VmHWM")
        return peak - resting, peak
