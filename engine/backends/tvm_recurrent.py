"""LSTM, GRU and RNN for TVM: one kernel with a loop over the time steps for each direction of a layer.

Converts :data:`engine.onnx.recurrent.LOOP`. Samples do not depend on one another, so the outermost loop is over groups
of samples and is divided among threads; each group keeps its state over all time steps. The product of the state with
the recurrent weights is computed in tiles of vector registers, as in :mod:`engine.backends.tvm_schedule`.

Imports tvm inside its functions; only :mod:`engine.backends.tvm_runtime` uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.backends.tvm_schedule import LEAST_WORK, REGISTER, TALLEST, TILE, divisor
from engine.onnx.recurrent import LOOP

_WIDEST = 64  # most elements of a row of a tile

_log = logging.getLogger(__name__)


def converts_loops() -> bool:
    """Return whether this TVM's importer has the table of converters that :func:`converting_loops` adds to."""
    from tvm.relax.frontend.onnx import onnx_frontend as frontend

    return hasattr(frontend, "_get_convert_map") and hasattr(frontend, "OnnxOpConverter")


@contextmanager
def converting_loops() -> Iterator[None]:
    """Add the converter of :data:`LOOP` to TVM's importer of ONNX, which has no public way to add one."""
    if not converts_loops():
        yield
        return
    from tvm.relax.frontend.onnx import onnx_frontend as frontend

    class Recurrence(frontend.OnnxOpConverter):  # type: ignore[misc]
        @classmethod
        def _impl_v1(cls, builder: Any, inputs: Any, attributes: Any, _: Any) -> Any:
            return _converted(builder, list(inputs), attributes)

    own = frontend._get_convert_map
    table = {**own(), LOOP: Recurrence}
    frontend._get_convert_map = lambda: table
    try:
        yield
    finally:
        frontend._get_convert_map = own


