"""Steps beside what the machine can do at all: lines for the rows of bench/compare.py."""
import statistics

from compare_cases import JOBS
from compare_table import line
from contest import Numbers, Stopped


class Roofs:
    """One rate of each kind for a row: the best that `triax bench rates` found in any of its rounds. A round's own may
    be too low, because something else ran just then, and the machine does not get quicker than it is."""

    def __init__(self, rates, precision):
        """rates: what Bench.measure_rates() returned in each round."""
        self.held = max(now[f"held_{precision}"] for now in rates)
        self.single = max(now[f"gemm_{precision}"] for now in rates)  # of one product of a few milliseconds
        self.bytes = max(now["stream"] for now in rates)
        lowest = min(now[f"held_{precision}"] for now in rates)
        self.note = (f"products held {lowest / 1e9:.0f} to {self.held / 1e9:.0f} GFLOP/s, the highest counts; a single one "
                     f"{self.single / 1e9:.0f}; {rates[0][f'products_{precision}']}; memory {self.bytes / 1e9:.1f} GB/s, "
                     f"triad {max(now['triad'] for now in rates) / 1e9:.1f}")


def floor_seconds(name, plan, gemm_rate, bytes_rate):
    """The least time of a step: its multiplications at the machine's rate (of attention the causal half; without a table
    that is only looked up, which model FLOPs count, too), and what AdamW reads and writes of weights, gradients and
    moments at the rate of memory (28 bytes a parameter; in bf16 30)."""
    model, training = JOBS[name]["model"], JOBS[name]["training"]
    attention = 6 * model["num_hidden_layers"] * model["hidden_size"] * training["sequence_length"]
    tied = model["architecture"] == "gpt2"
    looked_up = 0 if tied else 6 * model["vocab_size"] * model["hidden_size"]
    flops = (plan["flops_per_token"] - attention - looked_up) * plan["tokens_per_step"]
    bytes_moved = plan["parameters"] * (30 if training["precision"] == "bf16" else 28)
    return flops / gemm_rate + bytes_moved / bytes_rate


def against_roofs(name, plan, seconds, rates):
    """Lines on steps of `seconds` beside the machine's rates."""
    roofs = Roofs(rates, JOBS[name]["training"]["precision"])
    floor, lowest = (floor_seconds(name, plan, rate, roofs.bytes) for rate in (roofs.held, roofs.single))
    shares = Numbers([floor / step for step in seconds])
    if shares.values[-1] > 1:
        raise Stopped(f"{name}: the floor is {shares.values[-1]:.2f} times a step: something else ran whenever the "
                      "machine's rates were measured; run the row again")
    speeds = [plan["flops_per_token"] * plan["tokens_per_step"] / step for step in seconds]
    single = "at the highest rate of any single product {:.2f}".format
    return [
        line(f"{name}: Triax, tokens/s", Numbers([plan["tokens_per_step"] / step for step in seconds]), form="{:.0f}",
             note=roofs.note),
        line(f"{name}: share of the floor", shares, 0.9, single(lowest / statistics.median(seconds))),
        line(f"{name}: model FLOPs, share of the GEMM rate", Numbers([speed / roofs.held for speed in speeds]),
             0.85 if name == "gpt2" else None, single(statistics.median(speeds) / roofs.single))]
