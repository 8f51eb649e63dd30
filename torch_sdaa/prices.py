"""What a launch costs on the card: the roofline of ``engine.sdaa`` over an operator's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.sdaa import CardDescription

Meta = tuple[str, int, tuple[int, ...]]
"""dtype's name, bytes of an element, sizes."""

Launch = tuple[str, list[Meta], list[Meta], float]
"""Operator, inputs, outputs, floating-point operations (-1: to be told from the shapes)."""


class Pricer:
    """Prices launches of one card; called by the extension with those it has not seen before."""

    def __init__(self, card: CardDescription) -> None:
        self._card = card
        self._layout = card.layout("plain")

    def __call__(self, launches: Sequence[Launch]) -> list[tuple[float, float]]:
        """Return for each launch its simulated seconds, and those of them that rest on assumed rates."""
        return [self._price(*launch) for launch in launches]

    def _price(self, op: str, inputs: list[Meta], outputs: list[Meta], flops: float) -> tuple[float, float]:
        card, layout = self._card, self._layout
        read, written = (sum(size * prod(sizes) for _, size, sizes in metas) for metas in (inputs, outputs))
        if op in ("copy_in", "copy_out", "copy_between"):
            rate = card.device_to_host_gb_s if op == "copy_out" else card.host_to_device_gb_s
            return card.copy_launch_us * 1e-6 + read / (rate * 1e9), 0.0
        work = max(flops, float(sum(prod(sizes) for _, _, sizes in outputs)))
        seconds = layout.launch_us * 1e-6 + max(
            work / (layout.compute_tflop_s * 1e12), (read + written) / (layout.memory_gb_s * 1e9)
        )
        return seconds, 0.0
