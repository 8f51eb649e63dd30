"""The result of an evaluation, its two closing lines, and its JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import ConfigError, usable_cores
from tecoinfer_modelzoo.errors import warn_renamed
from tecoinfer_modelzoo.files import same_access, write_file
from tecoinfer_modelzoo.flags import STDOUT, write_stdout
from tecoinfer_modelzoo.json_values import plain
from utils.metrics.base import Metric
from utils.metrics.definition import metric_to_json
from utils.pipeline.run.nan import input_line, output_line
from utils.pipeline.run.pipeline import Failure

if TYPE_CHECKING:
    from utils.pipeline.report.advice import OwnAdvice
    from utils.pipeline.resume.records import Kept

SCHEMA_VERSION = 2
"""Version of the JSON layout; raised when a field changes its meaning or is removed.

2: ``warning_counts`` and ``data_warnings``, which were ``counts`` and ``remarks`` in version 1.
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report:
    """Result of :func:`utils.pipeline.evaluate`.

    Attributes:
        metric_name, metric: the metric of record and its value; higher_is_better: its direction.
        secondary: further figures of the metric. per_class: figures by class and name.
        figures: of the task, such as tokens/s. None of these is judged.
        samples, steps: number of samples in the metric, and of batches.
        e2e_time: wall seconds of the timed steps, everything included.
        avg_sps: samples per second of wall time over the timed steps.
        avg_inference_time, avg_preprocess_time, avg_postprocess: seconds per batch; preprocessing runs in parallel
            with the engine, so the three do not add up to the wall time.
        wait_time, wait_engine_time, postprocess_time: wall seconds the loop waited for preprocessing, waited for the
            engine, and spent on answers and metric; their sum is ``e2e_time``.
        busy: seconds of work by stage, summed over threads: disk, decode, preprocess (without these two), engine,
            postprocess.
        core_share: CPU seconds of the run over wall seconds times cores, 0 to 1.
        disk_bytes: bytes fetched from storage, not from the page cache; ``None`` where unknown.
        engine: description of the engine, one line. simulated: whether it is a simulated device.
        failures: samples that could not be run. nan_inputs: samples with NaN in their input (they were run).
            nan_outputs: samples with NaN in their output, or with infinities that made their prediction NaN.
        device: report of a device (:meth:`engine.base.Engine.device_report`); its times are simulated.
        int8: agreement of each int8 engine with float32 on its calibration samples, by model: ``cosine``, the
            ``output`` it is of, ``samples`` and ``recipe``; empty without int8.
        finished: ``False`` if a step limit ended the run before the end of the data.
        resumed_steps: steps taken from a journal; times are of the others.
        processes, recomputed: processes whose parts were merged, and parts computed again after a loss.
        task: name of the task; empty for plain functions.
        advice: the task's advice by stage, and the flags in use; not in the JSON.
        warning_counts: of the task, by name. data_warnings: the task's lines on them (``format_warnings``).
        hints: suspected wrong settings, from the task's diagnostics.
        unwritten: further files that could not be written, a line each; not in the JSON.
        state: the metric, for merging; not in the JSON.
        records: the metric's records of each sample, put in place together with the JSON; not in the JSON.
        parts: instead of ``records``, those of each process, by rank; not in the JSON.
        about: target, model, task and data, for :meth:`to_json`.
    """

    metric_name: str
    metric: float
    samples: int
    steps: int
    e2e_time: float
    avg_sps: float
    avg_inference_time: float
    avg_preprocess_time: float
    avg_postprocess: float
    wait_time: float = 0.0
    wait_engine_time: float = 0.0
    postprocess_time: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    core_share: float = 0.0
    disk_bytes: int | None = None
    engine: str = ""
    simulated: bool = False
    failures: list[Failure] = field(default_factory=list)
    nan_inputs: list[str] = field(default_factory=list)
    nan_outputs: list[str] = field(default_factory=list)
    device: dict[str, Any] = field(default_factory=dict)
    int8: dict[str, Any] = field(default_factory=dict)
    finished: bool = True
    resumed_steps: int = 0
    processes: int = 1
    recomputed: int = 0
    higher_is_better: bool = True
    secondary: dict[str, float] = field(default_factory=dict)
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    task: str = ""
    advice: OwnAdvice | None = None
    warning_counts: dict[str, int] = field(default_factory=dict)
    data_warnings: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    unwritten: tuple[str, ...] = ()
    state: Metric | None = None
    records: Kept | None = None
    parts: tuple[Kept, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Whether all samples were run and have an answer, and the metric is a number."""
        bad = self.failures or self.nan_inputs or self.nan_outputs
        return not bad and not math.isnan(self.metric)

    @property
    def warnings(self) -> list[str]:
        """Warnings on the result, one line each."""
        lines = [failure.text for failure in self.failures]
        if self.nan_inputs:
            lines.append(input_line(self.nan_inputs, self.samples))
        if self.nan_outputs:
            lines.append(output_line(self.nan_outputs, self.samples, self.nan_inputs, self.engine))
        further = (line for line in (self.unknown_metric, self.cut_short) if line)
        return [*lines, *self.hints, *further, *self.data_warnings, *self.unwritten]

    @property
    def counts(self) -> dict[str, int]:
        """Return ``warning_counts`` (deprecated name)."""
        warn_renamed("Report.counts", "warning_counts")
        return self.warning_counts

    @property
    def remarks(self) -> list[str]:
        """Return ``data_warnings`` (deprecated name)."""
        warn_renamed("Report.remarks", "data_warnings")
        return self.data_warnings

    @property
    def unknown_metric(self) -> str:
        """The reason for a NaN metric without a NaN output; else empty."""
        if not math.isnan(self.metric) or self.failures or self.nan_inputs or self.nan_outputs:
            return ""
        why = "" if self.state is None else self.state.unknown()
        why = why or "look at the targets and at the metric's records (--json)"
        return f"{self.metric_name} is NaN, and no output is: {why}"

    @property
    def cut_short(self) -> str:
        """The line on a step limit that left a part of the data set out; else empty."""
        if self.finished:
            return ""
        return f"stopped after {self.steps} steps (TECO_INFER_PIPELINES_MAX_STEPS): the metric covers those only"

    def to_json(self) -> str:
        """Return the report as the JSON text that ``--json`` writes, without a file of records."""
        return _content(self.to_dict(**self.about)).decode()

    def bottleneck(self) -> str:
        """Return one line on the stage that bounds the run (:mod:`utils.pipeline.report.bottleneck`)."""
        from utils.pipeline.report.bottleneck import bottleneck

        waits = {"preprocess": self.wait_time, "engine": self.wait_engine_time, "postprocess": self.postprocess_time}
        shares = (self.busy, waits, self.e2e_time, self.core_share, self.simulated)
        timed = round(self.avg_sps * self.e2e_time)
        how = {"cores": usable_cores(), "samples": timed, "disk_bytes": self.disk_bytes, "own": self.advice}
        return bottleneck(*shares, **how)  # type: ignore[arg-type]

    def closing_lines(self) -> list[str]:
        """Return the last two lines of every valid script."""
        return [
            f"eval_metric {np.format_float_positional(round(self.metric, 6), trim='0')}",  # never 1e-05
            f"summary: avg_sps: {self.avg_sps:.1f}, e2e_time: {self.e2e_time:.4f}, "
            f"avg_inference_time: {self.avg_inference_time:.6f}, avg_preprocess_time: {self.avg_preprocess_time:.6f}, "
            f"avg_postprocess: {self.avg_postprocess:.6f}",
        ]

    def to_dict(self, **extra: Any) -> dict[str, Any]:
        """Return the report as plain data, with schema version and environment."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "evaluation",
            **extra,
            **_fields(self),
            "metric_definition": None if self.state is None else metric_to_json(self.state),
            "bottleneck": self.bottleneck() if self.busy else "",
            **environment(),
        }


