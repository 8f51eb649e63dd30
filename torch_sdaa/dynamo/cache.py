"""Compiled partitions on disk, found by graph and sizes, and used if their versions match.

The least recently used entries are removed if space is needed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import fx

from engine.sdaa import Kernel, ShardWork, load_card, lowering_versions
from tecoinfer_modelzoo.cache import cache_budget, cache_folder, exclusive_file, make_room
from tecoinfer_modelzoo.files import hash_files, read_regular, write_file
from tecoinfer_modelzoo.text import typed_reason
from torch_sdaa.dynamo.aten.table import STRIDED

BUDGET_VARIABLE = "TORCH_SDAA_COMPILE_CACHE_MB"
BUDGET_MB = 1024
"""Default maximum size of the cache in megabytes."""

_KIND, _SUFFIX = "compiled_graphs", ".sdaagraph"

_log = logging.getLogger("torch_sdaa.dynamo")


@dataclass(frozen=True)
class Entry:
    """A compiled partition: the model for the host, and the card's launches."""

    model: bytes
    work: ShardWork
    nodes: int


def budget() -> int:
    """Return the maximum bytes of the cache; raise ConfigError if the variable is not an integer."""
    return cache_budget(BUDGET_VARIABLE, BUDGET_MB)


@cache
def made_of() -> dict[str, str]:
    """Return the versions that affect the compilation of a graph: packages, the engine's lowering, the card, this
    package.
    """
    here = Path(__file__).parent
    sources = [*sorted(here.rglob("*.py")), *sorted((here.parent / "cost").glob("*.py"))]  # prices of a graph
    lowering = {"lowering" if name == "sources" else name: version for name, version in lowering_versions().items()}
    card, own = hash_files(load_card().source)[:12], hash_files(*sources)[:12]
    return {"torch": torch.__version__, **lowering, "card": card, "torch_sdaa.dynamo": own}


def key_of(graph: fx.Graph, shapes: Any, options: Any) -> str:
    """Return a partition's key, without names of nodes and versions, which an entry stores."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    lines = [f"{shapes} {options}"]
    for node in graph.nodes:
        given = fx.node.map_arg((node.args, node.kwargs), lambda each: _Place(places[each]))
        lines.append(
            f"{node.op} {node.target if node.op == 'call_function' else ''} {given} {_described(node.meta.get('val'))}"
        )
        if node.target in STRIDED:  # depends on the memory layout of its input
            source = node.args[0].meta["val"]
            lines.append(f"{tuple(source.stride())} {source.storage_offset()}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


class _Place:
    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"%{self.place}"


def _described(traced: Any) -> str:
    if isinstance(traced, (tuple, list)):
        return str([_described(each) for each in traced])
    if isinstance(traced, torch.Tensor):
        return f"{traced.dtype}{list(traced.shape)}"
    return str(traced)


def read(key: str) -> tuple[Entry | None, str]:
    """Return the entry and "", else ``None`` and the reason why the file is not used ("" if it does not exist)."""
    folder = cache_folder(_KIND) if budget() else None
    if folder is None:
        return None, ""
    path = folder / f"{key}{_SUFFIX}"
    try:
        content = read_regular(path, budget())
        head, _, rest = content.partition(b"\n")
        if hashlib.sha256(rest).hexdigest().encode() != head:
            raise ValueError("the file was changed after it was written")
        manifest, _, model = rest.partition(b"\n")
        found = json.loads(manifest)
        if not isinstance(found, dict):
            raise ValueError("the file is not an entry of this cache")
        if other := _another(found.get("made_of")):
            raise ValueError(other)
        work = found["work"]
        kernels = tuple(map(_kernel, work["kernels"]))
        with suppress(OSError):  # a read-only cache
            os.utime(path)  # most recently used
        return Entry(model, ShardWork(**{**work, "kernels": kernels}), found["nodes"]), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.info("%s is ignored: %s", path, error)
        return None, str(error) if isinstance(error, ValueError) else typed_reason(error, 200)


def _another(stored: Any) -> str:
    """Return which versions of an entry differ from the current ones; "" if none does."""
    if not isinstance(stored, dict):
        return "the file does not state its versions"
    apart = [f"{name} {stored.get(name)}, here {now}" for name, now in made_of().items() if stored.get(name) != now]
    return f"made with {'; '.join(apart)}" if apart else ""


def _kernel(stored: dict[str, Any]) -> Kernel:
    fields: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in stored.items()}
    return Kernel(**fields)


def write(key: str, entry: Entry) -> None:
    """Store an entry, and remove others to make room."""
    folder = cache_folder(_KIND) if budget() else None
    if folder is None:
        return
    manifest = json.dumps({"made_of": made_of(), "work": asdict(entry.work), "nodes": entry.nodes}).encode()
    rest = manifest + b"\n" + entry.model
    content = hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
    if len(content) > budget():
        _log.info(
            "a compiled graph of %d bytes is not cached: %s is %d MB", len(content), BUDGET_VARIABLE, budget() // 10**6
        )
        return
    with exclusive_file(folder / ".lock"):
        try:
            write_file(folder / f"{key}{_SUFFIX}", content)
            make_room(folder, _SUFFIX, budget(), f"{key}{_SUFFIX}")
        except OSError as error:
            _log.info("a compiled graph is not cached: %s", error)
