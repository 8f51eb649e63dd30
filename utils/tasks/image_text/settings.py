"""Export settings of a pair of encoders, and the texts that images are compared with.

The image encoder's metadata hold ``preprocess``; either encoder's hold ``image_text``, a JSON object with the keys of
:data:`USUAL`; the text encoder's the ``tokenizer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.files import utf8_text
from tecoinfer_modelzoo.json_values import is_number
from utils.datasets.base import Dataset
from utils.tasks import ExportSetting, Model, Options
from utils.tasks.common.checks import setting_in_use

IMAGE, TEXT = "image", "text"
"""Names of the two models."""

NOTE = "image_text"
"""Metadata key, optional."""

SCORES, CASES = ("softmax", "sigmoid"), ("kept", "lower")

USUAL: dict[str, Any] = {
    "template": ["a photo of a {}."],
    "case": CASES[0],
    "scores": SCORES[0],
    "logit_scale": 100.0,
    "logit_bias": 0.0,
}
"""Defaults.

``template``: texts that the name of a class is inserted into; its vector is their mean. ``case``: of texts. ``scores``:
probabilities of the classes, by a softmax over all (CLIP) or each for itself (SigLIP). ``logit_scale``, ``logit_bias``:
factor of the cosines, and what is added to them (logarithms in some frameworks: here the factor itself).
"""

TEMPLATES = (["a photo of a {}."], ["{}"], ["a {}"], ["a photo of {}"], ["This is a photo of {}."])
"""Templates that ``teco fix`` tries."""


def note(key: str, model: Model, options: Options | None = None) -> Any:
    """Return the value in use of a key of :data:`USUAL`: the flag's, that of the text or image encoder, the default."""
    named = model.named or {TEXT: model}
    both = [named[name] for name in (TEXT, IMAGE) if name in named]
    owner = next((one for one in both if key in one.notes(NOTE)), model)
    return setting_in_use(key, owner, options, NOTE, USUAL, _is_one, "a valid value (docs/reference/image_text.md)")


def _is_one(key: str, value: Any) -> bool:
    if key == "template":
        return isinstance(value, list) and bool(value) and all(isinstance(one, str) and "{}" in one for one in value)
    if key in ("case", "scores"):
        return isinstance(value, str) and value in (CASES if key == "case" else SCORES)
    return is_number(value) and (key != "logit_scale" or value > 0)


def classes_of(dataset: Dataset, options: Options) -> list[str] | None:
    """Return the names of the classes: those of ``--classes``, or the data set's folders, with blanks for underscores;
    ``None`` if neither is known. Raises ConfigError if a name is empty or listed twice."""
    given: Sequence[str] | None = options.classes
    if given is None:
        folders = dataset.notes.get("classes")
        return None if folders is None else [name.replace("_", " ") for name in folders]
    if len(given) == 1 and Path(given[0]).is_file():
        lines = utf8_text(Path(given[0])).splitlines()
        given, where = [line.strip() for line in lines if line.strip()], f"--classes {given[0]}"
    else:
        where = "--classes"
    twice = next((name for name in given if list(given).count(name) > 1), None)
    if twice is not None or not all(name.strip() for name in given) or not given:
        what = "is empty" if twice is None else f"has {twice!r} twice"
        raise ConfigError(f"{where} {what}; give each class a name of its own, one per line of a file")
    return list(given)


EXPORT_SETTINGS = (
    ExportSetting("--template", TEMPLATES, "prepare", partial(note, "template")),
    ExportSetting("--case", CASES[::-1], "prepare", partial(note, "case")),
)
"""Settings that are often wrong after an export."""
