"""Guess of a model's task from its inputs, outputs, metadata and the ends of its graph; :data:`RULES` is the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Signature = Mapping[str, Any]
"""Of :func:`toolkit.adapt.signature.signature_of`."""

GENERIC = "arrays"
"""Name of the task that runs any model."""

LEAST_BOXES = 20
"""Smallest number of candidate boxes of a detector's output."""


@dataclass(frozen=True)
class Guess:
    """A task, and why it may be the model's; ``certain``: the file or its source states it."""

    task: str
    reason: str
    certain: bool = False


def guesses(found: Signature, stated: str = "", reason: str = "") -> list[Guess]:
    """Return the likely tasks, the best first and the generic one last.

    Args:
        found: the signature. stated: the task that the source states, and its ``reason``; empty: none.
    """
    made = [Guess(stated, reason, True)] if stated else []
    for rule in RULES:
        task, why = rule(found)
        if task and task not in {one.task for one in made}:
            made.append(Guess(task, why, rule in STATING and not made))
    return [*made, Guess(GENERIC, "it runs any model: arrays in, arrays out")]


def _image(found: Signature) -> tuple[int, ...]:
    """Return channels, height and width of the only input if it takes images, with 0 for a dynamic size; else ()."""
    inputs = found["inputs"]
    return _planes(inputs[0]["shape"]) if len(inputs) == 1 else ()


def _planes(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return channels, height and width of an input's shape if it is that of images, with 0 for a dynamic size."""
    if len(shape) != 4:
        return ()
    _, *sizes = (size if isinstance(size, int) else 0 for size in shape)
    if sizes[0] in (1, 3):
        return tuple(sizes)
    return (sizes[2], sizes[0], sizes[1]) if sizes[2] in (1, 3) else ()


def _shapes(found: Signature) -> list[list[int]]:
    """Return the outputs' sizes without the batch, with 0 for dynamic ones."""
    return [[size if isinstance(size, int) else 0 for size in one["shape"][1:]] for one in found["outputs"]]


def _names(found: Signature, key: str) -> list[str]:
    return [one["name"].lower() for one in found[key]]


def _text(found: Signature) -> tuple[str, str]:
    """Token ids, with or without mask and segments."""
    names = _names(found, "inputs")
    whole = all(one["dtype"].startswith("int") and len(one["shape"]) == 2 for one in found["inputs"])
    if not whole or not any("ids" in name or name in ("input", "tokens") for name in names):
        return "", ""
    ranks = [len(one["shape"]) for one in found["outputs"]]
    outputs = _names(found, "outputs")
    if ranks == [2, 2] and any("start" in name for name in outputs):
        return "question_answering", f"token ids in, and {' and '.join(outputs)} out"
    if ranks == [2]:
        return "text_classification", "token ids in, and a row of scores per text out"
    if ranks == [3] and found["labels"]:
        return "token_classification", "token ids in, and scores of named tags per token out"
    return "", ""


def _speech(found: Signature) -> tuple[str, str]:
    """Features of sound, whose settings are stored with the tokens."""
    if {"features", "vocabulary"} <= set(found["metadata"]) and len(found["inputs"]) in (1, 2):
        ranks = [len(one["shape"]) for one in found["outputs"]]
        if ranks[:1] == [3]:
            return "speech_recognition", "its metadata have settings of sound features and a vocabulary"
        if ranks[:1] == [2]:
            return "sound_classification", "its metadata have settings of sound features"
    return "", ""


def _detector(found: Signature) -> tuple[str, str]:
    """Boxes: one array of candidates with 4 coordinates and scores, or boxes and scores apart."""
    if not _image(found):
        return "", ""
    shapes, names = _shapes(found), _names(found, "outputs")
    if any("box" in name for name in names) and len(shapes) >= 2:
        return "detection", f"an image in, and {', '.join(names)} out"
    if len(shapes) == 1 and len(shapes[0]) == 2:
        low, high = sorted(shapes[0])
        if low >= 5 and high >= max(LEAST_BOXES, 2 * low):
            return "detection", f"an image in, and {high} candidates of {low} numbers out: 4 of a box, and scores"
    return "", ""


def _classifier(found: Signature) -> tuple[str, str]:
    """A row of scores per image."""
    shapes = _shapes(found)
    if _image(found) and len(shapes) == 1 and len([size for size in shapes[0] if size != 1]) == 1 and shapes[0][0] != 1:
        named = f" of {found['labels']} named classes" if found["labels"] else ""
        return "classification", f"an image in, and a row of {shapes[0][0] or 'several'} numbers{named} out"
    return "", ""


def _restorer(found: Signature) -> tuple[str, str]:
    """An image out that is a whole multiple of the image in."""
    image, shapes = _image(found), _shapes(found)
    if not image or len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][0] != image[0]:
        return "", ""
    sides = list(zip(shapes[0][1:], image[1:], strict=True))
    known = [(out, size) for out, size in sides if out and size]
    if not known and "DepthToSpace" not in found["operators"]:
        return "", ""
    if all(out % size == 0 for out, size in known):
        times = f"{known[0][0] // known[0][1]} times as large" if known else "of another size"
        return "image_restoration", f"an image in, and an image of as many channels, {times}, out"
    return "", ""


def _segmenter(found: Signature) -> tuple[str, str]:
    """Scores per pixel."""
    image, shapes = _image(found), _shapes(found)
    if image and shapes and len(shapes[0]) == 3 and shapes[0][0] > 3 and shapes[0][1:] == list(image[1:]):
        return "segmentation", f"an image in, and {shapes[0][0]} scores per pixel out"
    return "", ""


def _dense(found: Signature) -> tuple[str, str]:
    """A number per pixel, of an image or of a left and a right one."""
    images, shapes = [_planes(one["shape"]) for one in found["inputs"]], _shapes(found)
    if len(images) not in (1, 2) or not images[0] or images[0] != images[-1] or not shapes:
        return "", ""
    sizes = shapes[0] if len(shapes[0]) == 3 else [1, *shapes[0]]
    maps = len(shapes[0]) == 3 or len(images) == 2  # one image in, and N x h x w out, may be anything
    sides = zip(sizes[1:], images[0][1:], strict=False)
    if not maps or len(sizes) != 3 or sizes[0] != 1 or any(a and b and (b % a or b // a > 4) for a, b in sides):
        return "", ""
    if len(images) == 2:
        return "dense_regression", "two images of one size in, and a number per pixel out: disparity or depth"
    return ("dense_regression", "an image in, and a number per pixel out: depth") if images[0][0] == 3 else ("", "")


RULES: Sequence[Callable[[Signature], tuple[str, str]]] = (
    _text,
    _speech,
    _detector,
    _classifier,
    _restorer,
    _segmenter,
    _dense,
)
"""Each returns a task and the reason, or empty texts; the first match is the best guess."""

STATING = (_speech,)
"""Rules that read what the metadata state; a match is certain."""
