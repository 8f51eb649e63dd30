"""The scripts that print answers: ``single`` for one sample, ``multi`` for a folder."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, Engine, Timeline
from tecoinfer_modelzoo.flags import reserve_stdout
from tecoinfer_modelzoo.text import printable
from utils.datasets.base import Batches, Dataset
from utils.pipeline.flags.options import Options, options, pace
from utils.pipeline.frames import FrameAnswers
from utils.pipeline.launch.supervised import supervise_foreign
from utils.pipeline.report import console
from utils.pipeline.run.interrupt import ending_soon, finishing
from utils.pipeline.run.loops import Answer, predict_pipeline
from utils.pipeline.run.pipeline import Failure, Pipeline, returned
from utils.pipeline.session import load_data, open_engines
from utils.tasks.base import AnyTask, Rendering, Task, task_class

NO_ANSWER = "no answer: NaN in the model's output"
"""Printed in place of an answer."""

RAW_VALUES = 256
"""Values of every output that ``--skip_postprocess`` writes to ``--json``."""

Show = Callable[[Any, Any], Rendering]
"""Renders a sample and its prediction for people."""


def main(description: str | None, given: AnyTask, script: str, **defaults: Any) -> int:
    """Run a script that prints answers and return its exit code; arguments as of :func:`utils.pipeline.valid.main`.

    ``script`` is ``single`` or ``multi``.
    """
    task = task_class(given)
    opt = options(description, task, script, **defaults)
    reserve_stdout(opt.json)
    supervise_foreign(opt.target, opt.models.values())
    with ending_soon():
        return answered(task(opt))


def answered(task: Task) -> int:
    """Print the answers to the samples of a task's options, and return the exit code."""
    opt = task.options
    with open_engines(task) as engines:
        console.print_engines(task, engines)
        dataset = load_data(task)
        pipeline = Pipeline(task, engines, dataset)
        show: Show = partial(_shown, task)
        if opt.skip_postprocess:
            axes = [tensor.batch_axis for tensor in task.model.outputs] if task.one_call else None
            pipeline.decode, show = partial(raw, axes=axes), _raw_shown
            pipeline.decode_name = "--skip_postprocess, which takes the outputs' rows for samples,"
        if len(dataset) < opt.calib and any(engine.calibration_samples for engine in engines.values()):
            these = f"these {len(dataset)} samples only; example_valid.py takes {opt.calib}"
            console.warn(f"warning: int8 chooses its ranges from {these} and says what int8 costs")
        failures, counts = list[Failure](), dict[str, int]()
        pipeline.mark()
        timeline, batches = Timeline(), dataset.batches(opt.batch_size)
        only = _names(dataset, opt.show)
        if only:  # whole batches, as a sample's outputs may depend on the others in its batch
            batches = Batches(dataset, opt.batch_size, opt.show)
        answers = predict_pipeline(pipeline, batches, failures=failures, counts=counts, timeline=timeline, **pace(opt))
        if only:
            answers = (answer for answer in answers if answer.name in only)
        figures = _figures(pipeline, timeline)
        frames = FrameAnswers.of(dataset, opt)
        return Session(task, opt, failures, pipeline.describe(), engines, counts, figures, frames).show(answers, show)


def _names(dataset: Dataset, places: Sequence[int]) -> set[str]:
    """Return the names of the samples of ``--show``."""
    if places and max(places) >= len(dataset):
        raise ConfigError(f"--show {max(places)}: the data set has {len(dataset)} samples, numbered from 0")
    return set(dataset.batch(list(places)).names) if places else set()


def _figures(pipeline: Pipeline, timeline: Timeline) -> Callable[[int], dict[str, float]]:
    """Return a function from the number of samples to the task's figures; called once, at the end of the run."""

    @cache
    def figures(samples: int) -> dict[str, float]:
        pipeline.note_calls(timeline)
        return pipeline.figures(timeline, samples)

    return figures


def _shown(task: Task, sample: Any, prediction: Any) -> Rendering:
    shown: Rendering = returned(task.show(sample, prediction), Rendering, task.source("show"), task.name)
    return shown


