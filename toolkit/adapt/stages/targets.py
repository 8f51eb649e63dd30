"""Other targets: int8 and bfloat16 on the host's fastest engine, and TVM. Reported, never a failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import TecoInferError
from tecoinfer_modelzoo.text import one_line
from toolkit.adapt.running import evaluated
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, Outcome, Work

RUNS: Sequence[tuple[str, str]] = (("cpu", "int8"), ("cpu", "bfloat16"), ("tvm", "float32"))
"""Targets and precisions."""


class OtherTargets(Stage):
    """Evaluate on each of :data:`RUNS`."""

    name, title, needs, optional = "targets", "other targets", ("take_in", "export", "task", "data", "onnx"), True

    def run(self, work: Work) -> Outcome:
        """Return a row per run: the metric, or why there is none."""
        rows: list[dict[str, Any]] = []
        for target, dtype in RUNS:
            try:
                report = evaluated(work, target, dtype)
            except TecoInferError as error:
                rows.append({"target": target, "dtype": dtype, "metric": None, "reason": one_line(error)})
            except Exception as error:  # noqa: BLE001 - a compiler may raise anything, and it is only reported
                reason = f"{type(error).__name__}: {one_line(error)}"
                rows.append({"target": target, "dtype": dtype, "metric": None, "reason": reason})
            else:
                rows.append({"target": target, "dtype": dtype, "metric": report.metric, "reason": ""})
        words = [
            f"{one['target']} {one['dtype']} " + ("not run" if one["metric"] is None else f"{one['metric']:.6g}")
            for one in rows
        ]
        notes = [f"{one['target']} {one['dtype']}: {one['reason']}" for one in rows if one["reason"]]
        return Outcome(", ".join(words), {"rows": rows}, notes=notes, status=NOTED if notes else "done")
