"""Pairs of an image and a text encoder (CLIP): classes that are texts, and retrieval between images and captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine
from utils.datasets.base import Dataset
from utils.datasets.image.captions import Captioned, has_captions, load_captions
from utils.datasets.loading import load_dataset
from utils.metrics.base import Metric
from utils.metrics.classification import ClassFolders, TopK, check_topk
from utils.metrics.text.caption_recall import DIRECTIONS, CaptionRecall, Described
from utils.preprocess.image.classification import ImagePreprocessor
from utils.preprocess.image.forms import image_form
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.tasks import Flag, OpenSizes, Prepared, Rendering, Sizes, Task, at_least
from utils.tasks.common.class_scores import ClassAnswers, JoinedRows, label_of, most_frequent, softmax
from utils.tasks.common.embedding import Embedder, Notes, scaled, vectors
from utils.tasks.common.image_input import SIZE_FLAG, given_size, save_lines
from utils.tasks.common.outputs import in_words, sigmoid
from utils.tasks.common.text_input import LENGTH_FLAGS, longest
from utils.tasks.image_text.settings import CASES, EXPORT_SETTINGS, IMAGE, NOTE, SCORES, TEXT, classes_of, note
from utils.tasks.templates import sample_images

LISTED = 5
"""Number of classes in the summary of a folder."""


class State(NamedTuple):
    """The text encoder, the texts that images are compared with, and their vectors, C x D (none in a retrieval)."""

    embedder: Embedder
    names: list[str]
    vectors: Array


class ImageText(JoinedRows, ClassAnswers, Task):
    """Zero-shot classification of images, or with captions retrieval both ways."""

    name, domain = "image_text", "classification"
    template = sample_images.IMAGE_TEXT
    models, image_inputs = (IMAGE, TEXT), True
    data_help = "images: a file, folder, class folders, label file; with captions.txt; or captions=FILE images=FOLDER"
    flags = (
        SIZE_FLAG,
        Flag("--classes", "names of the classes, or a file with one per line (default: class folders)", None, nargs="+",
             metavar="NAME"),
        Flag("--template", "texts for names of classes, such as 'a photo of a {}' (default: as stored)",
             None, nargs="+", metavar="TEXT"),
        Flag("--case", "case of texts (default: as stored, or kept)", None, choices=CASES),
        Flag("--topk", "answers per image; the metric of classes is top-k accuracy", 1, int),
        Flag("--metric", "metric of record of a retrieval", DIRECTIONS[0], choices=DIRECTIONS, scripts=("valid",)),
        Flag("--cut", "recall at this rank, of a retrieval", 1, int, scripts=("valid",)),
        *LENGTH_FLAGS,
    )  # fmt: skip
    export_settings, metadata_key = EXPORT_SETTINGS, NOTE
    state: State

    def check(self) -> None:
        """Check sizes, ranks and templates."""
        given_size(self.options)
        at_least(self.options, topk=1, max_length=0, lengths=1)
        wrong = next((one for one in self.options.template or () if "{}" not in one), None)
        if wrong is not None:
            raise ConfigError(f"--template {wrong!r} must contain {{}} in place of the class name")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return images with captions (:func:`.load_captions`), if they have any and there is no ``--classes``; else
        images, with classes if known (:func:`.load_dataset`)."""
        data = paths.get("data")
        if data is None or (self.options.classes is None and has_captions(data)):
            return self.selected(load_captions(paths))
        return self.selected(load_dataset(data))

    def input_size(self) -> Mapping[str, Sizes]:
        """Return the shape of the image encoder's input, if ``--input_size`` is given."""
        given = given_size(self.options)
        return {} if given is None else {IMAGE: ((None, 3, *given),)}

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the planned lengths of texts."""
        lengths = tuple(sorted(set(self.options.lengths or ())))
        return {TEXT: {(-1, 1): lengths}} if lengths else {}

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> State:
        """Compute the vectors of the classes (the mean over the templates), or without classes, except in ``valid``,
        of all captions of the data. Raises ConfigError if there are neither classes nor captions."""
        embedder, options = Embedder(engines[TEXT], self.options), self.options
        names = classes_of(dataset, options)
        if names is not None:
            forms = note("template", self.model, options)
            texts = [self._cased(form.replace("{}", name)) for form in forms for name in names]
            rows = embedder.of(embedder.encode(texts))
            return State(embedder, names, scaled(rows.reshape(len(forms), len(names), -1).mean(axis=0)))
        if "captions" not in dataset.notes:
            raise ConfigError('classes are missing; pass --classes "a cat" "a dog", a file of names, or class folders')
        if options.script == "valid":
            return State(embedder, [], np.zeros((0, 0), np.float32))
        every = dataset.batch(range(len(dataset))).targets or ()
        texts = list(dict.fromkeys(text for captions in every for text in captions))
        return State(embedder, texts, embedder.of(embedder.encode(list(map(self._cased, texts)))))

    def _cased(self, text: str) -> str:
        return text.lower() if note("case", self.model, self.options) == CASES[1] else text

    def prepare(self, samples: Sequence[Path | Captioned]) -> Prepared:
        """Return images as the image encoder takes them; contexts are the tokens of their captions, if any."""
        paths = [one.path if isinstance(one, Captioned) else one for one in samples]
        contexts: list[Sequence[Encoded]] = [()] * len(paths)
        if self.options.script == "valid" and any(isinstance(one, Captioned) for one in samples):
            model = self.model.named[TEXT]
            tokens = Tokens.of(model, self.options)
            most = longest(model, self.options, tokens)
            captions = [one.captions if isinstance(one, Captioned) else () for one in samples]
            contexts = [tokens.encode(list(map(self._cased, each)), most) for each in captions]
        return Prepared([self._images(paths)], contexts)

    def bind(self, model: Any) -> Any:
        """Take the opened models; the image encoder decides how images are prepared."""
        vars(self).pop("_images", None)
        return super().bind(model)

    @cached_property
    def _images(self) -> Callable[..., Array]:
        """Function from images to the input's array."""
        model = self.model.named[IMAGE]
        how = model.stored.image.fitted(given_size(self.options) or (None, None))
        form = image_form(model.inputs[0], model.ckpt, model.dtype)
        if form.plain:
            return ImagePreprocessor(model.dtype, **how)
        how |= form.scale(how["mean"], how["std"], model.ckpt)
        return partial(form.convert, ImagePreprocessor("float32", **how))

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Sequence[Encoded]]) -> Array:
        """Return scores of the classes, N x C float32; of a retrieval the vectors of each image and its captions,
        N x (1 + captions) x D, filled up with zeros."""
        model, state = self.model.named[IMAGE], self.state
        found = vectors(engines[IMAGE](list(arrays)), [1] * len(contexts), model, self.options, Notes())
        if len(state.vectors):
            scale, bias = (note(key, self.model) for key in ("logit_scale", "logit_bias"))
            cosines = np.einsum("nd,cd->nc", found, state.vectors)  # rounding by BLAS depends on the number of rows
            return np.asarray(cosines * np.float32(scale) + np.float32(bias))
        texts = state.embedder.of([one for captions in contexts for one in captions])
        rows = np.zeros((len(found), 1 + max(map(len, contexts)), found.shape[1]), np.float32)
        rows[:, 0], start = found, 0
        for row, captions in zip(rows, contexts, strict=True):
            row[1 : 1 + len(captions)] = texts[start : start + len(captions)]
            start += len(captions)
        return rows

    def decode(self, outputs: Array, contexts: Sequence[Sequence[Encoded]]) -> list[Any]:
        """Return the probabilities of the classes of each image, or a :class:`.Described`. Raises ConfigError if
        ``--topk`` is the number of classes."""
        if outputs.ndim == 3:
            pairs = zip(outputs, contexts, strict=True)
            return [Described(row[0], row[1 : 1 + len(captions)]) for row, captions in pairs]
        if self.options.script == "valid":
            check_topk(self.options.topk, outputs.shape[1], "--classes")
        return list((softmax if note("scores", self.model) == SCORES[0] else sigmoid)(outputs))

    def metric(self, dataset: Dataset) -> Metric:
        """Return top-k accuracy, or recall of captions."""
        names = classes_of(dataset, self.options)
        if names is None and "captions" in dataset.notes:
            return CaptionRecall(self.options.metric, self.options.cut, dataset.notes["captions"])
        found, folders = TopK(self.options.topk), dataset.notes.get("classes")
        if folders is not None and names is not None:
            found.folders = ClassFolders(folders, names)
        return found

    def class_labels(self) -> Sequence[str] | None:
        """Return the names of the classes, for reference answers."""
        return self.state.names

    def show(self, sample: Path | Captioned, prediction: Any) -> Rendering:
        """Return the best texts with their probabilities, of a retrieval the cosines of the captions; saving draws
        them in a band below the image."""
        path = sample.path if isinstance(sample, Captioned) else sample
        if isinstance(prediction, Described) and isinstance(sample, Captioned):
            cosines = (prediction.captions @ prediction.image).tolist()
            scored = list(zip(sample.captions, cosines, strict=True))
        else:
            best = np.argsort(-prediction, kind="stable")[: self.options.topk].tolist()
            scored = [(label_of(self.state.names, place), float(prediction[place])) for place in best]
        answer = [{"label": text, "score": round(score, 4)} for text, score in scored]
        lines = list(map(in_words, answer))
        return Rendering("   ".join(lines), answer, partial(save_lines, path, lines))

    def summary(self, predictions: Sequence[Array]) -> str:
        """Return how often each text came first."""
        return most_frequent(predictions, self.state.names, LISTED)
