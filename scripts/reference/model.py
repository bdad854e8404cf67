"""The Hugging Face model of a job, in true float64.

transformers' LLaMA leaves float64 in three places, on purpose for half precision: RMSNorm, the rotary angles and the
softmax work in float32 whatever the model's type. That noise (about 1e-7) is the size of what is to be judged, so those
three are replaced by the same formulas in float64; `as_shipped` keeps them, and the goldens are checked against it. GPT-2
is float64 throughout. The loss is taken from the logits in training.py, since transformers' own rounds them to float32.
"""

import math

import torch
from transformers import (
    AttentionInterface,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.models.llama.modeling_llama import LlamaRMSNorm, repeat_kv
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm


def build_network(model, as_shipped=False, dtype=torch.float64):
    """The network of `model` (job.Model) in training mode, weights arbitrary; call it with token ids [batch, sequence]."""
    network = _gpt2(model) if model.architecture == "gpt2" else _llama(model)
    network = network.to(dtype)
    if model.architecture == "llama" and not as_shipped:
        _keep_type(network, model)
    network.train()
    return network


_NO_SPECIAL_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None, use_cache=False)


def _gpt2(model):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=model.vocab_size,
            n_positions=model.max_position_embeddings,
            n_embd=model.hidden_size,
            n_layer=model.num_hidden_layers,
            n_head=model.num_attention_heads,
            n_inner=model.intermediate_size,
            activation_function="gelu_new",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            layer_norm_epsilon=model.layer_norm_epsilon,
            tie_word_embeddings=model.tie_word_embeddings,
            attn_implementation="eager",
            **_NO_SPECIAL_TOKENS,
        )
    )


def _llama(model):
    # Qwen2 is LLaMA with biases on q, k and v.
    network, config, only = (Qwen2ForCausalLM, Qwen2Config, {"use_sliding_window": False})
    if not model.qkv_bias:
        network, config, only = (LlamaForCausalLM, LlamaConfig, {"attention_bias": False, "mlp_bias": False})
    return network(
        config(
            vocab_size=model.vocab_size,
            hidden_size=model.hidden_size,
            intermediate_size=model.intermediate_size,
            num_hidden_layers=model.num_hidden_layers,
            num_attention_heads=model.num_attention_heads,
            num_key_value_heads=model.num_key_value_heads,
            hidden_act="silu",
            max_position_embeddings=model.max_position_embeddings,
            rms_norm_eps=model.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta} | model.rope_scaling,
            attention_dropout=0.0,
            tie_word_embeddings=model.tie_word_embeddings,
            attn_implementation="eager",
            **only,
            **_NO_SPECIAL_TOKENS,
        )
    )


def _keep_type(network, model):
    """Replaces the three parts of LlamaForCausalLM and Qwen2ForCausalLM that round to float32."""
    for module in network.modules():
        if isinstance(module, (LlamaRMSNorm, Qwen2RMSNorm)):
            module.forward = _RmsNorm(module)
    network.model.rotary_emb = _Rotary(model)
    network.set_attn_implementation(_ATTENTION)


class _RmsNorm:
    def __init__(self, norm):
        self.norm = norm

    def __call__(self, x):
        return self.norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.norm.variance_epsilon))


def _scaled(frequencies, scaling):
    """Linear: all divided by the factor. LLaMA 3: those of few turns in the original context divided by it, those of many
    kept, and those between in proportion to their turns."""
    if not scaling:
        return frequencies
    if scaling["rope_type"] == "linear":
        return frequencies / scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * ((1 - kept) / scaling["factor"] + kept)


class _Rotary(torch.nn.Module):
    """cos and sin [batch, sequence, head] of position * theta^(-2i / head), the halves repeated."""

    def __init__(self, model):
        super().__init__()
        exponent = torch.arange(0, model.head_size, 2, dtype=torch.float64) / model.head_size
        self.frequencies = _scaled(model.rope_theta ** -exponent, model.rope_scaling)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def _attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
    """transformers' eager attention, with the softmax in the type of its operands. [B, A, S, D] to [B, S, A, D]."""
    key = repeat_kv(key, module.num_key_value_groups)
    value = repeat_kv(value, module.num_key_value_groups)
    scores = query @ key.transpose(2, 3) * scaling + attention_mask
    return (scores.softmax(dim=-1) @ value).transpose(1, 2).contiguous(), None


_ATTENTION = "eager_same_type"
AttentionInterface.register(_ATTENTION, _attention)
AttentionMaskInterface.register(_ATTENTION, eager_mask)
