"""For tests/launch/huggingface_test.cpp: random models of transformers, and what Triax made of them.

    huggingface.py make FOLDER      writes FOLDER/<kind>/model for every kind
    huggingface.py check FOLDER     compares <kind>/run, its exports <kind>/out and the round trip <kind>/back with PyTorch
"""

import json
import logging
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))

import h5py
import numpy as np
import torch
import transformers
from reference import measure
from reference.job import parse_job
from reference.naming import parameters, to_logical
from reference.training import train
from safetensors import safe_open
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig, PreTrainedTokenizerFast,
                          Qwen2Config)

COMMON = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
GPT2 = dict(vocab_size=257, n_positions=32, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, **COMMON)
LLAMA = dict(vocab_size=257, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, **COMMON)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
          "original_max_position_embeddings": 32}
KINDS = {
    "gpt2": GPT2Config(**GPT2),
    "gpt2-untied": GPT2Config(**GPT2, tie_word_embeddings=False, n_inner=60),
    "llama": LlamaConfig(**LLAMA),
    "llama-tied": LlamaConfig(**LLAMA | {"num_key_value_heads": 1}, tie_word_embeddings=True),
    "llama3": LlamaConfig(**LLAMA, rope_parameters=LLAMA3),
    "qwen2": Qwen2Config(**LLAMA),
}
NAMES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def make(folder):
    torch.manual_seed(1)
    for kind, config in KINDS.items():
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():  # so that no bias is zero and no norm one
                parameter.add_(0.05 * torch.randn_like(parameter))
        model.save_pretrained(folder / kind / "model", max_shard_size="40KB" if kind == "llama" else "5GB")


class Silent(logging.Handler):
    """Whatever the libraries have to say while a model is loaded is a failure."""

    def emit(self, record):
        raise AssertionError(f"{record.levelname}: {record.getMessage()}")


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def stored(folder):
    """All tensors of a folder, by safetensors' own reader."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}, path
            tensors |= {name: file.get_tensor(name) for name in file.keys()}
    return tensors


def loss_of(model, tokens):
    tokens = torch.from_numpy(tokens.astype(np.int64))
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), tokens[:, 1:].flatten()).item()


def check(folder, kind):
    run = folder / kind / "run"
    before, back, out = (stored(folder / kind / name) for name in ("model", "back", "out"))
    assert before.keys() == back.keys() == out.keys(), (before.keys() ^ back.keys(), before.keys() ^ out.keys())
    for name, tensor in before.items():
        assert torch.equal(tensor, back[name]), f"{kind}: {name} changed on its way in and out"

    job = parse_job((run / "job.yaml").read_text())
    initial = load(folder / kind / "model")
    values = to_logical(job.model, dict(initial.named_parameters()))
    batches = [h5py.File(run / f"batches/step-0000000{step}.h5")["tokens"][...] for step in (1, 2)]
    truth = train(job, initial.double().train(), values, batches[0][None])
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert measure.relative(metrics[0]["loss"], truth.losses[0]) < 1e-5, (metrics[0]["loss"], truth.losses)

    with h5py.File(run / "gradients/step-00000001.h5") as file:
        ours = {p.name: file["gradients"][p.name][...] for p in parameters(job.model)}
    all_norm = measure.global_norm(truth.gradients)
    exported = load(folder / kind / "out")
    assert type(exported).__name__ == NAMES[kind.split("-")[0].replace("llama3", "llama")]
    weights = to_logical(job.model, dict(exported.named_parameters()))
    worst = {"gradient": 0.0, "weight": 0.0}
    for name, gradient in truth.gradients.items():
        if measure.left_out(job.model.architecture, name):
            continue
        worst["gradient"] = max(worst["gradient"], measure.gradient_distance(ours[name], gradient, all_norm))
        worst["weight"] = max(worst["weight"], measure.weight_distance(weights[name], truth.final[name]))
    assert worst["gradient"] < 1e-5 and worst["weight"] < 1e-4, f"{kind}: {worst}"

    # The exported model, of step 1, computes what Triax computed with it in step 2.
    with torch.no_grad():
        assert measure.relative(metrics[1]["loss"], loss_of(exported, batches[1])) < 1e-5

    # In bf16, cut into files: the same weights, rounded.
    half = stored(folder / kind / "half")
    assert len(list((folder / kind / "half").glob("*.safetensors"))) > 1
    for name, tensor in out.items():
        assert torch.equal(tensor.to(torch.bfloat16), half[name]), name
    load(folder / kind / "half")

    # Text that NFC would change: AutoTokenizer makes Qwen2's own tokenizer for the shape of Qwen2.
    text = "Straße 你好 🙂\t\n  e\u0301 \u212b"
    for reader in (PreTrainedTokenizerFast,) if kind == "qwen2" else (PreTrainedTokenizerFast, AutoTokenizer):
        tokenizer = reader.from_pretrained(folder / kind / "out")
        assert tokenizer.encode(text, add_special_tokens=False) == list(text.encode()), kind
        assert tokenizer.decode(list(text.encode())) == text
        assert tokenizer.eos_token_id == 256 == exported.config.eos_token_id
    print(f"{kind}: gradients within {worst['gradient']:.1e}, weights after a step within {worst['weight']:.1e}")


def main():
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        return make(folder)
    warnings.simplefilter("error")
    transformers.logging.set_verbosity_warning()
    logging.getLogger("transformers").addHandler(Silent())
    for kind in KINDS:
        check(folder, kind)
    print("all equal")


if __name__ == "__main__":
    main()
