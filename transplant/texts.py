"""Built-in rules for strings: devices, backends, tensor types, environment variables."""

from __future__ import annotations

import re

import libcst as cst

from transplant.cuda import CUDA_WORD
from transplant.devices import BACKEND, DEVICE, PLAIN, SURE, is_text, names_one
from transplant.numbers import EVERY, whole
from transplant.script import Script

_DEVICE, _BACKEND, _TYPE, _VARIABLE = "device string", "backend", "type of a tensor", "variable"
_CURRENT = "the current device instead of a fixed number"
_SORTED = re.compile(r"(self_)?cuda_(time_total|time|memory_usage)")
_PLACE = re.compile(r"[\w.\- ]*[/\\.][\w./\\\- ]*|[\w\-]+")
"""Pattern of file names and similar strings."""

_ENVIRONMENT = re.compile(r"(?i)environ|getenv|setenv|env\b|patch")
_CODE = re.compile(r"torch\.cuda|\.cuda\(|cuda:\d|device *[=(] *[\"']cuda")


def rewrite_texts(script: Script, no_index: str) -> None:
    """Add edits and findings for every string of a script.

    Args:
        script: receives the edits and findings.
        no_index: which devices become the current one: ``FIXED`` numbers, or ``EVERY`` one; empty: none.
    """
    for node in script.nodes:
        if isinstance(node, cst.SimpleString) and CUDA_WORD.search(node.value):
            _plain(script, node, no_index)
        elif isinstance(node, cst.FormattedString) and CUDA_WORD.search(script.code(node)):
            _formatted(script, node, no_index)


def _plain(script: Script, node: cst.SimpleString, no_index: str) -> None:
    if script.taken(*script.span(node)) or script.has_finding(*script.span(node)):
        return
    value = node.evaluated_value
    if is_text(script, node):
        script.keep(node, "text for users")
    elif not isinstance(value, str) or (node.raw_value != value and (SURE.fullmatch(value) or PLAIN.fullmatch(value))):
        script.todo(node, "a bytes string, or one with escapes", "use sdaa for a device")
    elif SURE.fullmatch(value):
        _sure(script, node, value, no_index)
    elif PLAIN.fullmatch(value):
        _by_place(script, node, value)
    elif _SORTED.fullmatch(value):
        _word(script, node, "cuda", "device", "profiler", "the profiler's name for any device")
    else:
        _other(script, node, value)


def _sure(script: Script, node: cst.SimpleString, value: str, no_index: str) -> None:
    if value.startswith("torch."):
        _word(script, node, "cuda", "sdaa", _TYPE, "tensors on the card")
    elif value.endswith("nccl"):
        _word(script, node, "cuda:nccl", "sdaa:tccl", _BACKEND, "the card and its backend")
    elif no_index and re.fullmatch(r"cuda:\d+", value):
        _word(script, node, value, "sdaa", _DEVICE, _CURRENT)
    else:
        made = whole(script, node) if no_index == EVERY and value.startswith("cuda:") else None
        if made is None or not script.replace(made, f"{node.quote}sdaa{node.quote}", _DEVICE, _CURRENT):
            _word(script, node, "cuda", "sdaa", _DEVICE, "the card")


def _by_place(script: Script, node: cst.SimpleString, value: str) -> None:
    if value == "cuda" and names_one(script, node, DEVICE):
        _word(script, node, "cuda", "sdaa", _DEVICE, "the card")
    elif value == "nccl" and (names_one(script, node, BACKEND) or names_one(script, node, DEVICE)):
        _word(script, node, "nccl", "tccl", _BACKEND, "the card's backend")
    else:
        new = {"cuda": "sdaa", "nccl": "tccl"}[value]
        script.todo(node, "it may name a device, or something else", f"use {new} for a device or backend")


def _word(script: Script, node: cst.SimpleString, old: str, new: str, rule: str, why: str) -> None:
    """Change one word of a string, and keep its quotes."""
    start = script.span(node)[0] + len(node.prefix) + len(node.quote)
    at = script.text.index(old, start)
    script.edit(at, at + len(old), new, rule, why)


def _other(script: Script, node: cst.SimpleString, value: str) -> None:
    around = script.parent(node)
    place = script.code(around) if around is not None else ""
    wider = script.parent(around) if around is not None else None
    wider = script.parent(wider) if isinstance(wider, cst.Subscript | cst.SubscriptElement) else wider
    place += script.code(wider) if isinstance(wider, (cst.Call, cst.Subscript, cst.Comparison)) else ""
    if value == "CUDA_VISIBLE_DEVICES":
        if _ENVIRONMENT.search(place):
            _word(script, node, "CUDA", "SDAA", _VARIABLE, "selects the visible devices")
        else:
            script.todo(node, "the variable of CUDA's devices", "use SDAA_VISIBLE_DEVICES for the card")
    elif re.fullmatch(r"(CUDA|NCCL|TORCH_NCCL|PYTORCH_CUDA|PYTORCH_NVML|TORCH_CUDA)\w*", value) and "_" in value:
        script.keep(node, "a variable of CUDA's libraries without effect on the card")
    elif value == "CUDA":
        script.todo(node, "it may be a dispatch key", "use PrivateUse1, the card's key")
    elif _PLACE.fullmatch(value) and not _CODE.search(value):
        script.keep(node, "a key, a flag or a path of the script")
    elif _CODE.search(value):
        script.todo(node, "a text that mentions CUDA", "check whether a program runs or reads it")
    else:
        script.keep(node, "a text that mentions CUDA otherwise")


def _formatted(script: Script, node: cst.FormattedString, no_index: str) -> None:
    """Change ``f"cuda:{index}"``; other formatted strings are text for users, or need manual work."""
    first = node.parts[0] if node.parts else None
    rest = [part for part in node.parts[1:] if isinstance(part, cst.FormattedStringText)]
    text = is_text(script, node)
    if isinstance(first, cst.FormattedStringText) and re.fullmatch(r"cuda:?", first.value) and not rest and not text:
        start, quote = script.span(first)[0], node.start.lstrip("fFrR")
        every = no_index == EVERY and first.value == "cuda:"
        if not every or not script.replace(node, f"{quote}sdaa{node.end}", _DEVICE, _CURRENT):
            script.edit(start, start + 4, "sdaa", _DEVICE, "the card")
    elif any(isinstance(part, cst.FormattedStringText) and CUDA_WORD.search(part.value) for part in node.parts):
        parts = [part for part in node.parts if isinstance(part, cst.FormattedStringText)]
        for part in parts:
            if not CUDA_WORD.search(part.value):
                continue
            if text or not _CODE.search(part.value):
                script.keep(part, "text for users" if text else "a text that mentions CUDA otherwise")
            else:
                script.todo(part, "a formatted string that mentions CUDA", "use sdaa for a device")
