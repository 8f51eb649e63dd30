"""The stored example of a model: its answer to one sample, in ``answer.yaml`` and, if it can be drawn, ``answer.webp``.

``teco site --draw`` writes both files into the model's folder; the page of the zoo shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine import ConfigError
from model_config.reports.thumbnails import Thumbnail, thumbnails
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.text import one_line, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml

SCHEMA_VERSION = 1
"""Version of the layout of ``answer.yaml``; it increases when a field changes its meaning or is removed."""

FILE, IMAGE = "answer.yaml", "answer.webp"

SIDE = 360
"""Maximum pixels of the longer side of the image."""

_HEAD = "# Written by `teco site --draw`; do not edit.\n"
_AGAIN = "delete it and write it again with `teco site --draw`"
_TEXTS = ("case", "target", "dtype", "model_sha256", "sample", "text")


class Answer(NamedTuple):
    """A model's answer to one sample.

    Attributes:
        case, target, dtype: the case that was run, and where.
        model_sha256: hash of the model files (:func:`model_config.judge.scorecard.hash_models`).
        sample: the sample if it is a text, else "". text: the answer as a short text.
        image: the sample with the answer drawn on it; ``None`` if the task draws none.
    """

    case: str
    target: str
    dtype: str
    model_sha256: str
    sample: str
    text: str
    image: Thumbnail | None = None


def read_answer(folder: Path) -> Answer | None:
    """Return the stored example of a model's folder; ``None`` without one.

    Raises:
        ConfigError: the file is invalid, or Pillow is not installed.
    """
    path = folder / FILE
    try:
        found = read_yaml(path)
    except FileNotFoundError:
        return None
    except (OSError, YamlError) as error:
        raise ConfigError(f"{path}: cannot be read ({one_line(error)}); {_AGAIN}") from error
    if not isinstance(found, Mapping) or found.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(f"{path}: is not an answer of schema_version {SCHEMA_VERSION}; {_AGAIN}")
    for key in _TEXTS:
        if not isinstance(found.get(key), str):
            raise ConfigError(f"{path}: {key} {shown_value(found.get(key))} is not a text; {_AGAIN}")
    drawn = thumbnails([folder / IMAGE], SIDE) if (folder / IMAGE).is_file() else []
    texts = {key: str(found[key]) for key in _TEXTS}
    return Answer(**texts, image=drawn[0] if drawn and drawn[0].uri else None)


def write_answer(folder: Path, answer: Answer, drawn: Path | None, written_by: str) -> None:
    """Write the example of a model: the texts, and a small copy of the drawn image.

    Args:
        drawn: the image; ``None`` if there is none: an older one is removed. written_by: name and version of the tool.

    Raises:
        ConfigError: a file cannot be written, or Pillow is not installed. DataError: the image cannot be read.
    """
    from io import BytesIO

    import yaml
    from PIL import Image

    from utils.preprocess.image.images import open_image

    data = {"schema_version": SCHEMA_VERSION, "written_by": written_by}
    data |= {key: getattr(answer, key) for key in _TEXTS}
    text = _HEAD + yaml.safe_dump(data, allow_unicode=True, sort_keys=False, width=120)
    try:
        if drawn is None:
            (folder / IMAGE).unlink(missing_ok=True)
        else:
            image, packed = open_image(drawn).convert("RGB"), BytesIO()
            image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            image.save(packed, "WEBP", quality=80, method=6)
            write_file(folder / IMAGE, packed.getvalue())
        write_file(folder / FILE, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"{folder / FILE} cannot be written ({why}); check its permissions") from error
