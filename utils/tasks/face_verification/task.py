"""Face verification: whether two images show one person, by a detector and a descriptor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine
from tecoinfer_modelzoo.once import Recent
from utils.datasets.base import Dataset
from utils.datasets.folders import flat_folder, is_image
from utils.datasets.image.face_pairs import FOLDS, RULES, FacePairs, Pair, all_pairs, folder_of_people, has_people
from utils.datasets.image.lfw import LISTS, load_pairs
from utils.metrics.base import Metric
from utils.preprocess.image.images import open_image
from utils.tasks import Flag, NoAnswer, Options, Prepared, Rendering, Sizes, Task, at_least
from utils.tasks.common.class_scores import JoinedRows
from utils.tasks.common.image_input import given_size
from utils.tasks.face_verification.embedding import (
    CHOICES,
    COMPARES,
    DESCRIPTOR,
    DETECTOR,
    DETECTOR_SIZE,
    EUCLID,
    FALLBACKS,
    DecodedImage,
    Describer,
    FaceResult,
    Notes,
)
from utils.tasks.templates import sample_images

KEPT = 1 << 27
"""Bytes of the cache of decoded images: an image is part of many pairs."""

FARS = (0.01, 0.001)
"""False acceptance rates at which TAR is reported."""

ANNOUNCED = 3
"""Number of images in a hint."""


class PairResults:
    """Results of the two images of a pair; not a tuple, so that only the score of a pair is checked for NaN."""

    def __init__(self, first: FaceResult, second: FaceResult) -> None:
        self.first, self.second = first, second


class Comparison(NamedTuple):
    """Prediction of a pair."""

    score: float  # similarity of both faces, higher is more alike: negative distance, or cosine
    same: bool | None  # whether it is one person; None without a threshold
    first: FaceResult  # of the first image
    second: FaceResult  # of the second image


class FaceVerification(JoinedRows, Task):
    """Similarity of the faces of image pairs."""

    name, domain, template = "face_verification", "face", sample_images.FACE_VERIFICATION
    models, optional_models = (DETECTOR, DESCRIPTOR), (DETECTOR,)
    data_help = "LFW's list of pairs, a folder with one, a folder of people's folders, or images"
    flags = (
        Flag("--input_size", "height (and width) of the detector's input in pixels (default: its own, else "
             f"{DETECTOR_SIZE})", None, int, nargs="+"),
        Flag("--score_threshold", "least score of a face", 0.5, float),
        Flag("--face", "which of several faces is compared", CHOICES[0], choices=CHOICES),
        Flag("--no_face", "an image without a face: its pairs fail, or its center is taken", "fail", choices=FALLBACKS),
        Flag("--compare", "how descriptions are compared (default: what the export stored)", None, choices=COMPARES),
        Flag("--threshold", "largest distance, or least similarity, of one person (default: as stored)", None, float),
        Flag("--pairs", "how a folder of people becomes pairs", RULES[0], choices=RULES),
        Flag("--folds", "parts of disjoint people, of a folder of people", FOLDS, int),
        Flag("--seed", "of the pairs and folds of a folder of people", 0, int),
        Flag("--metric", "metric of record; the other one is reported too", "accuracy", choices=("accuracy", "auc")),
        Flag("--far", "false acceptance rates at which true acceptance is reported", list(FARS), float, nargs="+"),
    )  # fmt: skip
    state: Describer

    def check(self) -> None:
        """Check sizes, thresholds, folds, seeds and rates."""
        options = self.options
        given_size(options)  # raises ConfigError
        if not 0 < options.score_threshold < 1:
            raise ConfigError(f"--score_threshold {options.score_threshold} must be above 0 and below 1")
        if options.folds < 2:
            raise ConfigError(f"--folds {options.folds} must be at least 2: a fold's threshold comes from the others")
        at_least(options, seed=0)
        if options.threshold is not None and not np.isfinite(options.threshold):
            raise ConfigError(f"--threshold {options.threshold} must be a finite number")
        wrong = next((far for far in options.far if not 0 < far < 1), None)
        if wrong is not None:
            raise ConfigError(f"--far {wrong} must be above 0 and below 1, such as 0.01")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return pairs: two images (``first=A second=B``), LFW's list (``pairs=LIST images=FOLDER``, or the list
        alone), or a folder: by the list in it, by its folders of people, or all pairs of its images.

        Raises:
            DataError: The path has none of these.
            ConfigError: The names of the paths do not fit together.
        """
        found = _pairs(paths, self.options)
        return found.interleaved() if self.options.script == "valid" else self.selected(found)

    def input_size(self) -> Mapping[str, Sizes]:
        """Return the shape of the detector's input, or without a detector the descriptor's, by ``--input_size``.
        A detector with open height and width gets :data:`.DETECTOR_SIZE`."""
        given, files = given_size(self.options), self.options.models
        if DETECTOR not in files:
            return {} if given is None else {DESCRIPTOR: ((None, None, *given),)}
        if given is None and _is_open(files[DETECTOR]):
            given = (DETECTOR_SIZE, DETECTOR_SIZE)
        return {} if given is None else {DETECTOR: ((None, None, *given),)}

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Describer:
        """Return the describer of images."""
        return Describer(engines, self.options)

    def prepare(self, samples: Sequence[Pair]) -> Prepared:
        """Decode both images; return their sizes, N x 4 int32, and two :class:`DecodedImage` per pair as contexts.
        Raises DataError if an image cannot be read."""
        contexts = [
            (DecodedImage(pair.first, _pixels(pair.first)), DecodedImage(pair.second, _pixels(pair.second)))
            for pair in samples
        ]
        sizes = [(*one.pixels.shape[:2], *other.pixels.shape[:2]) for one, other in contexts]
        return Prepared([np.array(sizes, np.int32).reshape(-1, 4)], contexts)

    def infer(
        self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[tuple[DecodedImage, DecodedImage]]
    ) -> list[tuple[float, PairResults]]:
        """Describe the new images of a batch, and return score and results of each pair.
        The score is 0 if a description is missing."""
        describer = self.state
        seen = iter(describer.of([image for pair in contexts for image in pair]))
        found = []
        for first, second in zip(seen, seen, strict=True):
            one, other = first.description, second.description
            score = 0.0 if one is None or other is None else describer.notes.score(one, other)
            found.append((score, PairResults(first, second)))
        return found

    def decode(
        self, outputs: Sequence[tuple[float, PairResults]], contexts: Sequence[tuple[DecodedImage, DecodedImage]]
    ) -> list[Comparison | NoAnswer]:
        """Return a comparison per pair, or :class:`NoAnswer` if an image has no face."""
        notes = Notes.of(self.model, self.options)
        answers: list[Comparison | NoAnswer] = []
        for (score, both), images in zip(outputs, contexts, strict=True):
            reasons = [
                f"{image.path.name}: {seen.reason}"
                for image, seen in zip(images, (both.first, both.second), strict=True)
                if seen.description is None
            ]
            answers.append(
                NoAnswer(f"{'; '.join(dict.fromkeys(reasons))}; correct the image, or use --no_face center")
                if reasons
                else Comparison(score, notes.same(score), both.first, both.second)
            )
        return answers

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.verification import Verification

        return Verification(self.options.metric, [float(far) for far in self.options.far])

    def show(self, sample: Pair, prediction: Comparison) -> Rendering:
        """Return the answer as text and as data; saving draws both images with faces, points and the answer."""
        notes = Notes.of(self.model, self.options)
        word, bound = ("distance", "at most") if notes.compare == EUCLID else ("similarity", "at least")
        value = -prediction.score if notes.compare == EUCLID else prediction.score
        said = {True: "same person: ", False: "different people: ", None: ""}[prediction.same]
        limit = "--threshold is not set" if notes.threshold is None else f"{bound} {notes.threshold:g}"
        words = f"{said}{word} {value:.3f} ({limit})"
        for path, seen in ((sample.first, prediction.first), (sample.second, prediction.second)):
            if seen.faces > 1:
                words += f"; {seen.faces} faces in {path.name}, the {self.options.face} is compared"
            elif not seen.faces:
                words += f"; no face found in {path.name}, its middle is compared"
        answer = {
            "score": round(prediction.score, 6),
            word: round(value, 6),
            "threshold": notes.threshold,
            "same": prediction.same,
            "first": _seen(sample.first, prediction.first),
            "second": _seen(sample.second, prediction.second),
        }
        return Rendering(words, answer, partial(_save, sample, prediction, words))

    def diagnostics(self) -> FaceCountDiagnostics:
        """Return the check for images with several faces."""
        return FaceCountDiagnostics(self.options.face)


