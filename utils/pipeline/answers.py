"""The scripts that show answers: one sample (single), or a folder (multi)."""

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
from tecoinfer_modelzoo.text import printable
from utils.pipeline.flags.options import Options, options, pace
from utils.pipeline.launch.supervised import supervise_foreign
from utils.pipeline.report.console import (
    about,
    figure_lines,
    in_a_line,
    int8_figures,
    int8_lines,
    list_failures,
    list_nan,
    tell_engines,
    warn,
)
from utils.pipeline.run.interrupt import ending_soon, finishing
from utils.pipeline.run.loops import Answer, predict_pipeline
from utils.pipeline.run.pipeline import Failure, Pipeline, returned
from utils.pipeline.session import load_data, open_engines
from utils.tasks.base import Rendering, Task
from utils.tasks.legacy import AnyTask, task_class

NO_ANSWER = "no answer: NaN in the model's output"
"""What is said of a sample in place of an answer."""

RAW_VALUES = 256
"""Values of every output that ``--skip_postprocess`` writes down with ``--json``."""

Show = Callable[[Any, Any], Rendering]
"""From a sample and its prediction to what a person looks at."""


def main(description: str | None, given: AnyTask, script: str, **defaults: Any) -> int:
    """Run a script that shows answers and return its exit code.

    Args:
        description: the script's docstring.
        given: the task, in either form. script: ``single`` or ``multi``.
        defaults: of the flags, as :func:`utils.pipeline.flags.options.options` takes them.
    """
    task = task_class(given)
    opt = options(description, task, script, **defaults)
    supervise_foreign(opt.target, opt.models.values())
    with ending_soon():
        return _answered(task(opt))


def _answered(task: Task) -> int:
    opt: Any = task.options
    with open_engines(task) as engines:
        tell_engines(task, engines)
        dataset = load_data(task)
        pipeline = Pipeline(task, engines, dataset)
        show: Show = partial(_shown, task)
        if opt.skip_postprocess:
            axes = [tensor.batch_axis for tensor in task.model.outputs] if task.one_call else None
            pipeline.decode, show = partial(raw, axes=axes), _raw_shown
            pipeline.decode_name = "--skip_postprocess, which takes the outputs' rows for samples,"
        _tell_ranges(engines, len(dataset), opt)
        failures, counts = list[Failure](), dict[str, int]()
        pipeline.mark()
        timeline, batches = Timeline(), dataset.batches(opt.batch_size)
        answers = predict_pipeline(pipeline, batches, failures=failures, counts=counts, timeline=timeline, **pace(opt))
        told = _figures(pipeline, timeline)
        return Session(task, opt, failures, pipeline.describe(), engines, counts, told).show(answers, show)


def _figures(pipeline: Pipeline, timeline: Timeline) -> Callable[[int], dict[str, float]]:
    """Return what tells the task's figures of what was computed; asked once, when the run has ended."""

    @cache
    def told(samples: int) -> dict[str, float]:
        pipeline.note_calls(timeline)
        return pipeline.figures(timeline, samples)

    return told


def _tell_ranges(engines: Mapping[str, Engine], samples: int, opt: Options) -> None:
    """Warn that int8 chooses its ranges from what is shown, where that is little."""
    if samples < opt.calib and any(engine.calibration_samples for engine in engines.values()):
        warn(
            f"warning: int8 chooses its ranges from these {samples} samples only; example_valid.py takes {opt.calib} "
            "and says what int8 costs"
        )


def _shown(task: Task, sample: Any, prediction: Any) -> Rendering:
    shown: Rendering = returned(task.show(sample, prediction), Rendering, task.source("show"), task.name)
    return shown


