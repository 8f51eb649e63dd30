"""The int8 model of a float32 model: recipes in turn until one agrees with float32, cached between runs."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from engine.agreement import Agreement
from engine.backends.quantize import Recipe, content_key, quantize, recipes, room_for
from engine.base import Array, Engine, EngineSpec, ModelError, TecoInferError
from engine.int8 import agreements
from engine.onnx.content import model_content
from engine.spec import GOOD_COSINE
from tecoinfer_modelzoo.cache import cache_folder, exclusive, read_entry, write_cached, write_entry
from tecoinfer_modelzoo.content import Content, Stamp, content_of, stamp_of
from tecoinfer_modelzoo.json_types import Problems, number, text, whole

_KIND = "int8"

NEAR, TIMES = 1e-3, 10
"""An engine is accepted if its 1 - cosine is at most the former, or the latter times that of the best engine."""

_log = logging.getLogger(__name__)

Open = Callable[[Path], Engine]  # open a quantised file


class Made(NamedTuple):
    """A quantised model. ``key`` identifies everything it was made from, ``stamp`` the file as it was written."""

    key: str
    path: Path
    recipe: Recipe
    stamp: Stamp


class Choice(NamedTuple):
    """A quantised model, and the agreement with float32 of each engine that computes it."""

    made: Made
    agreements: Mapping[str, Agreement]

    @property
    def best(self) -> float:
        """The highest cosine of any engine; -1 if none computes the model."""
        return max((found.cosine for found in self.agreements.values()), default=-1.0)


def passing(found: Mapping[str, Agreement]) -> list[str]:
    """Return the engines that are good enough; if there are none, those about as good as the best one.

    An engine that is much farther from float32 than another with the same file has a fault (OpenVINO, with a CRNN of
    dynamic batch and width: a cosine of 0.993 where ONNX Runtime has 0.99996), and is skipped.
    """
    best = max((one.cosine for one in found.values()), default=0.0)
    least = max(min(GOOD_COSINE, best), 1 - max(NEAR, TIMES * (1 - best)))
    return [name for name, one in found.items() if one.cosine >= least]


@dataclass(frozen=True, slots=True)
class Int8Maker:
    """Makes int8 models of one float32 model, from the same samples."""

    spec: EngineSpec  # of the float32 model
    names: Sequence[str]  # of its inputs, in the caller's order
    calls: Sequence[Sequence[Array]]  # the samples, as engines take them: one array per input, in that order
    engines: Mapping[str, Open]  # those that may compute an int8 model, by name, versions included
    baseline: Callable[[], Engine]  # opens the float32 model
    processor: str  # on which agreements are measured
    scratch: ExitStack  # deletes files that could not be cached, when closed
    _again: dict[str, Path] = field(default_factory=dict)

    def choose(self) -> Choice:
        """Return the first recipe's model close enough to float32, else the best; raise ModelError without any."""
        best: Choice | None = None
        refused: list[ModelError] = []
        for recipe in recipes(self.spec.ckpt):
            try:
                choice = self._tried(recipe)
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

    def open(self, opener: Open, made: Made) -> Engine:
        """Open a quantised model, made again if it was changed or deleted in the cache; errors are the opener's."""
        path = self._again.get(made.key)
        if path is None:
            try:
                engine = opener(made.path)
            except TecoInferError:
                if _is_as_made(made):
                    raise
            else:
                if _is_as_made(made):
                    return engine
                engine.release()
            _log.info("%s was changed after it was made; making it again", made.path)
            path = self._again[made.key] = self._in_scratch(quantize(self.spec.ckpt, self._samples(), made.recipe))
        return opener(path)

    def _samples(self) -> list[dict[str, Array]]:
        return [dict(zip(self.names, call, strict=True)) for call in self.calls]

    def _in_scratch(self, content: bytes) -> Path:
        """Write a quantised model to a temporary folder of this engine."""
        with room_for(self.spec.ckpt):
            folder = self.scratch.enter_context(tempfile.TemporaryDirectory(prefix="tecoinfer-int8-"))
            path = Path(folder) / "int8.onnx"
            path.write_bytes(content)
        return path

    def _tried(self, recipe: Recipe) -> Choice:
        made = self._made(recipe)
        choice = Choice(made, self._measured(made))
        _log.info("int8 recipe %s of %s: cosine %.4f", recipe.name, self.spec.ckpt, choice.best)
        return choice

    def _made(self, recipe: Recipe) -> Made:
        """Return the quantised model, from the cache if an earlier run made it from the same samples."""
        samples = self._samples()
        with exclusive(_KIND):
            before = _model_hash(self.spec.ckpt)
            key = content_key(before, samples, recipe)
            if (found := _cached_model(key)) is not None:
                _log.info("int8 model of %s: cached as %s", self.spec.ckpt, found[0])
                return Made(key, found[0], recipe, found[1].stamp)
            content = quantize(self.spec.ckpt, samples, recipe)
            if _model_hash(self.spec.ckpt) != before:
                raise ModelError(f"{self.spec.ckpt} was changed while it was quantised; run again")
            digest = hashlib.sha256(content).hexdigest()
            path = write_cached(_KIND, f"{key}.onnx", content)
            if path is not None and (kept := _content(path)) is not None and kept.sha256 == digest:
                write_entry(_KIND, key, {"sha256": digest, "model": str(self.spec.ckpt), "recipe": recipe.name})
                _log.info("int8 model of %s: kept as %s", self.spec.ckpt, path)
                return Made(key, path, recipe, kept.stamp)
        path = self._in_scratch(content)
        return Made(key, path, recipe, stamp_of(path))

    def _measured(self, made: Made) -> dict[str, Agreement]:
        """Return each engine's agreement with float32, cached per processor; failed ones are tried again next time."""
        facts = json.dumps([made.key, self.processor, sorted(self.engines), str(self.names)])
        key = f"agreement-{hashlib.sha256(facts.encode()).hexdigest()}"
        kept = _recalled(read_entry(_KIND, key)) or {}
        missing = {name: opener for name, opener in self.engines.items() if name not in kept}
        if missing and (found := self._compared(made, missing)):
            kept |= found
            write_entry(_KIND, key, {name: [one.cosine, one.output, one.samples] for name, one in kept.items()})
        return {name: replace(one, recipe=made.recipe.name) for name, one in kept.items() if name in self.engines}

    def _compared(self, made: Made, openers: Mapping[str, Open]) -> dict[str, Agreement]:
        with ExitStack() as stack:
            engines = {}
            for name, opener in openers.items():
                try:
                    engines[name] = stack.enter_context(self.open(opener, made))
                except TecoInferError as error:
                    _log.info("%s does not compute %s: %s", name, made.path, error)
            return agreements(stack.enter_context(self.baseline()), engines, self.calls) if engines else {}


def _model_hash(path: Path) -> str:
    try:
        return model_content(path).sha256
    except OSError as error:
        raise ModelError(
            f"model file {path} cannot be read: {error.strerror or error}; check its permissions"
        ) from error


def _is_as_made(made: Made) -> bool:
    try:
        return stamp_of(made.path) == made.stamp
    except OSError:
        return False


def _content(path: Path) -> Content | None:
    try:
        return content_of(path)
    except OSError as error:
        _log.info("%s is ignored: %s", path, error)
        return None


def _recalled(entry: Mapping[str, Any] | None) -> dict[str, Agreement] | None:
    """Return the cached agreements, if they are complete."""
    if entry is None:
        return None
    try:
        return {
            name: Agreement(number(cosine, -1.001, 1.001), text(output), whole(n))
            for name, (cosine, output, n) in entry.items()
        }
    except Problems:
        return None


def _cached_model(key: str) -> tuple[Path, Content] | None:
    """Return a cached quantised model and its content, if it is unchanged."""
    folder, entry = cache_folder(_KIND), read_entry(_KIND, key)
    if folder is None or entry is None:
        return None
    path = folder / f"{key}.onnx"
    found = _content(path)
    return (path, found) if found is not None and found.sha256 == entry.get("sha256") else None
