"""Small random decoders for tests: computed by torch where no file is needed, or exported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import TensorSpec
from utils.export.networks.gpt_decoder import Form, GptDecoder, cache_names, example
from utils.export.scripts.gpt import byte_tokenizer
from utils.export.torch_export import export_onnx
from utils.tasks.model import Model

FORM = Form(vocabulary=300, positions=64, width=16, layers=2, heads=2, inner=64, begin=299, end=299)
PLANS = {"tokens": (1, 4, 16), "slots": (8, 16, 32, 64)}


@lru_cache(maxsize=2)
def network(seed: int = 0) -> GptDecoder:
    """Return a decoder whose texts wander: its weights are larger than a training begins with."""
    torch.manual_seed(seed)
    made = GptDecoder(FORM).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3)
    return made


def called(net: GptDecoder) -> Callable[[Sequence[Any]], list[Any]]:
    """Return the network as an engine would compute it."""

    @torch.no_grad()
    def call(arrays: Sequence[Any]) -> list[Any]:
        return [one.numpy() for one in net(*(torch.from_numpy(np.ascontiguousarray(one)) for one in arrays))]

    return call


def described(dims: Mapping[str, tuple[int, ...]] = PLANS, metadata: Mapping[str, str] | None = None) -> Model:
    """Return what an engine would say of the network."""
    whole, real = np.dtype(np.int64), np.dtype(np.float32)
    ids = [TensorSpec(name, whole, (None, None), 0, ("batch", "tokens")) for name in ("input_ids", "position_ids")]
    mask = TensorSpec("attention_mask", real, (None, None), 0, ("batch", "slots"))
    shape = (None, FORM.heads, None, FORM.width // FORM.heads)
    past = [TensorSpec(name, real, shape, 0, ("batch", None, "slots", None)) for name in cache_names(2, "past")]
    new = [TensorSpec(name, real, shape, 0, ("batch", None, "tokens", None)) for name in cache_names(2, "new")]
    logits = TensorSpec("logits", real, (None, None, FORM.vocabulary), 0, ("batch", "tokens", None))
    return Model(Path("m.onnx"), (*ids, mask, *past), (logits, *new), dims=dict(dims), metadata=dict(metadata or {}))


def exported(folder: Path, exporter: str = "torchscript") -> Path:
    """Write the network with a tokenizer of bytes and return its file."""
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "position_ids")}
    axes["attention_mask"] = {0: "batch", 1: "slots"}
    axes |= {name: {0: "batch", 2: "slots"} for name in cache_names(2, "past")}
    (made,) = export_onnx(
        network(),
        list(example(FORM)),
        folder / "tiny",
        input_names=list(axes),
        output_names=["logits", *cache_names(2, "new")],
        dynamic=axes,
        notes={
            "tokenizer": json.loads(byte_tokenizer(FORM)),
            "vocabulary_size": FORM.vocabulary,
            "generation": {"positions": FORM.positions, "begin": 299, "end": 299, "begins": False},
        },
        forms=("dyn",),
        exporter=exporter,
    )
    return made.path
