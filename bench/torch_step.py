#!/usr/bin/env python3
"""Training steps of a job in PyTorch: the counterpart of `triax bench step JOB.yaml --turns`, which bench/compare.py runs.

    bench/torch_step.py JOB.yaml --tokens FILE [--weights checkpoint.h5] [--compiled] [--products onednn] [--precision bf16]

Reads a number of steps from each line of the standard input and writes a line {"seconds": [..], "losses": [..]} for each.
AdamW (fused), clipping, learning rates and which weights decay are those of the job. Needs torch, numpy, h5py, pyyaml.
"""
import argparse
import ctypes
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
from reference.job import parse_job  # noqa: E402
from torch_model import PRODUCTS, Model  # noqa: E402


def load(model, path):
    """The weights of a checkpoint's view."""
    import h5py

    logical = model.logical()
    with h5py.File(path, "r") as file:
        names = set()
        file["model"].visititems(lambda name, item: names.add(name) if isinstance(item, h5py.Dataset) else None)
        if names != set(logical):
            raise SystemExit(f"torch_step: {path} has other tensors: {sorted(names ^ set(logical))[:8]}")
        for name, target in logical.items():
            target.copy_(torch.from_numpy(file["model"][name][()]))


def make_optimizer(job, model):
    decays = lambda name, p: p.ndim >= 2 and name != "positions"  # noqa: E731
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if decays(n, p)], "weight_decay": job.optimizer.weight_decay},
              {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0}]
    o = job.optimizer
    return torch.optim.AdamW(groups, lr=o.lr, betas=o.betas, eps=o.eps, fused=True)


class Steps:
    def __init__(self, job, arguments):
        self.job = job
        if job.schedule.name != "constant" or job.schedule.warmup_steps:
            raise SystemExit("torch_step: jobs that are compared have lr_schedule constant without warm-up")
        self.model = Model(job.model, PRODUCTS[arguments.products])
        if arguments.weights:
            load(self.model, arguments.weights)
        if arguments.precision == "bf16":
            self.model.to(torch.bfloat16)
        tokens = np.fromfile(arguments.tokens, dtype="<i4").reshape(job.global_batch_size, job.sequence_length + 1)
        tokens = torch.from_numpy(tokens).long()
        self.ids, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        self.optimizer = make_optimizer(job, self.model)
        self.autocast = arguments.precision == "autocast"
        self.keep_gradients = arguments.keep_gradients
        self.loss = torch.compile(self.model, mode=arguments.mode) if arguments.compiled else self.model

    def step(self):
        with torch.autocast("cpu", torch.bfloat16) if self.autocast else nullcontext():
            loss = self.loss(self.ids, self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.job.optimizer.clip_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not self.keep_gradients)
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job")
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--mode", help="of torch.compile")
    parser.add_argument("--products", choices=PRODUCTS, default="mkl")
    parser.add_argument("--precision", choices=("fp32", "autocast", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--keep-gradients", action="store_true",
                        help="keep the gradients' memory between steps, as it is between the micro-batches of one")
    parser.add_argument("--trim", action="store_true", help="give free memory back after each turn, to measure it")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    steps = Steps(parse_job(Path(arguments.job).read_text()), arguments)
    say = lambda **values: print(json.dumps(values), flush=True)  # noqa: E731
    say(ready=True, torch=torch.__version__, threads=torch.get_num_threads())
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(int(line)):
            start = time.perf_counter()
            losses.append(steps.step())
            seconds.append(time.perf_counter() - start)
        if arguments.trim:
            ctypes.CDLL(None).malloc_trim(0)
        say(seconds=seconds, losses=losses)


main()