def _converted(builder: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Return the call of the kernel of one direction."""
    op = bytes(attributes["kind"]).decode()
    inputs += [None] * (6 - len(inputs))
    there = [given is not None for given in inputs]

    def kernel(*tensors: Any) -> Any:
        found = iter(tensors)
        layer = _Layer(op, bool(attributes["backwards"]), bool(attributes["after"]), there)
        return layer.tensors([next(found) if each else None for each in there])

    given = [each for each in inputs if each is not None]
    return builder.emit(builder.call_te(kernel, *given, primfunc_name_hint=f"{op.lower()}_loop"))


@dataclass
class _Layer:
    """One direction of a recurrent layer; ``there``: which of the operator's inputs are given."""

    op: str
    backwards: bool
    after: bool
    there: Sequence[bool]

    def tensors(self, inputs: Sequence[Any]) -> Any:
        """Return the outputs as tensors of TVM; ``inputs``: those of the operator, ``None`` for absent ones."""
        from tvm import te

        products, weights = inputs[0], inputs[1]
        self.steps, self.samples, self.wide = (int(size) for size in products.shape)
        self.hidden, self.dtype = int(weights.shape[0]), products.dtype
        state = (1, self.samples, self.hidden)
        shapes = [(self.steps, self.samples, self.hidden), *[state] * (2 if self.op == "LSTM" else 1)]
        given = [tensor for tensor in inputs if tensor is not None]
        return te.extern(shapes, given, self._body, name=f"{self.op.lower()}_loop", dtype=[self.dtype] * len(shapes))

    def _body(self, given: Any, results: Any) -> Any:
        """Return the statements of the kernel."""
        from tvm.script.ir_builder import IRBuilder, tirx as tir

        found = iter(given)
        proxies: list[Any] = [tir.buffer_proxy(next(found)) if each else None for each in self.there]
        self._products, self._weights, *first, self._lengths, self._hidden_bias = proxies
        self._every, *last = (tir.buffer_proxy(result) for result in results)
        # A tile is as wide as the gates of the narrowest product allow.
        narrow = self.hidden if self.op == "GRU" else self.wide
        self._width = divisor(narrow, _WIDEST)
        self.rows = divisor(self.samples, min(TALLEST, TILE // -(-self._width // REGISTER)))
        large = self.steps * self.samples * self.hidden * self.wide >= LEAST_WORK and self.samples > self.rows
        states = [one for one in first if one is not None]
        with IRBuilder() as builder:
            with (tir.parallel if large else tir.serial)(0, self.samples // self.rows) as group:
                self._group = group
                self._states = [self._buffer(self.hidden) for _ in states]
                self._gates = self._buffer(self.wide)
                self._reset = self._buffer(self.hidden) if self.op == "GRU" else self._gates
                for own, given_state in zip(self._states, states, strict=True):
                    self._each(partial(self._load, own, given_state))
                with tir.serial(0, self.steps) as step:
                    self._step = self.steps - 1 - step if self.backwards else step
                    {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.op]()
                for own, result in zip(self._states, last, strict=True):
                    self._each(partial(self._store, own, result))
            return builder.get()

    # ----------------------------------------------------------------------------------------------------- statements

    def _buffer(self, columns: int, *, local: bool = False) -> _Rows:
        return _Rows(self.rows, columns, self.dtype, "local" if local else "global")

    def _sample(self, row: Any) -> Any:
        return self._group * self.rows + row

    def _load(self, own: _Rows, given: Any, row: Any, column: Any) -> None:
        own.put(row, column, given[0, self._sample(row), column])

    def _store(self, own: _Rows, result: Any, row: Any, column: Any) -> None:
        result[0, self._sample(row), column] = own[row, column]

    def _each(self, store: Callable[[Any, Any], None]) -> None:
        """Emit a statement for every row and hidden value of the group."""
        from tvm.script.ir_builder import tirx as tir

        with tir.serial(0, self.rows) as row, tir.serial(0, self.hidden) as column:
            store(row, column)

    def _product(self, source: _Rows, start: int, count: int, begin: Callable[[Any, Any], Any]) -> None:
        """Set gates from a column on to ``begin(row, column)`` plus the product of a state with the weights."""
        from tvm.script.ir_builder import tirx as tir

        with tir.serial(0, count // self._width) as block:
            tile = self._buffer(self._width, local=True)
            with tir.unroll(0, self.rows) as row, tir.vectorized(0, self._width) as lane:
                tile.put(row, lane, begin(row, start + block * self._width + lane))
            with (
                tir.serial(0, self.hidden) as k,
                tir.unroll(0, self.rows) as row,
                tir.vectorized(0, self._width) as lane,
            ):
                weight = self._weights[k, start + block * self._width + lane]
                tile.put(row, lane, tile[row, lane] + source[row, k] * weight)
            with tir.unroll(0, self.rows) as row, tir.vectorized(0, self._width) as lane:
                self._gates.put(row, start + block * self._width + lane, tile[row, lane])

    def _of_input(self, row: Any, column: Any) -> Any:
        return self._products[self._step, self._sample(row), column]

    def _keep(self, row: Any, column: Any, new: Sequence[Callable[[], Any]]) -> None:
        """Store the new states of a hidden value, in order; beyond a sample's length they stay, and the output is 0."""
        from tvm import tirx

        within = None if self._lengths is None else self._lengths[self._sample(row)] > self._step
        for state, make in zip(reversed(self._states), new, strict=True):  # the cell first, which the state reads
            value = make()
            state.put(row, column, value if within is None else tirx.Select(within, value, state[row, column]))
        shown = self._states[0][row, column]
        zero = tirx.const(0, self.dtype)
        self._every[self._step, self._sample(row), column] = (
            shown if within is None else tirx.Select(within, shown, zero)
        )

    # -------------------------------------------------------------------------------------------------- single steps

    def _rnn(self) -> None:
        from tvm import tirx

        self._product(self._states[0], 0, self.wide, self._of_input)
        self._each(lambda i, j: self._keep(i, j, [lambda: tirx.tanh(self._gates[i, j])]))

    def _lstm(self) -> None:
        from tvm import tirx

        state, cell, gates, size = *self._states, self._gates, self.hidden
        self._product(state, 0, self.wide, self._of_input)

        def store(i: Any, j: Any) -> None:
            entering, leaving, forgetting = (tirx.sigmoid(gates[i, place * size + j]) for place in range(3))
            moved = forgetting * cell[i, j] + entering * tirx.tanh(gates[i, 3 * size + j])
            self._keep(i, j, [lambda: moved, lambda: leaving * tirx.tanh(cell[i, j])])

        self._each(store)

    def _gru(self) -> None:
        from tvm import tirx

        [state], gates, size = self._states, self._gates, self.hidden
        self._product(state, 0, 2 * size, self._of_input)

        def reset(i: Any, j: Any) -> Any:
            return tirx.sigmoid(gates[i, size + j])

        if self.after:
            bias = self._hidden_bias
            none = tirx.const(0, self.dtype)
            self._product(state, 2 * size, size, lambda _, j: none if bias is None else bias[j - 2 * size])
        else:
            self._each(lambda i, j: self._reset.put(i, j, reset(i, j) * state[i, j]))
            self._product(self._reset, 2 * size, size, self._of_input)

        def store(i: Any, j: Any) -> None:
            found = gates[i, 2 * size + j]
            new = tirx.tanh(self._of_input(i, 2 * size + j) + reset(i, j) * found if self.after else found)
            update = tirx.sigmoid(gates[i, j])
            self._keep(i, j, [lambda: (1 - update) * new + update * state[i, j]])

        self._each(store)


class _Rows:
    """A buffer of the samples of a group: (rows, columns)."""

    def __init__(self, rows: int, columns: int, dtype: str, scope: str) -> None:
        from tvm.script.ir_builder import tirx as tir

        self._proxy = tir.buffer_proxy(tir.alloc_buffer([rows, columns], dtype, scope=scope))

    def __getitem__(self, place: tuple[Any, Any]) -> Any:
        return self._proxy[place]

    def put(self, row: Any, column: Any, value: Any) -> None:
        """Emit a store."""
        self._proxy[row, column] = value
