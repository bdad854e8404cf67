#!/usr/bin/env python3
"""Makes the golden files of tests/golden: what Hugging Face's GPT-2, LLaMA and Qwen2 do under PyTorch in float64.

    pip install torch transformers h5py numpy pyyaml        (in a virtual environment; a CPU is enough)
    scripts/make_goldens.py                                 writes tests/golden/*.h5 and bf16.json
    scripts/make_goldens.py --check                         makes them again and compares with the files

The tests read the files and need no Python. A summary of each case is printed, with the distance that PyTorch's own fp32
has from the truth: it shows how much room the guaranteed bounds leave.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
import yaml

from reference import measure
from reference.golden import Golden, read_golden, write_golden
from reference.job import parse_job
from reference.model import build_network
from reference.naming import parameters, to_logical
from reference.training import train

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden"
STEPS = 10


def case(architecture, *, layers, hidden, inner, vocabulary, tied, clip, key_value=None, eps=1e-5, theta=10000.0,
         batch=6, schedule="cosine", qkv_bias=False, rope_scaling=None):
    """The sections of a job file. 12 heads, inner and sequence multiples of 12: tensor sizes 1, 2, 3 and 4 all fit. There are
    more positions than the sequence has, so that the untouched rows of the position embeddings show themselves."""
    model = {
        "architecture": architecture,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 12,
        "intermediate_size": inner,
        "max_position_embeddings": 16,
        "tie_word_embeddings": tied,
    }
    if architecture == "gpt2":
        model |= {"layer_norm_epsilon": eps}
    else:
        model |= {"num_key_value_heads": key_value or 12, "rms_norm_eps": eps, "rope_theta": theta}
    if qkv_bias:
        model |= {"qkv_bias": True}
    if rope_scaling:
        model |= {"rope_scaling": rope_scaling}
    return {
        "model": model,
        "training": {
            "steps": STEPS,
            "global_batch_size": batch,
            "micro_batch_size": 1,
            "sequence_length": 12,
            "precision": "fp32",
        },
        "optimizer": {
            "name": "adamw",
            "lr": 0.01,
            "betas": [0.9, 0.95],
            "eps": 1e-8,
            "weight_decay": 0.1,
            "clip_grad_norm": clip,
        },
        "lr_schedule": {"name": schedule, "warmup_steps": 3, "decay_steps": 9, "min_lr": 0.001},
    }


# clip lies between the norms of the run, so that some steps clip and some do not.
CASES = {
    "gpt2-tied": case("gpt2", layers=3, hidden=24, inner=48, vocabulary=64, tied=True, clip=0.9),
    "gpt2-untied": case("gpt2", layers=2, hidden=36, inner=72, vocabulary=61, tied=False, clip=1.8),
    "gpt2-odd-vocabulary": case(
        "gpt2", layers=3, hidden=36, inner=36, vocabulary=37, tied=True, clip=1.6, eps=1e-3, schedule="linear"
    ),
    "llama-untied": case("llama", layers=3, hidden=24, inner=72, vocabulary=64, tied=False, clip=2.45),
    "llama-tied": case("llama", layers=2, hidden=48, inner=48, vocabulary=61, tied=True, clip=3.8, theta=500.0),
    "llama-gqa-4": case(
        "llama", layers=2, hidden=48, inner=60, vocabulary=37, tied=False, clip=3.5, key_value=4, eps=1e-3
    ),
    "llama-gqa-3": case(
        "llama", layers=3, hidden=24, inner=36, vocabulary=61, tied=True, clip=2.8, key_value=3, schedule="linear"
    ),
    "llama-gqa-2": case("llama", layers=3, hidden=24, inner=48, vocabulary=64, tied=False, clip=3.2, key_value=2, batch=4),
    "llama-mqa": case("llama", layers=2, hidden=24, inner=48, vocabulary=257, tied=False, clip=2.45, key_value=1),
    "qwen2-gqa-2": case(
        "llama", layers=2, hidden=48, inner=48, vocabulary=61, tied=True, clip=4.0, key_value=2, qkv_bias=True
    ),
    # Frequencies of 2.5 and 0.6 turns in 16 tokens: one stays, one lies between.
    "llama3-rope": case(
        "llama", layers=2, hidden=48, inner=48, vocabulary=64, tied=False, clip=3.5, key_value=4, theta=20.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 0.5,
            "high_freq_factor": 2.0,
            "original_max_position_embeddings": 16,
        },
    ),
}


def initial_values(model, random):
    """Values at which no mistake hides: biases are not zero, norm weights not one, matrices not small."""
    values = {}
    for parameter in parameters(model):
        noise = random.standard_normal(parameter.shape)
        if len(parameter.shape) == 2:
            value = 0.2 * noise
        elif parameter.name.endswith("norm.weight"):
            value = 1.0 + 0.1 * noise
        else:
            value = 0.05 * noise
        values[parameter.name] = value.astype(np.float32)
    return values


def learnable_tokens(job, random):
    """int32 [steps, global_batch, sequence + 1]: most tokens follow from their predecessor, so that the loss falls and
    the gradient norm moves; the first and the last id of the vocabulary occur in every step, as input and as target."""
    vocabulary = job.model.vocab_size
    tokens = random.integers(0, vocabulary, (job.steps, job.global_batch_size, job.sequence_length + 1))
    follows = random.random(tokens.shape) < 0.8
    for position in range(1, tokens.shape[2]):
        next_token = (3 * tokens[:, :, position - 1] + 1) % vocabulary
        tokens[:, :, position] = np.where(follows[:, :, position], next_token, tokens[:, :, position])
    tokens[:, 0, 4] = 0
    tokens[:, 1, 7] = vocabulary - 1
    return tokens.astype(np.int32)


def make(name, sections):
    """The Golden of a case, and how far PyTorch's fp32 and bf16 runs of the same are from it."""
    text = yaml.safe_dump(sections, sort_keys=False, default_flow_style=False)
    job = parse_job(text)
    random = np.random.Generator(np.random.PCG64(list(name.encode())))
    initial = initial_values(job.model, random)
    tokens = learnable_tokens(job, random)

    truth = train(job, build_network(job.model), initial, tokens)
    shipped = train(job, build_network(job.model, as_shipped=True), initial, tokens)
    single = train(job, build_network(job.model, as_shipped=True, dtype=torch.float32), initial, tokens)
    half = train(
        job,
        build_network(job.model, as_shipped=True, dtype=torch.bfloat16),
        initial,
        tokens,
        master=build_network(job.model, as_shipped=True, dtype=torch.float32),
    )
    golden = Golden(
        job_yaml=text,
        initial=initial,
        tokens=tokens,
        losses=np.array(truth.losses),
        grad_norms=np.array(truth.grad_norms),
        lrs=np.array(truth.lrs),
        gradients={n: g.astype(np.float32) for n, g in truth.gradients.items()},
        final={n: w.astype(np.float32) for n, w in truth.final.items()},
    )
    check_sense(name, job, golden)
    # The float64 of transformers as shipped rounds to float32 within; it must agree as far as that goes.
    check_bounds(f"{name}, transformers as shipped", distances(job.model.architecture, shipped, truth))
    return golden, distances(job.model.architecture, single, truth), bf16_errors(job.model.architecture, half, truth)


