#!/usr/bin/env python3
"""Checks a Triax run against Hugging Face's model under PyTorch in float64.

    triax train job.yaml --ranks 8 --set checkpoint.save_initial=true \\
        --set debug.dump_gradients_at=[1] --set debug.dump_batches_at=[1,2,3,4,5,6,7,8,9,10]
    scripts/outside_check.py runs/demo

From the run folder it takes the initial weights (checkpoints/step-00000000), the dumped batches and the effective
configuration, trains the reference on the same tokens, and compares, as far as the run has them: losses, gradient norms
and learning rates in metrics.jsonl, the gradients of step 1, and the weights of the checkpoint at the last dumped step. GPT-2's k.bias, whose gradient is zero, and
the gradient norms after step 1 are shown with --all, and not judged.
Exit status: 0 all within bounds, 1 a violation, 2 the run cannot be checked.
Needs torch, transformers, h5py, numpy and pyyaml (pip, in a virtual environment).
"""

import argparse
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import yaml

from reference import measure
from reference.job import UnsupportedJob, parse_job
from reference.model import build_network
from reference.naming import parameters
from reference.training import train

LR_BOUND = 1e-12  # relative: the same formula in double


class Unusable(Exception):
    """The run folder lacks what the check needs."""


class Wrong(Exception):
    """The run left something behind that is wrong before any number is compared."""


@dataclass
class Row:
    kind: str
    what: str
    distance: float
    bound: float | None  # None: shown, not judged

    @property
    def violated(self):
        # `not <=`, so that NaN is a violation
        return self.bound is not None and not self.distance <= self.bound


def step_folder(step):
    return f"step-{step:08d}"


def read_tensors(path, group, model):
    """{logical name: array} of the datasets of `group`, refusing missing, unknown, misshapen and NaN tensors."""
    if not path.exists():
        raise Unusable(f"{path} is missing")
    with h5py.File(path, "r") as file:
        if group not in file:
            raise Wrong(f"{path}: there is no /{group}")
        found = {name: data[()] for name, data in file[group].items()}
    expected = {parameter.name: parameter.shape for parameter in parameters(model)}
    for name in sorted(set(expected) ^ set(found)):
        raise Wrong(f"{path}: /{group}/{name} is {'missing' if name in expected else 'not a tensor of this model'}")
    for name, values in found.items():
        if values.shape != expected[name]:
            raise Wrong(f"{path}: /{group}/{name} has shape {values.shape}, expected {expected[name]}")
        if np.isnan(values).any():
            raise Wrong(f"{path}: /{group}/{name} holds NaN (a shard of a virtual view that is not there reads as NaN)")
    return found


def read_batches(run, job):
    """The dumped batches of steps 1, 2, ... as far as they follow each other: int32 [steps, global_batch, sequence + 1]."""
    batches = []
    while (path := run / "batches" / f"{step_folder(len(batches) + 1)}.h5").exists():
        with h5py.File(path, "r") as file:
            tokens = file["tokens"][()]
        shape = (job.global_batch_size, job.sequence_length + 1)
        if tokens.shape != shape or tokens.dtype != np.int32:
            raise Wrong(f"{path}: /tokens is {tokens.dtype} {tokens.shape}, expected int32 {shape}")
        if tokens.min() < 0 or tokens.max() >= job.model.vocab_size:
            raise Wrong(f"{path}: ids from {tokens.min()} to {tokens.max()}, vocab_size is {job.model.vocab_size}")
        batches.append(tokens)
    if not batches:
        raise Unusable(f"{path} is missing; run with debug.dump_batches_at: [1, 2, ...]")
    return np.stack(batches)


def read_metrics(run, steps):
    """The lines of metrics.jsonl for steps 1 to `steps`, in order."""
    path = run / "metrics.jsonl"
    if not path.exists():
        raise Unusable(f"{path} is missing")
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    by_step = {line["step"]: line for line in lines}
    if len(by_step) != len(lines):
        raise Wrong(f"{path}: a step stands twice")
    missing = [step for step in range(1, steps + 1) if step not in by_step]
    if missing:
        raise Wrong(f"{path}: steps {missing} are missing")
    return [by_step[step] for step in range(1, steps + 1)]


def newest_checkpoint(folder):
    steps = [int(m[1]) for path in folder.glob("step-*/manifest.json") if (m := re.fullmatch(r"step-(\d{8})", path.parent.name))]
    return max(steps, default=None)


