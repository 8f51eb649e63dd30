"""Sizes of symbolic dimensions: which there are, which of them a call has, and what a wrong one is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.signature import Array, TensorSpec
from tecoinfer_modelzoo.errors import ConfigError, InputError
from tecoinfer_modelzoo.text import shape_text

Places = Mapping[str, Sequence[tuple[int, int]]]
"""Symbol -> where it stands: (index of the input, dimension), in order."""


def symbol_places(inputs: Sequence[TensorSpec]) -> dict[str, list[tuple[int, int]]]:
    """Return the symbols of dimensions whose size is open, the batch left out, and where they stand."""
    places: dict[str, list[tuple[int, int]]] = {}
    for i, tensor in enumerate(inputs):
        for axis, (symbol, size) in enumerate(zip(tensor.symbols, tensor.shape, strict=False)):
            if symbol is not None and size is None and axis != tensor.batch_axis:
                places.setdefault(symbol, []).append((i, axis))
    return places


def check_dims(dims: Mapping[str, Sequence[int]], inputs: Sequence[TensorSpec], ckpt: Path) -> Places:
    """Return where the symbols stand whose sizes a call has to have.

    Args:
        dims: sizes by symbol. inputs: with sizes bound. ckpt: the model, for messages.

    Raises:
        ConfigError: a symbol that the model lacks, that is its batch, or that ``input_size`` binds to another size.
    """
    places = symbol_places(inputs)
    for symbol, sizes in dims.items():
        if symbol not in places:
            _check_closed(symbol, sizes, inputs, ckpt, places)
    return {symbol: places[symbol] for symbol in dims if symbol in places}


def _check_closed(symbol: str, sizes: Sequence[int], inputs: Sequence[TensorSpec], ckpt: Path, places: Places) -> None:
    """Let a symbol pass that ``input_size`` binds to the very size asked for."""
    found = [(t, axis) for t in inputs for axis, name in enumerate(t.symbols) if name == symbol]
    if any(axis == tensor.batch_axis for tensor, axis in found):
        raise ConfigError(f"{ckpt}: --dim {symbol}: {symbol!r} is the model's batch; use --batch_size for it")
    if found:
        tensor, axis = found[0]
        if tuple(sizes) != (tensor.shape[axis],):
            raise ConfigError(
                f"{ckpt}: --dim {symbol}={_listed(sizes)}: input_size binds {symbol!r} to {tensor.shape[axis]}; "
                "say the size in one of the two"
            )
        return
    has = f"its symbolic dimensions are: {', '.join(places)}" if places else "it has no symbolic dimension"
    raise ConfigError(f"{ckpt}: --dim {symbol}: the model has no dimension {symbol!r}; {has}")


def call_sizes(
    arrays: Sequence[Array], places: Places, dims: Mapping[str, Sequence[int]], inputs: Sequence[TensorSpec]
) -> tuple[int, ...]:
    """Return the sizes that a call's arrays have, one per symbol in the order of ``places``.

    Raises:
        InputError: two arrays disagree, or a size is not among those of ``dims``.
    """
    found = []
    for symbol, spots in places.items():
        first, axis = spots[0]
        size = arrays[first].shape[axis]
        for i, other in spots[1:]:
            if arrays[i].shape[other] != size:
                raise InputError(
                    f"input {inputs[i].name!r} has {symbol} = {arrays[i].shape[other]}, input {inputs[first].name!r} "
                    f"has {size}; pad them to the same size"
                )
        if size not in dims[symbol]:
            raise InputError(
                f"input {inputs[first].name!r} has {symbol} = {size}, the engine has plans for "
                f"{_listed(dims[symbol])}; pad the arrays to one of these, or open it with "
                f"--dim {symbol}={_listed(sorted({*dims[symbol], size}))}"
            )
        found.append(size)
    return tuple(found)


def how_to_bind(inputs: Sequence[TensorSpec], dims: Mapping[str, Sequence[int]]) -> str:
    """Return how to give the open dimensions a size that have none: part of a sentence, with the model's symbols."""
    symbols = [symbol for symbol in symbol_places(inputs) if symbol not in dims]
    shapes = ", ".join(_example(tensor) for tensor in inputs)
    by_name = f"pass {' '.join(f'--dim {symbol}=128' for symbol in symbols)}, or " if symbols else "pass "
    return f"{by_name}one full shape per input as input_size or --input_shapes, such as {shapes}"


def open_cache(inputs: Sequence[TensorSpec], dims: Mapping[str, Sequence[int]]) -> str | None:
    """Return what is wrong with a key/value cache whose size nobody says: part of a sentence; ``None``: there is none.

    A decoder that is given its own past, one token longer with each call, has another shape each time. It is known by
    its name, as any other input with one open dimension looks the same.
    """
    for tensor in inputs:
        named = any(word in tensor.name.lower() for word in ("past", "cache"))
        both = enumerate(zip(tensor.shape, tensor.symbols or (None,) * len(tensor.shape), strict=True))
        free = [name or "?" for i, (d, name) in both if d is None and i != tensor.batch_axis and name not in dims]
        if named and len(tensor.shape) > 2 and free:
            return (
                f"input {tensor.name!r} is a cache whose size {free[0]!r} is open, and one that grows with each call "
                "cannot run in fixed shapes; export the model with a cache of planned sizes and a mask, and say them: "
                f"--lengths 64 128 256 of task text_generation, or --dim {free[0]}=64,128,256"
            )
    return None


def _example(tensor: TensorSpec) -> str:
    """Return a full shape of an input, as ``--input_shapes`` takes it."""
    sizes = (16 if axis == tensor.batch_axis else d or 128 for axis, d in enumerate(tensor.shape))
    return f"{tensor.name}:{shape_text(sizes)}"


def shown_shape(tensor: TensorSpec) -> str:
    """Return a shape for people: numbers, symbols of open dimensions, N for the batch and where there is no name."""
    symbols = tensor.symbols or (None,) * len(tensor.shape)
    both = enumerate(zip(tensor.shape, symbols, strict=True))
    shown = [str(d) if d is not None else "N" if i == tensor.batch_axis else name or "N" for i, (d, name) in both]
    return shape_text(shown)


def wrong_shape(array: Array, spec: TensorSpec) -> InputError:
    """Return the error of an array that does not fit an input."""
    want, got = shown_shape(spec), shape_text(array.shape)
    if spec.batch_axis is not None and array.shape[spec.batch_axis : spec.batch_axis + 1] == (0,):
        return InputError(
            f"input {spec.name!r} has shape {got}: an empty batch cannot be run; pass at least one sample"
        )
    return InputError(
        f"input {spec.name!r} has shape {got}, the model takes {want}; check the preprocessing or input_size"
    )


def _listed(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))
