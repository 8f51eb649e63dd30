"""What rules would save on the simulated card: rewrite for real, price before and after. All times are simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.passes.options import PassOptions
from engine.passes.rules import RULES, rewrite, rewrite_counted
from engine.sdaa.card import CardDescription, load_card
from engine.sdaa.cost import ShardCost, shard_cost

if TYPE_CHECKING:
    from onnx import ModelProto


Watch = Callable[[Sequence[Any]], Iterable[Any]]
"""Passes on what a loop goes through, one by one, and may show how far it is."""

NOTHING = 1e-9
"""Simulated seconds that are not worth a rule."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What one rule did to a model.

    Attributes:
        rule: its name. fired: how often.
        before, after: simulated seconds that one shard computes.
        kernels_before, kernels_after: launches of one shard.
    """

    rule: str
    fired: int
    before: float
    after: float
    kernels_before: int
    kernels_after: int

    @property
    def seconds(self) -> float:
        """Simulated seconds saved per shard."""
        return self.before - self.after


def compute_cost(
    model: ModelProto, options: PassOptions | None = None, float16: bool = True, card: CardDescription | None = None
) -> ShardCost:
    """Price a model whose inputs have the shapes of one shard, as target ``sdaa`` does with these options."""
    card, options = card or load_card(), options or PassOptions()
    half = float16 and options.need_convert
    return shard_cost(model, card, card.layout(options.layout), half, options.keeps_float32)


def predict(
    model: ModelProto,
    names: Iterable[str] = tuple(RULES),
    options: PassOptions | None = None,
    float16: bool = True,
    watch: Watch = iter,
) -> list[Gain]:
    """Return what every rule that fires does by itself, after the default pass.

    Args:
        model: with the shapes of one shard.
        names: rules to try.
        options: layout, and what stays float32.
        float16: whether floats are stored in float16.
        watch: what the loop goes through, to show how far it is.
    """
    plain = rewrite(model, ())
    before = compute_cost(plain, options, float16)
    steps = ((name, *rewrite_counted(plain, [name], tidied=True)) for name in watch(tuple(names)))
    return [
        _gain(name, counts[name], before, compute_cost(changed, options, float16))
        for name, changed, counts in steps
        if counts[name]
    ]


def choose(
    model: ModelProto,
    names: Iterable[str] = tuple(RULES),
    options: PassOptions | None = None,
    float16: bool = True,
    watch: Watch = iter,
) -> list[Gain]:
    """Return the rules that save time together, each with what it adds to those before it.

    All are applied, then each is left out in turn and stays out where that costs nothing: a rule that saves nothing by
    itself is kept where a later one needs it. What they save in sum is the first ``before`` less the last ``after``.
    """
    plain = rewrite(model, ())

    @cache
    def tried(*chosen: str) -> tuple[ShardCost, dict[str, int]]:
        changed, counts = rewrite_counted(plain, chosen, tidied=True)
        return compute_cost(changed, options, float16), counts

    kept = [name for name, fired in tried(*names)[1].items() if fired]
    best = tried(*kept)[0].compute
    for name in watch(tuple(kept)):
        without = [other for other in kept if other != name]
        seconds = tried(*without)[0].compute
        if seconds <= best + NOTHING:
            kept, best = without, seconds
    costs = [tried(*kept[:i])[0] for i in watch(range(len(kept) + 1))]
    fired = tried(*kept)[1]
    return [_gain(name, fired[name], *costs[i : i + 2]) for i, name in enumerate(kept)]


def _gain(name: str, fired: int, before: ShardCost, after: ShardCost) -> Gain:
    launches = (len(before.kernels), len(after.kernels))
    return Gain(name, fired, before.compute, after.compute, *launches)
