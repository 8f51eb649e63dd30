"""Translations from an encoder and a decoder with a cache, and their files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine, ModelError
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.text import one_line
from utils.datasets.base import Batch
from utils.postprocess.text.sampling import Chooser, Sampling
from utils.tasks import Model
from utils.tasks.common.beam_search import Beams, search
from utils.tasks.common.generation import Continuation, Decoder, Limits, Plans, generate
from utils.tasks.common.prediction_files import LineFile
from utils.tasks.translation.settings import Notes


class Translated(NamedTuple):
    """Translation of a text.

    Attributes:
        text: the translation. score: geometric mean of the tokens' probabilities; NaN if the model outputs NaN.
        tokens: their number. why: reason of the end (:attr:`~utils.tasks.common.generation.Continuation.why`).
    """

    text: str
    score: float
    tokens: int
    why: str


def constants_of(encoder: Model, decoder: Model, inputs: Sequence[Array], outputs: Sequence[Array]) -> dict[str, Array]:
    """Return the decoder's inputs that come from the encoder, by name.

    They are the encoder's outputs of the same name, and the mask of the source for an input whose name has ``encoder``
    and ``mask``. Raises ModelError if the decoder takes none of the outputs.
    """
    wanted = {spec.name for spec in decoder.inputs}
    found = {spec.name: value for spec, value in zip(encoder.outputs, outputs, strict=True) if spec.name in wanted}
    if not found:
        raise ModelError(
            f"{encoder.ckpt}: its outputs are {', '.join(spec.name for spec in encoder.outputs)}; none is an input of "
            f"{decoder.ckpt}; export both again"
        )
    mask = next(
        (value for spec, value in zip(encoder.inputs, inputs, strict=True) if "mask" in spec.name.lower()), None
    )
    for spec in decoder.inputs:
        if mask is not None and "encoder" in spec.name.lower() and "mask" in spec.name.lower():
            found[spec.name] = mask
    return found


class Writing:
    """The decoder of a batch.

    Args:
        engine: the decoder. model: its description. plans: planned sizes. constants: see :func:`constants_of`.
    """

    def __init__(self, engine: Engine, model: Model, plans: Plans, constants: dict[str, Array]) -> None:
        self.notes, self._engine = Notes.of(model), engine
        self.decoder = Decoder(engine, model, plans, constants)

    def first(self, count: int) -> Array:
        """Return the logits after the start tokens, N x V float32."""
        return self.decoder(self._prompts(count), None)[0]

    def translate(self, count: int, tokens: int, width: int = 1, penalty: float = 1.0) -> list[Continuation]:
        """Return a translation of each text, at most ``tokens`` long: the most likely next token, one after the other
        (greedy), or with a ``width`` above 1 that of a beam search (:mod:`utils.tasks.common.beam_search`)."""
        start = len(self.notes.start)
        # the last token is not fed, so it needs no slot and no position
        most = min(tokens, self.notes.positions - start + 1, self.decoder.plans.slots[-1] - start + 1)
        if width > 1:
            beams = Beams(width, most, self.notes.end, penalty, self.notes.suppress)
            return search(self.decoder, self._prompts(count), beams, self._engine.timeline)
        limits = Limits(most, frozenset([self.notes.end]))
        return generate(self.decoder, self._prompts(count), limits, self._choose, self._engine.timeline)

    def _prompts(self, count: int) -> list[Array]:
        return [np.array(self.notes.start, np.int64)] * count

    def _choose(self, logits: Array, places: Sequence[int], texts: Sequence[Sequence[int]]) -> Array:
        allowed = logits.copy()
        allowed[:, [one for one in self.notes.suppress if one < logits.shape[1]]] = -np.inf
        return Chooser(Sampling())(allowed, places, texts)


def likelihood(one: Continuation) -> float:
    """Return the geometric mean of the tokens' probabilities."""
    return math.exp(one.score / max(1, one.counted))


class TranslationFile(LineFile):
    """Writer of a translation per line, in the order of the data, as ``sacrebleu`` reads it."""

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Add a batch."""
        self.rows += [one_line(one.text) + "\n" for one in predictions]


def save(source: str, one: Translated, folder: Path) -> Path:
    """Write source and translation into a text file of a folder, and return it."""
    words = "_".join("".join(c if c.isalnum() else " " for c in source).split()[:5])[:40] or "text"
    file = folder / f"{words}_{sha256(source.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(file, f"{source}\n{one.text}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror or error})") from error
    return file
