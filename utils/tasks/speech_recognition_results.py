"""What an evaluation of speech recognition says beside its metric: hints, and what was recognised as a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import ConfigError, TecoInferError, write_file
from utils.datasets.base import Batch
from utils.metrics.transcripts import normalised
from utils.tasks.base import Options
from utils.tasks.model import Model
from utils.tasks.speech_recognition_input import alphabet_of
from utils.tasks.speech_recognition_windows import unpacked

SHOWN = 8
"""Characters that a hint names."""

MOST, FEW = 0.5, 20
"""A blank holds most steps of a trained model; so many recordings must have been seen before anything is said of it."""


class SpeechHinter:
    """Looks for right texts that the model cannot write, and for a class that holds the blank's place.

    Args:
        model, options: as ``decode`` has them.
    """

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        self.seen = self.unwritable = self.blank = 0
        self.unknown: dict[str, None] = {}
        self.steps: np.ndarray[Any, np.dtype[np.int64]] | None = None

    def see(self, outputs: Any, contexts: Sequence[Any], targets: Sequence[Any]) -> None:
        """Take in a batch."""
        known = [steps for steps in map(unpacked, outputs) if len(steps)]
        if not known:
            return
        try:
            alphabet = alphabet_of(self.model, self.options, known[0].shape[-1])
        except (TecoInferError, LookupError):  # a model whose task decodes in another way
            return
        every = "".join(alphabet.tokens)
        letters = frozenset(every + every.casefold() + normalised(every, self.options.normalize)) | {" "}
        for target in targets:
            missing = [one for one in normalised(str(target), self.options.normalize) if one not in letters]
            self.seen += 1
            self.unwritable += bool(missing)
            self.unknown.update(dict.fromkeys(missing))
        path = np.concatenate([steps.argmax(axis=-1) for steps in known])
        counts = np.bincount(path, minlength=known[0].shape[-1])
        self.steps = counts if self.steps is None else self.steps + counts
        self.blank = alphabet.blank

    def hints(self) -> list[str]:
        """Return what looks wrong, one line each."""
        found = []
        if self.unwritable:
            shown = " ".join(list(self.unknown)[:SHOWN])
            more = f" and {len(self.unknown) - SHOWN} more" if len(self.unknown) > SHOWN else ""
            found.append(
                f"{self.unwritable} of {self.seen} texts hold characters that the model has not ({shown}{more}) and "
                "cannot be right; write them as the model does, or check --alphabet"
            )
        if self.steps is not None and self.seen >= FEW:
            often = int(self.steps.argmax())
            edge = {0: 0, len(self.steps) - 1: -1}.get(often)
            if edge is not None and often != self.blank and self.steps[often] > MOST * self.steps.sum():
                found.append(
                    f"most steps are of class {often}, and the blank is class {self.blank}; try --blank {edge}"
                )
        return found


class Manifest:
    """Writes what was recognised as JSON lines, as NeMo's tools read them.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[str]()

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Keep the texts of a batch."""
        targets = batch.targets if batch.targets is not None else [None] * len(predictions)
        for name, target, one in zip(batch.names, targets, predictions, strict=True):
            row = {"audio_filepath": name} | ({} if target is None else {"text": target})
            row |= {"pred_text": one.text, "score": round(float(one.score), 4)}
            self.rows.append(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Write the file."""
        try:
            write_file(self.path, "".join(self.rows).encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise ConfigError(f"--save_predictions: {self.path} cannot be written ({error.strerror})") from error
