"""Price of a launch on the card: the roofline of ``engine.sdaa`` for an operator's shapes and dtype.

Nothing is measured. Training applies no layout pass, so that the figures are those of the card's layout ``plain``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch

from engine.sdaa import CardDescription, Kernel, ShardWork, kernel_seconds, load_card, price
from torch_sdaa.cost.counts import elementwise, has_no_rule, operations
from torch_sdaa.cost.rings import PREFIX as COLLECTIVE, ring_of

Meta = tuple[str, int, tuple[int, ...]]
"""Name of the dtype, bytes of an element, sizes."""

Launch = tuple[str, list[Meta], list[Meta], float]
"""Operator, inputs, outputs, floating-point operations (-1: determined from the shapes)."""

LAYOUT = "plain"

COPIES = ("copy_in", "copy_out", "copy_between", "aten::_local_scalar_dense")
"""Launches on a copy engine; the last reads one number."""

_SELECTING = ("embedding", "index_select", "gather", "index", "take", "embedding_renorm_")
"""Operators that read no more of their first input than they write."""

_LIKE_FLOAT16 = ("BFloat16", "Bool", "Char", "Byte", "Short", "QInt8", "QUInt8", "Float8_e4m3fn", "Float8_e5m2")
_FLOATING = ("Half", "BFloat16", "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble")


GRAPHS = "sdaa_graph"
"""Namespace of the operators that ``torch.compile`` creates: each is a whole graph."""

_graphs: dict[str, ShardWork] = {}


def add_graph(op: str, work: ShardWork) -> float:
    """Register the work of a compiled graph; return its simulated seconds."""
    _graphs[op] = work
    card = load_card()
    return price(work, card, card.layout(LAYOUT)).compute


class Price(NamedTuple):
    """Simulated seconds; the part that rests on assumed figures; whether anything is launched."""

    seconds: float
    assumed: float
    launches: bool = True


class Parts(NamedTuple):
    """Parts of the price of a launch: simulated seconds, floating-point operations, and bytes read and written."""

    launch: float
    arithmetic: float
    memory: float
    flops: float
    bytes: int


class Inside(NamedTuple):
    """Kernels of one kind in a compiled graph: number and total simulated seconds."""

    kind: str
    launches: int
    seconds: float


class Work(NamedTuple):
    """Work of a launch: floating-point operations, bytes read and written."""

    operations: float
    read: int
    written: int


def work(op: str, inputs: list[Meta], outputs: list[Meta], flops: float = -1) -> Work:
    """Return the work of a launch; for copies and views only the bytes.

    Args:
        op, inputs, outputs, flops: as for :meth:`Pricer.price`.
    """
    if op in COPIES or op.startswith(COLLECTIVE) or is_view(op):
        return Work(0.0, sum(map(_bytes, inputs)), sum(map(_bytes, outputs)))
    if flops < 0:
        sizes = [sizes for *_, sizes in inputs], [sizes for *_, sizes in outputs]
        counted = operations(op, *sizes)
        flops = elementwise(*sizes) if counted is None else counted
    return Work(flops, *_traffic(op, inputs, outputs))


class Pricer:
    """Prices launches of one card; called by the extension for each new distinct launch.

    Attributes:
        assumed: name and value of assumed figures used so far, which are neither published nor fitted.
        rough: operators so far whose arithmetic is unknown; each is priced as elementwise.
    """

    def __init__(self, card: CardDescription) -> None:
        self._card = card
        self._layout = card.layout(LAYOUT)
        self.assumed: dict[str, str] = {}
        self.rough: set[str] = set()

    def __call__(self, launches: Sequence[Launch]) -> list[Price]:
        """Return the price of each launch."""
        return [self.price(*launch) for launch in launches]

    def price(self, op: str, inputs: list[Meta], outputs: list[Meta], flops: float = -1) -> Price:
        """Return the price of one launch.

        Args:
            op: ``aten::mm``, ``copy_in``, ... inputs, outputs: its operands and results.
            flops: floating-point operations; negative: determined from the shapes.
        """
        if op in COPIES:
            return self._copy(op, sum(map(_bytes, inputs)) if op in COPIES[:3] else inputs[0][1] if inputs else 8)
        if op.startswith(COLLECTIVE):
            return self._collective(op, sum(map(_bytes, inputs)), sum(map(_bytes, outputs)))
        if op in _graphs:
            return self._graph(_graphs[op])
        if is_view(op):
            return Price(0.0, 0.0, launches=False)
        if has_no_rule(op):
            self.rough.add(op)
        if flops < 0:
            flops = self._operations(op, [sizes for *_, sizes in inputs], [sizes for *_, sizes in outputs])
        rate, why = self._rate(computed_in(inputs, outputs))
        read, written = _traffic(op, inputs, outputs)
        kernel = Kernel(op, op, (), (), (), flops, read, written)
        seconds = kernel_seconds(kernel, self._layout, rate)
        launch = self._layout.launch_us * 1e-6
        arithmetic = flops / (self._layout.compute_tflop_s * 1e12 * rate)
        return Price(seconds, self._share(launch, seconds - launch, arithmetic, why, rate))

    def parts(self, op: str, inputs: list[Meta], outputs: list[Meta], flops: float = -1) -> Parts:
        """Return the parts of the price of one launch; arithmetic and memory access overlap."""
        if op in COPIES or op.startswith(COLLECTIVE) or is_view(op):
            seconds = self.price(op, inputs, outputs, flops).seconds
            launch = min(seconds, self._card.copy_launch_us * 1e-6)
            return Parts(launch, 0.0, seconds - launch, 0.0, sum(map(_bytes, inputs)))
        if op in _graphs:
            whole = [self._parts(kernel, self._rate_in(_graphs[op], kernel)[0]) for kernel in _graphs[op].kernels]
            return Parts(*map(sum, zip(*whole, strict=True))) if whole else Parts(0.0, 0.0, 0.0, 0.0, 0)
        done = work(op, inputs, outputs, flops)
        kernel = Kernel(op, op, (), (), (), done.operations, done.read, done.written)
        return self._parts(kernel, self._rate(computed_in(inputs, outputs))[0])

    def kernels(self, op: str) -> list[Inside]:
        """Return the kernels of a compiled graph by kind, the longest first; [] for other operators."""
        if (graph := _graphs.get(op)) is None:
            return []
        found: dict[str, list[float]] = {}
        for kernel in graph.kernels:
            taken = kernel_seconds(kernel, self._layout, self._rate_in(graph, kernel)[0])
            found.setdefault(kernel.op_type, []).append(taken)
        rows = [Inside(kind, len(seconds), sum(seconds)) for kind, seconds in found.items()]
        return sorted(rows, key=lambda row: (-row.seconds, row.kind))

    def _parts(self, kernel: Kernel, rate: float) -> Parts:
        moved = kernel.read + kernel.written
        return Parts(
            kernel.launches * self._layout.launch_us * 1e-6,
            kernel.flops / (self._layout.compute_tflop_s * 1e12 * rate),
            moved / (self._layout.memory_gb_s * 1e9),
            kernel.flops,
            moved,
        )

    def _rate_in(self, graph: ShardWork, kernel: Kernel) -> tuple[float, str]:
        return (1.0, "") if graph.float16 and not kernel.float32 else self._rate("Float")

    def _operations(self, op: str, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]]) -> float:
        counted = operations(op, inputs, outputs)
        if counted is None:
            self.rough.add(f"{op} (of some shapes)")
            return elementwise(inputs, outputs)
        return counted

    def _copy(self, op: str, size: int) -> Price:
        card = self._card
        name = "host_to_device_gb_s" if op == "copy_in" else "device_to_host_gb_s"
        rate = getattr(card, name)
        moving = size / (rate * 1e9)
        launch = card.copy_launch_us * 1e-6
        assumed = self._mark("copy_launch_us", launch, card.copy_launch_us)
        if op == "copy_between":
            self.assumed["copies between devices"] = f"as fast as device_to_host_gb_s, {rate:g}"
            return Price(launch + moving, assumed + moving)
        return Price(launch + moving, assumed + self._mark(name, moving, rate))

    def _graph(self, work: ShardWork) -> Price:
        """Return the price of a compiled graph: the sum over its kernels."""
        seconds = assumed = 0.0
        for kernel in work.kernels:
            rate, why = self._rate_in(work, kernel)
            taken = kernel_seconds(kernel, self._layout, rate)
            launch = kernel.launches * self._layout.launch_us * 1e-6
            arithmetic = kernel.flops / (self._layout.compute_tflop_s * 1e12 * rate)
            seconds += taken
            assumed += self._share(launch, taken - launch, arithmetic, why, rate)
        return Price(seconds, assumed, launches=bool(work.kernels))

    def _share(self, launch: float, working: float, arithmetic: float, why: str, rate: float) -> float:
        """Return the part of a kernel's seconds that rests on assumed figures."""
        binds = "compute_tflop_s" if working <= arithmetic else "memory_gb_s"
        assumed = self._mark(f"layouts.{LAYOUT}.launch_us", launch, self._layout.launch_us)
        part = self._mark(f"layouts.{LAYOUT}.{binds}", working, getattr(self._layout, binds))
        if binds == "compute_tflop_s" and why:
            part = working
            if part:
                self.assumed[why] = f"{rate:g} of float16's"
        return assumed + part

    def _collective(self, op: str, read: int, written: int) -> Price:
        """Return the price of a collective for this rank: the copies of its ring, without additions."""
        steps, moved = ring_of(op, read, written)
        if not steps:
            return Price(0.0, 0.0, launches=False)
        card = self._card
        seconds = steps * card.copy_launch_us * 1e-6 + moved / (card.device_to_host_gb_s * 1e9)
        self.assumed["collectives"] = (
            f"rings of copies between devices, each {card.copy_launch_us:g} us and device_to_host_gb_s, "
            f"{card.device_to_host_gb_s:g}"
        )
        return Price(seconds, seconds)

    def _mark(self, name: str, seconds: float, value: float) -> float:
        """Return the seconds if their figure is assumed, else 0."""
        if not seconds or self._card.marks.get(name) != "assumed":
            return 0.0
        self.assumed[name] = f"{value:g}"
        return seconds

    def _rate(self, dtype: str) -> tuple[float, str]:
        """Return the arithmetic rate relative to float16, and the name of an assumption, or ""."""
        single = self._card.float32_rate
        if dtype == "Half":
            return 1.0, ""
        if dtype == "Float":
            return single, "float32_rate" if self._card.marks.get("float32_rate") == "assumed" else ""
        shares = dict.fromkeys(_LIKE_FLOAT16, 1.0) | {"Double": single / 2, "ComplexDouble": single / 8}
        shares |= {"ComplexFloat": single / 4, "ComplexHalf": 1 / 4}
        return shares.get(dtype, single), f"arithmetic in {shown(dtype)}"


