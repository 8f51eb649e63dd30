"""A plain schedule for kernels of the processor: loops reordered for vectors and registers, and run by several threads.

TVM's default pipeline for a processor leaves the loops of a kernel as the operator is defined: one element of the output
after another, each with a scalar sum. Here a reduction whose inputs are contiguous along the last axis of its output
(convolutions, matrix products) computes a tile of vectors in registers, and every kernel that is large enough is
divided among threads. No tuning: the sizes of a tile are fixed.

Only imported by :mod:`engine.backends.tvm_runtime`.
"""

from __future__ import annotations

import logging
from typing import Any

VERSION = "tiles-1"
"""Part of a plan's key; changed with the schedule."""

_REGISTER = 16  # float32 of a vector register of AVX-512
_TILE = 24  # most vector registers of a tile, of 32
_TALLEST = 12  # most rows of a tile
_STRIDE = 4  # largest stride of a vectorized load
_LONGEST = 4096  # elements of a row that is not a tile, because the axis has no suitable divisor
_LEAST_WORK = 1 << 15  # multiply-adds or elements from which a kernel is divided among threads

_log = logging.getLogger(__name__)


def scheduled(module: Any) -> Any:
    """Return a module of Relax whose kernels are scheduled; a kernel that cannot be is left as it is."""
    import tvm
    from tvm import tirx

    updated = {}
    for name, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and "tirx.is_scheduled" not in (function.attrs or {}):
            try:
                updated[name] = _kernel(function)
            except Exception as error:  # noqa: BLE001 -- of the scheduler, for loops that it cannot change
                _log.debug("kernel %s is not scheduled: %s", name, str(error).strip().splitlines()[-1:])
    result = tvm.IRModule(module.functions, attrs=module.attrs, global_infos=module.global_infos)
    for name, function in updated.items():
        result[name] = function
    return result


def legalized() -> dict[str, Any]:
    """Return operators of Relax whose kernels TVM's own legalization defines otherwise than ONNX Runtime.

    TVM's ``max(x, 0)`` is 0 for NaN, so a ``Relu`` or ``Clip`` would hide it; these keep it.
    """
    from tvm import te, tirx, topi

    def relu(builder: Any, call: Any) -> Any:
        def compute(x: Any) -> Any:
            zero = tirx.const(0, x.dtype)
            return te.compute(x.shape, lambda *at: tirx.Select(x(*at) < zero, zero, x(*at)), name="relu")

        return builder.call_te(compute, call.args[0], primfunc_name_hint="relu")

    def extreme(name: str, first: Any) -> Any:
        def compute(a: Any, b: Any) -> Any:
            return topi.where(topi.logical_or(first(a, b), topi.isnan(a)) if "float" in a.dtype else first(a, b), a, b)

        return lambda builder, call: builder.call_te(compute, *call.args, primfunc_name_hint=name)

    return {
        "relax.nn.relu": relu,
        "relax.maximum": extreme("maximum", topi.greater),
        "relax.minimum": extreme("minimum", topi.less),
    }


def _kernel(function: Any) -> Any:
    """Return a scheduled kernel."""
    from tvm import s_tir
    from tvm.ir import IRModule

    schedule = s_tir.Schedule(IRModule({"main": function.with_attr("global_symbol", "main")}))
    root = schedule.get_sblock("root", func_name="main")
    _inline(schedule, root)
    inlined: set[str] = set()
    for name in [str(schedule.get(block).name_hint) for block in schedule.get_child_blocks(root)]:
        if name not in inlined:
            inlined.update(_block(schedule, schedule.get_sblock(name)))
    made = schedule.mod["main"]
    return made.without_attr("global_symbol").with_attr("tirx.is_scheduled", True)


def _kinds(schedule: Any, block: Any) -> list[str]:
    """Return for each loop of a block ``S`` (spatial), ``R`` (reduction) or "?"."""
    names = {0: "S", 2: "R"}
    return [names.get(int(var.iter_type), "?") for var in schedule.get(block).iter_vars]


def _inline(schedule: Any, root: Any) -> None:
    """Compute elementwise intermediate values where they are read, if only another elementwise block reads them."""
    for block in reversed(schedule.get_child_blocks(root)):  # readers first: one may be left of several
        consumers = schedule.get_consumers(block)
        if "R" in _kinds(schedule, block) or len(consumers) != 1 or "R" in _kinds(schedule, consumers[0]):
            continue
        try:
            schedule.compute_inline(block)
        except Exception as error:  # noqa: BLE001 -- of the scheduler: an output, or not elementwise
            _log.debug("a block is not inlined: %s", str(error).strip().splitlines()[-1:])


