"""A plain schedule for kernels of the processor: loops ordered for vectors and registers, and run by several threads.

TVM's default pipeline for a processor leaves the loops of a kernel as the operator is defined: one element of the
output after another, each with a scalar sum. Here a reduction whose operands are contiguous along the last axis of its
output (matrix products, and convolutions with their channels last) computes a tile of vectors in registers, and every
kernel that is large enough is divided among threads. The tile follows from the shapes alone, unless another one is
given (:mod:`engine.backends.tvm_tune` measures several).

Imports tvm inside its functions; only :mod:`engine.backends.tvm_runtime` and the former use it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

VERSION = "tiles-3"
"""Part of a plan's key; changed with the schedule."""

_WIDTHS = (64, 32, 16, 8, 4)  # elements of a row of a tile, the first that divides the axis
REGISTER = 16  # float32 of a vector register of AVX-512
TILE = 24  # most vector registers of a tile, of 32
TALLEST = 12  # most rows of a tile
_LONGEST = 4096  # elements of a row that is not a tile, because no width divides the axis
_STRIDE = 4  # largest stride of a vectorized load
LEAST_WORK = 1 << 15  # multiply-adds or elements from which a kernel is divided among threads
_WIDEST = 128  # most elements of a row of a tile to choose
_HIGHEST = 16  # most rows of a tile to choose
_MOST_REGISTERS = 32  # of a tile to choose
_STEPS = (1, 2, 4, 8)  # steps of a sum that are unrolled, to choose

_log = logging.getLogger(__name__)


class Tile(NamedTuple):
    """How the loops of a reduction are ordered.

    Attributes:
        width: elements of a row of a tile, a vector; 0: of the whole axis, and not a vector.
        axis: place of the loop whose neighbours are the rows of a tile; -1: a tile is one row.
        height: rows. steps: terms of the innermost sum that are written out.
        outer: the loop over the rows' places along the last axis is the outermost one, not that over other axes.
    """

    width: int
    axis: int = -1
    height: int = 1
    steps: int = 1
    outer: bool = False


def scheduled(module: Any, tiles: Mapping[str, Tile] | None = None) -> tuple[Any, bool]:
    """Return a module of Relax whose kernels are scheduled, and whether one of them is divided among threads.

    A kernel that cannot be scheduled is left as it is.

    Args:
        tiles: of the largest reduction of some kernels, by name.
    """
    import tvm
    from tvm import tirx

    result = tvm.IRModule(module.functions, attrs=module.attrs, global_infos=module.global_infos)
    divided = False
    for name, function in module.functions_items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        try:
            kernel = _Kernel(function, (tiles or {}).get(str(name.name_hint)))
            result[name] = kernel.scheduled()
        except Exception as error:  # noqa: BLE001 -- of the scheduler, for loops that it cannot change
            _log.debug("kernel %s is not scheduled: %s", name, _last_line(error))
        else:
            divided = divided or kernel.divided
        divided = divided or _is_divided(result[name].body)
    return result, divided


def with_tile(function: Any, tile: Tile | None) -> Any:
    """Return a scheduled kernel with a tile, or its own; raise an error of TVM if it cannot have it.

    TVM's scheduler changes statements of the function, which must not be used again.
    """
    return _Kernel(function, tile).scheduled()


def choices(function: Any) -> tuple[list[Tile], int]:
    """Return the tiles that a kernel can have, its own first, and its multiply-adds; none and 0 without a tile.

    The function must not be used again, as that of :func:`with_tile`.
    """
    kernel = _Kernel(function, None)
    return kernel.choices(), kernel.work


