"""Compiled plans of target ``tvm``: what a plan was compiled from, its record, and the cache of plans.

A plan is a shared library (``.so``) with a record beside it (``.so.json``). The library is code: it is loaded from the
user's own cache, if its hash is that of the record and only the user can write there, or because the user named it.
This module does not need TVM.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.base import ModelError, TensorSpec
from engine.signature import BatchAxes, Dim, dim_from_json, tensor_from_json, tensor_to_json
from tecoinfer_modelzoo.cache import cache_folder, exclusive_file, make_room
from tecoinfer_modelzoo.files import hash_files, read_regular, write_file
from tecoinfer_modelzoo.json_types import Problems, entries, flag, items, parsed, text, whole
from tecoinfer_modelzoo.text import typed_reason

SCHEMA_VERSION = 1  # of the record
MOST_RECORD = 1 << 26  # size limit of a record in bytes
SUFFIX = ".so"
_KIND = "tvm"  # folder of the cache
_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanKey:
    """Everything a plan depends on.

    Attributes:
        model_sha256: of the model file and its external data. pass_sha256: of the pass file, or empty.
        shapes: of every input.
        dtype: requested precision.
        target: of TVM, with the processor's name and features, as JSON. schedule: how loops are ordered.
        tvm: its version. sources: hash of the zoo's files and of the versions that determine the graph.
    """

    model_sha256: str
    pass_sha256: str
    shapes: Mapping[str, tuple[int, ...]]
    dtype: str
    target: str
    schedule: str
    tvm: str
    sources: str
    schema_version: int = SCHEMA_VERSION

    @property
    def digest(self) -> str:
        """Hash of all fields, which names the plan in the cache."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class PlanRecord:
    """The contents of ``<plan>.so.json``.

    Attributes:
        key: of the plan. library_sha256: of the library.
        inputs, outputs: of the model as the caller has them, in the model's order, with batch axes and symbols.
        dims: declared shapes of the inputs.
        independent, reason: whether a call may be split, and why not (:class:`engine.signature.BatchAxes`).
        guarded: names of the nodes whose index errors the plan's last output reports.
        divided: whether kernels are divided among threads.
        metadata: of the model.
        processor: name and features of the processor that the code needs; empty for code that runs on any.
    """

    key: PlanKey
    library_sha256: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    dims: list[list[Dim]]
    independent: bool | None
    reason: str
    guarded: list[str]
    divided: bool
    metadata: dict[str, str]
    processor: str

    @property
    def kind(self) -> str:
        """The kind of the target, such as ``llvm``."""
        return text(entries(parsed(self.key.target))["kind"])

    @property
    def batching(self) -> BatchAxes:
        """Batch axes and independence, in the model's order."""
        inputs, outputs = (tuple(tensor.batch_axis for tensor in each) for each in (self.inputs, self.outputs))
        return BatchAxes(inputs, outputs, self.independent, self.reason)


def library_path(ckpt: Path) -> Path:
    """Return the path of a model's saved plan: ``digits.onnx`` -> ``digits.so``."""
    return ckpt.with_suffix(SUFFIX)


def record_path(library: Path) -> Path:
    """Return the path of a plan's record: ``digits.so`` -> ``digits.so.json``."""
    return library.with_name(f"{library.name}.json")


def write_record(library: Path, record: PlanRecord) -> None:
    """Write the record of a library atomically, after the library: a crash between them is detected by the hash."""
    write_file(record_path(library), json.dumps(_to_json(record), indent=1).encode())


def read_record(library: Path) -> PlanRecord:
    """Return the record of a library whose hash it has; raise ModelError if one of them is missing or damaged."""
    path = record_path(library)
    try:
        record = _from_json(parsed(read_regular(path, MOST_RECORD)))
        digest = hash_files(library)
    except OSError as error:
        raise ModelError(f"{error.filename or path} cannot be read: {error.strerror}; save the plan again") from error
    except Problems as error:
        raise ModelError(f"{path} is not a plan record ({typed_reason(error)}); save the plan again") from error
    if digest != record.library_sha256:
        raise ModelError(f"{library} is truncated or was changed after it was saved; save it again")
    return record


# --------------------------------------------------------------------------------------------------------------- cache