def compare_metrics(metrics, truth):
    rows = []
    for step, line in enumerate(metrics, start=1):
        # The gradients are guaranteed for the first step only, so the later norms are shown and not judged.
        for kind, key, reference, bound in (
            ("loss", "loss", truth.losses, measure.LOSS_BOUND),
            ("gradient norm", "grad_norm", truth.grad_norms, measure.GRADIENT_BOUND if step == 1 else None),
            ("learning rate", "lr", truth.lrs, LR_BOUND),
        ):
            ours = line.get(key)
            ours = math.nan if ours is None else float(ours)  # JSON has no NaN: it is written as null
            rows.append(Row(kind, f"step {step}", measure.relative(ours, reference[step - 1]), bound))
    return rows


def compare_tensors(kind, ours, reference, distance, bound, architecture):
    return [
        Row(kind, name, distance(ours[name], reference[name]), None if measure.left_out(architecture, name) else bound)
        for name in reference
    ]


def check(run):
    """All rows of the comparison, and notes on what was left out."""
    job_path = run / "job.yaml"
    if not job_path.exists():
        raise Unusable(f"{job_path} is missing; is {run} the output folder of a run?")
    text = job_path.read_text()
    job = parse_job(text)
    if job.precision != "fp32":
        raise Unusable(f"training.precision: {job.precision} has other bounds; the check is for fp32")
    stored = (yaml.safe_load(text).get("checkpoint") or {}).get("dir")
    checkpoints = Path(stored) if stored and Path(stored).is_dir() else run / "checkpoints"

    initial_path = checkpoints / step_folder(0) / "checkpoint.h5"
    if not initial_path.exists():
        raise Unusable(f"{initial_path} is missing; run with checkpoint.save_initial: true (checkpoint.keep may have removed it)")
    initial = read_tensors(initial_path, "model", job.model)
    batches = read_batches(run, job)
    steps = len(batches)
    metrics = read_metrics(run, steps)

    truth = train(job, build_network(job.model), initial, batches)
    rows, notes = compare_metrics(metrics, truth), [f"{steps} steps replayed"]

    gradients_path = run / "gradients" / f"{step_folder(1)}.h5"
    if gradients_path.exists():
        gradients = read_tensors(gradients_path, "gradients", job.model)
        all_norm = measure.global_norm(truth.gradients)

        def distance(ours, reference):
            return measure.gradient_distance(ours, reference, all_norm)

        rows += compare_tensors("gradient", gradients, truth.gradients, distance, measure.GRADIENT_BOUND, job.model.architecture)
    else:
        notes.append("gradients not compared: run with debug.dump_gradients_at: [1]")

    newest = newest_checkpoint(checkpoints)
    if newest == steps:
        final = read_tensors(checkpoints / step_folder(steps) / "checkpoint.h5", "model", job.model)
        rows += compare_tensors("weight", final, truth.final, measure.weight_distance, measure.WEIGHT_BOUND, job.model.architecture)
    else:
        notes.append(f"weights not compared: the newest checkpoint is of step {newest}, the batches end at step {steps}")
    return rows, notes


def print_table(rows, everything):
    print(f"{'':13} {'checked':>7} {'worst':>9} {'bound':>9}   where")
    for kind in dict.fromkeys(row.kind for row in rows):
        judged = [row for row in rows if row.kind == kind and row.bound is not None]
        worst = max(judged, key=lambda row: (row.distance != row.distance, row.distance))
        verdict = "VIOLATED" if any(row.violated for row in judged) else "ok"
        print(f"{kind:13} {len(judged):7} {worst.distance:9.2e} {worst.bound:9.0e}   {worst.what}: {verdict}")
    shown = [row for row in rows if everything or row.violated]
    if shown:
        print()
    for row in shown:
        verdict = "VIOLATED" if row.violated else "not judged" if row.bound is None else "ok"
        print(f"{row.kind:13} {row.what:38} {row.distance:9.2e}   {verdict}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="the output folder of a run")
    parser.add_argument("--all", action="store_true", help="print every row, not only the worst ones and violations")
    arguments = parser.parse_args()
    try:
        rows, notes = check(arguments.run)
    except (Unusable, UnsupportedJob) as error:
        print(f"outside_check: {error}", file=sys.stderr)
        return 2
    except Wrong as error:
        print(f"outside_check: VIOLATED: {error}", file=sys.stderr)
        return 1
    print_table(rows, arguments.all)
    print("\n" + "\n".join(notes))
    return 1 if any(row.violated for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
