"""Tasks that a contributor writes for models of kinds that the zoo has no task for (docs/reference/tasks.md).

Tests copy this file into a model's folder, next to the script that imports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utils.datasets import Dataset, ListDataset
from utils.metrics import MeanMetric, Metric, RecordMetric, TopK
from utils.tasks import Prepared, Rendering, Task


class EntityF1(RecordMetric):
    """F1 of the tokens that are in an entity (a class above 0), over all sentences together."""

    name = "entity_f1"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> Any:
        """Return a row per sentence: right entity tokens, predicted ones, and those of the truth."""
        found, truth = np.array(predictions), np.array(targets)
        right = (found == truth) & (truth > 0)
        return np.stack([right.sum(axis=1), (found > 0).sum(axis=1), (truth > 0).sum(axis=1)], axis=1)

    def value(self, records: Any, weights: Any) -> float:
        """Return F1 of the summed counts."""
        right, found, truth = weights @ records
        return float(2 * right / (found + truth))


class EndPointError(MeanMetric):
    """Mean absolute error of a disparity map, in pixels."""

    name, higher_is_better = "end_point_error", False

    def records(self, predictions: Any, targets: Any, contexts: Any) -> Any:
        """Return the error of every map."""
        errors = np.abs(np.array(predictions, np.float64) - np.array(targets, np.float64))
        return errors.reshape(len(errors), -1).mean(axis=1)


class PeakSignalToNoise(MeanMetric):
    """Peak signal-to-noise ratio of images of 0 to 1, in dB."""

    name = "psnr"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> Any:
        """Return the ratio of every image."""
        errors = np.array(predictions, np.float64) - np.array(targets, np.float64)
        return -10 * np.log10((errors**2).reshape(len(errors), -1).mean(axis=1))


class Arrays(Task):
    """Samples and targets in one ``.npz`` file; one input, one output."""

    data_help = "an .npz file with samples and targets"

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Read the file."""
        with np.load(paths["data"]) as found:
            return ListDataset(found["samples"], found["targets"], files=[paths["data"]])

    def prepare(self, samples: Sequence[Any]) -> Prepared:
        """Return the samples in the dtype of the model's input."""
        return Prepared([np.array(samples, self.model.inputs[0].dtype)])

    def decode(self, outputs: Any, contexts: Any) -> Any:
        """Return the output."""
        return outputs

    def show(self, sample: Any, prediction: Any) -> Rendering:
        """Return the numbers as text."""
        return Rendering(str(np.round(prediction, 3).tolist()), np.asarray(prediction).tolist())


class FileKind(Arrays):
    """The first bytes of a file in, a score for every kind of file out."""

    name = domain = "file_kind"

    def metric(self, dataset: Dataset) -> Metric:
        """Return top-1 accuracy."""
        return TopK()


class PointCloud(FileKind):
    """Points in, a score for every kind of object out."""

    name = domain = "point_cloud"


class Entities(Arrays):
    """Tokens in, a class for every token out."""

    name = domain = "entities"

    def decode(self, outputs: Any, contexts: Any) -> Any:
        """Return the class of every token."""
        return outputs.argmax(axis=-1)

    def metric(self, dataset: Dataset) -> Metric:
        """Return F1."""
        return EntityF1()


class Stereo(Arrays):
    """A pair of images in, a map of disparities out."""

    name = domain = "stereo"

    def prepare(self, samples: Sequence[Any]) -> Prepared:
        """Return the left images and the right ones."""
        pairs = np.array(samples, self.model.inputs[0].dtype)
        return Prepared([pairs[:, :1].copy(), pairs[:, 1:].copy()])

    def metric(self, dataset: Dataset) -> Metric:
        """Return the end-point error."""
        return EndPointError()


class SuperResolution(Arrays):
    """A small image in, one of twice the size out."""

    name = domain = "super_resolution"

    def metric(self, dataset: Dataset) -> Metric:
        """Return the peak signal-to-noise ratio."""
        return PeakSignalToNoise()