def cached_library(key: PlanKey) -> Path | None:
    """Return the path of a plan in the cache; ``None`` without a cache folder to which only the user can write."""
    folder = cache_folder(_KIND)
    if folder is None:
        return None
    if not _made_private(folder):
        _log.info("compiled plans are not cached: other users can write in %s; set TECO_CACHE_DIR", folder)
        return None
    return folder / f"{key.digest}{SUFFIX}"


def read_cached(library: Path, key: PlanKey) -> PlanRecord | None:
    """Return the record of a cached plan; ``None`` if it is missing, or must not be used (the log has the reason)."""
    if not library.is_file():
        return None
    try:
        if not (is_private(library) and is_private(record_path(library))):
            library.unlink()  # a new one would keep its permissions
            raise ModelError(f"{library} is not used: other users can write it")
        record = read_record(library)
        with suppress(OSError):  # a read-only cache
            os.utime(library)  # most recently used
    except (ModelError, OSError) as error:
        _log.info("%s; compiling again", error)
        return None
    return record if record.key == key else None


def remove_unused(newest: Path, most: int) -> None:
    """Remove the least recently used plans of a folder, with their records, until they take ``most`` bytes at most."""
    with exclusive_file(newest.with_name(".lock")):
        make_room(newest.parent, SUFFIX, most, newest.name, beside=".json")


def is_private(path: Path) -> bool:
    """Return whether only the user can write to a file or folder, and owns it; raise OSError if it is missing."""
    found = path.stat()
    mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return mine and not found.st_mode & _OTHERS


def _made_private(folder: Path) -> bool:
    """Take the write permissions of others from a folder of the user's own; return whether it is private."""
    try:
        mode = folder.stat().st_mode
        if mode & _OTHERS:
            folder.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        return is_private(folder)
    except OSError as error:
        _log.info("%s cannot be used: %s", folder, error)
        return False


# ---------------------------------------------------------------------------------------------------------------- JSON


def _to_json(record: PlanRecord) -> dict[str, Any]:
    plain = asdict(record)
    return {
        **plain,
        "inputs": [tensor_to_json(tensor) for tensor in record.inputs],
        "outputs": [tensor_to_json(tensor) for tensor in record.outputs],
    }


def _from_json(data: Any) -> PlanRecord:
    found = entries(data)
    independent = found["independent"]
    record = PlanRecord(
        key=_key(entries(found["key"])),
        library_sha256=text(found["library_sha256"]),
        inputs=[tensor_from_json(entry) for entry in items(found["inputs"])],
        outputs=[tensor_from_json(entry) for entry in items(found["outputs"])],
        dims=[[dim_from_json(dim) for dim in items(shape)] for shape in items(found["dims"])],
        independent=None if independent is None else flag(independent),
        reason=text(found["reason"]),
        guarded=[text(name) for name in items(found["guarded"])],
        divided=flag(found["divided"]),
        metadata={name: text(value) for name, value in entries(found["metadata"]).items()},
        processor=text(found["processor"]),
    )
    if not record.kind:
        raise ValueError("the target has no kind")
    return record


def _key(found: Mapping[str, Any]) -> PlanKey:
    values = {field.name: found[field.name] for field in fields(PlanKey)}
    shapes = {name: tuple(map(whole, items(shape))) for name, shape in entries(values.pop("shapes")).items()}
    version = whole(values.pop("schema_version"))
    return PlanKey(**{name: text(value) for name, value in values.items()}, shapes=shapes, schema_version=version)


# ------------------------------------------------------------------------------------------------------------- sources


@lru_cache(maxsize=1)
def sources_hash() -> str:
    """Return a hash of the zoo's files, and of the versions of packages, that determine the compiled graph."""
    from engine.backends.tvm_graph import MADE_OF
    from engine.host.installed import component_version

    root = Path(__file__).resolve().parents[2]
    files = [file for name in MADE_OF for file in _files(root.joinpath(*name.split(".")))]
    versions = " ".join(f"{name} {component_version(name)}" for name in ("onnx", "onnxruntime", "onnxscript"))
    return hashlib.sha256(f"{hash_files(*files)} {versions}".encode()).hexdigest()


def _files(module: Path) -> list[Path]:
    return sorted(module.rglob("*.py")) if module.is_dir() else [module.with_suffix(".py")]
