"""The devices of the card. This is the seam for the device model: memory, clock and faults belong to a :class:`Spa`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.signature import Array

Compute = Callable[[Sequence[Array]], list[Array]]


class Spa:
    """One compute array: holds one engine instance and runs one shard at a time.

    Args:
        index: which SPA of the card, from 0.
        compute: computes a shard's values on the host; all SPA of a card share one copy of the weights.
    """

    def __init__(self, index: int, compute: Compute) -> None:
        self.index = index
        self._compute = compute
        self.shards = 0
        """Shards run so far."""

    def run(self, shard: Sequence[Array]) -> list[Array]:
        """Run one shard and return its outputs in the model's order."""
        self.shards += 1
        return self._compute(shard)


class Card:
    """The SPA of one card; a call's shards go to them in turn.

    Shards run one after another and each uses every host core: on the host, shards side by side only fight for the
    same cores, and a batch smaller than the card would leave cores idle.
    """

    def __init__(self, count: int, compute: Compute) -> None:
        self.spas = [Spa(index, compute) for index in range(count)]

    def run(self, shards: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run the shards, shard ``i`` on SPA ``i % count``, and return their outputs in order."""
        return [self.spas[i % len(self.spas)].run(shard) for i, shard in enumerate(shards)]
