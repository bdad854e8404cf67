#!/usr/bin/env python3
"""Reads a Triax checkpoint with h5py and numpy alone, through its shards and manifest, and checks every tensor's
logical hash. Usage: read_checkpoint.py runs/demo/checkpoints/step-00000100

The same tensors stand ready-made in checkpoint.h5: h5py.File(".../checkpoint.h5")["model/embed.tokens.weight"][:]
"""
import json
import pathlib
import sys

import h5py
import numpy as np

np.seterr(over="ignore")


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def logical_hash(path, tensor):
    key = 0xCBF29CE484222325
    for byte in path.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    key = mix(np.array([key], np.uint64))
    index = np.arange(tensor.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return int(mix((key + index) ^ tensor.ravel().view(np.uint32)).sum(dtype=np.uint64))


def text(attribute):
    return attribute if isinstance(attribute, str) else attribute.decode()


def read_tensors(folder):
    """Yields (path in the view, array, hash that the manifest promises)."""
    manifest = json.loads((folder / "manifest.json").read_text())
    tensors = [np.full(t["shape"], np.nan, np.float32) for t in manifest["tensors"]]
    place = {(t["kind"], t["name"]): i for i, t in enumerate(manifest["tensors"])}
    for shard in sorted(folder.glob("shard-*.h5")):
        with h5py.File(shard, "r") as f:
            for group in f.values():
                for box in group.values():
                    name, kind = text(box.attrs["name"]), text(box.attrs["kind"])
                    where = tuple(slice(o, o + n) for o, n in zip(box.attrs["offset"], box.shape))
                    tensors[place[kind, name]][where] = box[...]
    for tensor, record in zip(tensors, manifest["tensors"]):
        yield record["path"], tensor, record["hash"]


if __name__ == "__main__":
    bad = 0
    for path, tensor, promised in read_tensors(pathlib.Path(sys.argv[1])):
        computed = f"{logical_hash(path, tensor):016x}"
        bad += computed != promised
        print(path, tensor.shape, computed, "good" if computed == promised else f"WRONG, should be {promised}")
    sys.exit(bad > 0)