def raw(outputs: Any, contexts: Any = None, *, axes: Sequence[int | None] | None = None) -> list[dict[str, Any]]:
    """Describe raw outputs sample by sample; ``--skip_postprocess`` prints this instead of answers.

    Args:
        outputs: an array, a list of arrays, or an object with arrays as attribute ``raw``. contexts: not used.
        axes: axis of the samples in each output (``None``: the output is for all of them); default: axis 0.

    Raises ConfigError: the outputs are not arrays with a row for each sample.
    """
    outputs = getattr(outputs, "raw", outputs)
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not arrays or not all(isinstance(array, np.ndarray) for array in arrays):
        raise ConfigError("--skip_postprocess: the outputs are not arrays with a row for each sample; leave it out")
    places = list(axes) if axes is not None and len(axes) == len(arrays) else [0] * len(arrays)
    count = _sample_count(arrays, places)
    columns = [
        [array] * count if axis is None else list(np.moveaxis(array, axis, 0))  # without an axis, all of it for each
        for array, axis in zip(arrays, places, strict=True)
    ]
    return [{"outputs": [_range(array) for array in row]} for row in zip(*columns, strict=True)]


def _sample_count(arrays: Sequence[Array], places: Sequence[int | None]) -> int:
    """Return the number of samples, which is the same in all arrays."""
    counts = {a.shape[axis] if axis < a.ndim else 0 for a, axis in zip(arrays, places, strict=True) if axis is not None}
    if len(counts) != 1:
        raise ConfigError(
            f"--skip_postprocess: outputs of shapes {', '.join(str(a.shape) for a in arrays)} do not have one row for "
            "each sample; leave it out"
        )
    return int(counts.pop())


def _range(array: Any) -> dict[str, Any]:
    """Return shape, range, and at most :data:`RAW_VALUES` values, evenly spaced, the first and the last among them."""
    low, high = (float(array.min()), float(array.max())) if array.size else (math.nan, math.nan)
    flat = np.ravel(array)
    places = np.unique(np.linspace(0, max(flat.size - 1, 0), min(RAW_VALUES, flat.size)).astype(np.intp))
    return {"shape": list(array.shape), "min": low, "max": high, "values": [float(value) for value in flat[places]]}


