"""Sizes of symbolic dimensions: lookup, validation of calls, and error messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.signature import Array, TensorSpec
from tecoinfer_modelzoo.errors import ConfigError, InputError
from tecoinfer_modelzoo.text import shape_text

Places = Mapping[str, Sequence[tuple[int, int]]]  # symbol -> positions as (index of the input, dimension), in order


def symbol_places(inputs: Sequence[TensorSpec]) -> dict[str, list[tuple[int, int]]]:
    """Return the symbols of dynamic dimensions except the batch, and their positions."""
    places: dict[str, list[tuple[int, int]]] = {}
    for i, tensor in enumerate(inputs):
        for axis, (symbol, size) in enumerate(zip(tensor.symbols, tensor.shape, strict=False)):
            if symbol is not None and size is None and axis != tensor.batch_axis:
                places.setdefault(symbol, []).append((i, axis))
    return places


def check_dims(dims: Mapping[str, Sequence[int]], inputs: Sequence[TensorSpec], ckpt: Path) -> Places:
    """Return the positions of the symbols in ``dims``; raise ConfigError for an unknown, bound or batch symbol."""
    places = symbol_places(inputs)
    for symbol, sizes in dims.items():
        if symbol not in places:
            _check_closed(symbol, sizes, inputs, ckpt, places)
    return {symbol: places[symbol] for symbol in dims if symbol in places}


def _check_closed(symbol: str, sizes: Sequence[int], inputs: Sequence[TensorSpec], ckpt: Path, places: Places) -> None:
    """Accept a symbol that ``input_size`` binds to the requested size; raise for others."""
    found = [(t, axis) for t in inputs for axis, name in enumerate(t.symbols) if name == symbol]
    if any(axis == tensor.batch_axis for tensor, axis in found):
        raise ConfigError(f"{ckpt}: --dim {symbol}: {symbol!r} is the model's batch; use --batch_size for it")
    if found:
        tensor, axis = found[0]
        if tuple(sizes) != (tensor.shape[axis],):
            bound = f"input_size binds {symbol!r} to {tensor.shape[axis]}; remove one of the two"
            raise ConfigError(f"{ckpt}: --dim {symbol}={_listed(sizes)}: {bound}")
        return
    has = f"its symbolic dimensions are: {', '.join(places)}" if places else "it has no symbolic dimension"
    raise ConfigError(f"{ckpt}: --dim {symbol}: the model has no dimension {symbol!r}; {has}")


def call_sizes(
    arrays: Sequence[Array], places: Places, dims: Mapping[str, Sequence[int]], inputs: Sequence[TensorSpec]
) -> tuple[int, ...]:
    """Return a call's sizes in the order of ``places``; raise InputError if arrays disagree, or ``dims`` lacks one."""
    found = []
    for symbol, spots in places.items():
        first, axis = spots[0]
        size = arrays[first].shape[axis]
        for i, other in spots[1:]:
            if arrays[i].shape[other] != size:
                other_size = f"input {inputs[i].name!r} has {symbol} = {arrays[i].shape[other]}"
                raise InputError(f"{other_size}, input {inputs[first].name!r} has {size}; pad them to the same size")
        if size not in dims[symbol]:
            fix = f"pad the arrays, or open it with --dim {symbol}={_listed(sorted({*dims[symbol], size}))}"
            found_size = f"input {inputs[first].name!r} has {symbol} = {size}"
            raise InputError(f"{found_size}, the engine has plans for {_listed(dims[symbol])}; {fix}")
        found.append(size)
    return tuple(found)


def how_to_bind(inputs: Sequence[TensorSpec], dims: Mapping[str, Sequence[int]]) -> str:
    """Return the advice to bind unbound dynamic dimensions, as a part of a sentence with the model's symbols."""
    symbols = [symbol for symbol in symbol_places(inputs) if symbol not in dims]
    shapes = ", ".join(_example(tensor) for tensor in inputs)
    by_name = f"pass {' '.join(f'--dim {symbol}=128' for symbol in symbols)}, or " if symbols else "pass "
    return f"{by_name}one full shape per input as input_size or --input_shapes, such as {shapes}"


def open_cache(inputs: Sequence[TensorSpec], dims: Mapping[str, Sequence[int]]) -> str | None:
    """Return the problem of a key/value cache with a dynamic size, as a part of a sentence; ``None`` if there is none.

    A decoder that receives its own past, one token longer in each call, changes its shape every time. A cache is
    recognized by its name, because other inputs with one dynamic dimension have the same shape.
    """
    for tensor in inputs:
        named = any(word in tensor.name.lower() for word in ("past", "cache"))
        both = enumerate(zip(tensor.shape, tensor.symbols or (None,) * len(tensor.shape), strict=True))
        free = [name or "?" for i, (d, name) in both if d is None and i != tensor.batch_axis and name not in dims]
        if named and len(tensor.shape) > 2 and free:
            return (
                f"input {tensor.name!r} is a cache with the dynamic size {free[0]!r}, and a cache that grows with "
                "each call cannot run with fixed shapes; export the model with a mask and a cache of planned sizes and "
                f"pass --lengths 64 128 256 of task text_generation, or --dim {free[0]}=64,128,256"
            )
    return None


def _example(tensor: TensorSpec) -> str:
    """Return an example shape of an input in the syntax of ``--input_shapes``."""
    sizes = (16 if axis == tensor.batch_axis else d or 128 for axis, d in enumerate(tensor.shape))
    return f"{tensor.name}:{shape_text(sizes)}"


def shown_shape(tensor: TensorSpec) -> str:
    """Return a shape as text: numbers, symbols of dynamic dimensions, N for the batch and unnamed dimensions."""
    symbols = tensor.symbols or (None,) * len(tensor.shape)
    both = enumerate(zip(tensor.shape, symbols, strict=True))
    shown = [str(d) if d is not None else "N" if i == tensor.batch_axis else name or "N" for i, (d, name) in both]
    return shape_text(shown)


def wrong_shape(array: Array, spec: TensorSpec) -> InputError:
    """Return the error for an array with a wrong shape."""
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
