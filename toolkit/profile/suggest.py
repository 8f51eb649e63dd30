"""Rewrite rules that save time on the simulated card, and the pass file that applies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ConfigError, PassError
from engine.passes import RULES, Gain, PassOptions, apply_passes, choose, compute_cost, predict, rewrite
from engine.sdaa import Lowered, ShardCost
from tecoinfer_modelzoo.progress import progress
from toolkit.profile.fixes import NOTHING

if TYPE_CHECKING:
    from onnx import ModelProto

_FILE = '''"""Rewrite rules that save {saved:.3g} ms of {before:.3g} ms per shard of {batch} on the simulated card.

Written by teco profile --apply. engine.passes.rules.RULES describes each rule.
"""

{imports}from engine.passes import rewrite

RULES = (
{names}
)
{first}

def use_passes(model):
    """Return the optimised model; the argument is not changed."""
    return rewrite({model}, RULES{opset})
'''

_OWN = ("need_convert", "skip_ops", "skip_input_name", "convert_all", "convert_judge", "normalized", "layout")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Gains of rewrite rules, with simulated times."""

    alone: tuple[Gain, ...]  # every rule that fires, with its separate gain
    chosen: tuple[Gain, ...]  # rules to apply, each with the gain over the preceding ones
    before: float  # compute seconds of one shard; with the default pass, if sizes are known only after it
    after: float  # with the chosen rules
    saved: Mapping[str, float]  # seconds by operator; negative if it takes over work
    opset: int  # opset that the chosen rules need; 0 if the model has it
    too_new: tuple[tuple[str, int], ...]  # skipped rules (name, opset): the model cannot be converted

    @property
    def useless(self) -> tuple[Gain, ...]:
        """Rules that fire but save no time in addition to the chosen ones."""
        taken = {gain.rule for gain in self.chosen}
        return tuple(gain for gain in self.alone if gain.rule not in taken)

    @property
    def tidied(self) -> float:
        """Seconds saved by the default pass, which runs before the rules."""
        return self.before - self.chosen[0].before if self.chosen else 0.0


def suggest(loaded: Lowered) -> Suggestion:
    """Try every rule on a model after its passes; gains are relative to the model after its passes."""
    options, float16 = loaded.options, loaded.half
    now = compute_cost(loaded.model, options, float16)
    own = _opset(loaded.model)
    model, reached = _raised(loaded.model, own)
    watch = partial(progress, unit="rule", what="trying rules")
    alone = predict(model, options=options, float16=float16, watch=watch)
    chosen = choose(model, options=options, float16=float16, watch=watch) if alone else []
    tidy = compute_cost(rewrite(loaded.model, ()), options, float16) if now.unknown else now
    first = tidy if len(tidy.unknown) < len(now.unknown) else now
    if chosen and chosen[0].before - chosen[-1].after <= NOTHING:
        chosen = []
    names = [gain.rule for gain in chosen]
    needed = max((RULES[name].min_opset for name in names), default=0)
    opset = needed if needed > own else 0
    last = compute_cost(rewrite(loaded.model, names, opset), options, float16) if chosen else first
    return Suggestion(
        alone=tuple(sorted(alone, key=lambda gain: -gain.seconds)),
        chosen=tuple(chosen),
        before=first.compute,
        after=last.compute,
        saved=_saved(first, last),
        opset=opset,
        too_new=tuple((name, rule.min_opset) for name, rule in RULES.items() if not rule.fits(reached)),
    )


def _saved(before: ShardCost, after: ShardCost) -> dict[str, float]:
    """Return the seconds saved by operator."""
    found: dict[str, float] = {}
    for cost, sign in ((before, 1), (after, -1)):
        for kernel, seconds in zip(cost.kernels, cost.kernel_seconds, strict=True):
            found[kernel.op_type] = found.get(kernel.op_type, 0.0) + sign * seconds
    return found


def _opset(model: ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def _raised(model: ModelProto, own: int) -> tuple[ModelProto, int]:
    """Return a model in the newest opset that a rule needs, or unchanged if it cannot be converted, and its opset."""
    newest = max(rule.min_opset for rule in RULES.values())
    try:
        return rewrite(model, (), newest), max(own, newest)
    except PassError:
        return model, own


def check_free(path: Path) -> None:
    """Check that a pass file does not exist; raise ConfigError if it exists."""
    if path.exists():
        raise ConfigError(f"{path} exists; choose another name for the pass file, or remove it")


def write_pass(path: Path, found: Suggestion, loaded: Lowered) -> None:
    """Write the pass file of the chosen rules (at least one), and verify it on the model with random input.

    If the model ran with another pass file, its passes are applied first.

    Raises:
        ConfigError: the file exists, or cannot be written.
        PassError: the pass changes the results of the model; the file is removed.
    """
    text = _text(found, loaded)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"pass file {path} cannot be written: {error.strerror}; choose another place") from error
    try:
        apply_passes(loaded.shaped, PassOptions.load(path))
    except BaseException:
        path.unlink()
        raise


def _text(found: Suggestion, loaded: Lowered) -> str:
    own = loaded.options.path
    first = ""
    if own is not None:  # the current passes stay and run first
        fields = "".join(f"{name} = FIRST.{name}\n" for name in _OWN)
        first = f"FIRST = PassOptions.load(Path({str(own.resolve())!r}))\n{fields}"
    return _FILE.format(
        saved=(found.before - found.after) * 1e3,
        before=found.before * 1e3,
        batch=loaded.batch,
        names="\n".join(f'    "{gain.rule}",' for gain in found.chosen),
        imports="from pathlib import Path\n\nfrom engine.passes import PassOptions\n" if own else "",
        first=first,
        model="FIRST.use_passes(model)" if own and loaded.options.use_passes else "model",
        opset=f", opset={found.opset}" if found.opset else "",
    )
