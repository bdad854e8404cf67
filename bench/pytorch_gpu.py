#!/usr/bin/env python3
"""GPT-2 in PyTorch at its best on one GPU, for `triax bench step` to be compared with: compiled, fused causal attention,
fused AdamW, bf16 autocast over fp32 weights, random tokens.

    bench/pytorch_gpu.py                         124M, 350M, 774M and 1558M, each at its best micro-batch
    bench/pytorch_gpu.py --sizes 124m --micro-batches 8,16
    bench/pytorch_gpu.py --device cpu --sizes tiny --no-compile --sequence 64   a rehearsal

Prints a line for each micro-batch that is tried: tokens/s and, in bytes, the most memory that PyTorch has allocated, how
much of it is beyond weights, gradients and moments, the same when gradients are accumulated over micro-batches (they are
there then while activations are), what its allocator has reserved, and what the GPU has less. Then a line per size, of its
best: tokens/s, model FLOP/s (6 N + 12 L H S per token, N counting tied embeddings once and positions not, as metrics.jsonl
does) and their share of the card's measured bf16 product rate. The last line is JSON.
"""

import argparse
import gc
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

SIZES = {  # layers, hidden, heads
    "124m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "774m": (36, 1280, 20),
    "1558m": (48, 1600, 25),
    "tiny": (2, 64, 2),
}
VOCABULARY = 50257


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, hidden, heads, sequence):
        super().__init__()
        # Rows that nobody asks for, so that the head's product has a good shape.
        self.padded = (VOCABULARY + 127) // 128 * 128
        self.tokens, self.positions = nn.Embedding(self.padded, hidden), nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def product_rate(device):
    """FLOP/s of a large bf16 product of random matrices."""
    n = 8192 if device == "cuda" else 512
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(30):
        synchronize(device)
        begin = time.perf_counter()
        a @ b
        synchronize(device)
        times.append(time.perf_counter() - begin)
    return 2 * n**3 / statistics.median(times[5:])


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def measure(size, micro_batch, compiled, args):
    """One micro-batch a step: tokens/s, and bytes of the GPU's memory. `compiled`: eager | blocks | whole."""
    layers, hidden, heads = SIZES[size]
    cuda = args.device == "cuda"
    torch.manual_seed(1)
    torch.compiler.reset()
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    taken_before = taken(args.device)
    model = GPT2(layers, hidden, heads, args.sequence).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if compiled == "blocks":
        for block in model.blocks:
            block.compile(dynamic=False)
    run = torch.compile(model, dynamic=False) if compiled == "whole" else model
    tokens = torch.randint(0, VOCABULARY, (micro_batch, args.sequence + 1), device=args.device)
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def backward():
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = run(ids, targets)
        loss.backward()
        return loss.detach()

    def step():
        loss = backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(5):
        loss = step()
    times = []
    for _ in range(args.steps):
        synchronize(args.device)
        begin = time.perf_counter()
        step()
        synchronize(args.device)
        times.append(time.perf_counter() - begin)
    if not torch.isfinite(loss):
        raise RuntimeError("the loss is not finite")
    found = {"micro_batch": micro_batch, "compiled": compiled,
             "tokens_per_second": micro_batch * args.sequence / statistics.median(times)}
    # Weights, their gradients, the optimizer's moments.
    states = 2 * bytes_of(model.parameters()) + bytes_of(
        t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t) and t.numel() > 1)
    found["state_bytes"] = states
    if cuda:
        found["allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["reserved_bytes"] = torch.cuda.max_memory_reserved()
        found["beyond_bytes"] = found["allocated_bytes"] - states
        found["taken_bytes"] = taken(args.device) - taken_before
        # The gradients of a first micro-batch are there while the next one's activations are.
        backward()
        torch.cuda.reset_peak_memory_stats()
        backward()
        found["beyond_bytes_accumulating"] = torch.cuda.max_memory_allocated() - states
    return found


def taken(device):
    """Bytes of the GPU's memory that are in use, by whomever."""
    if device != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def measure_size(size, rate, args):
    """The best of a size. What is tried is compiled block by block, in seconds; the best micro-batch as a whole, too."""
    tried, best = [], None

    def attempt(micro_batch, compiled):
        try:
            found = measure(size, micro_batch, compiled, args)
        except torch.cuda.OutOfMemoryError:
            return None
        found["size"] = size
        found["flops"] = found["tokens_per_second"] * flops_per_token(size, args.sequence)
        found["share"] = found["flops"] / rate
        tried.append(found)
        line = f"  {size} micro-batch {micro_batch} {compiled}: {found['tokens_per_second']:.0f} tokens/s"
        if "allocated_bytes" in found:
            line += (f", allocated {found['allocated_bytes']} beyond {found['beyond_bytes']} accumulating "
                     f"{found['beyond_bytes_accumulating']} reserved {found['reserved_bytes']} taken {found['taken_bytes']}")
        print(line, flush=True)
        return found

    def better(found):
        return found if best is None or found["tokens_per_second"] > best["tokens_per_second"] else best

    for micro_batch in map(int, args.micro_batches.split(",")):
        found = attempt(micro_batch, "blocks" if args.compile else "eager")
        if found is None:
            break
        best = better(found)
    if best and args.compile:
        whole = attempt(best["micro_batch"], "whole")
        if whole:
            best = better(whole)
    return best, tried


def flops_per_token(size, sequence):
    layers, hidden, _ = SIZES[size]
    parameters = VOCABULARY * hidden + layers * (12 * hidden**2 + 13 * hidden) + 2 * hidden
    return 6 * parameters + 12 * layers * hidden * sequence


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="124m,350m,774m,1558m")
    parser.add_argument("--micro-batches", default="4,8,16,32,64", help="tried in this order until memory is short")
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("pytorch_gpu.py: PyTorch sees no GPU; --device cpu rehearses")

    rate = product_rate(args.device)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"PyTorch {torch.__version__} on {name}: bf16 products {rate / 1e12:.2f} TFLOP/s", flush=True)
    results, all_tried = [], []
    for size in args.sizes.split(","):
        best, tried = measure_size(size, rate, args)
        all_tried += tried
        if best is None:
            print(f"{size}: no micro-batch fits", flush=True)
            continue
        results.append(best)
        print(f"{size:>6} micro-batch {best['micro_batch']:>3} {best['tokens_per_second']:>12.0f} tokens/s "
              f"{best['flops'] / 1e12:>8.2f} TFLOP/s {100 * best['share']:>5.1f} % compiled: {best['compiled']}", flush=True)
    print(json.dumps({"gemm_flops": rate, "results": results, "tried": all_tried}))


if __name__ == "__main__":
    main()
