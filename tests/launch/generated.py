"""For tests/launch/generate_test.cpp: what transformers writes and scores with random models.

    generated.py FOLDER      writes FOLDER/<kind>/model, FOLDER/text.txt and FOLDER/expected.json
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from huggingface import KINDS, load, make

WINDOW, STRIDE = 16, 6


def loss_with_stride(model, ids):
    """The strided perplexity of transformers' guide, to the last token, in float64."""
    total, counted = 0.0, 0
    end_before = 0
    for begin in range(0, len(ids) - 1, STRIDE):
        end = min(begin + WINDOW, len(ids) - 1)
        logits = model(torch.tensor([ids[begin:end]])).logits[0]
        targets = torch.tensor(ids[begin + 1 : end + 1])
        losses = torch.nn.functional.cross_entropy(logits.double(), targets, reduction="none")
        fresh = end - end_before
        total += losses[-fresh:].sum().item()
        counted += fresh
        end_before = end
        if end == len(ids) - 1:
            break
    assert counted == len(ids) - 1
    return total / counted


def main():
    folder = Path(sys.argv[1])
    make(folder)
    text = bytes((i * i // 7 + i % 5) % 26 + 97 for i in range(103))
    (folder / "text.txt").write_bytes(text)
    expected = {}
    with torch.no_grad():
        for kind in KINDS:
            model = load(folder / kind / "model").double()
            prompt = list(text[:9])
            ids = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0].tolist()
            expected[kind] = {"prompt": prompt, "ids": ids, "loss": loss_with_stride(model, list(text))}
    (folder / "expected.json").write_text(json.dumps(expected))


main()