def check_sense(name, job, golden):
    """The properties that make a golden file worth testing against."""
    clipped = int((golden.grad_norms > job.optimizer.clip_grad_norm).sum())
    assert 2 <= clipped <= job.steps - 2, f"{name}: {clipped} steps clip; norms {golden.grad_norms}"
    assert golden.losses[-1] < golden.losses[0], f"{name}: the loss does not fall: {golden.losses}"
    inputs, targets = golden.tokens[:, :, :-1], golden.tokens[:, :, 1:]
    for token in (0, job.model.vocab_size - 1):
        assert (inputs == token).any(axis=(1, 2)).all() and (targets == token).any(axis=(1, 2)).all()

    all_norm = measure.global_norm(golden.gradients)
    assert measure.relative(all_norm, golden.grad_norms[0]) < 1e-6, f"{name}: the parts do not add up to the norm"
    for parameter, gradient in golden.gradients.items():
        if not measure.left_out(job.model.architecture, parameter):
            assert measure.norm(gradient) > 1e-3 * all_norm, f"{name}: {parameter} has hardly a gradient"


def distances(architecture, run, truth):
    """The largest loss, gradient and weight distance of `run` from `truth`."""
    all_norm = measure.global_norm(truth.gradients)
    kept = [name for name in truth.gradients if not measure.left_out(architecture, name)]
    return {
        "loss": max(map(measure.relative, run.losses, truth.losses)),
        "gradient": max(measure.gradient_distance(run.gradients[n], truth.gradients[n], all_norm) for n in kept),
        "weight": max(measure.weight_distance(run.final[n], truth.final[n]) for n in kept),
    }


