"""The cost curve of a model: seconds and memory of a server by its batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from engine import Array, ConfigError, DeviceOutOfMemory, Engine, engine_class
from engine.signature import with_batch
from tecoexec.plan.simulate import SEED, Service
from tecoexec.request import Request, call_shapes, open_request, random_inputs, spa_count
from tecoexec.shapes import CardShapes

if TYPE_CHECKING:
    from engine.sdaa import SdaaEngine

REPEATS = 30
"""Measured calls per batch, on targets other than the simulated card."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Service times of one server by batch.

    Attributes:
        seconds: batch -> service times, sorted, in seconds: one on the simulated card, else those measured.
        padded: whether a smaller batch takes as long as the plan it is padded to, as on the card.
        memory: batch -> bytes of device memory of a server; empty where not known.
        servers: servers of a card (its SPA), or 1.
        capacity: bytes of device memory of a server; 0 where not known.
        simulated: whether the times are simulated.
        name: of the card; empty on other targets.
        skipped: why larger batches are missing.
    """

    seconds: Mapping[int, Sequence[float]]
    padded: bool
    servers: int = 1
    memory: Mapping[int, int] | None = None
    capacity: int = 0
    simulated: bool = False
    name: str = ""
    skipped: str = ""

    @property
    def sizes(self) -> list[int]:
        """The batches, ascending."""
        return sorted(self.seconds)

    def mean(self, batch: int, most: int) -> float:
        """Return the mean seconds of a batch under a policy of at most ``most`` samples, one of :attr:`sizes`."""
        below, above, share = self._between(most if self.padded else batch)
        means = [float(np.mean(self.seconds[size])) for size in (below, above)]
        return means[0] + share * (means[1] - means[0])

    def rate(self, most: int) -> float:
        """Return the highest samples per second of one server under a policy of at most ``most`` samples."""
        return max(batch / self.mean(batch, most) for batch in self.sizes if batch <= most)

    def service(self, most: int, seed: int = SEED) -> Service:
        """Return the service times under a policy of at most ``most`` samples; measured ones are drawn at random.

        Batches between two of :attr:`sizes` are interpolated at the same quantile of both.
        """
        if self.padded and len(self.seconds[most]) == 1:
            constant = float(self.seconds[most][0])
            return lambda *_: constant
        rng = np.random.default_rng(seed)
        between = {batch: self._between(most if self.padded else batch) for batch in range(1, most + 1)}

        def drawn(batch: int, _: float) -> float:
            below, above, share = between[batch]
            u = float(rng.random())
            low, high = (self.seconds[size][int(u * len(self.seconds[size]))] for size in (below, above))
            return low + share * (high - low)

        return drawn

    def _between(self, batch: int) -> tuple[int, int, float]:
        """Return the sizes below and above a batch, and its place between them from 0 to 1."""
        below = max((size for size in self.sizes if size <= batch), default=self.sizes[0])
        above = min((size for size in self.sizes if size >= batch), default=self.sizes[-1])
        return below, above, 0.0 if above == below else (batch - below) / (above - below)


def batches_up_to(most: int) -> list[int]:
    """Return the powers of two below ``most``, and ``most``."""
    return [2**i for i in range(most.bit_length()) if 2**i < most] + [most]


def curve_of(request: Request, most: int) -> Curve:
    """Return the cost curve of a model: simulated for the card, else measured on this host.

    Args:
        request: the model, its target, and the shapes of a call with any batch. most: largest batch of a server.

    Raises:
        DeviceOutOfMemory: not even the smallest batch fits. TecoInferError: the model or its shapes are invalid.
    """
    shapes = call_shapes(request)
    if engine_class(request.target).simulated:
        return _card_curve(request, shapes, most)
    return _measured_curve(request, shapes, most)


def _sizes(engine: Engine, shapes: CardShapes, most: int) -> list[int]:
    """Return the batches that a server can have."""
    if all(axis is None for axis in shapes.axes):
        return [1]
    return batches_up_to(most) if engine.static_batch is None else [engine.static_batch]


def _rebatched(request: Request, shapes: CardShapes, batch: int) -> Request:
    whole = tuple(("", with_batch(one, axis, batch)) for one, axis in zip(shapes.whole, shapes.axes, strict=True))
    return replace(request, shapes=whole)


def _card_curve(request: Request, shapes: CardShapes, most: int) -> Curve:
    """Open an engine that only computes costs for each batch, and read the cost of a shard."""
    spas = spa_count(request.target) if shapes.split else 1
    request = replace(request, simulate_only=True, paced=False)
    engine, _ = open_request(_rebatched(request, shapes, spas))
    found: dict[int, list[float]] = {}
    memory: dict[int, int] = {}
    skipped = ""
    with engine:
        sizes, card = _sizes(engine, shapes, most), cast("SdaaEngine", engine).description
    for batch in sizes:
        again = request if len(sizes) == 1 else _rebatched(request, shapes, batch * spas)
        try:
            opened, _ = open_request(again)
        except DeviceOutOfMemory as error:
            if not found:
                raise
            skipped = f"batch {batch} of a SPA and larger ones do not fit its memory: {error}"
            break
        with opened:
            mine = cast("SdaaEngine", opened)
            cost = mine.cost
            found[batch] = [cost.copy_in + cost.compute + cost.copy_out]
            memory[batch] = mine.card.memory
    return Curve(found, True, spa_count(request.target), memory, card.memory_bytes, True, card.name, skipped)


def _measured_curve(request: Request, shapes: CardShapes, most: int) -> Curve:
    engine, shapes = open_request(_rebatched(request, shapes, most) if shapes.batch != most else request)
    with engine:
        sizes = _sizes(engine, shapes, most)
        largest = CardShapes(
            tuple(with_batch(one, axis, sizes[-1]) for one, axis in zip(shapes.whole, shapes.axes, strict=True)),
            shapes.axes,
            sizes[-1],
            shapes.split,
        )
        arrays = random_inputs(request, engine, largest)
        calls = {size: _call(engine, arrays, shapes.axes, size) for size in sizes}
        return Curve(measured(calls), padded=False)


def _call(engine: Engine, arrays: list[Array], axes: Sequence[int | None], size: int) -> Callable[[], object]:
    given = [a if axis is None else np.take(a, range(size), axis) for a, axis in zip(arrays, axes, strict=True)]
    return lambda: engine(given)


def measured(calls: Mapping[int, Callable[[], object]], repeats: int = REPEATS) -> dict[int, list[float]]:
    """Return the sorted seconds of each call; the sizes take turns, so that other load meets all of them."""
    found: dict[int, list[float]] = {size: [] for size in calls}
    if not calls:
        raise ConfigError("no batch size fits --max_batch; the smallest is 1")
    for call in calls.values():
        call()  # allocations of the first call
    for _ in range(repeats):
        for size, call in calls.items():
            start = time.perf_counter()
            call()
            found[size].append(time.perf_counter() - start)
    return {size: sorted(seconds) for size, seconds in found.items()}