def _inline_into(schedule: Any, block: Any) -> set[str]:
    """Compute an elementwise block where its operand is written, if it has its elements in their order.

    Return the name of the block if it is gone.
    """
    name = str(schedule.get(block).name_hint)
    try:
        schedule.reverse_compute_inline(block)
    except Exception as error:  # noqa: BLE001 -- of the scheduler
        _log.debug("a block is not inlined: %s", str(error).strip().splitlines()[-1:])
        return set()
    return {name}


def _block(schedule: Any, block: Any) -> set[str]:
    """Schedule a block; return the names of blocks that it now includes."""
    kinds, loops = _kinds(schedule, block), schedule.get_loops(block)
    extents = [int(schedule.get(loop).extent) for loop in loops]
    if len(kinds) != len(loops) or "?" in kinds:
        return set()
    work = 1
    for extent in extents:
        work *= extent
    spatial = [i for i, kind in enumerate(kinds) if kind == "S"]
    reduced = [i for i, kind in enumerate(kinds) if kind == "R"]
    if reduced and spatial and _is_contiguous(schedule, block, spatial[-1]):
        return _tile(schedule, block, loops, extents, spatial, reduced, work >= _LEAST_WORK)
    outer = [loops[i] for i in spatial[: len(spatial) - (0 if reduced else 1)] if _leads(kinds, i)]
    if outer and work >= _LEAST_WORK:
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    return set()


def _leads(kinds: list[str], index: int) -> bool:
    """Return whether all loops before one are spatial too, so that they may be fused."""
    return all(kind == "S" for kind in kinds[:index])


def _is_contiguous(schedule: Any, block: Any, axis: int) -> bool:
    """Return whether neighbours along an axis of a block are close or equal in the result and in every operand."""
    found = schedule.get(block)
    var = found.iter_vars[axis].var
    [result] = found.writes
    if not result.region or not result.region[-1].min.same_as(var):
        return False
    steps = [_step(read.region, var) for read in found.reads if not read.source.same_as(result.source)]
    return None not in steps and any(steps)


def _reuses(schedule: Any, block: Any, axis: int, vector: int) -> bool:
    """Return whether the operands that are vectors along an axis are the same for all places of another axis."""
    found = schedule.get(block)
    var, other = found.iter_vars[vector].var, found.iter_vars[axis].var
    source = found.writes[0].source
    reads = [read.region for read in found.reads if not read.source.same_as(source)]
    return all(_step(region, other) == 0 for region in reads if _step(region, var))


def _step(region: Any, var: Any) -> int | None:
    """Return how far apart neighbours along a variable are in an operand; ``None`` if they are not close to another."""
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


def _tile(
    schedule: Any,
    block: Any,
    loops: list[Any],
    extents: list[int],
    spatial: list[int],
    reduced: list[int],
    divided: bool,
) -> set[str]:
    """Order the loops of a reduction: tiles, divided among threads or not, sums, then the vectors of a tile.

    Return the names of blocks that are computed with it now.
    """
    last = spatial[-1]
    width = _width(extents[last])
    outer, inner = schedule.split(loops[last], [None, width or min(extents[last], _LONGEST)])
    tiles = [loops[i] for i in spatial[:-1]]
    rows = []
    candidates = [i for i in spatial[:-1] if extents[i] > 1 and _reuses(schedule, block, i, last)] if width else []
    if candidates:
        chosen = candidates[-1]
        height = _divisor(extents[chosen], min(_TALLEST, _TILE // -(-width // _REGISTER)))
        if height > 1:
            high, row = schedule.split(loops[chosen], [None, height])
            tiles[spatial.index(chosen)] = high
            rows = [row]
    sums = [loops[i] for i in reduced]
    schedule.reorder(*tiles, outer, *sums, *rows, inner)
    consumers = schedule.get_consumers(block)
    cached, inlined = schedule.cache_write(block, 0, "local"), set[str]()
    if len(consumers) == 1 and "R" not in _kinds(schedule, consumers[0]):
        inlined = _inline_into(schedule, consumers[0])
    schedule.reverse_compute_at(cached, outer)
    if width:
        schedule.vectorize(schedule.get_loops(cached)[-1])
        schedule.vectorize(inner)
    for row in rows:
        schedule.unroll(row)
    over = schedule.fuse(*tiles, outer) if tiles else outer
    if divided:
        schedule.parallel(over)
    init = schedule.decompose_reduction(block, sums[0])
    first = schedule.get_loops(init)
    if width:
        schedule.vectorize(first[-1])
    for row in first[1:-1]:
        schedule.unroll(row)
    return inlined


def _divisor(size: int, most: int) -> int:
    """Return the largest divisor of a size up to a limit."""
    return max(d for d in range(1, max(1, most) + 1) if size % d == 0)


def _width(extent: int) -> int:
    """Return the elements of a row of a tile, a power of two; 0 if none of them divides the axis."""
    return next((width for width in (64, 32, 16, 8, 4) if extent % width == 0), 0)
