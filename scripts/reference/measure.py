"""The distances and bounds of the guarantee "it computes what PyTorch computes" (fp32 against float64)."""

import math

import numpy as np

LOSS_BOUND = 1e-5      # relative, each step
GRADIENT_BOUND = 1e-5  # gradient_distance, each parameter, first step
WEIGHT_BOUND = 1e-4    # relative L2, each parameter, after 10 AdamW steps


def norm(values):
    return float(np.linalg.norm(np.asarray(values, dtype=np.float64)))


def global_norm(gradients):
    """The L2 norm over all parameters."""
    return math.sqrt(sum(norm(g) ** 2 for g in gradients.values()))


def gradient_distance(ours, reference, all_norm):
    """norm(a - b) / max(norm(b), 1e-6 * global gradient norm)."""
    return norm(np.asarray(ours, np.float64) - reference) / max(norm(reference), 1e-6 * all_norm)


def weight_distance(ours, reference):
    """norm(a - b) / norm(b)."""
    difference, size = norm(np.asarray(ours, np.float64) - reference), norm(reference)
    return difference / size if size > 0 else (0.0 if difference == 0 else math.inf)


def whole_distance(ours, reference):
    """norm(a - b) / norm(b) over all tensors of two dicts together, those of `reference`."""
    difference = math.sqrt(sum(norm(np.asarray(ours[n], np.float64) - b) ** 2 for n, b in reference.items()))
    return difference / global_norm(reference)


def root_mean_square(values):
    return math.sqrt(sum(v * v for v in values) / len(values))


def relative(ours, reference):
    if reference == 0:
        return 0.0 if ours == 0 else math.inf
    return abs(ours - reference) / abs(reference)


def left_out(architecture, name):
    """GPT-2's k.bias: it adds one constant to all scores of a query, so its gradient is zero and any fp32 value of it is
    rounding noise, which AdamW then blows up to whole steps of the learning rate."""
    return architecture == "gpt2" and name.endswith("attention.k.bias")