def raw(outputs: Any, contexts: Any = None, *, axes: Sequence[int | None] | None = None) -> list[dict[str, Any]]:
    """Describe raw outputs sample by sample: what ``--skip_postprocess`` shows instead of an answer.

    Args:
        outputs: an array, or several; or an object that has them as ``raw`` beside what ``decode`` reads. contexts: not
            looked at.
        axes: for each output where it has its samples (``None``: one value for all of them); left out: first in all.

    Raises:
        ConfigError: the outputs are not arrays with a row for each sample.
    """
    outputs = getattr(outputs, "raw", outputs)
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not arrays or not all(isinstance(array, np.ndarray) for array in arrays):
        raise ConfigError("--skip_postprocess: the outputs are no arrays with a row for each sample; leave it out")
    places = list(axes) if axes is not None and len(axes) == len(arrays) else [0] * len(arrays)
    count = _sample_count(arrays, places)
    columns = [_of_samples(array, axis, count) for array, axis in zip(arrays, places, strict=True)]
    return [{"outputs": [_range(array) for array in row]} for row in zip(*columns, strict=True)]


def _sample_count(arrays: Sequence[Array], places: Sequence[int | None]) -> int:
    """Return how many samples arrays hold along their places, which is the same for all of them."""
    counts = {a.shape[axis] if axis < a.ndim else 0 for a, axis in zip(arrays, places, strict=True) if axis is not None}
    if len(counts) != 1:
        raise ConfigError(
            f"--skip_postprocess: outputs of shapes {', '.join(str(a.shape) for a in arrays)} do not have one row for "
            "each sample; leave it out"
        )
    return int(counts.pop())


def _of_samples(array: Array, axis: int | None, count: int) -> Sequence[Array]:
    """Return what each of so many samples has of an array: its row, or all of one that is for all of them."""
    return [array] * count if axis is None else list(np.moveaxis(array, axis, 0))


def _range(array: Any) -> dict[str, Any]:
    low, high = (float(array.min()), float(array.max())) if array.size else (math.nan, math.nan)
    return {"shape": list(array.shape), "min": low, "max": high, "values": _spread(array)}


def _spread(array: Array) -> list[float]:
    """Return the values at up to :data:`RAW_VALUES` places, the first and the last among them."""
    flat = np.ravel(array)
    places = np.unique(np.linspace(0, max(flat.size - 1, 0), min(RAW_VALUES, flat.size)).astype(np.intp))
    return [float(value) for value in flat[places]]


def _raw_shown(_: Any, prediction: Any) -> Rendering:
    outputs = (f"{one['shape']} from {one['min']:.6g} to {one['max']:.6g}" for one in prediction["outputs"])
    return Rendering(", ".join(outputs), prediction)