def bf16_errors(architecture, run, truth):
    """What tests/golden/bf16.json holds of a case: errors of bf16, taken together, so that they are no matter of luck."""
    def kept(values):
        return {name: v for name, v in values.items() if not measure.left_out(architecture, name)}

    all_norm = measure.global_norm(truth.gradients)
    return {
        "loss": measure.root_mean_square(list(map(measure.relative, run.losses, truth.losses))),
        "gradient": measure.whole_distance(run.gradients, kept(truth.gradients)),
        "worst_gradient": distances(architecture, run, truth)["gradient"],
        "weight": measure.whole_distance(run.final, kept(truth.final)),
        "gradients": {n: measure.gradient_distance(run.gradients[n], g, all_norm) for n, g in kept(truth.gradients).items()},
    }


def check_bounds(what, found):
    bounds = {"loss": measure.LOSS_BOUND, "gradient": measure.GRADIENT_BOUND, "weight": measure.WEIGHT_BOUND}
    for kind, bound in bounds.items():
        assert found[kind] <= bound, f"{what}: {kind} distance {found[kind]:.2e} exceeds {bound:.0e}"


def same(made, stored):
    """None, or the first field in which two goldens differ. Inputs must be equal to the bit; results may differ by what
    another PyTorch or processor adds differently in float64."""
    if made.job_yaml != stored.job_yaml:
        return "job_yaml"
    if not np.array_equal(made.tokens, stored.tokens):
        return "tokens"
    for name in ("losses", "grad_norms", "lrs"):
        if not np.allclose(getattr(made, name), getattr(stored, name), rtol=1e-9, atol=0):
            return name
    for group in ("initial", "gradients", "final"):
        ours, theirs = getattr(made, group), getattr(stored, group)
        if set(ours) != set(theirs):
            return group
        tolerance = {"rtol": 0, "atol": 0} if group == "initial" else {"rtol": 1e-6, "atol": 1e-9}
        for name in ours:
            if theirs[name].dtype != np.float32 or not np.allclose(ours[name], theirs[name], **tolerance):
                return f"{group}/{name}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"default: all of {', '.join(CASES)}")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown case: {', '.join(sorted(unknown))}; valid: {', '.join(CASES)}")

    torch.use_deterministic_algorithms(True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = False
    half_path = FOLDER / "bf16.json"
    halves = json.loads(half_path.read_text()) if half_path.exists() else {}
    print(f"{'case':<20} {'loss':>15} {'clipped':>7} {'KiB':>5}   PyTorch's fp32: loss gradient weight   bf16: loss gradient weight")
    for name in arguments.cases or CASES:
        golden, single, half = make(name, CASES[name])
        path = FOLDER / f"{name}.h5"
        if not arguments.check:
            if not path.exists() or same(golden, read_golden(path)):
                write_golden(path, golden)
            halves[name] = half
        difference = same(golden, read_golden(path))
        # Another processor rounds otherwise on the way: its errors are of the same size, not the same.
        if any(not 0.5 < half[kind] / halves[name][kind] < 2 for kind in ("loss", "gradient", "worst_gradient", "weight")):
            difference = difference or "bf16.json"
        failed |= difference is not None
        clip = CASES[name]["optimizer"]["clip_grad_norm"]
        print(
            f"{name:<20} {golden.losses[0]:7.4f}-{golden.losses[-1]:7.4f} {(golden.grad_norms > clip).sum():>7}"
            f" {path.stat().st_size / 1024:5.0f}   {single['loss']:19.1e} {single['gradient']:8.1e} {single['weight']:6.1e}"
            f"   {half['loss']:10.1e} {half['gradient']:8.1e} {half['weight']:6.1e}"
            + (f"   DIFFERS in {difference}" if difference else "")
        )
    if not arguments.check:
        half_path.write_text(json.dumps(halves, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
