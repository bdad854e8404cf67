"""The sections of a job file that the mathematics depends on."""

from dataclasses import dataclass

import yaml


class UnsupportedJob(Exception):
    """The job asks for something that the float64 reference cannot stand for."""


def _number(value):
    """PyYAML reads `1e-05` (no dot) as a string where YAML 1.2 reads a number; accept both."""
    return float(value)


@dataclass(frozen=True)
class Model:
    architecture: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    layer_norm_epsilon: float
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: dict  # empty: none
    qkv_bias: bool

    @property
    def head_size(self):
        return self.hidden_size // self.num_attention_heads


@dataclass(frozen=True)
class Optimizer:
    lr: float
    betas: tuple
    eps: float
    weight_decay: float
    clip_grad_norm: float


@dataclass(frozen=True)
class Schedule:
    name: str
    warmup_steps: int
    decay_start: int
    decay_steps: int
    min_lr: float


@dataclass(frozen=True)
class Job:
    model: Model
    optimizer: Optimizer
    schedule: Schedule
    steps: int
    global_batch_size: int
    sequence_length: int
    precision: str


def _rope_scaling(section):
    """The section without what its type does not use; empty without scaling."""
    keys = {
        "default": [],
        "linear": ["factor"],
        "llama3": ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
    }
    kind = section.get("rope_type", "default")
    if not keys[kind]:
        return {}
    numbers = {key: _number(section[key]) for key in keys[kind]}
    if kind == "llama3":
        numbers["original_max_position_embeddings"] = int(numbers["original_max_position_embeddings"])
    return {"rope_type": kind} | numbers


def parse_job(text):
    """A Job from the text of a job file. The defaults are those of the job file's documentation."""
    sections = yaml.safe_load(text)
    model, training = sections["model"], sections["training"]
    optimizer = sections.get("optimizer") or {}
    schedule = sections.get("lr_schedule") or {}

    if model["architecture"] not in ("gpt2", "llama"):
        raise UnsupportedJob(f"model.architecture: {model['architecture']} has no reference; gpt2 and llama have")
    if _number(model.get("hidden_dropout", 0.0)) != 0.0:
        raise UnsupportedJob("model.hidden_dropout: the reference draws other random numbers; set it to 0.0")
    if optimizer.get("name", "adamw") != "adamw":
        raise UnsupportedJob(f"optimizer.name: {optimizer['name']} has no reference; adamw has")

    steps = int(training["steps"])
    heads = int(model["num_attention_heads"])
    betas = optimizer.get("betas", [0.9, 0.95])
    return Job(
        model=Model(
            architecture=model["architecture"],
            vocab_size=int(model["vocab_size"]),
            hidden_size=int(model["hidden_size"]),
            num_hidden_layers=int(model["num_hidden_layers"]),
            num_attention_heads=heads,
            num_key_value_heads=int(model.get("num_key_value_heads") or heads),
            intermediate_size=int(model["intermediate_size"]),
            max_position_embeddings=int(model["max_position_embeddings"]),
            tie_word_embeddings=bool(model.get("tie_word_embeddings", model["architecture"] == "gpt2")),
            layer_norm_epsilon=_number(model.get("layer_norm_epsilon", 1e-5)),
            rms_norm_eps=_number(model.get("rms_norm_eps", 1e-5)),
            rope_theta=_number(model.get("rope_theta", 10000.0)),
            rope_scaling=_rope_scaling(model.get("rope_scaling") or {}),
            qkv_bias=bool(model.get("qkv_bias", False)),
        ),
        optimizer=Optimizer(
            lr=_number(optimizer.get("lr", 3e-3)),
            betas=(_number(betas[0]), _number(betas[1])),
            eps=_number(optimizer.get("eps", 1e-8)),
            weight_decay=_number(optimizer.get("weight_decay", 0.1)),
            clip_grad_norm=_number(optimizer.get("clip_grad_norm", 1.0)),
        ),
        schedule=Schedule(
            name=schedule.get("name", "cosine"),
            warmup_steps=int(schedule.get("warmup_steps", 20)),
            decay_start=int(schedule.get("decay_start") or 0),
            decay_steps=int(schedule.get("decay_steps") or steps),
            min_lr=_number(schedule.get("min_lr", 3e-4)),
        ),
        steps=steps,
        global_batch_size=int(training["global_batch_size"]),
        sequence_length=int(training["sequence_length"]),
        precision=str(training.get("precision", "fp32")),
    )