def _pairs(paths: Mapping[str, Path], options: Options) -> FacePairs:
    if {"first", "second"} & set(paths):
        two = [paths["first"].absolute(), paths["second"].absolute()]
        return all_pairs(two, Path(os.path.commonpath([path.parent for path in two])))
    if "pairs" in paths:
        return load_pairs(paths["pairs"], paths.get("images"))
    path = paths["data"]
    if not path.exists():
        raise DataError(f"data path {path} does not exist; check the path")
    if path.is_file() and is_image(path.name):
        raise DataError(f"{path}: a pair needs two images; pass --data_path first={path} second=FILE")
    if path.is_file():
        return load_pairs(path)
    listed = next((path / name for name in LISTS if (path / name).is_file()), None)
    if listed is not None:
        return load_pairs(listed)
    if has_people(path):
        return folder_of_people(path, options.pairs, options.seed, options.folds)
    found = flat_folder(path)
    images = [sample.path for sample in found.samples]
    return all_pairs(images, path, found.rejected)


class _File(NamedTuple):
    """Key of a decoded image: path, bytes and modification time in ns."""

    path: Path
    size: int
    time: int


def _decoded(file: _File) -> Array:
    return np.asarray(open_image(file.path))


_decoded_last: Recent[_File, Array] = Recent(_decoded, lambda pixels: int(pixels.nbytes), KEPT)


