"""Which int8 model a float32 model becomes: recipes in turn until one agrees with float32, kept between runs."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from engine.agreement import Agreement
from engine.backends.quantize import Recipe, content_key, quantize, recipes
from engine.base import Array, Engine, EngineSpec, ModelError, TecoInferError
from engine.host.cache import cache_folder, exclusive, read_entry, write_cached, write_entry
from engine.host.files import hash_files
from engine.int8 import agreements
from engine.json_types import Problems, number, text, whole
from engine.onnx.load import file_hash
from engine.spec import GOOD_COSINE

_KIND = "int8"

NEAR, TIMES = 1e-3, 10
"""An engine is let in whose cosine is so near to 1, or at most so many times as far from it as the nearest engine's."""

_log = logging.getLogger(__name__)

Open = Callable[[Path], Engine]
"""Opens a quantised file."""


class Made(NamedTuple):
    """A quantised model. ``key`` stands for all that it was made from."""

    key: str
    path: Path
    recipe: Recipe


class Choice(NamedTuple):
    """A quantised model, and how near each engine that computes it is to float32."""

    made: Made
    agreements: Mapping[str, Agreement]

    @property
    def best(self) -> float:
        """The highest cosine of any engine; -1 where none computes it."""
        return max((found.cosine for found in self.agreements.values()), default=-1.0)


def passing(found: Mapping[str, Agreement]) -> list[str]:
    """Return the engines that are good enough; where none is, those that are as near as the best one.

    One that is much farther from float32 than another with the same file has a fault of its own (OpenVINO, with a CRNN
    whose batch and width are open: a cosine of 0.993 where ONNX Runtime has 0.99996), and is left out.
    """
    best = max((one.cosine for one in found.values()), default=0.0)
    least = max(min(GOOD_COSINE, best), 1 - max(NEAR, TIMES * (1 - best)))
    return [name for name, one in found.items() if one.cosine >= least]


@dataclass(frozen=True, slots=True)
class Int8Maker:
    """Makes int8 models of one float32 model, from the same samples.

    Attributes:
        spec: of the float32 model. names: of its inputs, in the caller's order.
        calls: the samples, as engines take them: one array per input, in that order.
        engines: those that may compute an int8 model, by name, versions included.
        baseline: opens the float32 model. processor: what the figures were measured on.
    """

    spec: EngineSpec
    names: Sequence[str]
    calls: Sequence[Sequence[Array]]
    engines: Mapping[str, Open]
    baseline: Callable[[], Engine]
    processor: str

    def choose(self, scratch: ExitStack) -> Choice:
        """Return the first recipe's model that is as near to float32 as it should be, else the nearest one.

        Args:
            scratch: closes, and with it deletes, what could not be kept in the cache.

        Raises:
            ModelError: the model cannot be quantised.
        """
        best: Choice | None = None
        refused: list[ModelError] = []
        for recipe in recipes(self.spec.ckpt):
            try:
                choice = self._tried(recipe, scratch)
            except ModelError as error:
                refused.append(error)
                continue
            if best is None or choice.best > best.best:
                best = choice
            if best.best >= GOOD_COSINE:
                break
        if best is None:
            raise refused[0]
        return best

    def _tried(self, recipe: Recipe, scratch: ExitStack) -> Choice:
        """Make the model of a recipe and measure it."""
        samples = [dict(zip(self.names, call, strict=True)) for call in self.calls]
        made = self._made(content_key(file_hash(self.spec.ckpt), samples, recipe), samples, recipe, scratch)
        choice = Choice(made, self._measured(made))
        _log.info("int8 recipe %s of %s: cosine %.4f", recipe.name, self.spec.ckpt, choice.best)
        return choice

    def _made(self, key: str, samples: Sequence[Mapping[str, Array]], recipe: Recipe, scratch: ExitStack) -> Made:
        """Return the quantised model, made now unless an earlier run made it from the same."""
        with exclusive(_KIND):
            if (path := _cached_model(key)) is not None:
                _log.info("int8 model of %s: %s, made from the same samples", self.spec.ckpt, path)
                return Made(key, path, recipe)
            content = quantize(self.spec.ckpt, samples, recipe)
            path = write_cached(_KIND, f"{key}.onnx", content)
            if path is not None:
                entry = {"sha256": hashlib.sha256(content).hexdigest(), "model": str(self.spec.ckpt)}
                write_entry(_KIND, key, {**entry, "recipe": recipe.name})
                _log.info("int8 model of %s: kept as %s", self.spec.ckpt, path)
                return Made(key, path, recipe)
        path = Path(scratch.enter_context(tempfile.TemporaryDirectory(prefix="tecoinfer-int8-"))) / "int8.onnx"
        path.write_bytes(content)
        return Made(key, path, recipe)

    def _measured(self, made: Made) -> dict[str, Agreement]:
        """Return how near each engine is to float32 on the samples, as measured now or before on such a processor."""
        facts = json.dumps([made.key, self.processor, sorted(self.engines), str(self.names)])
        key = f"agreement-{hashlib.sha256(facts.encode()).hexdigest()}"
        kept = _recalled(read_entry(_KIND, key))
        if kept is None or kept.keys().isdisjoint(self.engines):
            kept = self._compared(made)
            write_entry(_KIND, key, {name: [one.cosine, one.output, one.samples] for name, one in kept.items()})
        return {name: replace(one, recipe=made.recipe.name) for name, one in kept.items() if name in self.engines}

    def _compared(self, made: Made) -> dict[str, Agreement]:
        with ExitStack() as stack:
            engines = {}
            for name, open_it in self.engines.items():
                try:
                    engines[name] = stack.enter_context(open_it(made.path))
                except TecoInferError as error:
                    _log.info("%s does not compute %s: %s", name, made.path, error)
            return agreements(stack.enter_context(self.baseline()), engines, self.calls)


def _recalled(entry: Mapping[str, Any] | None) -> dict[str, Agreement] | None:
    """Return what an earlier run measured, where all of it is there."""
    if entry is None:
        return None
    try:
        return {
            name: Agreement(number(cosine, -1.001, 1.001), text(output), whole(n))
            for name, (cosine, output, n) in entry.items()
        }
    except Problems:
        return None


def _cached_model(key: str) -> Path | None:
    """Return a quantised model that was stored before, if it still is as it was stored."""
    folder, entry = cache_folder(_KIND), read_entry(_KIND, key)
    if folder is None or entry is None:
        return None
    path = folder / f"{key}.onnx"
    try:
        return path if hash_files(path) == entry.get("sha256") else None
    except OSError as error:
        _log.info("%s is ignored: %s", path, error)
        return None