def legalized() -> dict[str, Any]:
    """Return operators of Relax whose kernels TVM's own legalization defines otherwise than ONNX Runtime.

    TVM's ``max(x, 0)`` is 0 for NaN, so a ``Relu`` would hide it; these keep it.
    """
    from tvm import te, tirx, topi

    def relu(builder: Any, call: Any) -> Any:
        def compute(x: Any) -> Any:
            zero = tirx.const(0, x.dtype)
            return te.compute(x.shape, lambda *at: tirx.Select(x(*at) < zero, zero, x(*at)), name="relu")

        return builder.call_te(compute, call.args[0], primfunc_name_hint="relu")

    def extreme(name: str, first: Any) -> Any:
        def compute(a: Any, b: Any) -> Any:
            chosen = topi.logical_or(first(a, b), topi.isnan(a)) if "float" in a.dtype else first(a, b)
            return topi.where(chosen, a, b)

        return lambda builder, call: builder.call_te(compute, *call.args, primfunc_name_hint=name)

    return {
        "relax.nn.relu": relu,
        "relax.maximum": extreme("maximum", topi.greater),
        "relax.minimum": extreme("minimum", topi.less),
    }


def _is_divided(statement: Any) -> bool:
    """Return whether a statement has a loop divided among threads, as a loop over time steps or a TVM kernel may."""
    from tvm import tirx

    if isinstance(statement, tirx.For) and int(statement.kind) == int(tirx.ForKind.PARALLEL):
        return True
    parts = [getattr(statement, name, None) for name in ("body", "block", "then_case", "else_case")]
    return any(_is_divided(part) for part in (*parts, *getattr(statement, "seq", ())) if part is not None)


