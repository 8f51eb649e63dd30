"""One-line descriptions of a model: ``zoo.yaml`` in its folder, in every language of the pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean, one_line, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml

TEXTS = "zoo.yaml"
"""Name of the optional file."""

LANGUAGES = ("en", "zh")
KEYS = ("does", "weights")
SAMPLE = "shown_sample"
"""Optional key: number of the sample whose answer the page of the zoo shows."""

_EXAMPLE = 'does: {en: "reads a handwritten digit", zh: "..."}'


@dataclass(frozen=True, slots=True)
class Described:
    """Descriptions of a model by language, each one line of Markdown with links relative to the repository's root.

    Attributes:
        does: purpose of the model.
        weights: source of its weights, and the data of its figures.
        shown_sample: number of the sample, in the data of its case, whose answer ``teco site --draw`` stores.
    """

    does: Mapping[str, str]
    weights: Mapping[str, str]
    shown_sample: int = 0


def read_described(folder: Path) -> Described | None:
    """Return the descriptions of a model's folder; ``None`` without the file.

    Raises:
        ConfigError: the file cannot be read, or a text is missing.
    """
    path = folder / TEXTS
    try:
        found = read_yaml(path)
    except FileNotFoundError:
        return None
    except (OSError, YamlError) as error:
        raise ConfigError(f"{path}: cannot be read ({one_line(error)}); write lines such as {_EXAMPLE}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: is not a mapping; write lines such as {_EXAMPLE}")
    sample = found.pop(SAMPLE, 0)
    if type(sample) is not int or sample < 0:
        raise ConfigError(f"{path}: {SAMPLE} {shown_value(sample)} is not the number of a sample, from 0; correct it")
    _check_keys(path, "", found, KEYS)
    does, weights = (_texts(path, key, found[key]) for key in KEYS)
    return Described(does, weights, sample)


def unlinked(text: str) -> str:
    """Return a text without link addresses and code marks."""
    return re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", text).replace("`", "")


def _texts(path: Path, key: str, found: object) -> dict[str, str]:
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: {key} is not a mapping of languages; write lines such as {_EXAMPLE}")
    _check_keys(path, f"{key}: ", found, LANGUAGES)
    for language in LANGUAGES:
        text = found[language]
        if not isinstance(text, str) or not text.strip() or not text.isprintable() or "|" in text:
            raise ConfigError(f"{path}: {key}: {language} must be one line of quoted text without '|'; correct it")
    return {language: found[language].strip() for language in LANGUAGES}


def _check_keys(path: Path, where: str, found: Mapping[object, object], known: tuple[str, ...]) -> None:
    for key in found:
        if key not in known:
            near = did_you_mean(str(key), known)
            raise ConfigError(f"{path}: {where}unknown key {shown_value(key)};{near} keys: {', '.join(known)}")
    for key in known:
        if key not in found:
            raise ConfigError(f"{path}: {where}lacks {key!r}; add it")