@dataclass(slots=True)
class Session:
    """What accumulates while answers are shown.

    ``engine`` says what computes, ``figures`` gives the task's figures of so many samples.
    """

    task: Task
    opt: Options
    failures: list[Failure]
    engine: str = ""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    figures: Callable[[int], Mapping[str, float]] = lambda samples: {}
    nan_inputs: list[str] = field(default_factory=list)
    nan_outputs: list[str] = field(default_factory=list)
    shown: list[dict[str, Any]] = field(default_factory=list)
    predictions: list[Any] = field(default_factory=list)
    finished: bool = False

    def show(self, answers: Iterable[Answer], show: Show) -> int:
        """Print every answer as it comes, draw and write what the flags ask for, and return the exit code."""
        start, opt = time.perf_counter(), self.opt
        try:
            for answer in answers:
                self._one(answer, self._artifact(answer, show))
            self.finished = True
        finally:  # where the engine fails on the way, the answers so far are kept
            if opt.json is not None:
                with finishing():
                    self._write(opt.json)
        list_nan(self.nan_inputs, self.nan_outputs, len(self.shown), self.engine)
        for line in int8_lines(int8_figures(self.engines)):
            print(line)
        for line in self.task.format_warnings(self.counts, len(self.shown)):
            print(line)
        list_failures(self.failures)
        if not self.shown and not self.failures:
            raise ConfigError(f"{opt.data_text or 'the data set'} holds nothing to run")
        for line in figure_lines("figures", self.figures(len(self.shown))):
            print(line)
        if opt.script == "multi" and self.shown:
            print(self._summary(time.perf_counter() - start))
        if not self.shown:
            return 2
        return 1 if self.failures or self.nan_inputs or self.nan_outputs else 0

    def _artifact(self, answer: Answer, show: Show) -> Rendering:
        """Return what a person looks at; what is made of NaN is no answer, and raw outputs are shown as they are."""
        if not answer.nan_output or self.opt.skip_postprocess:
            return show(answer.sample, answer.answer)
        return Rendering(NO_ANSWER, None, None if self.opt.save is None else _mark(answer.sample))

    def _one(self, answer: Answer, artifact: Rendering) -> None:
        lacks = "  (NaN in its input)" if answer.nan_input else ""
        print(f"{in_a_line(_short(answer.name, self.opt))}  {_indented(artifact.text)}{lacks}")
        marks = {key: True for key in ("nan_input", "nan_output") if getattr(answer, key)}
        self.shown.append({"name": answer.name, "answer": artifact.answer, **marks})
        self.nan_inputs += [answer.name] * answer.nan_input
        self.nan_outputs += [answer.name] * answer.nan_output
        if not self.opt.skip_postprocess and not answer.nan_output:
            self.predictions.append(answer.answer)
        if self.opt.save is not None:
            self._save(artifact, self.opt.save)

    def _save(self, artifact: Rendering, folder: Path) -> None:
        if artifact.save is None and artifact.text != NO_ANSWER:
            raise ConfigError(
                f"--save {folder}: task {self.task.name} has nothing to draw for this sample; leave it out"
            )
        if artifact.save is not None:
            written: Path = returned(artifact.save(folder), Path, artifact.save, self.task.name)
            print(f"  written: {in_a_line(str(written))}")

    def _write(self, path: Path) -> None:
        """Write the answers as JSON."""
        from utils.pipeline.report.report import SCHEMA_VERSION, environment, write_json

        data = {"schema_version": SCHEMA_VERSION, "kind": "prediction", **about(self.opt), "answers": self.shown}
        data |= {"failures": [{"name": f.name, "reason": f.reason} for f in self.failures]}
        data |= {"nan_inputs": self.nan_inputs, "nan_outputs": self.nan_outputs, "finished": self.finished}
        data["counts"] = self.counts
        data["figures"] = dict(self.figures(len(self.shown)))
        data["int8"] = int8_figures(self.engines)
        write_json({**data, **environment()}, path)

    def _summary(self, seconds: float) -> str:
        count, bad = len(self.shown), len(self.failures)
        failed = f", {bad} could not be run," if bad else ""
        failed += f", {len(self.nan_outputs)} with NaN in the output," if self.nan_outputs else ""
        said = _indented(self.task.summary(self.predictions)) if self.predictions else ""
        return f"{count} samples{failed} in {seconds:.2f} s{': ' if said else ''}{said}"


def _indented(text: str) -> str:
    """Return an answer with only those line breaks behind which it is indented, as our own lines are.

    Labels and texts out of models and data may hold any, and no line of theirs is to be taken for one of ours.
    """
    return "\n  ".join(printable(part, keep="\t") for part in text.split("\n  "))


def _mark(sample: Any) -> Callable[[Path], Path] | None:
    """Return what writes a picture that says so, of a sample that is a picture."""
    from utils.datasets.folders import EXTENSIONS

    if not isinstance(sample, Path) or sample.suffix.lower() not in EXTENSIONS:
        return None
    from utils.draw import save_drawn

    return partial(save_drawn, sample, [NO_ANSWER])


def _short(name: str, opt: Options) -> str:
    """Return a sample's name below the data path: the file's own name where that is one file."""
    for path in opt.paths.values():
        base = str(path if path.is_dir() else path.parent)
        if name.startswith(base.rstrip(os.sep) + os.sep):
            return name[len(base.rstrip(os.sep)) + 1 :]
    return name
