"""Whisper's special tokens, as an export stores them: the prefix of a text, and the suppressed tokens."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from model import Form, read_json

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.extra import extra

LANGUAGES = ("en", "zh", "de", "es", "ru", "ko", "fr", "ja")
"""Languages of random weights; a folder of weights defines others."""

TASKS = ("translate", "transcribe")


def notes_of(folder: Path, form: Form) -> dict[str, Any]:
    """Return the special tokens of ``generation_config.json``, or else of ``tokenizer.json`` and ``config.json``.

    Raises:
        ModelError: a file cannot be read, or required tokens are missing.
    """
    config = read_json(folder / "config.json")
    given = folder / "generation_config.json"
    generation = read_json(given) if given.is_file() else {}
    numbers = _named(folder / "tokenizer.json")
    start = generation.get("decoder_start_token_id", config.get("decoder_start_token_id"))
    end = generation.get("eos_token_id", config.get("eos_token_id"))
    languages = generation.get("lang_to_id") or {
        name: number for name, number in numbers.items() if re.fullmatch(r"<\|[a-z]{2,3}\|>|<\|yue\|>", name)
    }
    tasks = generation.get("task_to_id") or {name: numbers[f"<|{name}|>"] for name in TASKS if f"<|{name}|>" in numbers}
    plain = generation.get("no_timestamps_token_id", numbers.get("<|notimestamps|>"))
    if generation.get("is_multilingual") is False:
        languages, tasks = {}, {}
    found = {
        "start": numbers.get("<|startoftranscript|>") if start is None else start,
        "end": numbers.get("<|endoftext|>") if end is None else end,
        "languages": {name.strip("<|>"): number for name, number in languages.items()},
        "tasks": dict(tasks),
        "no_timestamps": plain,
        "suppress": generation.get("suppress_tokens", config.get("suppress_tokens")) or [],
        "begin_suppress": generation.get("begin_suppress_tokens", config.get("begin_suppress_tokens")) or [],
        "positions": form.positions,
    }
    missing = next((key for key in ("start", "end") if not isinstance(found[key], int)), None)
    if missing is not None:
        raise ModelError(f"{folder}: nothing says which token is the {missing}; add generation_config.json")
    return found


def _named(path: Path) -> dict[str, int]:
    """Return the added tokens of a ``tokenizer.json`` by name; empty if the file is missing."""
    if not path.is_file():
        return {}
    added = read_json(path).get("added_tokens", [])
    return {one["content"]: one["id"] for one in added if isinstance(one, dict) and {"content", "id"} <= set(one)}


def tokenizer_of(folder: Path) -> str:
    """Return a folder's ``tokenizer.json``.

    Raises:
        ModelError: it is missing.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{folder}: holds no tokenizer.json; add the model's own")
    return json.dumps(read_json(path))


def random_tokens(form: Form) -> tuple[str, dict[str, Any]]:
    """Return a tokenizer for random weights, with a token per byte and Whisper's special tokens, and its metadata.

    Raises:
        ConfigError: the vocabulary is too small.
    """
    with extra("a tokenizer", "text"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    special = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{one}|>" for one in LANGUAGES)]
    special += [*(f"<|{one}|>" for one in TASKS), "<|notimestamps|>"]
    if form.vocabulary < 256 + len(special):
        raise ConfigError(f"--vocabulary {form.vocabulary} must be at least {256 + len(special)}")
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    fill = [f"<{i}>" for i in range(256, form.vocabulary - len(special))]
    numbers = {name: i for i, name in enumerate([*signs, *fill, *special])}
    made = Tokenizer(models.BPE(numbers, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    return str(made.to_str()), _random_notes(numbers, form)


def _random_notes(numbers: Mapping[str, int], form: Form) -> dict[str, Any]:
    return {
        "start": numbers["<|startoftranscript|>"],
        "end": numbers["<|endoftext|>"],
        "languages": {one: numbers[f"<|{one}|>"] for one in LANGUAGES},
        "tasks": {one: numbers[f"<|{one}|>"] for one in TASKS},
        "no_timestamps": numbers["<|notimestamps|>"],
        "suppress": sorted(number for name, number in numbers.items() if name.startswith("<|") and "end" not in name),
        "begin_suppress": [],
        "positions": form.positions,
    }
