"""Gain of rules on the simulated card: the model is rewritten, and its cost compared. All times are simulated."""

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


Watch = Callable[[Sequence[Any]], Iterable[Any]]  # iterates over a sequence, and may show the progress
NOTHING = 1e-9  # simulated seconds below which a gain is ignored


@dataclass(frozen=True, slots=True)
class Gain:
    """Effect of one rule on a model."""

    rule: str  # name of the rule
    fired: int  # number of matches
    before: float  # simulated compute seconds of one shard
    after: float  # simulated compute seconds of one shard
    kernels_before: int  # kernel launches of one shard
    kernels_after: int  # kernel launches of one shard

    @property
    def seconds(self) -> float:
        """Simulated seconds saved per shard."""
        return self.before - self.after


def compute_cost(
    model: ModelProto, options: PassOptions | None = None, float16: bool = True, card: CardDescription | None = None
) -> ShardCost:
    """Return the cost of a model with the shapes of one shard, as target ``sdaa`` computes it with these options."""
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
    """Return the gain of every rule that matches a model with the shapes of one shard, alone after the default pass."""
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
    """Return the rules that save time together, each with its gain after the rules before it.

    All rules are applied, then each is removed in turn, permanently if that costs nothing: a rule without a gain of its
    own is kept if a later one requires it. The total gain is the first ``before`` minus the last ``after``.
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
