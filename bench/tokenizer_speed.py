#!/usr/bin/env python3
"""Speed of `triax tokenize` beside the tokenizers package's, each on one thread, in turns.

    bench/tokenizer_speed.py build/triax TEXT.txt [--rounds 5] [--megabytes 8]

Trains three byte-level BPE tokenizers (8,000 tokens; the patterns of GPT-2, LLaMA-3 and Qwen2) on a part of the text,
cuts the text into documents of about 4 kB and prints MB/s of both and the median of the rounds' ratios. Ours is the
whole command, reading, writing and starting included; theirs encode() alone.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data"))

from tokenizers import Tokenizer, pre_tokenizers, trainers  # noqa: E402

import tokenizers_reference as reference  # noqa: E402


def documents(text, size=4000):
    out, at = [], 0
    while at < len(text):
        end = text.find("\n", at + size)
        end = len(text) if end < 0 else end + 1
        out.append(text[at:end])
        at = end
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("triax")
    parser.add_argument("text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=8)
    arguments = parser.parse_args()
    with open(arguments.text, encoding="utf-8", errors="replace") as file:
        docs = documents(file.read(int(arguments.megabytes * 1e6)))
    megabytes = sum(len(d.encode()) for d in docs) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.jsonl", "w") as out:
            for doc in docs:
                out.write(json.dumps({"text": doc}) + "\n")
        kinds = {"gpt2": reference.tokenizer(None), "llama3": reference.tokenizer(reference.LLAMA3, ignore_merges=True),
                 "qwen2": reference.tokenizer(reference.QWEN2, nfc=True)}
        for name, t in kinds.items():
            trainer = trainers.BpeTrainer(vocab_size=8000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                          show_progress=False)
            t.train_from_iterator(docs[:500], trainer)
            t.add_special_tokens(["<|endoftext|>"])
            t.save(f"{folder}/{name}.json")
            t = Tokenizer.from_file(f"{folder}/{name}.json")
            ours, theirs = [], []
            for _ in range(arguments.rounds):
                begin = time.perf_counter()
                subprocess.run([arguments.triax, "tokenize", f"{folder}/text.jsonl", "--tokenizer", f"{folder}/{name}.json",
                                "--output", f"{folder}/out", "--workers", "1", "--overwrite"], check=True,
                               stdout=subprocess.DEVNULL)
                middle = time.perf_counter()
                for doc in docs:
                    t.encode(doc)
                theirs.append(time.perf_counter() - middle)
                ours.append(middle - begin)
            ratio = statistics.median(b / a for a, b in zip(ours, theirs))
            print(f"{name:7} triax {megabytes / statistics.median(ours):6.1f} MB/s   tokenizers "
                  f"{megabytes / statistics.median(theirs):6.1f} MB/s   ratio {ratio:.2f}", flush=True)


main()
