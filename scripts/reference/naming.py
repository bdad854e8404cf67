"""Triax's logical names to and from Hugging Face's parameters.

A logical matrix is [out, in], as in PyTorch's Linear. GPT-2's Conv1D keeps [in, out], and fuses q, k and v side by
side along `out` (c_attn), so its matrices are transposed and c_attn is cut in three.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Parameter:
    """One logical tensor, and where its values stand in the Hugging Face model."""

    name: str           # layers.0.attention.k.weight
    shape: tuple        # logical: (out, in)
    source: str         # transformer.h.0.attn.c_attn.weight
    transposed: bool    # the source is [in, out]
    third: int | None   # 0, 1, 2: the q, k or v part of the source along `out`; None: all of it


def parameters(model):
    """The logical parameters of a job's model, in logical order."""
    return _gpt2(model) if model.architecture == "gpt2" else _llama(model)


def _gpt2(model):
    hidden, inner = model.hidden_size, model.intermediate_size
    found = [
        Parameter("embed.tokens.weight", (model.vocab_size, hidden), "transformer.wte.weight", False, None),
        Parameter("embed.positions.weight", (model.max_position_embeddings, hidden), "transformer.wpe.weight", False, None),
    ]

    def norm(name, source):
        for kind in ("weight", "bias"):
            found.append(Parameter(f"{name}.{kind}", (hidden,), f"{source}.{kind}", False, None))

    def linear(name, out, into, source, third=None):
        found.append(Parameter(f"{name}.weight", (out, into), f"{source}.weight", True, third))
        found.append(Parameter(f"{name}.bias", (out,), f"{source}.bias", False, third))

    for n in range(model.num_hidden_layers):
        ours, theirs = f"layers.{n}", f"transformer.h.{n}"
        norm(f"{ours}.attention_norm", f"{theirs}.ln_1")
        for third, part in enumerate("qkv"):
            linear(f"{ours}.attention.{part}", hidden, hidden, f"{theirs}.attn.c_attn", third)
        linear(f"{ours}.attention.out", hidden, hidden, f"{theirs}.attn.c_proj")
        norm(f"{ours}.mlp_norm", f"{theirs}.ln_2")
        linear(f"{ours}.mlp.up", inner, hidden, f"{theirs}.mlp.c_fc")
        linear(f"{ours}.mlp.down", hidden, inner, f"{theirs}.mlp.c_proj")
    norm("final_norm", "transformer.ln_f")
    return found + _head(model)


def _llama(model):
    hidden, inner = model.hidden_size, model.intermediate_size
    key_value = model.num_key_value_heads * model.head_size
    found = [Parameter("embed.tokens.weight", (model.vocab_size, hidden), "model.embed_tokens.weight", False, None)]

    def weight(name, shape, source):
        found.append(Parameter(f"{name}.weight", shape, f"{source}.weight", False, None))

    def projection(name, out, source):
        weight(name, (out, hidden), source)
        if model.qkv_bias:
            found.append(Parameter(f"{name}.bias", (out,), f"{source}.bias", False, None))

    for n in range(model.num_hidden_layers):
        ours, theirs = f"layers.{n}", f"model.layers.{n}"
        weight(f"{ours}.attention_norm", (hidden,), f"{theirs}.input_layernorm")
        projection(f"{ours}.attention.q", hidden, f"{theirs}.self_attn.q_proj")
        projection(f"{ours}.attention.k", key_value, f"{theirs}.self_attn.k_proj")
        projection(f"{ours}.attention.v", key_value, f"{theirs}.self_attn.v_proj")
        weight(f"{ours}.attention.out", (hidden, hidden), f"{theirs}.self_attn.o_proj")
        weight(f"{ours}.mlp_norm", (hidden,), f"{theirs}.post_attention_layernorm")
        weight(f"{ours}.mlp.gate", (inner, hidden), f"{theirs}.mlp.gate_proj")
        weight(f"{ours}.mlp.up", (inner, hidden), f"{theirs}.mlp.up_proj")
        weight(f"{ours}.mlp.down", (hidden, inner), f"{theirs}.mlp.down_proj")
    weight("final_norm", (hidden,), "model.norm")
    return found + _head(model)


def _head(model):
    if model.tie_word_embeddings:
        return []
    return [Parameter("lm_head.weight", (model.vocab_size, model.hidden_size), "lm_head.weight", False, None)]


def _part(parameter, source):
    """The view of `source` ([out, in] or [out]) that holds `parameter`."""
    view = source.T if parameter.transposed else source
    if parameter.third is None:
        return view
    rows = parameter.shape[0]
    return view[parameter.third * rows : (parameter.third + 1) * rows]


def to_logical(model, values):
    """{logical name: float64 array} from `values`: {Hugging Face name: tensor}, weights or gradients alike."""
    logical = {}
    for parameter in parameters(model):
        part = _part(parameter, values[parameter.source].detach())
        if tuple(part.shape) != parameter.shape:
            raise ValueError(f"{parameter.name}: {parameter.source} gives {tuple(part.shape)}, not {parameter.shape}")
        logical[parameter.name] = np.array(part.double().numpy(), order="C")
    return logical


def load_logical(model, network, logical):
    """Writes {logical name: array} into the Hugging Face `network`; every parameter must be there, and no other."""
    wanted = parameters(model)
    names = {parameter.name for parameter in wanted}
    if set(logical) != names:
        raise ValueError(f"missing tensors: {sorted(names - set(logical))}, unknown tensors: {sorted(set(logical) - names)}")
    targets = dict(network.named_parameters())
    unwritten = set(targets)
    with torch.no_grad():
        for parameter in wanted:
            value = torch.from_numpy(np.asarray(logical[parameter.name], dtype=np.float64))
            if tuple(value.shape) != parameter.shape:
                raise ValueError(f"{parameter.name}: shape {tuple(value.shape)}, expected {parameter.shape}")
            _part(parameter, targets[parameter.source].data).copy_(value)
            unwritten.discard(parameter.source)
    if unwritten:
        raise ValueError(f"parameters of the reference without a logical name: {sorted(unwritten)}")
