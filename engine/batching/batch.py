"""The batch of a model: which dimensions it is, whether a call can be split along them, and how it is split.

An engine instance may compute exactly ``size`` samples. A call of any number of samples is split into shards of
``size`` samples in order, along the batch axis of each tensor; the last shard is padded by repeating its last sample,
which is valid data where zeros might not be, and the padding is trimmed from the results. An output without a batch
axis is returned once if all shards agree on it, and raises an error if they do not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from engine.batching.card_sizes import per_spa
from engine.batching.dims import Places, call_sizes, check_dims, wrong_shape
from engine.batching.independence import TOLERANCE, batching_of, difference
from engine.signature import (
    Array,
    BatchAxes,
    Dim,
    TensorSpec,
    axis_of,
    batch_axes,
    bind_sizes,
    input_order,
    numpy_name,
    symbols_of,
)
from engine.spec import EngineSpec
from tecoinfer_modelzoo.errors import EngineError, InputError, ModelError
from tecoinfer_modelzoo.text import user_stacklevel

Ask = Callable[[Mapping[str, int]], BatchAxes]
"""Return the batch axes and whether samples are independent, given the batch axes the caller knows, by input name."""

Run = Callable[[list[Array]], list[Array]]
MapShards = Callable[[list[list[Array]]], Iterable[list[Array]]]


class Batching:
    """Which dimensions of a model's tensors are the batch, and whether a call may be split along them.

    The batch axes are guessed from the declared shapes at first. The graph is analysed (:meth:`learn`) when it matters:
    a call does not fit, or has to be split. Engines of one model may share an object.

    Attributes:
        inputs, outputs: tensors with batch axes and bound sizes, the inputs in the caller's order.
        lead, batch_axis, static_batch, independent: as in :class:`engine.base.Engine`.
        why_dependent: why samples depend on one another, or why that is unknown.
        places: positions of the symbols in ``dims``, whose sizes every call must have.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.inputs: list[TensorSpec] = []
        self.outputs: list[TensorSpec] = []
        self.lead = self.batch_axis = 0
        self.static_batch: int | None = None
        self.independent: bool | None = None
        self.why_dependent = ""
        self.places: Places = {}
        self._analysed = True  # the model is set in bind()
        self._warned: set[str] = set()

    def bind(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Sequence[Sequence[Dim]],
        ask: Ask | None = None,
    ) -> EngineSpec:
        """Set the model's signature, as :meth:`engine.base.Engine.bind` does; return the spec that fits it."""
        order = input_order([tensor.name for tensor in inputs], self.spec.input_name, self.spec.ckpt)
        declared = [shapes[i] for i in order]
        spec = self.spec.with_shapes([len(shape) for shape in declared])
        self.spec = per_spa(spec.with_images(declared).with_open_sizes(declared), declared)
        self._declared, self._shapes, self._order = (inputs, outputs), shapes, order
        self._analysed = False
        if ask is not None:
            self._set_analysis(ask(self._axes_from_input_size()))
        else:
            self._set_axes(batch_axes(shapes, self._sizes_in_order(), self.spec.dims), None)
        return self.spec

    def _sizes_in_order(self) -> Sequence[Sequence[int | None]] | None:
        sizes = self.spec.input_size
        return None if sizes is None else [sizes[self._order.index(i)] for i in range(len(self._order))]

    def _axes_from_input_size(self) -> dict[str, int]:
        """Return the batch axes that follow from ``input_size``: dimensions of several symbols bound to one size."""
        axes = batch_axes(self._shapes, self._sizes_in_order(), self.spec.dims)
        if axes == batch_axes(self._shapes, None, self.spec.dims):
            return {}
        both = zip(self._declared[0], axes, strict=True)
        return {tensor.name: axis for tensor, axis in both if axis is not None}

    def _set_axes(self, axes: Sequence[int | None], output_axes: Sequence[int | None] | None) -> None:
        """Set inputs and outputs; an output's default batch axis is that of the batch's symbol, else 0."""
        inputs, outputs = self._declared
        named = [
            replace(tensor, batch_axis=axis, symbols=symbols_of(shape))
            for tensor, axis, shape in zip(inputs, axes, self._shapes, strict=True)
        ]
        self.inputs = [named[i] for i in self._order]
        if self.spec.input_size is not None:
            self.inputs = bind_sizes(self.inputs, self.spec.input_size, self.spec.ckpt)
        first, self.batch_axis = next(((i, axis) for i, axis in enumerate(axes) if axis is not None), (None, 0))
        self.lead, self.static_batch, symbol = 0, None, None
        if first is not None:
            self.lead, symbol = self._order.index(first), named[first].symbols[self.batch_axis]
            self.static_batch = self.inputs[self.lead].shape[self.batch_axis]
        if output_axes is None:
            output_axes = [(axis_of(symbol, tensor.symbols) or 0) if symbol else 0 for tensor in outputs]
        self.outputs = [replace(tensor, batch_axis=axis) for tensor, axis in zip(outputs, output_axes, strict=True)]
        self.places = check_dims(self.spec.dims, self.inputs, self.spec.ckpt)

    def _set_analysis(self, found: BatchAxes) -> None:
        """Set what the analysis of a graph found, axes in the model's order."""
        found = found.without(self._shapes, self.spec.dims)
        self._analysed = True
        self._set_axes(found.inputs, found.outputs)
        self.independent = True if self.static_batch == 1 else found.independent  # a batch of 1 has one sample
        self.why_dependent = found.reason

    def learn(self) -> bool:
        """Find the batch axes, and whether samples are independent, from the graph; the file is read at most once.

        That takes as long as loading the model, so engines call it only if the answer matters. A file that is not an
        ONNX model (a TensorRT plan) changes nothing.

        Returns:
            Whether the graph was analysed by this call.

        Raise ConfigError if ``input_size`` or ``dims`` of the spec does not fit the axes that were found.
        """
        if self._analysed:
            return False
        self._analysed = True  # even if the file cannot be read
        from engine.onnx.load import load_model

        try:
            model = load_model(self.spec.ckpt)
        except ModelError:
            return True
        dtypes = {tensor.name: tensor.dtype for tensor in (*self.inputs, *self.outputs)}
        self._set_analysis(batching_of(model, self._axes_from_input_size()))
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.outputs]
        return True

    # -------------------------------------------------------------------------------------------------------- calls

    def checked(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the arrays of a call in the dtypes of the model's inputs.

        Args:
            inputs: a list or tuple of one array per input, in the caller's order. Other sequences are refused:
                iterating over a torch tensor would take it apart.

        Raise InputError if type, number, shape or dtype is wrong, or the batch is empty.
        """
        if not isinstance(inputs, (list, tuple)):
            raise InputError(f"inputs are a {type(inputs).__name__}, not a list of numpy arrays; use np.asarray(...)")
        arrays, specs = list(inputs), self.inputs
        if len(arrays) != len(specs):
            count, names = len(specs), ", ".join(map(attrgetter("name"), specs))
            raise InputError(f"{self.spec.ckpt}: got {len(arrays)} input arrays, the model takes {count}: {names}")
        batch = 0
        for index, spec in enumerate(specs):
            array = arrays[index]
            if not isinstance(array, np.ndarray):
                raise InputError(
                    f"input {spec.name!r} is a {type(array).__name__}, not a numpy array; use np.asarray(...)"
                )
            if array.dtype != spec.dtype:
                arrays[index] = array = _cast_to(array, spec, self._warned)
            shape, axis = array.shape, spec.batch_axis
            if not fits(shape, spec) or (0 in shape and not self._analysed):  # the 0 may not be that of the batch
                return self._checked_again(arrays, spec, array)
            if axis is not None:
                if batch and shape[axis] != batch:
                    return self._checked_again(arrays, spec, array, batch)
                batch = shape[axis]
        if self.places:
            call_sizes(arrays, self.places, self.spec.dims, specs)
        return arrays

    def _checked_again(self, arrays: list[Array], spec: TensorSpec, array: Array, batch: int = 0) -> list[Array]:
        """Check a call again with the batch axes of the graph; raise an error if they were known already.

        Args:
            arrays: of the call. spec, array: the input that does not fit. batch: samples of the inputs before it, if
                it has another number of samples.
        """
        if self.learn():
            return self.checked(arrays)
        if batch and spec.batch_axis is not None:
            raise InputError(
                f"input {spec.name!r} has {array.shape[spec.batch_axis]} samples, the inputs before it have {batch}"
            )
        raise wrong_shape(array, spec)

    def in_pieces(self, engine: Any, run: Run, inputs: list[Array], size: int) -> list[Array]:
        """Run a call in padded pieces of exactly ``size`` samples, on a model or a plan of a fixed batch.

        Args:
            engine: the engine, whose ``infer`` cannot run the call whole. run: computes ``size`` samples.
            inputs: a checked call of another number of samples.

        Raise EngineError if the samples depend on one another.
        """
        if self.learn():
            found: list[Array] = engine.infer(self.checked(inputs))  # the batch may be another dimension than guessed
            return found
        run = engine._lasting(run)
        if self.independent is None and size > 1 and samples_differ(inputs, self.inputs):
            self.why_dependent = compare_with_changed(run, inputs, self.inputs, self.outputs, size)
            self.independent = not self.why_dependent
        if self.independent is False:
            self.refuse_pieces(batch_of(inputs, self.inputs), size)
        return run_sharded(run, inputs, self.inputs, self.outputs, size, owned=True)

    def refuse_pieces(self, total: int, size: int) -> NoReturn:
        """Raise EngineError: ``total`` samples that depend on one another cannot be computed ``size`` at a time."""
        if self.static_batch is None:
            limit, fix = f"a run takes at most {size} samples", f"open it with batch_size {total}"
        else:
            limit = f"its batch is fixed to {size}"
            fix = f"call it with exactly {size} samples, or export the model with a dynamic batch"
        raise EngineError(
            f"{self.spec.ckpt}: {limit} and its samples depend on one another ({self.why_dependent}), so a call of "
            f"{total} can be neither padded nor split; {fix}"
        )


def fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    """Return whether an array of this shape can be fed to an input.

    A dimension of size 0 fits if the model declares it or leaves it dynamic, as that of a cache before the first step;
    a batch of 0 samples fits only if it is declared.
    """
    want, axis = spec.shape, spec.batch_axis
    if len(shape) != len(want) or (0 in shape and axis is not None and shape[axis] == 0 != want[axis]):
        return False
    if axis is not None:
        shape, want = shape[:axis] + shape[axis + 1 :], want[:axis] + want[axis + 1 :]
    return shape == want or all(w is None or w == got for w, got in zip(want, shape, strict=True))


def batch_of(inputs: Sequence[Array], specs: Sequence[TensorSpec]) -> int:
    """Return the number of samples in a call (1 for a model without a batch)."""
    for array, spec in zip(inputs, specs, strict=True):
        if spec.batch_axis is not None:
            return int(array.shape[spec.batch_axis])
    return 1


# ------------------------------------------------------------------------------------------------------------ sharding


def split(inputs: Sequence[Array], axes: Sequence[int | None], total: int, size: int) -> list[list[Array]]:
    """Split a call into shards of exactly ``size`` samples; inputs without a batch are shared, not copied.

    A full shard is a view of the caller's arrays; only a short last one is copied, to be padded.

    Args:
        inputs: the call's arrays. axes: the batch axis of each, or ``None``.
        total: samples of the call. size: samples of a shard.
    """
    return [
        [_rows(array, axis, start, size) for array, axis in zip(inputs, axes, strict=True)]
        for start in range(0, total, size)
    ]


def _rows(array: Array, axis: int | None, start: int, size: int) -> Array:
    if axis is None:
        return array
    part = array[along(axis, start, start + size)]
    missing = size - part.shape[axis]
    if not missing:
        return part
    return np.concatenate([part, np.repeat(part[along(axis, -1, None)], missing, axis)], axis)


def along(axis: int, start: int | None, stop: int | None) -> tuple[slice, ...]:
    """Return the index of a range of one axis and all of the axes before it."""
    return (*(slice(None),) * axis, slice(start, stop))


def gather(results: Sequence[Sequence[Array]], outputs: Sequence[TensorSpec], total: int, size: int) -> list[Array]:
    """Concatenate the shards' outputs in order and trim the padding.

    Raise EngineError if an output has no batch dimension and the shards disagree on its value.
    """
    return [_gather_one([result[i] for result in results], spec, total, size) for i, spec in enumerate(outputs)]


def _gather_one(parts: list[Array], output: TensorSpec, total: int, size: int) -> Array:
    axis = output.batch_axis
    if axis is not None and all(_has_batch(part, axis, size) for part in parts):
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
        return whole[along(axis, None, total)]
    if all(np.array_equal(part, parts[0], equal_nan=part.dtype.kind == "f") for part in parts[1:]):
        return parts[0]
    shapes = ", ".join(sorted({str(part.shape) for part in parts}))
    raise EngineError(
        f"output {output.name!r} has no batch dimension of {size} (shapes {shapes}) and its value differs between "
        f"shards; export it per sample, or call the engine with exactly {size} samples"
    )


def _has_batch(array: Array, axis: int, size: int) -> bool:
    return array.ndim > axis and array.shape[axis] == size


def run_sharded(
    run: Run,
    inputs: list[Array],
    specs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    size: int,
    mapper: MapShards | None = None,
    owned: bool = False,
) -> list[Array]:
    """Run a call of any batch on an instance of fixed batch ``size``.

    Args:
        run: computes one shard of ``size`` samples.
        inputs: the call's arrays, in the order of ``specs``.
        specs: the graph's inputs; those with a ``batch_axis`` are split along it.
        outputs: the graph's outputs; one without a ``batch_axis`` is returned once.
        size: samples of one shard.
        mapper: runs all shards, such as in parallel; ``None`` runs them in sequence.
        owned: whether the results of ``run`` and ``mapper`` are not overwritten by the next shard; if ``False``, all
            results are copied.
    """
    take = list if owned else _copied
    axes = [spec.batch_axis for spec in specs]
    if all(axis is None for axis in axes):
        return run(inputs)
    total = batch_of(inputs, specs)
    shards = split(inputs, axes, total, size)
    results = [take(result) for result in (mapper(shards) if mapper else map(run, shards))]
    if len(shards) == 1 and total < size and not _all_batched(results[0], outputs, size):
        # An output without a batch dimension may depend on the padding, and one shard leaves nothing to compare with:
        # run again with other padding.
        results.append(
            take(run([_other_padding(array, axis, total) for array, axis in zip(shards[0], axes, strict=True)]))
        )
    return gather(results, outputs, total, size)


def _copied(arrays: Sequence[Array]) -> list[Array]:
    return [array.copy() for array in arrays]


def _all_batched(results: Sequence[Array], outputs: Sequence[TensorSpec], size: int) -> bool:
    both = zip(results, outputs, strict=True)
    return all(o.batch_axis is not None and _has_batch(part, o.batch_axis, size) for part, o in both)


def _other_padding(array: Array, axis: int | None, total: int) -> Array:
    """Return a padded shard with other padding: zeros, or ones if the padding is zeros."""
    if axis is None:
        return array
    padded = array.copy()
    padded[along(axis, total, None)] = 0 if array[along(axis, -1, None)].any() else 1
    return padded


# -------------------------------------------------------------------------------------- are the samples independent?


def samples_differ(inputs: Sequence[Array], specs: Sequence[TensorSpec]) -> bool:
    """Return whether a call has two different samples, without which it cannot show dependence."""
    return any(
        spec.batch_axis is not None and not np.array_equal(array, np.roll(array, 1, spec.batch_axis))
        for array, spec in zip(inputs, specs, strict=True)
    )


def compare_with_parts(
    run: Run, inputs: list[Array], specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], size: int
) -> str:
    """Run a call whole and in padded parts of ``size`` samples; return how the results differ, or "" if they agree.

    A single call does not prove independence; it shows dependence if its samples differ, as those of real inputs do.

    Args:
        run: computes a call of any number of samples.
        inputs, specs, outputs: the call's arrays, and the graph's tensors.
        size: samples of a part.
    """
    whole, total = run(inputs), batch_of(inputs, specs)
    parts = [run(part) for part in split(inputs, [spec.batch_axis for spec in specs], total, size)]
    problems = (
        (output.name, _compare_pieces(want, [part[i] for part in parts], output.batch_axis, total, size))
        for i, (output, want) in enumerate(zip(outputs, whole, strict=True))
    )
    return next((f"output {name!r} {problem}" for name, problem in problems if problem), "")


def _compare_pieces(want: Array, pieces: list[Array], axis: int | None, total: int, size: int) -> str:
    """Return how one output of a whole call differs from those of its parts, or ""."""
    if axis is None or not _has_batch(want, axis, total):
        same = not any(difference(want, piece, TOLERANCE) for piece in pieces)
        return "" if same else "has no row per sample, and that of a whole call is not that of its parts"
    if not all(_has_batch(piece, axis, size) for piece in pieces):
        return f"has no dimension of {size} samples where {size} go in"
    problem = difference(want, np.concatenate(pieces, axis)[along(axis, None, total)], TOLERANCE)
    return f"of a whole call is not that of its parts: {problem}" if problem else ""


def compare_with_changed(
    run: Run, inputs: list[Array], specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], size: int
) -> str:
    """Replace samples of a call by another one; return which output of the other samples changes, or "" if none does.

    For models of a fixed batch, which cannot run a part of it.

    Args:
        run: computes exactly ``size`` samples.
        inputs, specs, outputs: a call, and the graph's tensors; fewer than ``size`` samples are repeated in turn.
        size: samples that ``run`` takes, at least 2.
    """
    places = np.arange(size)
    inputs = [_taken(a, s.batch_axis, places % batch_of(inputs, specs)) for a, s in zip(inputs, specs, strict=True)]
    before = run(inputs)
    for kept in (places < size // 2, places >= size // 2, places % 2 == 0, places % 2 == 1):
        source = np.where(kept, places, places[kept][0])
        try:
            after = run([_taken(array, spec.batch_axis, source) for array, spec in zip(inputs, specs, strict=True)])
        except EngineError:  # such as values that are a shape
            return "a call in which samples change places cannot be computed"
        for output, want, got in zip(outputs, before, after, strict=True):
            axis = output.batch_axis
            if axis is None or not _has_batch(want, axis, size):
                if difference(want, got, TOLERANCE):
                    return f"output {output.name!r} has no row per sample, and changes with the samples"
                continue
            problem = difference(_taken(want, axis, places[kept]), _taken(got, axis, places[kept]), TOLERANCE)
            if problem:
                return f"output {output.name!r} of a sample changes with the other samples: {problem}"
    return ""


def _taken(array: Array, axis: int | None, places: Array) -> Array:
    return array if axis is None else np.take(array, places, axis)


def _cast_to(array: Array, spec: TensorSpec, warned: set[str]) -> Array:
    """Cast an array within a kind of dtype; raise InputError for another kind, or a wider dtype that is not a float.

    Narrowing floats warns once per input, and once more if values become infinite; ``warned`` records the warnings.
    """
    if array.dtype.kind != spec.dtype.kind or (spec.dtype.kind != "f" and not np.can_cast(array.dtype, spec.dtype)):
        wanted = f"the model takes {spec.dtype}; use array.astype({numpy_name(spec.dtype)})"
        raise InputError(f"input {spec.name!r} has dtype {array.dtype}, {wanted}")
    lost: list[str] = []
    # Values beyond the narrower range become infinite, as on the device; NumPy reports overflows of the cast.
    with np.errstate(over="call", call=lambda kind, _: lost.append(kind)):
        cast = array.astype(spec.dtype)
    if not np.can_cast(array.dtype, spec.dtype):
        _warn_narrowed(array, spec.name, spec.dtype, warned, infinite=bool(lost))
    return cast


def _warn_narrowed(
    array: np.ndarray[Any, np.dtype[Any]], name: str, dtype: np.dtype[Any], warned: set[str], infinite: bool
) -> None:
    """Warn per input about narrowed floats, with advice if all are representable, and about new infinities."""
    beyond = f"{name}: infinite"
    if beyond in warned or (name in warned and not infinite):
        return
    whole = 2 ** (np.finfo(dtype).nmant + 1)
    if infinite:
        warned.add(beyond)
        advice = f"values beyond {np.finfo(dtype).max:g} became infinite; scale them down, or use --dtype float32"
    elif (np.abs(array) > whole).any():
        advice = f"it does not represent all integers above {whole}; if that matters, use --dtype float32"
    else:
        advice = f"preprocess to {dtype} to save the copy"
    warned.add(name)
    warnings.warn(f"input {name!r}: {array.dtype} cast to the model's {dtype}; {advice}", stacklevel=user_stacklevel())
