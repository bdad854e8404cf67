"""The float64 reference that Triax is measured against: Hugging Face's GPT-2 and LLaMA under PyTorch.

job.py       the sections of a job file that the mathematics depends on
naming.py    logical names (matrices [out, in]) to and from Hugging Face's parameters
model.py     the Hugging Face model of a job, in true float64
training.py  the run: loss, clipping, AdamW, learning rates
measure.py   the distances and bounds that the project guarantees
golden.py    the golden files

Shared by scripts/make_goldens.py and scripts/outside_check.py. Needs torch, transformers, numpy, h5py, pyyaml.
"""
