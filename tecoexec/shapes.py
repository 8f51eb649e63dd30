"""Shapes and dtypes on the command line (:mod:`utils.shapes`), and their assignment to a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError, Dim, TensorSpec
from engine.signature import batch_axes, input_order, with_batch
from tecoinfer_modelzoo.text import did_you_mean, shape_text
from utils.shapes import parse_dims, read_shapes

Shape = tuple[int, ...]

INPUT_DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs of a model: names, dtypes, and declared shapes with the symbols of dynamic dimensions.

    Attributes:
        batch_axes: batch axis of each input if known; ``None`` to derive them from the shapes.
        split: whether a call is divided among the SPA; not if samples depend on one another.
    """

    path: Path
    inputs: tuple[TensorSpec, ...]
    dims: tuple[tuple[Dim, ...], ...]
    batch_axes: tuple[int | None, ...] | None = None
    split: bool = True

    def axes(self, shapes: Sequence[Shape] | None = None) -> tuple[int | None, ...]:
        """Return the batch axis of each input, for bound shapes if given."""
        guessed = tuple(batch_axes(self.dims, shapes))
        if self.batch_axes is None or guessed != tuple(batch_axes(self.dims)):
            return guessed  # shapes bind several symbols to one size
        return self.batch_axes

    def __str__(self) -> str:
        both = zip(self.inputs, self.dims, strict=True)
        return ", ".join(f"{spec.name}:{shape_text(dims)}" for spec, dims in both)


