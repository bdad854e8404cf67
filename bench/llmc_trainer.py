"""llm.c's CPU trainer as bench/compare.py has it take part: its program, made of the user's checkout, and its weights."""
import hashlib
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Those of llm.c's Makefile for its train_gpt2.
FLAGS = "-Ofast -Wno-unused-result -Wno-ignored-pragmas -Wno-unknown-attributes -march=native -fopenmp -DOMP".split()
MAGIC, VERSION = 20240326, 3


def _compiler():
    return os.environ.get("CC", "cc")


def build_llmc(checkout, program):
    """Compiles bench/llmc_turns.c against `checkout`, with CC or cc, as make would."""
    subprocess.run([_compiler(), *FLAGS, "-I", checkout, HERE / "llmc_turns.c", "-lm", "-o", program], check=True)
    return program


def llmc_compiler():
    """The first line of what the compiler says of itself."""
    return subprocess.run([_compiler(), "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]


def llmc_commit(checkout):
    """That of the checkout; of a plain copy the hash of train_gpt2.c."""
    checkout = Path(checkout).resolve()
    git = lambda *words: subprocess.run(["git", "-C", checkout, *words], capture_output=True, text=True).stdout  # noqa: E731
    if git("rev-parse", "--show-toplevel").strip() == str(checkout):  # and not a repository around it
        return "commit " + git("describe", "--always", "--dirty", "--exclude=*").strip()
    return "train_gpt2.c of sha256 " + hashlib.sha256((checkout / "train_gpt2.c").read_bytes()).hexdigest()[:12]


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