_NAMES = {"Half": "float16", "Float": "float32", "Double": "float64", "ComplexFloat": "complex64"}
_NAMES |= {"ComplexDouble": "complex128", "ComplexHalf": "complex32", "Char": "int8", "Byte": "uint8", "Short": "int16"}
_NAMES |= {"Int": "int32", "Long": "int64"}


def shown(dtype: str) -> str:
    """Return a dtype's name in ``torch``."""
    return _NAMES.get(dtype, dtype.lower())


def computed_in(inputs: list[Meta], outputs: list[Meta]) -> str:
    """Return the dtype in which a launch computes: that of its first floating-point operand, else of its first."""
    names = [name for name, *_ in (*inputs, *outputs)]
    return next((name for name in names if name in _FLOATING), names[0] if names else "Half")


def _bytes(meta: Meta) -> int:
    return meta[1] * prod(meta[2])


def _traffic(op: str, inputs: list[Meta], outputs: list[Meta]) -> tuple[int, int]:
    """Return the bytes that a launch reads and writes."""
    read, written = sum(map(_bytes, inputs)), sum(map(_bytes, outputs))
    if op.removeprefix("aten::") in _SELECTING and inputs:
        read += min(_bytes(inputs[0]), written) - _bytes(inputs[0])
    if not outputs:  # in place on lists: the outputs are among the inputs
        written = int(read * _written_share(op, [sizes for *_, sizes in inputs]))
    return read, written


