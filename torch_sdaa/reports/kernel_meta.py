"""Files with descriptions of launches (debug level of the operator compiler), and deletion of compiled graphs."""

from __future__ import annotations

import atexit
import json
from pathlib import Path
from typing import Any

from engine.sdaa import load_card
from tecoinfer_modelzoo.cache import cache_folder
from torch_sdaa.cost import prices
from torch_sdaa.loading.core import C

SCHEMA_VERSION = 1  # version of the files; raised when a field is removed or changes its meaning
FOLDER = "kernel_meta"
COMPILED = "compiled_graphs"
"""Cache folder of ``torch.compile``."""


class _State:
    level = 0
    folder: Path | None = None
    registered = False


def set_level(level: int) -> None:
    """Write descriptions when the process ends (1 to 4), or none (0)."""
    _State.level = level
    if level and not _State.registered:
        _State.registered = True
        atexit.register(write)


def set_folder(folder: Path) -> None:
    """Set the folder for the descriptions; the default is the working folder."""
    _State.folder = folder


def write() -> list[Path]:
    """Write a description of every distinct launch so far; return the files."""
    if not _State.level:
        return []
    folder = (_State.folder or Path.cwd()) / FOLDER
    folder.mkdir(exist_ok=True)
    written = []
    numbers: dict[str, int] = {}
    for (op, inputs, outputs, flops), count, seconds, assumed in C.signatures():
        name = op.replace("::", "_")
        numbers[name] = numbers.get(name, 0) + 1
        stem = f"{name}_{numbers[name]}"
        shown = {
            "op": op,
            "inputs": [_shown(meta) for meta in inputs],
            "outputs": [_shown(meta) for meta in outputs],
            "launches": count,
            "simulated_seconds": seconds,
        }
        written.append(_put(folder / f"{stem}.json", shown))
        if _State.level == 4:
            work = prices.work(op, list(inputs), list(outputs), flops)
            written.append(_put(folder / f"{stem}_compute.json", {**work._asdict(), "assumed_seconds": assumed}))
    return written


def _shown(meta: prices.Meta) -> dict[str, Any]:
    return {"dtype": prices.shown(meta[0]), "shape": list(meta[2])}


def _put(path: Path, content: dict[str, Any]) -> Path:
    head = {"schema_version": SCHEMA_VERSION, "card": load_card().name}
    path.write_text(json.dumps({**head, **content}, indent=1), encoding="utf-8")
    return path


def forget_compiled() -> None:
    """Delete the stored compiled graphs."""
    folder = cache_folder(COMPILED)
    for path in sorted(folder.iterdir()) if folder is not None else ():
        if path.suffix == ".sdaagraph":
            path.unlink(missing_ok=True)