class _Loops(NamedTuple):
    """The loops of a block: kinds (``S``: spatial, ``R``: a sum), and extents; ``is_tiled``: whether it has tiles."""

    kinds: str
    loops: list[Any]
    extents: list[int]
    is_tiled: bool

    @property
    def work(self) -> int:
        """Number of iterations."""
        return prod(self.extents)

    @property
    def last(self) -> int:
        """Place of the last spatial loop, along which a vector is."""
        return self.kinds.rindex("S")

    @property
    def spatial(self) -> list[int]:
        """Places of the other spatial loops."""
        return [i for i, kind in enumerate(self.kinds) if kind == "S" and i != self.last]

    @property
    def sums(self) -> list[Any]:
        """The loops of the reduction."""
        return [loop for loop, kind in zip(self.loops, self.kinds, strict=True) if kind == "R"]

    def choices(self) -> Iterator[Tile]:
        """Yield all tiles whose sizes divide the extents, and that may fit the registers."""
        size, terms = self.extents[self.last], self.extents[self.kinds.rindex("R")]
        widths = [width for width in range(4, min(size, _WIDEST) + 1, 4) if size % width == 0]
        if size <= _WIDEST and size % 4:
            widths.append(size)
        lines = [(-1, 1)]
        for axis in self.spatial:
            lines += [(axis, high) for high in range(2, _HIGHEST + 1) if self.extents[axis] % high == 0]
        several = prod(self.extents[i] for i in self.spatial) > 1
        for width in widths:
            orders = (False, True) if several and width < size else (False,)
            for axis, height in lines:
                if height * -(-width // REGISTER) > _MOST_REGISTERS:
                    continue
                for steps in (steps for steps in _STEPS if terms % steps == 0):
                    yield from (Tile(width, axis, height, steps, outer) for outer in orders)


class _Kernel:
    """One function of loops; ``divided``: whether it is divided among threads.

    Its blocks are the statements inside of loops. The loops of a block are spatial (one element of the result each) or
    reductions. The largest of those with a tile has the given one; ``work``: its multiply-adds.
    """

    def __init__(self, function: Any, tile: Tile | None) -> None:
        from tvm import s_tir
        from tvm.ir import IRModule

        self._schedule = s_tir.Schedule(IRModule({"main": function.with_attr("global_symbol", "main")}))
        self._root = self._schedule.get_sblock("root", func_name="main")
        self._gone: set[str] = set()  # names of blocks that are computed with another one
        self.divided = False
        self._inline_intermediate()
        self._tile, self._largest, self.work = tile, "", 0
        for block in self._blocks():
            loops = self._loops(block)
            if loops is not None and loops.is_tiled and loops.work > self.work:
                self._largest, self.work = self._name(block), loops.work

    def scheduled(self) -> Any:
        """Return the function with other loops."""
        for name in [self._name(block) for block in self._blocks()]:
            if name not in self._gone:
                self._order(self._schedule.get_sblock(name))
        return self._schedule.mod["main"].without_attr("global_symbol").with_attr("tirx.is_scheduled", True)

    def choices(self) -> list[Tile]:
        """Return the tiles that the largest reduction can have, its own first."""
        block = self._schedule.get_sblock(self._largest) if self._largest else None
        loops = None if block is None else self._loops(block)
        return [] if loops is None else list(dict.fromkeys([self._own(block, loops), *loops.choices()]))

    def _blocks(self) -> list[Any]:
        return list(self._schedule.get_child_blocks(self._root))

    def _name(self, block: Any) -> str:
        return str(self._schedule.get(block).name_hint)

    def _kinds(self, block: Any) -> str:
        """Return for each loop of a block ``S`` (spatial), ``R`` (reduction) or ``?``."""
        kinds = {0: "S", 2: "R"}
        return "".join(kinds.get(int(var.iter_type), "?") for var in self._schedule.get(block).iter_vars)

    # ----------------------------------------------------------------------------------------------------- elementwise

    def _inline_intermediate(self) -> None:
        """Compute elementwise intermediate values where they are read, if only another elementwise block reads them."""
        for block in reversed(self._blocks()):  # readers first: of several, one may be left
            readers = self._schedule.get_consumers(block)
            if "R" not in self._kinds(block) and len(readers) == 1 and "R" not in self._kinds(readers[0]):
                self._inlined(self._schedule.compute_inline, block)

    def _inlined(self, primitive: Any, block: Any) -> None:
        """Inline a block, if the scheduler can: not an output, and elementwise."""
        name = self._name(block)
        try:
            primitive(block)
        except Exception as error:  # noqa: BLE001 -- of the scheduler
            _log.debug("block %s is not inlined: %s", name, _last_line(error))
        else:
            self._gone.add(name)

    # ----------------------------------------------------------------------------------------------------------- loops

    def _loops(self, block: Any) -> _Loops | None:
        """Return the loops of a block; ``None`` if they are not ordered: one is of another kind, or none is spatial."""
        kinds, loops = self._kinds(block), list(self._schedule.get_loops(block))
        if len(kinds) != len(loops) or "?" in kinds or "S" not in kinds:
            return None
        extents = [int(self._schedule.get(loop).extent) for loop in loops]
        is_tiled = "R" in kinds and self._is_contiguous(block, kinds.rindex("S"))
        return _Loops(kinds, loops, extents, is_tiled)

    def _order(self, block: Any) -> None:
        loops = self._loops(block)
        if loops is None:
            return
        large, kinds = loops.work >= LEAST_WORK, loops.kinds
        if loops.is_tiled:
            given = self._tile if self._name(block) == self._largest else None
            self._make_tiles(block, loops, given or self._own(block, loops), large)
        elif large:
            spatial = kinds.index("R") if "R" in kinds else len(kinds) - 1  # of the others, the last is a vector
            self._divide(loops.loops[:spatial])

    def _divide(self, loops: list[Any]) -> None:
        """Divide loops, the outer ones of a block, among threads."""
        if loops:
            self._schedule.parallel(self._schedule.fuse(*loops) if len(loops) > 1 else loops[0])
            self.divided = True

    def _own(self, block: Any, loops: _Loops) -> Tile:
        """Return the tile of a reduction that follows from its shapes."""
        extents, last = loops.extents, loops.last
        width = next((width for width in _WIDTHS if extents[last] % width == 0), 0)
        reused = [i for i in loops.spatial if extents[i] > 1 and self._reuses(block, i, last)] if width else []
        if reused and (height := divisor(extents[reused[-1]], min(TALLEST, TILE // -(-width // REGISTER)))) > 1:
            return Tile(width, reused[-1], height)
        return Tile(width)

    def _make_tiles(self, block: Any, loops: _Loops, tile: Tile, large: bool) -> None:
        """Order the loops of a reduction: tiles, sums, then the rows of a tile and the elements of a row."""
        schedule, extents, last = self._schedule, loops.extents, loops.last
        outer, inner = schedule.split(loops.loops[last], [None, tile.width or min(extents[last], _LONGEST)])
        places = {i: loops.loops[i] for i in loops.spatial}
        rows, sums = [], loops.sums
        if tile.height > 1:
            places[tile.axis], row = schedule.split(places[tile.axis], [None, tile.height])
            rows = [row]
        if tile.steps > 1:
            sums[-1:] = schedule.split(sums[-1], [None, tile.steps])
        over = [outer, *places.values()] if tile.outer else [*places.values(), outer]
        schedule.reorder(*over, *sums, *rows, inner)
        readers = [reader for reader in schedule.get_consumers(block) if self._reads_all(reader, loops)]
        result = schedule.cache_write(block, 0, "local")
        if len(readers) == len(schedule.get_consumers(result)) == 1:
            self._inlined(schedule.reverse_compute_inline, readers[0])
        schedule.reverse_compute_at(result, over[-1])
        self._unroll(rows, [schedule.get_loops(result)[-1], inner] if tile.width else [])
        if tile.steps > 1:
            self._unroll(sums[-1:], [])
        fused = schedule.fuse(*over) if len(over) > 1 else outer
        if large:
            self._divide([fused])
        _, *rows, inner = schedule.get_loops(schedule.decompose_reduction(block, sums[0]))
        self._unroll(rows, [inner] if tile.width else [])

    def _reads_all(self, reader: Any, loops: _Loops) -> bool:
        """Return whether a block is elementwise over the result of a reduction.

        TVM 0.27 also inlines a block that reads a part, and then writes beyond the end of its result.
        """
        own = [int(self._schedule.get(loop).extent) for loop in self._schedule.get_loops(reader)]
        spatial = [extent for extent, kind in zip(loops.extents, loops.kinds, strict=True) if kind == "S"]
        return own == spatial and set(self._kinds(reader)) <= {"S"}

    def _unroll(self, rows: list[Any], vectors: list[Any]) -> None:
        for row in rows:
            self._schedule.unroll(row)
        for vector in vectors:
            self._schedule.vectorize(vector)

    # -------------------------------------------------------------------------------------------------------- operands

    def _operands(self, block: Any) -> tuple[Any, list[Any]]:
        """Return the region that a block writes, and those that it reads, without the former."""
        found = self._schedule.get(block)
        [result] = found.writes
        return result.region, [read.region for read in found.reads if not read.source.same_as(result.source)]

    def _var(self, block: Any, axis: int) -> Any:
        return self._schedule.get(block).iter_vars[axis].var

    def _is_contiguous(self, block: Any, axis: int) -> bool:
        """Return whether neighbours along an axis of a block are close or equal in the result and in every operand."""
        var = self._var(block, axis)
        result, reads = self._operands(block)
        if not result or not result[-1].min.same_as(var):
            return False
        steps = [_step(region, var) for region in reads]
        return None not in steps and any(steps)

    def _reuses(self, block: Any, axis: int, vector: int) -> bool:
        """Return whether the operands that are vectors along an axis are the same for all places of another axis."""
        other, var = self._var(block, axis), self._var(block, vector)
        return all(_step(region, other) == 0 for region in self._operands(block)[1] if _step(region, var))


def _step(region: Any, var: Any) -> int | None:
    """Return how far apart neighbours along a variable are in an operand; ``None`` if they are not close."""
    from tvm import sym

    steps = []
    for each in region:
        linear = list(sym.detect_linear_equation(each.min, [var]))
        if not linear or not hasattr(linear[0], "value"):
            return None
        steps.append(int(linear[0].value))
    if not any(steps):
        return 0
    return steps[-1] if 1 <= steps[-1] <= _STRIDE and not any(steps[:-1]) else None


def divisor(size: int, most: int) -> int:
    """Return the largest divisor of a size up to a limit."""
    return max(d for d in range(1, max(1, most) + 1) if size % d == 0)


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]
