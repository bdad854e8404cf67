#!/usr/bin/env python3
"""Rebuilds the tensors of a Triax checkpoint from its shards with h5py alone, and checks their logical hashes.
Usage: read_checkpoint.py runs/demo/checkpoints/step-00000100"""
import json
import pathlib
import sys

import h5py
import numpy as np

def mix(z):  # modulo 2^64, as numpy's integers are
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))

def logical_hash(path, tensor):
    key = 0xCBF29CE484222325
    for byte in path.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    index = np.arange(tensor.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return int(mix((mix(np.array([key], np.uint64)) + index) ^ tensor.ravel().view(np.uint32)).sum())

def read_tensors(folder):  # {(kind, name): array}
    records = json.loads((folder / "manifest.json").read_text())["tensors"]
    tensors = {(t["kind"], t["name"]): np.full(t["shape"], np.nan, np.float32) for t in records}
    for shard in sorted(folder.glob("shard-*.h5")):
        with h5py.File(shard, "r") as file:
            for box in (box for kind in file.values() for box in kind.values()):
                where = tuple(slice(o, o + n) for o, n in zip(box.attrs["offset"], box.shape))
                kind, name = (a if isinstance(a, str) else a.decode() for a in map(box.attrs.get, ("kind", "name")))
                tensors[kind, name][where] = box[...]
    return {t["path"]: (tensors[t["kind"], t["name"]], t["hash"]) for t in records}

if __name__ == "__main__":
    good = True
    for path, (tensor, promised) in read_tensors(pathlib.Path(sys.argv[1])).items():
        computed = f"{logical_hash(path, tensor):016x}"
        good &= computed == promised
        print(path, tensor.shape, computed, "good" if computed == promised else f"WRONG, not {promised}")
    sys.exit(not good)