@dataclass(frozen=True, slots=True)
class CardShapes:
    """Shapes of one call to the whole card, batch axes, samples, and whether the call is divided among the SPA."""

    whole: tuple[Shape, ...]
    axes: tuple[int | None, ...]
    batch: int
    split: bool = True

    def per_spa(self, spa_count: int) -> tuple[Shape, ...]:
        """Return the shapes of one SPA's share, with the batch divided by the number of SPA and rounded up."""
        share = -(-self.batch // (spa_count if self.split else 1))
        return tuple(with_batch(shape, axis, share) for shape, axis in zip(self.whole, self.axes, strict=True))


def parse_shapes(text: str) -> list[tuple[str, Shape]]:
    """Parse ``[name:]shape[,[name:]shape...]``, with an empty name if omitted; raise ConfigError if invalid."""
    return [(name, tuple(size or 0 for size in shape)) for name, shape in read_shapes(text)]


def parse_dtypes(text: str) -> list[str]:
    """Parse dtypes separated by commas; raise ConfigError if a dtype is unknown."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in INPUT_DTYPES:
            raise ConfigError(f"--input_dtype {text!r}: unknown dtype {name!r}; use one of: {', '.join(INPUT_DTYPES)}")
    return names


def single_dims(words: Sequence[str]) -> dict[str, int]:
    """Parse ``NAME=SIZE`` words, one size each; raise ConfigError for another form."""
    found = parse_dims(words)
    several = next((name for name, sizes in found.items() if len(sizes) != 1), None)
    if several is not None:
        raise ConfigError(f"--dim {several} has several sizes, and a measurement has one; run it once for each")
    return {name: sizes[0] for name, sizes in found.items()}


def sized(model: Signature, dims: Mapping[str, int]) -> list[tuple[str, Shape]]:
    """Return the shapes of a call with these sizes of the dynamic dimensions.

    Raises ConfigError for an unknown name, and a dynamic dimension without a size.
    """
    names = list(dict.fromkeys(dim for shape in model.dims for dim in shape if isinstance(dim, str)))
    unknown = next((name for name in dims if name not in names), None)
    if unknown is not None:
        has = f"it has {', '.join(names)}" if names else "none of its dimensions has a name: use --input_shapes"
        raise ConfigError(f"--dim {unknown}: {model.path} has no such dimension;{did_you_mean(unknown, names)} {has}")
    missing = next((name for name in names if name not in dims), None)
    if missing is not None:
        raise ConfigError(f"--dim: the size of dimension {missing!r} is missing; {_takes(model)}")
    if any(dim is None for shape in model.dims for dim in shape):
        raise ConfigError(f"--dim: a dynamic dimension has no name; use --input_shapes; {_takes(model)}")
    return [
        (spec.name, tuple(dims[dim] if isinstance(dim, str) else dim or 0 for dim in shape))
        for spec, shape in zip(model.inputs, model.dims, strict=True)
    ]


def fit_shapes(given: Sequence[tuple[str, Shape]], model: Signature) -> CardShapes:
    """Return given shapes in the model's order; raise ConfigError for wrong count, name, rank or size."""
    shapes = _in_order(given, model)
    for shape, spec, dims in zip(shapes, model.inputs, model.dims, strict=True):
        if len(shape) != len(dims):
            raise ConfigError(f"{_misfit(shape, spec)}: {len(shape)} dimensions, not {len(dims)}; {_takes(model)}")
    axes = model.axes(shapes)
    _check_sizes(shapes, axes, model)
    sizes = sorted({shape[axis] for shape, axis in zip(shapes, axes, strict=True) if axis is not None})
    if len(sizes) > 1:
        batches = ", ".join(map(str, sizes))
        raise ConfigError(f"--input_shapes: the inputs disagree on the batch ({batches}); {_takes(model)}")
    return CardShapes(tuple(shapes), axes, sizes[0] if sizes else 1, model.split)


def _check_sizes(shapes: Sequence[Shape], axes: Sequence[int | None], model: Signature) -> None:
    """Reject sizes that differ from the model's, except the batch."""
    for shape, spec, dims, batch_axis in zip(shapes, model.inputs, model.dims, axes, strict=True):
        for axis, (size, dim) in enumerate(zip(shape, dims, strict=True)):
            if isinstance(dim, int) and dim != size and axis != batch_axis:
                raise ConfigError(f"{_misfit(shape, spec)}: the model has {dim} instead of {size}; {_takes(model)}")


def own_shapes(model: Signature, spa_count: int) -> CardShapes:
    """Return the default shapes: the model's batch on every SPA; raise ConfigError for dynamic dimensions."""
    own, axes = _fixed(model), model.axes()
    batches = [shape[axis] for shape, axis in zip(own, axes, strict=True) if axis is not None]
    shards = spa_count if model.split and batches else 1
    batch = shards * (batches[0] if batches else 1)
    whole = tuple(with_batch(shape, axis, batch) for shape, axis in zip(own, axes, strict=True))
    return CardShapes(whole, axes, batch, model.split)


def _fixed(model: Signature) -> list[Shape]:
    """Return the model's static shapes."""
    own = [tuple(d for d in dims if isinstance(d, int)) for dims in model.dims]
    if any(len(shape) != len(dims) for shape, dims in zip(own, model.dims, strict=True)):
        raise ConfigError(
            f"{model.path}: its shapes are dynamic, so --dim or --input_shapes is required; {_takes(model)}"
        )
    return own


def _in_order(given: Sequence[tuple[str, Shape]], model: Signature) -> list[Shape]:
    names, wanted = [spec.name for spec in model.inputs], [name for name, _ in given if name]
    if len(given) != len(names):
        raise ConfigError(f"--input_shapes has {len(given)} shapes for {len(names)} inputs; {_takes(model)}")
    if not wanted:
        return [shape for _, shape in given]
    if sorted(wanted) != sorted(names):
        raise ConfigError(f"--input_shapes names {', '.join(wanted)}: name every input once, or none; {_takes(model)}")
    order = input_order(names, wanted, model.path)
    return [given[order.index(i)][1] for i in range(len(names))]


def _misfit(shape: Shape, spec: TensorSpec) -> str:
    return f"--input_shapes {shape_text(shape)} does not fit input {spec.name!r}"


def _takes(model: Signature) -> str:
    return f"{model.path} takes {model}"