def _fields(report: Report) -> dict[str, Any]:
    plain = asdict(replace(report, state=None, advice=None, records=None, parts=()))
    for key in ("state", "advice", "unwritten", "records", "parts", "about"):
        del plain[key]
    return plain


def environment() -> dict[str, Any]:
    """Return the versions of Python and NumPy, the machine and its cores."""
    return {
        "environment": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        }
    }


def write_json(data: dict[str, Any], path: Path) -> None:
    """Write a result atomically, or to standard output; NumPy values as plain ones, NaN and infinities as ``null``.

    Bytes of a file name that are not valid UTF-8 become escapes such as ``\\udcff``, which Python's reader accepts.
    Raises ConfigError if the file cannot be written.
    """
    if path == STDOUT:
        write_stdout(_content(data).decode())
        return
    with _writing(path):
        write_file(path, _content(data))


def commit(data: dict[str, Any], path: Path, records: Kept | None) -> None:
    """Write a result like :func:`write_json`, together with its records.

    A result never lies next to records of another run, even if the process is killed: the older result is removed
    first, then the records are put in place, then the new result. Raises ConfigError if a file cannot be written.
    """
    if records is None or records.waiting is None:
        write_json(data, path)
        return
    if path.exists() and not path.is_file():  # a pipe or a device, which cannot be replaced
        records.place()
        write_json(data, path)
        return
    ready = path.with_name(f".{path.name}.new")
    try:
        with _writing(path):
            write_file(ready, _content(data))
            same_access(path, ready)
            if path.is_file():
                path.unlink()
        records.place()
        with _writing(path):
            ready.replace(path)
    finally:
        with suppress(OSError):
            ready.unlink(missing_ok=True)


def _content(data: dict[str, Any]) -> bytes:
    text = json.dumps(plain(data, _leaf), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an OSError on a result file into a ConfigError of one line."""
    try:
        yield
    except OSError as error:
        fix = "check the folder of --json"
        raise ConfigError(f"result file {path} cannot be written: {error.strerror}; {fix}") from error


def _leaf(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
