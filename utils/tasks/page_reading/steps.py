"""Steps of page reading: detection of lines, cropping, rotation and recognition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from engine import Array, Engine, ModelError
from utils.outputs import GRAPH, LOGITS, refuse_labels
from utils.postprocess.text.ctc import Text, greedy
from utils.postprocess.text.lines import Found, Settings, find_lines
from utils.preprocess.image.lines import LineForm, line_input
from utils.preprocess.image.long_lines import joined, pieces
from utils.preprocess.image.straighten import straightened
from utils.preprocess.image.tiles import Tiles
from utils.tasks import Model, Options
from utils.tasks.common.outputs import first_of, sigmoid
from utils.tasks.text_recognition.task import charset_of

TILES, LINES = 4, 16
"""Maximum numbers of tiles and of lines per call, which limit the memory."""

TURNED = 0.9
"""Probability above which a line is upside down: PP-OCR's."""


class Context(NamedTuple):
    """Context of a page."""

    pixels: Array  # H x W x 3 uint8, RGB, upright
    tiles: Tiles  # positions of its tiles in the detector's view of the page, which may be scaled


class Line(NamedTuple):
    """A recognised line.

    Its outline runs along the upper side from left to right and back along the lower one; a straight line has four
    corners.
    """

    text: str
    score: float  # mean of its characters' probabilities, 0 to 1
    outline: Array  # 2N x 2 (x, y) in pixels of the page
    box_score: float  # mean probability of the detector in the outline
    turned: bool  # whether the line was upside down; the outline is not rotated


class Reader:
    """Pipeline of three models that reads pages.

    Args:
        models: ``det``, ``cls`` and ``rec``. options: the flags.

    Raises:
        ConfigError: The characters of ``rec`` are unknown. ModelError: A model has other inputs or outputs.
    """

    def __init__(self, models: Mapping[str, Model], options: Options) -> None:
        self._models, self._options = models, options
        self._dtypes = {name: model.float_dtype for name, model in models.items()}
        self._heights = {name: _height(models[name]) for name in ("cls", "rec")}
        forms = {name: models[name].form(None) for name in ("det", "cls")}
        self._logits = {name for name, form in forms.items() if (form.kind, form.source) == (LOGITS, GRAPH)}
        for name, form in forms.items():
            refuse_labels(form, models[name].ckpt, "probabilities are needed", "")
        self._widths = _widths(models["rec"], options)

    def read(self, engines: Mapping[str, Engine], tiles: Array, contexts: Sequence[Context]) -> list[list[Line]]:
        """Return the lines of each page, in the order of detection."""
        maps = _in_parts(engines["det"], tiles, TILES, self._maps)
        pages: list[list[Found]] = []
        first = 0
        for context in contexts:
            count = len(context.tiles)
            pages.append(self._found(maps[first : first + count], context))
            first += count
        places = [(i, line) for i, lines in enumerate(pages) for line in lines]
        images = {i: Image.fromarray(context.pixels) for i, context in enumerate(contexts)}
        crops = [straightened(images[i], _roomier(line.outline, self._options.crop_margin)) for i, line in places]
        turned = self._turned(engines["cls"], crops) if self._options.turn else [False] * len(crops)
        crops = [
            crop.transpose(Image.Transpose.ROTATE_180) if flag else crop
            for crop, flag in zip(crops, turned, strict=True)
        ]
        texts = self._texts(engines["rec"], crops)
        if self._options.turn:
            self._read_again(engines["rec"], crops, texts, turned)
        result: list[list[Line]] = [[] for _ in contexts]
        for (i, line), text, flag in zip(places, texts, turned, strict=True):
            result[i].append(Line(text.text, text.score, line.outline, line.score, flag))
        return result

    def _maps(self, outputs: Any) -> Array:
        """Return the detector's maps, N x H x W."""
        found = np.asarray(first_of(outputs), np.float32)
        if found.ndim != 4 or found.shape[1] != 1:
            raise self._error("det", found, "N x 1 x H x W, the probability of text per pixel")
        maps: Array = found[:, 0]
        return sigmoid(maps) if "det" in self._logits else maps

    def _directions(self, outputs: Any) -> Array:
        """Return the probabilities of upright and upside-down lines, N x 2."""
        found = np.asarray(first_of(outputs), np.float32)
        if found.ndim != 2 or found.shape[1] != 2:
            raise self._error("cls", found, "N x 2, the probabilities of an upright and an upside-down line")
        if "cls" in self._logits:
            second = sigmoid(found[:, 1:] - found[:, :1])
            return np.concatenate([1 - second, second], axis=1)
        return found

    def _error(self, name: str, found: Array, wanted: str) -> ModelError:
        file = self._models[name].ckpt
        return ModelError(f"{file}: output of model {name} is {list(found.shape)}, expected {wanted}; check --ckpt")

    def _found(self, maps: Sequence[Array], context: Context) -> list[Found]:
        """Return the lines of one page, in its pixels."""
        height, width = context.pixels.shape[:2]
        seen = context.tiles.size
        scale = np.array([width / seen[1], height / seen[0]])
        limit = np.array([width, height], np.float64)
        opt = self._options
        settings = Settings(opt.threshold, opt.box_threshold, unclip=opt.unclip, bent=opt.bent)
        found = find_lines(context.tiles.joined(maps), settings)
        return [Found((one.outline * scale).clip(-limit, 2 * limit), one.score) for one in found]

    def _turned(self, engine: Engine, crops: Sequence[Image.Image]) -> list[bool]:
        """Return whether each line is upside down."""
        if not crops:
            return []
        across = self._models["cls"].inputs[0].shape[3] or 192
        form = LineForm(self._heights["cls"], across, across)
        lines = np.stack([line_input(crop, form, self._dtypes["cls"])[0] for crop in crops])
        scores = _in_parts(engine, lines, LINES, self._directions)
        return [bool(score[1] > TURNED) for score in scores]

    def _texts(self, engine: Engine, crops: Sequence[Image.Image]) -> list[Text]:
        """Return the text of each line; a line longer than the widest input is read in pieces."""
        cut = [pieces(crop, self._heights["rec"], self._widths[-1]) for crop in crops]
        texts = iter(self._short(engine, [piece for parts, _ in cut for piece in parts]))
        return [_whole([next(texts) for _ in parts], blanks) for parts, blanks in cut]

    def _read_again(self, engine: Engine, crops: Sequence[Image.Image], texts: list[Text], turned: list[bool]) -> None:
        """Rotate lines with scores below ``--text_score``, as the classifier may be wrong, and keep the better text."""
        unsure = [place for place, text in enumerate(texts) if text.score < self._options.text_score]
        again = self._texts(engine, [crops[place].transpose(Image.Transpose.ROTATE_180) for place in unsure])
        for place, text in zip(unsure, again, strict=True):
            if text.score > texts[place].score:
                texts[place], turned[place] = text, not turned[place]

    def _short(self, engine: Engine, crops: Sequence[Image.Image]) -> list[Text]:
        """Return the text of each line; lines of one planned width are batched."""
        form = LineForm(self._heights["rec"], 1, self._widths[-1])
        dtype = self._dtypes["rec"]
        lines = [line_input(crop, form, dtype)[0] for crop in crops]
        rooms = [next(width for width in self._widths if width >= line.shape[2]) for line in lines]
        result: list[Text] = [Text("", 0.0)] * len(lines)
        for width in sorted(set(rooms)):
            places = [place for place, room in enumerate(rooms) if room == width]
            batch = np.zeros((len(places), 3, form.height, width), dtype)
            for row, place in zip(batch, places, strict=True):
                row[:, :, : lines[place].shape[2]] = lines[place]
            for place, text in zip(places, _in_parts(engine, batch, LINES, self._decoded), strict=True):
                result[place] = text
        return result

    def _decoded(self, outputs: Any) -> list[Text]:
        steps = first_of(outputs)
        charset = charset_of(self._models["rec"], self._options, steps.shape[-1])
        return greedy(steps, charset.characters, charset.blank)