def _raw_shown(_: Any, prediction: Any) -> Rendering:
    outputs = (f"{one['shape']} from {one['min']:.6g} to {one['max']:.6g}" for one in prediction["outputs"])
    return Rendering(", ".join(outputs), prediction)


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """The answers printed so far.

    Attributes:
        engine: one line on the engines. figures: of a number of samples. frames: of a clip or camera.
        count: of the answers. shown: the entries of the JSON. predictions: for the task's summary of a folder.
    """

    task: Task
    opt: Options
    failures: list[Failure]
    engine: str = ""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    figures: Callable[[int], Mapping[str, float]] = lambda samples: {}
    frames: FrameAnswers = field(default_factory=FrameAnswers)
    nan_inputs: list[str] = field(default_factory=list)
    nan_outputs: list[str] = field(default_factory=list)
    shown: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    predictions: list[Any] = field(default_factory=list)
    finished: bool = False

    def show(self, answers: Iterable[Answer], show: Show) -> int:
        """Print every answer as it arrives, draw and write it as the flags ask, and return the exit code."""
        start, opt = time.perf_counter(), self.opt
        try:
            for answer in answers:
                self._one(answer, self._rendering(answer, show))
            self.finished = True
        finally:  # if the engine fails, the answers so far are written
            with finishing():
                self._end()
        console.list_nan(self.nan_inputs, self.nan_outputs, self.count, self.engine)
        for line in console.int8_lines(console.int8_figures(self.engines)):
            print(line)
        for line in self.task.format_warnings(self.counts, self.count):
            print(line)
        console.list_failures(self.failures)
        if not self.count and not self.failures:
            raise ConfigError(f"{opt.data_text or 'the data set'} holds nothing to run")
        for line in (*self.frames.lines(), *console.figure_lines("figures", self._all_figures())):
            print(line)
        if opt.script == "multi" and self.count:
            print(self._summary(time.perf_counter() - start))
        if not self.count:
            return 2
        return 1 if self.failures or self.nan_inputs or self.nan_outputs else 0

    def _rendering(self, answer: Answer, show: Show) -> Rendering:
        """Render an answer; with NaN in the output there is none, except with ``--skip_postprocess``."""
        if not answer.nan_output or self.opt.skip_postprocess:
            return show(answer.sample, answer.answer)
        return Rendering(NO_ANSWER, None, None if self.opt.save is None else _mark(answer.sample))

    def _one(self, answer: Answer, rendering: Rendering) -> None:
        lacks = "  (NaN in its input)" if answer.nan_input else ""
        print(f"{console.escaped_line(_short(answer.name, self.opt))}  {_indented(rendering.text)}{lacks}")
        marks = {key: True for key in ("nan_input", "nan_output") if getattr(answer, key)}
        entry = {"name": answer.name, **self.frames.entry(answer.name), "answer": rendering.answer, **marks}
        self.count += 1
        if self.opt.json is not None:  # a camera has any number of answers
            self.shown.append(entry)
        self.nan_inputs += [answer.name] * answer.nan_input
        self.nan_outputs += [answer.name] * answer.nan_output
        if not self.opt.skip_postprocess and not answer.nan_output and not self.frames:
            self.predictions.append(answer.answer)
        written = None if self.opt.save is None else self._save(rendering, self.opt.save)
        if self.opt.show:
            file = None if written is None else written.name
            entry |= {"sample": _text_of(answer.sample), "text": rendering.text, "file": file}

    def _save(self, rendering: Rendering, folder: Path) -> Path | None:
        if rendering.save is None:
            if rendering.text == NO_ANSWER or self.opt.show:
                return None
            raise ConfigError(
                f"--save {folder}: task {self.task.name} has nothing to draw for this sample; leave it out"
            )
        with self.frames.drawing():
            written: Path = returned(rendering.save(folder), Path, rendering.save, self.task.name)
        if self.frames.files:
            print(f"  written: {console.escaped_line(str(written))}")
        return written

    def _all_figures(self) -> dict[str, float]:
        return {**self.figures(self.count), **self.frames.figures(self.count)}

    def _end(self) -> None:
        """Finish the video, and write the JSON."""
        try:
            self.frames.close()
        finally:
            if self.opt.json is not None:
                self._write(self.opt.json)

    def _write(self, path: Path) -> None:
        """Write the answers as JSON."""
        from utils.pipeline.report.report import SCHEMA_VERSION, environment, write_json

        data = {"schema_version": SCHEMA_VERSION, "kind": "prediction", **console.about(self.opt)}
        data |= {"answers": self.shown, "failures": [{"name": f.name, "reason": f.reason} for f in self.failures]}
        data |= {"nan_inputs": self.nan_inputs, "nan_outputs": self.nan_outputs, "finished": self.finished}
        data["warning_counts"] = self.counts
        data["figures"] = self._all_figures()
        data |= self.frames.about()
        data["int8"] = console.int8_figures(self.engines)
        write_json({**data, **environment()}, path)

    def _summary(self, seconds: float) -> str:
        count, bad = self.count, len(self.failures)
        failed = f", {bad} could not be run," if bad else ""
        failed += f", {len(self.nan_outputs)} with NaN in the output," if self.nan_outputs else ""
        summary = _indented(self.task.summary(self.predictions)) if self.predictions else ""
        return f"{count} samples{failed} in {seconds:.2f} s{': ' if summary else ''}{summary}"


def _text_of(sample: Any) -> str | None:
    """Return the text of a sample: a text, several, or an object with an attribute ``text``; ``None`` for others."""
    if isinstance(sample, tuple) and sample and all(isinstance(part, str) for part in sample):
        return " | ".join(sample)
    text = sample if isinstance(sample, str) else getattr(sample, "text", None)
    return text if isinstance(text, str) else None


def _indented(text: str) -> str:
    """Escape the line breaks of an answer that are not followed by two spaces.

    Labels and texts may contain line breaks; a line from them must not look like output of the script.
    """
    return "\n  ".join(printable(part, keep="\t") for part in text.split("\n  "))


def _mark(sample: Any) -> Callable[[Path], Path] | None:
    """Return a function that writes the image with :data:`NO_ANSWER` on it; ``None`` if the sample is not an image."""
    from utils.datasets.folders import is_image

    if not isinstance(sample, Path) or not is_image(sample.name):
        return None
    from utils.draw import save_drawn

    return partial(save_drawn, sample, [NO_ANSWER])


def _short(name: str, opt: Options) -> str:
    """Return a sample's name relative to the data path, or to the folder of a data path that is a file."""
    for path in opt.paths.values():
        base = str(path if path.is_dir() else path.parent)
        if name.startswith(base.rstrip(os.sep) + os.sep):
            return name[len(base.rstrip(os.sep)) + 1 :]
    return name
