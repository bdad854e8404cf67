"""GPT-2 and LLaMA in plain PyTorch, as fast as its parts allow, under Triax's logical names.

The mathematics is that of scripts/reference/model.py (Hugging Face's modules in float64), which is written to be exact;
this is written to be quick: q, k and v (and gate and up) are one product, attention is scaled_dot_product_attention,
norms and activations are PyTorch's fused ones. bench/compare.py proves by the losses that it computes the same.
"""
import torch
import torch.nn.functional as F
from torch import nn


@torch.library.custom_op("compare::product", mutates_args=())
def onednn_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x W^T + b by oneDNN in fp32. torch.nn.functional.linear asks MKL in fp32, which on processors that are not
    Intel's leaves AVX-512 alone and so half of their rate. An operator of its own, because torch.compile takes
    PyTorch's for one whose weights are constant."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@onednn_product.register_fake
def _(x, weight, bias):
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _keep(ctx, inputs, output):
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight)
    ctx.has_bias = bias is not None


def _gradients(ctx, dy):
    x, weight = ctx.saved_tensors
    rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    dx = onednn_product(dy_rows, weight.t(), None).view_as(x)
    dweight = onednn_product(dy_rows.t(), rows.t(), None)
    return dx, dweight, dy_rows.sum(0) if ctx.has_bias else None


onednn_product.register_autograd(_gradients, setup_context=_keep)
PRODUCTS = {"mkl": F.linear, "onednn": onednn_product}


class Linear(nn.Module):
    """Logical matrices side by side along the outputs: `parts` are (name, rows)."""

    def __init__(self, parts, into, bias, product):
        super().__init__()
        self.parts, self.product = parts, product
        rows = sum(count for _, count in parts)
        self.weight = nn.Parameter(torch.randn(rows, into) * 0.02)
        self.bias = nn.Parameter(torch.zeros(rows)) if bias else None

    def forward(self, x):
        return self.product(x, self.weight, self.bias)


class Norm(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.eps = model.layer_norm_epsilon if model.architecture == "gpt2" else model.rms_norm_eps
        self.weight = nn.Parameter(torch.ones(model.hidden_size))
        self.bias = nn.Parameter(torch.zeros(model.hidden_size)) if model.architecture == "gpt2" else None

    def forward(self, x):
        if self.bias is None:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def _rotated(x, cosine, sine):
    """RoPE by halves. x [B, A, S, D]; cosine and sine [S, D]."""
    one, two = x.chunk(2, -1)
    return x * cosine + torch.cat((-two, one), -1) * sine


class Attention(nn.Module):
    def __init__(self, model, product):
        super().__init__()
        self.heads, self.key_heads, self.size = model.num_attention_heads, model.num_key_value_heads, model.head_size
        gpt2 = model.architecture == "gpt2"
        query, key = self.heads * self.size, self.key_heads * self.size
        self.qkv = Linear([("q", query), ("k", key), ("v", key)], model.hidden_size, gpt2 or model.qkv_bias, product)
        self.out = Linear([("out", model.hidden_size)], query, gpt2, product)

    def forward(self, x, rotation):
        batch, length, _ = x.shape
        split = [self.heads * self.size, self.key_heads * self.size, self.key_heads * self.size]
        q, k, v = (t.view(batch, length, -1, self.size).transpose(1, 2) for t in self.qkv(x).split(split, -1))
        if rotation is not None:
            q, k = _rotated(q, *rotation), _rotated(k, *rotation)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.key_heads)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, model, product):
        super().__init__()
        gpt2, inner = model.architecture == "gpt2", model.intermediate_size
        parts = [("up", inner)] if gpt2 else [("gate", inner), ("up", inner)]
        self.up = Linear(parts, model.hidden_size, gpt2, product)
        self.down = Linear([("down", model.hidden_size)], inner, gpt2, product)

    def forward(self, x):
        y = self.up(x)
        if len(self.up.parts) == 1:
            return self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, model, product):
        super().__init__()
        self.attention_norm, self.attention = Norm(model), Attention(model, product)
        self.mlp_norm, self.mlp = Norm(model), Mlp(model, product)

    def forward(self, x, rotation):
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """model: scripts/reference/job.Model without rope_scaling. product: one of PRODUCTS."""

    def __init__(self, model, product):
        super().__init__()
        if model.rope_scaling:
            raise ValueError("model.rope_scaling is not compared")
        self.description, self.product = model, product
        self.tokens = nn.Embedding(model.vocab_size, model.hidden_size)
        self.positions = self.rope = None
        if model.architecture == "gpt2":
            self.positions = nn.Parameter(torch.randn(model.max_position_embeddings, model.hidden_size) * 0.02)
        self.layers = nn.ModuleList(Block(model, product) for _ in range(model.num_hidden_layers))
        self.final_norm = Norm(model)
        self.head = None if model.tie_word_embeddings else nn.Parameter(torch.randn_like(self.tokens.weight) * 0.02)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def _rotation(self, length, dtype):
        half = torch.arange(0, self.description.head_size, 2, dtype=torch.float32) / self.description.head_size
        angles = torch.outer(torch.arange(length, dtype=torch.float32), self.description.rope_theta ** -half)
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, ids, targets):
        """Mean cross-entropy. ids and targets: int64 [B, S]."""
        x = self.tokens(ids)
        rotation = None
        if self.positions is not None:
            x = x + self.positions[: ids.shape[1]]
        else:
            rotation = self._rotation(ids.shape[1], x.dtype)
        for layer in self.layers:
            x = layer(x, rotation)
        logits = self.product(self.final_norm(x), self.tokens.weight if self.head is None else self.head, None)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def logical(self):
        """{logical name: view of the parameter}."""
        found = {"embed.tokens.weight": self.tokens.weight.data}
        if self.positions is not None:
            found["embed.positions.weight"] = self.positions.data
        if self.head is not None:
            found["lm_head.weight"] = self.head.data
        for place, module in self.named_modules():
            name = place.replace("mlp.down", "mlp").replace("mlp.up", "mlp")
            name = name.replace("attention.qkv", "attention").replace("attention.out", "attention")
            for kind, values in module.named_parameters(recurse=False):
                if isinstance(module, Norm):
                    found[f"{name}.{kind}"] = values.data
                elif isinstance(module, Linear):
                    pieces = values.data.split([count for _, count in module.parts])
                    found |= {f"{name}.{part}.{kind}": piece for (part, _), piece in zip(module.parts, pieces)}
        return found
