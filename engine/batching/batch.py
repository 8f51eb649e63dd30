"""What an engine knows of its batch: guessed from the declared shapes, asked of the graph, or found by computing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from engine.batching.card_sizes import per_spa
from engine.batching.casting import cast_to
from engine.batching.dims import Places, call_sizes, check_dims, wrong_shape
from engine.batching.shard import Run, run_sharded
from engine.border import each
from engine.signature import (
    Array,
    BatchAxes,
    Dim,
    TensorSpec,
    axis_of,
    batch_axes,
    batch_of,
    bind_sizes,
    fits,
    input_order,
    symbols_of,
)
from engine.spec import EngineSpec
from tecoinfer_modelzoo.errors import EngineError, InputError, ModelError

Ask = Callable[[Mapping[str, int]], BatchAxes]
"""Says where the batch is and whether samples are independent, given the batch axes that the caller knows, by input."""


class Batching:
    """Which dimensions of a model's tensors are the batch, and whether a call may be cut along them.

    The batch is a guess at first. The graph is asked (:meth:`learn`) where that matters: a call does not fit, or is to
    be cut into pieces. Engines of one model may share what is known.

    Attributes:
        inputs, outputs: tensors with batch axes and bound sizes, the inputs in the caller's order.
        lead, batch_axis, static_batch, independent: as :class:`engine.base.Engine` shows them.
        why_dependent: why samples depend on one another, or why that is not known.
        places: where the symbols stand whose sizes a call has to have.
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
        self._asked = True  # there is nothing to ask for before bind()
        self._warned: set[str] = set()

    def bind(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Sequence[Sequence[Dim]],
        ask: Ask | None = None,
    ) -> EngineSpec:
        """Take over the model's signature, as :meth:`engine.base.Engine.bind` says; return the spec that fits it."""
        order = input_order([tensor.name for tensor in inputs], self.spec.input_name, self.spec.ckpt)
        found = [shapes[i] for i in order]
        spec = self.spec.with_shapes([len(shape) for shape in found]).with_pictures(found).with_open_sizes(found)
        self.spec = per_spa(spec, found)
        self._declared, self._shapes, self._order = (inputs, outputs), shapes, order
        self._asked = False
        if ask is not None:
            self._take(ask(self._told()))
        else:
            self._set_axes(batch_axes(shapes, self._sizes_in_order(), self.spec.dims), None)
        return self.spec

    def _sizes_in_order(self) -> Sequence[Sequence[int | None]] | None:
        """Return ``input_size`` in the model's order: how the caller lists the inputs says nothing of the batch."""
        sizes = self.spec.input_size
        return None if sizes is None else [sizes[self._order.index(i)] for i in range(len(self._order))]

    def _told(self) -> dict[str, int]:
        """Return the batch axes that ``input_size`` tells: dimensions of several symbols bound to one size."""
        told = batch_axes(self._shapes, self._sizes_in_order(), self.spec.dims)
        if told == batch_axes(self._shapes, None, self.spec.dims):
            return {}
        both = zip(self._declared[0], told, strict=True)
        return {tensor.name: axis for tensor, axis in both if axis is not None}

    def _set_axes(self, axes: Sequence[int | None], output_axes: Sequence[int | None] | None) -> None:
        """Set inputs and outputs for these batch axes, which are in the model's order.

        Without ``output_axes`` the batch of an output is by the batch's symbol, else its first dimension.
        """
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

    def _take(self, found: BatchAxes) -> None:
        """Take over what a graph says of the batch of its inputs and outputs, in the model's order."""
        found = found.without(self._shapes, self.spec.dims)
        self._asked = True
        self._set_axes(found.inputs, found.outputs)
        # With a batch of 1 a sample never meets another one.
        self.independent = True if self.static_batch == 1 else found.independent
        self.why_dependent = found.reason

    def learn(self) -> bool:
        """Ask the graph which dimensions are the batch and whether samples are independent; it is read once.

        That takes as long as reading the model does, so engines ask only where the answer matters. A file that is no
        ONNX model (a plan of TensorRT's) says nothing.

        Returns:
            Whether it was asked now, and not before.

        Raises:
            ConfigError: ``input_size`` or ``dims`` of the spec does not fit what was found.
        """
        if self._asked:
            return False
        self._asked = True  # also where nothing is found
        from engine.batching.independence import batching_of
        from engine.onnx.load import load_model

        try:
            model = load_model(self.spec.ckpt)
        except ModelError:
            return True
        dtypes = {tensor.name: tensor.dtype for tensor in (*self.inputs, *self.outputs)}
        self._take(batching_of(model, self._told()))
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.outputs]
        return True

    # -------------------------------------------------------------------------------------------------------- calls

    def checked(self, arrays: list[Array]) -> list[Array]:
        """Return a call's arrays in the dtypes that the model takes; the list is changed.

        Args:
            arrays: one per input, in the caller's order.

        Raises:
            InputError: their number, a shape or a dtype cannot fit, or the batch is empty.
        """
        if len(arrays) != len(self.inputs):
            count, names = len(self.inputs), ", ".join(map(attrgetter("name"), self.inputs))
            raise InputError(f"{self.spec.ckpt}: got {len(arrays)} input arrays, the model takes {count}: {names}")
        batch = 0
        for index, spec in enumerate(self.inputs):
            array = arrays[index]
            if not isinstance(array, np.ndarray):
                raise InputError(
                    f"input {spec.name!r} is a {type(array).__name__}, not a numpy array; use np.asarray(...)"
                )
            if array.dtype != spec.dtype:
                arrays[index] = array = cast_to(array, spec, self._warned)
            shape, axis = array.shape, spec.batch_axis
            if not fits(shape, spec) or (0 in shape and not self._asked):  # a guess does not say whose size is 0
                return self._checked_again(arrays, spec, array)
            if axis is not None:
                if batch and shape[axis] != batch:
                    return self._checked_again(arrays, spec, array, batch)
                batch = shape[axis]
        if self.places:
            call_sizes(arrays, self.places, self.spec.dims, self.inputs)
        return arrays

    def _checked_again(self, arrays: list[Array], spec: TensorSpec, array: Array, batch: int = 0) -> list[Array]:
        """Refuse an array that does not fit, unless the graph says that the guessed batch dimension was another one.

        Args:
            arrays: of the call. spec, array: what does not fit. batch: samples of the inputs before it, if these clash.
        """
        if self.learn():
            return self.checked(arrays)
        if batch and spec.batch_axis is not None:
            raise InputError(
                f"input {spec.name!r} has {array.shape[spec.batch_axis]} samples, the inputs before it have {batch}"
            )
        raise wrong_shape(array, spec)

    def in_pieces(self, engine: Any, run: Run, inputs: list[Array], size: int) -> list[Array]:
        """Run a call on a model, or a plan, of exactly ``size`` samples: in padded pieces, if its samples allow it.

        Args:
            engine: the engine, whose ``infer`` cannot take the call whole. run: computes ``size`` samples.
            inputs: a checked call of another number of samples.

        Raises:
            EngineError: the samples depend on one another.
        """
        from engine.batching.independence import compare_with_changed, tells

        if self.learn():
            found: list[Array] = engine.infer(self.checked(inputs))  # another dimension may be the batch than guessed
            return found
        run = each(engine, run)
        if self.independent is None and size > 1 and tells(inputs, self.inputs):
            self.why_dependent = compare_with_changed(run, inputs, self.inputs, self.outputs, size)
            self.independent = not self.why_dependent
        if self.independent is False:
            self.refuse_pieces(batch_of(inputs, self.inputs), size)
        return run_sharded(run, inputs, self.inputs, self.outputs, size, owned=True)

    def refuse_pieces(self, total: int, size: int) -> NoReturn:
        """Refuse to compute ``total`` samples that depend on one another, ``size`` at a time.

        Raises:
            EngineError: always.
        """
        if self.static_batch is None:
            limit, fix = f"a run takes at most {size} samples", f"open it with batch_size {total}"
        else:
            limit = f"its batch is fixed to {size}"
            fix = f"call it with exactly {size} samples, or export the model with a dynamic batch"
        raise EngineError(
            f"{self.spec.ckpt}: {limit} and its samples depend on one another ({self.why_dependent}), so a call of "
            f"{total} can be neither padded nor split; {fix}"
        )