def _whole(parts: Sequence[Text], blanks: Sequence[bool]) -> Text:
    """Return the text of a line read in pieces; its score is the mean weighted by the numbers of characters."""
    count = sum(len(part.text) for part in parts)
    score = sum(part.score * len(part.text) for part in parts) / count if count else min(part.score for part in parts)
    return Text(joined([part.text for part in parts], blanks), score)


def _height(model: Model) -> int:
    """Return the height of a model's input, 48 if it is open."""
    shape = model.inputs[0].shape
    if len(model.inputs) != 1 or len(shape) != 4 or shape[1] not in (3, None):
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(f'{one.name} {list(one.shape)}' for one in model.inputs)}; "
            "expected one of N x 3 x H x W; pass models as PP-OCR exports them"
        )
    return shape[2] or 48


def _widths(model: Model, options: Options) -> tuple[int, ...]:
    """Return the widths that lines are padded to, rising: the fixed one, those of ``--dim``, or ``--rec_widths``."""
    return model.sizes(0, 3) or tuple(sorted(set(options.rec_widths)))


def _in_parts(engine: Engine, rows: Array, most: int, take: Callable[[Any], Any]) -> list[Any]:
    """Return the results of ``take`` for the outputs of calls with at most ``most`` rows, in order."""
    found: list[Any] = []
    for first in range(0, len(rows), most):
        found.extend(take(engine([rows[first : first + most]])))
    return found


def _roomier(outline: Array, margin: float) -> Array:
    """Return an outline with a margin above and below, as a share of the line's height."""
    count = len(outline) // 2
    upper, lower = outline[:count], outline[count:][::-1]
    more = (lower - upper) * margin
    return np.concatenate([upper - more, (lower + more)[::-1]])
