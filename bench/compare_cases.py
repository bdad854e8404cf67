"""The jobs that bench/compare.py measures, and the ways PyTorch can do the same."""
import copy

# Without it every AdamW step of a test would need its own point of a curve; mathematics that both sides share.
_COMMON = {
    "parallel": {"tensor": 1, "pipeline": 1, "data": 1},
    "optimizer": {"lr": 1.0e-4},
    "lr_schedule": {"name": "constant", "warmup_steps": 0},
    "checkpoint": {"async": False},
    "logging": {"tensorboard": False},
}


def _job(model, batch, sequence, precision="fp32", **training):
    return copy.deepcopy(_COMMON) | {
        "model": model,
        "training": {"steps": 1, "global_batch_size": batch, "micro_batch_size": batch, "sequence_length": sequence,
                     "precision": precision} | training,
    }


GPT2_124M = {"architecture": "gpt2", "vocab_size": 50257, "hidden_size": 768, "num_hidden_layers": 12,
             "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 1024}
LLAMA_160M = {"architecture": "llama", "vocab_size": 32000, "hidden_size": 768, "num_hidden_layers": 12,
              "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 3072,
              "max_position_embeddings": 1024}
SMALL = {"architecture": "gpt2", "vocab_size": 256, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6,
         "intermediate_size": 1536, "max_position_embeddings": 256}

# As llm.c's main() trains: no clipping, no decay.
LLMC = {"optimizer": {"lr": 1.0e-4, "betas": [0.9, 0.999], "eps": 1.0e-8, "weight_decay": 0.0, "clip_grad_norm": 0.0}}

JOBS = {
    "gpt2": _job(GPT2_124M, 4, 256),
    "llmc": _job(GPT2_124M, 4, 256) | LLMC,
    "llmc-64": _job(GPT2_124M, 4, 64) | LLMC,
    "gpt2-bf16": _job(GPT2_124M, 4, 256, "bf16"),
    "gpt2-8": _job(GPT2_124M, 8, 256),
    "llama": _job(LLAMA_160M, 1, 1024),
    "small": _job(SMALL, 8, 256),
    "small-recomputed": _job(SMALL, 8, 256, recompute="full"),
}


def demo_job(demo):
    """`demo`, examples/demo.yaml, on one rank, with what makes runs comparable."""
    job = copy.deepcopy(demo)
    job["parallel"] |= {"tensor": 1, "pipeline": 1, "data": 1}
    for section in ("lr_schedule", "checkpoint", "logging"):
        job[section] = copy.deepcopy(_COMMON[section])
    return job


# Arguments of bench/torch_step.py. PyTorch's fp32 products are MKL's, which runs at half the rate of AVX-512 on
# processors that are not Intel's; "onednn" takes its other library's, through an operator that is not public.
TORCH = {
    "fp32": {
        "eager": [],
        "compiled": ["--compiled"],
        "compiled, max-autotune": ["--compiled", "--mode", "max-autotune"],
        "eager, oneDNN's products": ["--products", "onednn"],
        "compiled, oneDNN's products": ["--compiled", "--products", "onednn"],
    },
    "bf16": {
        "autocast, eager": ["--precision", "autocast"],
        "autocast, compiled": ["--precision", "autocast", "--compiled"],
        "autocast, compiled, max-autotune": ["--precision", "autocast", "--compiled", "--mode", "max-autotune"],
        "bf16 weights, eager": ["--precision", "bf16"],
        "bf16 weights, compiled": ["--precision", "bf16", "--compiled"],
    },
}


def is_public(variant):
    """Whether it is a way that PyTorch offers its users."""
    return "oneDNN" not in variant


# What PyTorch gains by and does not do by itself: memory that is kept instead of mapped anew for each large tensor
# (page faults), huge pages, threads that stay on their cores.
TORCH_SETTINGS = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736:glibc.malloc.hugetlb=1",
    "THP_MEM_ALLOC_ENABLE": "1",
    "OMP_PROC_BIND": "close",
    "OMP_PLACES": "cores",
}
