"""Loading and saving of models: validation, external data, topological order, atomic writing.

No runtime is imported here. Target ``onnx`` only uses this module for invalid files and for float16 of a float32 model,
because importing ``onnx`` takes longer than opening a small model.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection
from math import prod
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper

from engine.onnx.apart import apart_names, held_apart, put_back, read_apart
from engine.onnx.bounds import check_bounds
from engine.onnx.external import external_tensors, place_of, read_external
from engine.onnx.large import fits_message, lift_constants, write_with_external_weights
from engine.onnx.view import sort_nodes, tensors
from engine.signature import Array
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.files import atomic_replacement, hash_files

MIN_OPSET = 7  # oldest opset of the default domain that ONNX Runtime documents as supported
_NOT_ONNX = "is not ONNX or is cut short; export it again"
_NO_GRAPH = "does not contain an ONNX graph; export it again"
_BUILT = {
    ".engine": "is not an ONNX file but, by its extension, a built engine for targets cuda and sdaa; "
    "use the target it was built for, or the ONNX file",
    ".tecoengine": "is not an ONNX file but, by its extension, a saved engine for target sdaa; "
    "use that target, or the ONNX file",
    ".so": "is not an ONNX file but, by its extension, a saved plan for target tvm; use that target, or the ONNX file",
}
"""Messages for other files than ONNX, by extension."""

_PACKED = tuple(
    getattr(TensorProto, name)
    for name in ("STRING", "INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")
    if hasattr(TensorProto, name)
)
"""Types that are not numbers, or share bytes."""


def load_model(path: Path, before_data: Callable[[ModelProto], None] = lambda model: None) -> ModelProto:
    """Load and check an ONNX file with external data, sorted topologically; ``before_data`` may reject it before that.

    Raises:
        ModelError: the file is missing, empty, truncated or not ONNX; weight data is missing, truncated or exceeds the
            memory; opset or IR version are unsupported; the graph has a cycle.
    """
    model = _parse(path)
    _check_versions(model, path)
    before_data(model)
    read_external(model, path)
    _check_sizes(model, path)
    return sort_nodes(lift_constants(model, path), path)


def load_apart(
    path: Path, before_data: Callable[[ModelProto], None] = lambda model: None
) -> tuple[ModelProto, dict[str, Array]]:
    """Do the same, without large weights in the model; return it and these weights by name.

    They are external in the model, without a file (:mod:`engine.onnx.apart`): read once, not copied with the model, and
    changed by the caller only. A model whose weights are few has all of them.
    """
    size = _size(path)
    with held_apart(path, size) as held:
        model = _parse(path, held.content)
        _check_versions(model, path)
        before_data(model)
        names = apart_names(model, held, path)
        put_back(model, held, names, path)
        weights = read_apart(model, held, names, path)
    read_external(model, path, but=weights)
    _check_sizes(model, path, but=weights)
    return sort_nodes(lift_constants(model, path), path), weights


def _parse(path: Path, content: bytes | None = None) -> ModelProto:
    """Return a checked model, without external data; ``content``: its file's bytes, if they were read."""
    size = _size(path)
    if size == 0:
        raise ModelError(f"model file {path} is empty (0 bytes); export it again")
    try:
        if content is None:
            # Force protobuf: the format does not depend on the file's extension.
            model = onnx.load(str(path), format="protobuf", load_external_data=False)
        else:
            model = ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelError(f"model file {path} ({size} bytes) {_BUILT.get(path.suffix, _NOT_ONNX)}") from error
    except OSError as error:
        raise ModelError(f"model file {path} cannot be read: {error.strerror}; check its permissions") from error
    if not model.graph.output or not model.opset_import:
        raise ModelError(f"model file {path} ({size} bytes) {_BUILT.get(path.suffix, _NO_GRAPH)}")
    check_bounds(model, path)
    return model


def _size(path: Path) -> int:
    """Return the size of a model file; only regular files, because reading a pipe may block."""
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode):
            return found.st_size
        what = "is a folder" if stat.S_ISDIR(found.st_mode) else "is a pipe, a socket or a device"
    except (FileNotFoundError, NotADirectoryError, ValueError):
        what = "does not exist"
    except OSError as error:
        what = f"cannot be opened ({error.strerror})"
    raise ModelError(f"model file {path} {what}; pass the path of an .onnx file (export_onnx.py writes one)")


def _check_versions(model: ModelProto, path: Path) -> None:
    if not model.HasField("ir_version"):
        raise ModelError(f"{path}: has no IR version, so ONNX Runtime rejects it; export it again")
    if model.ir_version > onnx.IR_VERSION:
        limit = f"is newer than {onnx.IR_VERSION}, the newest of onnx {onnx.__version__}"
        fix = "upgrade onnx and onnxruntime, or export with an older exporter"
        raise ModelError(f"{path}: IR version {model.ir_version} {limit}; {fix}")
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not MIN_OPSET <= opset.version <= newest:
            where = f"{MIN_OPSET} to {newest}, the supported range (onnx {onnx.__version__})"
            fix = "export with opset_version=17, use onnx.version_converter, or upgrade onnx and onnxruntime"
            raise ModelError(f"{path}: opset {opset.version} is outside {where}; {fix}")


def _check_sizes(model: ModelProto, path: Path, but: Collection[str] = ()) -> None:
    """Reject weights whose data is missing, truncated or in the wrong field, as ONNX Runtime does.

    ``but``: initializers of the main graph that were checked when they were read.
    """
    for tensor in tensors(model.graph):
        if tensor.data_location == TensorProto.EXTERNAL and tensor.name in but:
            continue
        wanted, held = prod(tensor.dims), _held(tensor)
        if held is not None and held != wanted:
            count = f"{held} of the {wanted} numbers of shape {list(tensor.dims)}"
            fix = "its data is missing or cut short; export the model again, or copy all of it"
            raise ModelError(f"{path}: weight {tensor.name!r} holds {count}: {fix}")


def _held(tensor: TensorProto) -> int | None:
    """Return the number of elements of a tensor; ``None`` for packed and non-numeric types."""
    try:
        width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        field = helper.tensor_dtype_to_field(tensor.data_type)
    except KeyError:  # no type, or newer than onnx: left to the runtime
        return None
    if tensor.data_type in _PACKED:
        return None
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) // width
    held = len(getattr(tensor, field))
    return held // 2 if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else held


def save_model(model: ModelProto, path: Path) -> None:
    """Write a model atomically; on failure an existing file is unchanged. Beyond 2 GiB, weights go to ``.data``."""
    with atomic_replacement(path, ".onnx") as temporary:
        if fits_message(model):
            onnx.save(model, str(temporary))
            return
        external = path.with_name(f"{path.name}.data")
        with atomic_replacement(external) as held, held.open("wb") as data:
            write_with_external_weights(model, temporary, data, external.name)


def external_files(path: Path) -> list[str]:
    """Return the sorted names of a model's external weight files; raise ModelError if a file is missing or invalid."""
    found = set()
    for tensor in external_tensors(_parse(path)):
        place_of(tensor, path)  # checks that it is a regular file
        found.add(next(entry.value for entry in tensor.external_data if entry.key == "location"))
    return sorted(found)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a model file and its external data in hexadecimal."""
    return hash_files(path, *(path.parent / name for name in external_files(path)))