def _overloads(op: str) -> list[Any]:
    """Return the schemas of an operator's overloads."""
    namespace, _, name = op.partition("::")
    packet = getattr(getattr(torch.ops, namespace, None), name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return []
    return [getattr(packet, overload)._schema for overload in packet.overloads()]


@lru_cache(maxsize=4096)
def is_view(op: str) -> bool:
    """Return whether an operator only creates a view of its input."""
    for schema in _overloads(op):
        if any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
            continue
        if schema.returns:
            return all(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    return False


@lru_cache(maxsize=4096)
def _lists(op: str) -> list[tuple[int, int]]:
    """Return the number of tensor arguments and of written ones for each overload of an in-place operator, most
    first.
    """
    found = set()
    for schema in _overloads(op):
        tensors = [a for a in schema.arguments if "Tensor" in str(a.type)]
        written = [a for a in tensors if a.alias_info is not None and a.alias_info.is_write]
        if written and not schema.returns:
            found.add((len(tensors), len(written)))
    return sorted(found, reverse=True)


def _written_share(op: str, sizes: list[tuple[int, ...]]) -> float:
    """Return the share of an in-place operator's tensors that it writes.

    The log does not distinguish overloads; an overload with one more list repeats the shapes.
    """
    overloads = _lists(op)
    for count, written in overloads:
        part, rest = divmod(len(sizes), count)
        if not rest and sizes == sizes[:part] * count:
            return written / count
    return overloads[0][1] / overloads[0][0] if overloads else 0.0
