"""Dynamic axes of the inputs, and the inputs that a dynamic file is checked on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, ConfigError, ModelError

if TYPE_CHECKING:
    from onnx import ModelProto


def dynamic_axes(
    inputs: Sequence[Array],
    input_names: Sequence[str],
    output_names: Sequence[str],
    dynamic: Mapping[str, Mapping[int, str]] | None,
) -> list[dict[int, str]]:
    """Return the dynamic axes of every input, in order; ``dynamic=None`` makes axis 0 of every input ``batch``.

    Raises ConfigError: wrong number of names, an unknown name or axis in ``dynamic``, or a name with two sizes.
    """
    if len(inputs) != len(input_names):
        raise ConfigError(f"got {len(inputs)} example inputs and {len(input_names)} input_names {list(input_names)}")
    if dynamic is None:
        return _of_one_size([{0: "batch"} if x.ndim else {} for x in inputs], input_names, inputs)
    unknown = set(dynamic) - set(input_names) - set(output_names)  # outputs' dynamic axes follow from the inputs'
    if unknown:
        raise ConfigError(f"dynamic names {sorted(unknown)}, which are not among input_names {list(input_names)}")
    axes = [dict(dynamic.get(name, {})) for name in input_names]
    for name, array, named in zip(input_names, inputs, axes, strict=True):
        if any(not 0 <= axis < array.ndim for axis in named):
            raise ConfigError(f"dynamic axes {sorted(named)} of input {name!r}: it has axes 0 to {array.ndim - 1}")
    return _of_one_size(axes, input_names, inputs)


def _of_one_size(
    axes: list[dict[int, str]], input_names: Sequence[str], inputs: Sequence[Array]
) -> list[dict[int, str]]:
    """Return the axes; raise ConfigError if a name has two sizes."""
    seen: dict[str, tuple[int, str]] = {}
    for name, array, named in zip(input_names, inputs, axes, strict=True):
        for axis, symbol in named.items():
            place = f"axis {axis} of input {name!r}"
            size, first = seen.setdefault(symbol, (array.shape[axis], place))
            if size != array.shape[axis]:
                raise ConfigError(
                    f"dynamic axis {symbol!r} has size {size} on {first} and size {array.shape[axis]} on {place}; "
                    "use different names in dynamic, or example inputs of the same size"
                )
    return axes


def dynamic_inputs(inputs: Sequence[Array], axes: Sequence[Mapping[int, str]]) -> list[list[Array]]:
    """Return the inputs to check a dynamic model on: the example, a batch of 2n + 1, every other dynamic axis doubled.

    The second is left out without a dynamic batch axis (a name found on an axis 0), the third without another one. New
    samples have the values of the example in reverse order (integers along dynamic axes, masks along the batch), so
    that they are valid, for example as token ids. ``axes``: per input, its dynamic axes and their names.
    """
    batch = {name for named in axes for axis, name in named.items() if axis == 0}
    others = {name for named in axes for name in named.values()} - batch
    tried = [list(inputs)]
    if batch:
        tried.append([_grown(x, named, batch, 1) for x, named in zip(inputs, axes, strict=True)])
    if others:
        tried.append([_grown(x, named, others, 0) for x, named in zip(inputs, axes, strict=True)])
    return tried


def _grown(array: Array, named: Mapping[int, str], names: set[str], extra: int) -> Array:
    """Return the array with each axis of these names grown from n to 2n + extra."""
    for axis, name in named.items():
        if name in names:
            size = 2 * array.shape[axis] + extra
            turned = np.flip(array, _turned(array, named, axis))
            array = np.concatenate([array, turned, array], axis=axis).take(range(size), axis=axis)
    return np.array(array, order="C")


def _turned(array: Array, named: Mapping[int, str], axis: int) -> int | tuple[int, ...] | None:
    """Return the axes along which new samples are reversed; ``None``: all. For integers these are the dynamic axes, as
    each position of a fixed axis may index another table. A mask is reversed along ``axis`` only: otherwise it would
    pad in front, which is undefined for causal models.
    """
    if array.size and ((array == 0) | (array == 1)).all():
        return axis
    return tuple(sorted(named)) if array.dtype.kind in "iu" else None


def check_dynamic(model: ModelProto, axes: Sequence[Mapping[int, str]]) -> ModelProto | ModelError:
    """Return the graph, or an error with the dynamic axis that the exporter made a constant."""
    for value, named in zip(model.graph.input, axes, strict=True):
        for axis in named:
            dim = value.type.tensor_type.shape.dim[axis]
            if not dim.dim_param:
                return ModelError(
                    f"axis {axis} of input {value.name!r} became the constant {dim.dim_value} in the exported model: "
                    "the model's code fixes it; leave the axis out of dynamic"
                )
    return model
