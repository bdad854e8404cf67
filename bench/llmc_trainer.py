"""llm.c's CPU trainer as bench/compare.py has it take part: its program, made of the user's checkout, and its weights."""
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Those of llm.c's Makefile for its train_gpt2.
FLAGS = "-Ofast -Wno-unused-result -Wno-ignored-pragmas -Wno-unknown-attributes -march=native -fopenmp -DOMP".split()
MAGIC, VERSION = 20240326, 3


def build_llmc(checkout, program):
    """Compiles bench/llmc_turns.c against `checkout`, with CC or cc, as make would."""
    if not (Path(checkout) / "train_gpt2.c").exists():
        raise SystemExit(f"compare: {checkout} is no checkout of llm.c: it has no train_gpt2.c")
    command = [os.environ.get("CC", "cc"), *FLAGS, "-I", checkout, HERE / "llmc_turns.c", "-lm", "-o", program]
    subprocess.run(command, check=True)
    return program


def _tensors(layers):
    """Logical names in the order of llm.c's file: a list for each of its tensors, whose parts follow each other."""
    each = lambda *names: [f"layers.{i}.{name}" for i in range(layers) for name in names]  # noqa: E731
    qkv = lambda kind: each(*(f"attention.{part}.{kind}" for part in "qkv"))  # noqa: E731
    pair = lambda name: [each(f"{name}.weight"), each(f"{name}.bias")]  # noqa: E731
    return [["embed.tokens.weight"], ["embed.positions.weight"], *pair("attention_norm"), qkv("weight"), qkv("bias"),
            *pair("attention.out"), *pair("mlp_norm"), *pair("mlp.up"), *pair("mlp.down"),
            ["final_norm.weight"], ["final_norm.bias"]]


def write_llmc_weights(view, model, path):
    """Writes the weights of a checkpoint's view as llm.c's file: a header of 256 int32, then fp32. The vocabulary is
    padded with rows of zeros to a multiple of 128. `model`: section model of the job."""
    import h5py
    import numpy

    vocabulary, layers = model["vocab_size"], model["num_hidden_layers"]
    padded = -(-vocabulary // 128) * 128
    header = numpy.zeros(256, "<i4")
    header[:8] = [MAGIC, VERSION, model["max_position_embeddings"], vocabulary, layers, model["num_attention_heads"],
                  model["hidden_size"], padded]
    with h5py.File(view, "r") as file, open(path, "wb") as out:
        out.write(header.tobytes())
        for name in (name for names in _tensors(layers) for name in names):
            values = file["model"][name][()].astype("<f4")
            if name == "embed.tokens.weight":
                values = numpy.concatenate([values, numpy.zeros((padded - vocabulary, values.shape[1]), "<f4")])
            out.write(values.tobytes())
