"""Golden files: the layout is described in tests/golden/README.md."""

from dataclasses import dataclass

import h5py
import numpy as np


@dataclass
class Golden:
    job_yaml: str
    initial: dict            # {logical name: fp32}
    tokens: np.ndarray       # int32 [steps, global_batch, sequence + 1]
    losses: np.ndarray       # float64 [steps]
    grad_norms: np.ndarray   # float64 [steps]
    lrs: np.ndarray          # float64 [steps]
    gradients: dict          # {logical name: fp32}
    final: dict              # {logical name: fp32}


_GROUPS = ("initial", "gradients", "final")
_VECTORS = ("losses", "grad_norms", "lrs")


def write_golden(path, golden):
    # Compact groups (since HDF5 1.8) in a file that HDF5 1.10 reads.
    with h5py.File(path, "w", libver=("v108", "v110")) as file:
        file.attrs["job_yaml"] = np.bytes_(golden.job_yaml.encode())
        file.create_dataset("tokens", data=golden.tokens.astype("<i4"))
        for name in _VECTORS:
            file.create_dataset(name, data=np.asarray(getattr(golden, name), dtype="<f8"))
        for group in _GROUPS:
            target = file.create_group(group)
            for name, values in getattr(golden, group).items():
                target.create_dataset(name, data=np.asarray(values).astype("<f4"))


def read_golden(path):
    with h5py.File(path, "r") as file:
        return Golden(
            job_yaml=file.attrs["job_yaml"].decode(),
            tokens=file["tokens"][()],
            **{name: file[name][()] for name in _VECTORS},
            **{group: {name: data[()] for name, data in file[group].items()} for group in _GROUPS},
        )
