"""What a model costs on a card: time and memory of one SPA for one shard, from a walk over its kernels.

The time of a kernel is a launch plus the longer of its arithmetic at the layout's compute rate and its bytes at the
layout's memory rate (a roofline, Williams et al., CACM 52(4), 2009); a shard's compute time is the sum over its
kernels. Nothing knows which model it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.onnx_graph import graph_inputs, view
from engine.sdaa.card import CardDescription, Layout
from engine.sdaa.float16 import widen
from engine.sdaa.kernels import Kernel, kernels

if TYPE_CHECKING:
    from onnx import ModelProto

FLOAT32_BYTES = 4
IO_BUFFERS = 2
"""Sets of input and output buffers: one computed on while the next is copied."""


@dataclass(frozen=True, slots=True)
class ShardCost:
    """Simulated cost of one shard on one SPA: seconds and bytes.

    Attributes:
        copy_in, compute, copy_out: seconds.
        weights, activations, io: bytes; activations at their peak, io for all buffers.
        kernels: what is launched, in order. kernel_seconds: the time of each.
    """

    copy_in: float
    compute: float
    copy_out: float
    weights: int
    activations: int
    io: int
    kernels: tuple[Kernel, ...]
    kernel_seconds: tuple[float, ...]

    @property
    def unknown(self) -> list[str]:
        """Names of the kernels that work on data whose size is not known beforehand: only their launch is counted."""
        return [kernel.name for kernel in self.kernels if not kernel.known]

    @property
    def memory(self) -> int:
        """Bytes of device memory one engine instance takes."""
        return self.weights + self.activations + self.io


def shard_cost(model: ModelProto, card: CardDescription, layout: Layout, float16: bool) -> ShardCost:
    """Cost a model whose inputs have the shapes of one shard.

    Args:
        model: after binding and passes, before the conversion to the card's storage.
        card, layout: the figures.
        float16: whether floats are stored in float16 (else float32).
    """
    wide = widen(model)
    share = 0.5 if float16 else 1.0
    nodes = view(wide)
    sizes = {name: int((size or 0) * share) for node in nodes for name, size in node.bytes.items()}
    constants = [tensor.name for tensor in wide.graph.initializer]
    outputs = [info.name for info in wide.graph.output]
    inputs = [info.name for info in graph_inputs(wide)]
    walk = kernels(nodes, constants, outputs)
    seconds = tuple(kernel_seconds(kernel, layout, share, 1.0 if float16 else card.float32_rate) for kernel in walk)
    bytes_in, bytes_out = (sum(sizes.get(name, 0) for name in names) for names in (inputs, outputs))
    return ShardCost(
        copy_in=_copy(bytes_in, len(inputs), card.host_to_device_gb_s, card),
        compute=sum(seconds),
        copy_out=_copy(bytes_out, len(outputs), card.device_to_host_gb_s, card),
        weights=sum(sizes.get(name, 0) for name in constants),
        activations=peak_bytes(walk, sizes, {*constants, *inputs, *outputs}),
        io=IO_BUFFERS * (bytes_in + bytes_out),
        kernels=tuple(walk),
        kernel_seconds=seconds,
    )


def kernel_seconds(kernel: Kernel, layout: Layout, share: float, rate: float) -> float:
    """Return launch plus the longer of arithmetic and memory traffic.

    Args:
        kernel: bytes as float32.
        layout: rates of the data's layout.
        share: stored bytes per byte of float32.
        rate: speed of the arithmetic as a share of the layout's.
    """
    arithmetic = kernel.flops / (layout.compute_tflop_s * 1e12 * rate)
    traffic = (kernel.read + kernel.written) * share / (layout.memory_gb_s * 1e9)
    return kernel.launches * layout.launch_us * 1e-6 + max(arithmetic, traffic)


def _copy(size: int, count: int, gb_s: float, card: CardDescription) -> float:
    return count * card.copy_launch_us * 1e-6 + size / (gb_s * 1e9)


def peak_bytes(walk: Sequence[Kernel], sizes: dict[str, int], elsewhere: set[str]) -> int:
    """Return the largest sum of live activations: each lives from the kernel that writes it to the last that reads it.

    Args:
        walk: kernels in order.
        sizes: stored bytes by tensor name.
        elsewhere: tensors that are accounted for as weights or input and output buffers.
    """
    last_read = {name: i for i, kernel in enumerate(walk) for name in kernel.reads}
    alive: dict[str, int] = {}
    peak = 0
    for i, kernel in enumerate(walk):
        alive |= {name: sizes.get(name, 0) for name in kernel.writes if name not in elsewhere}
        peak = max(peak, sum(alive.values()))
        for name in [name for name in alive if last_read.get(name, i) <= i]:
            del alive[name]
    return peak
