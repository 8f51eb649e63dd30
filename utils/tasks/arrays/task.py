"""Arrays in, arrays out: any model that has no task of its own (docs/reference/arrays.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import Array, ConfigError, Engine
from utils.datasets.arrays.sets import EXPECTED_FORMS, SINGLE_FILE, ArraySample, Tensors, load_arrays
from utils.datasets.base import Dataset
from utils.metrics.arrays.outputs import OutputMetrics
from utils.tasks import Diagnostics, Flag, Prepared, Rendering, Task, at_least
from utils.tasks.arrays.inputs import arrays_of, stacked
from utils.tasks.arrays.measures import KINDS, check_kinds, measures
from utils.tasks.arrays.random_samples import parse_ranges, random_samples, rows_of
from utils.tasks.arrays.rendering import rendered
from utils.tasks.arrays.writing import OutputFile
from utils.tasks.templates.sample_arrays import ARRAYS


class Arrays(Task):
    """Any number of inputs and outputs, from files of arrays or random; the metric is chosen by output."""

    name = domain = "arrays"
    template = ARRAYS
    data_help = "arrays in an .npz, .npy, .csv or .tsv file, or a folder of such files (docs/reference/arrays.md)"
    writes = "the outputs of all samples as .npz"
    flags = (
        Flag("--metric", f"the metric of record first: {', '.join(KINDS)} or top5 (default: by the expected arrays)",
             [], nargs="+", metavar="[OUTPUT=]KIND", scripts=("valid",)),
        Flag("--topk", "k of --metric topk", 5, int, scripts=("valid",)),
        Flag("--tolerance", "relative error of a sample's floats that --metric equal allows", 0.05, float,
             scripts=("valid",)),
        Flag("--peak", "largest value of --metric psnr (default: 255 for uint8, else 1)", None, float,
             scripts=("valid",)),
        Flag("--pad", "fill up the samples of a batch to the largest with this value", None, float, metavar="X"),
        Flag("--random", "run this many random samples instead of data; expected: the outputs of target onnx", 0, int),
        Flag("--seed", "seed of --random", 0, int),
        Flag("--random_range", "range of an input's random values", [], nargs="+", metavar="NAME=LOW:HIGH"),
    )  # fmt: skip

    def check(self) -> None:
        """Check the values of the flags."""
        options = self.options
        at_least(options, topk=1, random=0, seed=0)
        check_kinds(options.metric)
        parse_ranges(options.random_range)
        if not options.tolerance >= 0:
            raise ConfigError(f"--tolerance {options.tolerance} must be at least 0")
        if options.peak is not None and not options.peak > 0:
            raise ConfigError(f"--peak {options.peak} must be above 0")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the samples of files, in ``valid`` with expected arrays."""
        if not paths:
            raise ConfigError("no data given; pass --data_path PATH, or --random 64 for random samples")
        return self.selected(load_arrays(paths, self._tensors(), wanted=self.options.script == "valid"))

    def _tensors(self) -> Tensors:
        """Return the names of the model's inputs and outputs, which are not opened yet."""
        from engine.onnx import load_model, signature

        inputs, outputs, _ = signature(load_model(self.options.models["model"]))
        names = self.options.input_name or [spec.name for spec in inputs]
        return Tensors(tuple(names), tuple(spec.name for spec in outputs))

    def inline_samples(self) -> Dataset | None:
        """Return the samples of ``--random``; in ``valid`` with the outputs of target ``onnx``."""
        if not self.options.random:
            return None
        return self.selected(random_samples(self.options, wanted=self.options.script == "valid"))

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Raise DataError if the samples of a file, which all have one shape and dtype, do not fit the model."""
        if SINGLE_FILE in dataset.notes and len(dataset):
            (sample,) = dataset.batch([0]).samples
            whole = sample._replace(name=dataset.notes[SINGLE_FILE])
            arrays_of(whole, self.model.inputs)

    def prepare(self, samples: Sequence[Any]) -> Prepared:
        """Return an array per input; with ``--pad`` one per sample and input, to be filled up. Contexts are names."""
        rows = [arrays_of(sample, self.model.inputs) for sample in samples]
        columns = [list(column) for column in zip(*rows, strict=True)]
        each = [sample.name if isinstance(sample, ArraySample) else "the sample" for sample in samples]
        if self.options.pad is not None:
            return Prepared(columns, each, {spec.name: self.options.pad for spec in self.model.inputs})
        return Prepared(stacked(columns, self.model.inputs), each)

    def decode(self, outputs: Any, contexts: Any) -> list[dict[str, Array]]:
        """Return the outputs of each sample by name, as the model gives them."""
        return rows_of(outputs, self.model.outputs, len(contexts))

    def metric(self, dataset: Dataset) -> OutputMetrics:
        """Return the metric of record and those of the other outputs."""
        return OutputMetrics(measures(self.options, self.model.outputs, dataset.notes.get(EXPECTED_FORMS, {})))

    def diagnostics(self) -> Diagnostics:
        """Return the check for classes that are off by one."""
        from utils.tasks.arrays.shifted import ShiftedOutputs  # imports the modules of images

        return ShiftedOutputs(self.model.outputs)

    def prediction_writer(self, path: Path, dataset: Dataset) -> OutputFile:
        """Return the writer of an ``.npz`` file."""
        return OutputFile(path)

    def show(self, sample: Any, prediction: Mapping[str, Array]) -> Rendering:
        """Return the outputs in words; saving draws images, maps and curves."""
        labels = self.model.stored.labels
        named = {name: list(labels) for name in prediction} if labels is not None else {}
        return rendered(sample.name if isinstance(sample, ArraySample) else "sample", prediction, named)
