"""``torch.sdaa.profile``: a profile of a ``with`` block, end to end or of the devices only."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import time
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.text import did_you_mean
from torch_sdaa.profiling.collect import Collected, Collector
from torch_sdaa.profiling.options import profileConfig
from torch_sdaa.profiling.record import record
from torch_sdaa.profiling.timeline import chrome_trace
from torch_sdaa.reports.summaries import pricer

_COLUMNS = ("op", "inputs", "outputs", "engine", "count", "seconds", "host_seconds", "flops", "bytes")
_ARGUMENTS = ("profiler_result_path", "use_e2e_profiler", "config")
_numbers = itertools.count()


class profile:  # noqa: N801 -- the name that scripts use
    """Profiles a block and writes the results to a new folder ``PROF_...``.

    The folder has ``profile.json`` (all data, read by ``teco train profile``), ``op_info.csv`` (every operator with its
    operands), and ``timeline/trace.json`` for Perfetto or chrome://tracing.

    Args:
        profiler_result_path: existing folder for the new one.
        use_e2e_profiler: all four layers (framework, runtime, launch, device); else the devices only.
        config: what to collect; default: ``profileConfig()``.
        unknown: any other name, which is an error.

    Attributes:
        result: the new folder. record: content of ``profile.json``. Both are set at the end of the block, also after an
            error: then ``record["failed"]`` has its text.

    Raises:
        TypeError: an argument is unknown, or has another type. NotADirectoryError: the folder does not exist.
        RuntimeError: another profile is active.
    """

    def __init__(
        self,
        profiler_result_path: str | os.PathLike[str] = "./",
        use_e2e_profiler: bool = False,
        config: profileConfig | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            raise TypeError(f"torch.sdaa.profile has no argument {name!r};{did_you_mean(name, _ARGUMENTS)}")
        if not isinstance(profiler_result_path, str | os.PathLike):
            raise TypeError(f"profiler_result_path: expected a folder, got {profiler_result_path!r}")
        if not isinstance(use_e2e_profiler, bool):
            raise TypeError(f"use_e2e_profiler must be True or False, got {use_e2e_profiler!r}")
        place = Path(profiler_result_path)
        if not place.is_dir():
            raise NotADirectoryError(f"profiler_result_path: {place} is not a folder; create it first")
        if config is not None and not isinstance(config, profileConfig):
            raise TypeError(f"config: expected a torch.sdaa.profileConfig, got {config!r}")
        self.result = Path()
        self.record: dict[str, Any] = {}
        self._place, self._whole, self._config = place, use_e2e_profiler, config or profileConfig()
        self._collector: Collector | None = None
        self._found: Collected | None = None

    def __enter__(self) -> profile:
        self._collector = Collector()
        self._collector.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._collector is None:
            return
        self._found, self._collector = self._collector.stop(), None
        if error is None:
            self._write_all(self._found)
        elif self._found.device:  # keep the data before the error
            try:
                self._write_all(self._found, traceback.format_exception_only(error)[-1].strip())
            except OSError as why:
                warnings.warn(f"the profile before an error could not be written: {why}", stacklevel=2)

    def _write_all(self, found: Collected, failed: str = "") -> None:
        self.record = chosen(record(found), self._whole, self._config) | ({"failed": failed} if failed else {})
        self.result = self._place / f"PROF_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_{next(_numbers)}"
        (self.result / "timeline").mkdir(parents=True)
        _write(self.result / "profile.json", json.dumps(self.record, indent=1) + "\n")
        _write(self.result / "op_info.csv", op_info_text(self.record["op_info"]))
        self.export_chrome_trace(self.result / "timeline" / "trace.json")

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to another file.

        Raises:
            RuntimeError: the block has not ended. NotADirectoryError: the file's folder does not exist.
        """
        if not Path(path).parent.is_dir():
            raise NotADirectoryError(f"export_chrome_trace: {Path(path).parent} is not a folder; create it first")
        if self._found is None:
            raise RuntimeError("torch.sdaa.profile: the trace is missing before the end of the with block")
        wants = self._config.wants
        trace = chrome_trace(
            self._found,
            host=self._whole,
            runtime=wants("ACL_API"),
            devices=wants("TASK_TIME"),
            collectives=wants("HCCL_TRACE"),
        )
        _write(Path(path), json.dumps(trace) + "\n")


def _write(path: Path, text: str) -> None:
    write_file(path, text.encode())


def op_info_text(rows: Iterable[dict[str, Any]]) -> str:
    """Return OP_INFO as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in rows:
        writer.writerow(["; ".join(row[n]) if isinstance(row[n], list) else row[n] for n in _COLUMNS])
    return out.getvalue()


def chosen(whole: dict[str, Any], end_to_end: bool, config: profileConfig) -> dict[str, Any]:
    """Return a record restricted to a configuration."""
    made = dict(whole)
    if not end_to_end:
        made["host"] = None
    elif not config.wants("ACL_API"):
        made["host"] = {"wall": whole["host"]["wall"]}
    if not config.wants("TASK_TIME"):
        made["devices"] = []
    if config.wants("AICPU"):
        made["rough"] = sorted(pricer().rough)
    if config.metrics != "none":
        made["metrics"] = [
            {"op": row["op"], "inputs": row["inputs"], **_metrics(row, config)} for row in made["op_info"]
        ]
    if config.wants("TRAINING_TRACE"):
        made["training_trace"] = _by_step(whole["launches"])
    return made


def _metrics(row: dict[str, Any], config: profileConfig) -> dict[str, float]:
    """Return the figures of an operator for a type of metrics; all simulated."""
    seconds = row["seconds"] or 1.0
    if config.metrics == "arithmetic":
        return {"flop_per_second": row["flops"] / seconds}
    if config.metrics == "memory":
        return {"bytes_per_second": row["bytes"] / seconds}
    return {"compute": float(row["engine"] == "compute"), "copies": float(row["engine"] != "compute")}


def _by_step(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the simulated seconds of each step by phase."""
    steps: dict[int, dict[str, Any]] = {}
    for row in rows:
        each = row["seconds"] / row["count"]
        for step, count in row["by_step"].items():
            one = steps.setdefault(int(step), {"step": int(step), "forward": 0.0, "backward": 0.0, "update": 0.0})
            one[row["phase"]] += each * count
    return [steps[step] for step in sorted(steps)]
