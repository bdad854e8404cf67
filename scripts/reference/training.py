"""The reference run: PyTorch's AdamW and clipping over the global batch, one step after another."""

import math
from dataclasses import dataclass, field

import torch
from torch.nn.functional import cross_entropy

from .naming import load_logical, to_logical


def learning_rate(job, step):
    """The rate of `step`, counted from 1: linear warm-up to lr, then the schedule, which ends at min_lr."""
    schedule, lr = job.schedule, job.optimizer.lr
    if step <= schedule.warmup_steps:
        return lr * step / schedule.warmup_steps
    if schedule.name == "constant":
        return lr
    start = schedule.decay_start if schedule.name == "wsd" else schedule.warmup_steps
    if step <= start:
        return lr
    if step >= schedule.decay_steps:
        return schedule.min_lr
    done = (step - start) / (schedule.decay_steps - start)
    left = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "wsd": 1 - done}[schedule.name]
    return schedule.min_lr + left * (lr - schedule.min_lr)


def decays(name, parameter):
    """Matrices decay; biases, norms and position embeddings do not. `name` is Hugging Face's."""
    return parameter.ndim >= 2 and not name.endswith("wpe.weight")


def make_optimizer(job, network):
    named = list(network.named_parameters())  # a tied weight stands once
    groups = [
        {"params": [p for n, p in named if decays(n, p)], "weight_decay": job.optimizer.weight_decay},
        {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=job.optimizer.lr, betas=job.optimizer.betas, eps=job.optimizer.eps)


def mean_loss(network, tokens):
    """Mean cross-entropy of tokens[:, 1:] given tokens[:, :-1]. tokens: [batch, sequence + 1], int64."""
    logits = network(input_ids=tokens[:, :-1], use_cache=False).logits
    if logits.dtype == torch.bfloat16:
        logits = logits.float()  # as transformers' own loss does
    return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@dataclass
class Run:
    losses: list = field(default_factory=list)      # before each step's update
    grad_norms: list = field(default_factory=list)  # before clipping
    lrs: list = field(default_factory=list)
    gradients: dict = field(default_factory=dict)   # logical, of the first step, before clipping
    final: dict = field(default_factory=dict)       # logical, after the last step


def train(job, network, initial, batches, master=None):
    """Trains `network` from `initial` ({logical name: array}) on batches [steps, global_batch, sequence + 1] of ids. With
    `master`, the same network in fp32, that one is trained, and `network` computes on copies rounded to its own type."""
    held = master or network
    load_logical(job.model, held, initial)
    optimizer = make_optimizer(job, held)
    run = Run()
    for step, batch in enumerate(batches, start=1):
        if master:
            with torch.no_grad():
                for ours, theirs in zip(network.parameters(), master.parameters()):
                    ours.copy_(theirs)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(job, step)
        run.lrs.append(learning_rate(job, step))

        network.zero_grad()
        loss = mean_loss(network, torch.as_tensor(batch, dtype=torch.int64))
        loss.backward()
        run.losses.append(loss.item())
        if master:
            for ours, theirs in zip(network.parameters(), master.parameters()):
                theirs.grad = ours.grad.to(theirs.dtype)
        if step == 1:
            gradients = {name: p.grad for name, p in held.named_parameters()}
            run.gradients = to_logical(job.model, gradients)
        norm = torch.nn.utils.clip_grad_norm_(held.parameters(), job.optimizer.clip_grad_norm)
        run.grad_norms.append(norm.item())
        optimizer.step()
    run.final = to_logical(job.model, dict(held.named_parameters()))
    return run