def _pixels(path: Path) -> Array:
    """Return an image, H x W x 3 uint8, from the cache if it has not changed."""
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    return _decoded_last.of(_File(path, state.st_size, state.st_mtime_ns))


def _is_open(file: Path) -> bool:
    """Return whether height or width of a model's first input is open; the engine reports invalid files."""
    if file.suffix != ".onnx" or not file.is_file():
        return False
    from engine.onnx import load_model, signature

    inputs, _, _ = signature(load_model(file))
    return bool(inputs) and None in inputs[0].shape[2:]


def _seen(path: Path, seen: FaceResult) -> dict[str, Any]:
    """Return the result of an image as plain data."""
    data: dict[str, Any] = {"picture": str(path), "faces": seen.faces}
    if seen.box is not None and seen.points is not None:
        data["box"] = [round(edge, 2) for edge in seen.box]
        data["landmarks"] = np.round(seen.points.astype(np.float64), 2).tolist()
        data["score"] = round(float(seen.score or 0.0), 4)
    return data


def _save(pair: Pair, prediction: Comparison, words: str, folder: Path) -> Path:
    """Draw both images side by side, into a file with both names."""
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_pair import draw_pair

    seen = ((pair.first, prediction.first), (pair.second, prediction.second))
    drawn = draw_pair([(open_image(path), one.box, one.points, one.score) for path, one in seen])
    names = [f"{path.parent.name}_{path.stem}" for path in pair]
    # both folders are part of the path, which distinguishes files of the same name
    own = Path(f"{pair.first.resolve().parent}{pair.second.resolve().parent}", f"{names[0]}-{names[1]}.png")
    return save_drawn(own, [words], folder, drawn)


class FaceCountDiagnostics:
    """Diagnostics for images with several faces, and for those without a detected face whose middle was used."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._many: dict[Path, None] = {}
        self._none: dict[Path, None] = {}

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Add a batch."""
        for (_, both), images in zip(outputs, contexts, strict=True):
            for image, seen in zip(images, (both.first, both.second), strict=True):
                if seen.faces > 1:
                    self._many[image.path] = None
                elif not seen.faces and seen.description is not None:
                    self._none[image.path] = None

    def hints(self) -> Sequence[str]:
        """Return one line per problem."""
        lines = []
        if self._many:
            others = " or ".join(rule for rule in CHOICES if rule != self._rule)
            lines.append(f"{_named(self._many)} several faces; the {self._rule} is compared (--face {others})")
        if self._none:
            lines.append(f"{_named(self._none)} no detected face; the middle is compared (--no_face center)")
        return lines


def _named(paths: Mapping[Path, None]) -> str:
    shown = ", ".join(f"{path.parent.name}/{path.name}" for path in sorted(paths)[:ANNOUNCED])
    more = f" and {len(paths) - ANNOUNCED} more" if len(paths) > ANNOUNCED else ""
    return f"{len(paths)} image{'s show' if len(paths) > 1 else ' shows'} ({shown}{more})"
