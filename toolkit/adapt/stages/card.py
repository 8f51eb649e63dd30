"""The accuracy gate on the simulated card; where it fails, the nodes that must stay float32 are found."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import EngineSpec, TecoInferError, open_engine
from tecoinfer_modelzoo.text import one_line
from toolkit.adapt.running import data_words, evaluated, model_file, task_request
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import FAILED, Outcome, Work
from toolkit.fix.fixing import Fix, fix
from toolkit.fix.samples import cast_to

FOLDER = "fix"
TOLERANCE = 0.001
"""Relative tolerance of the gate, that of the check."""

_ENOUGH = ("passes", "fixed")


class OnCard(Stage):
    """Run the gate, repair the model by a pass file if it fails, and run it again."""

    name, title, needs = "sdaa", "sdaa", ("take_in", "export", "task", "data", "onnx")

    def run(self, work: Work) -> Outcome:
        """Return the gate's result, the pass file, and whether samples are independent."""
        rows = _independence(work)
        found = gate(work, None, work.folder / FOLDER)
        passes = found.pass_file if found.verdict == "fixed" else None
        report = evaluated(work, "sdaa", "float16", pass_path=passes)
        after = found.after if found.after is not None else found.before
        facts: dict[str, Any] = {
            "verdict": found.verdict,
            "metric_name": report.metric_name,
            "metric": report.metric,
            "before": found.before.metric,
            "baseline": found.baseline,
            "reason": after.reason,
            "nodes": found.culprits,
            "overflows": sorted(found.overflows),
            "given_up": found.cost.given_up if found.cost is not None else 0.0,
            "runs": len(found.trials),
            "pass": "" if passes is None else passes.relative_to(work.folder).as_posix(),
            "independent": rows.independent,
            "proven": rows.proven,
            "why_dependent": rows.why,
        }
        files = [one for one in (passes,) if one is not None]
        works = passes is None or math.isclose(report.metric, after.metric, rel_tol=TOLERANCE, abs_tol=1e-9)
        line = (
            _line(found, report.metric) if works else f"the pass file {passes} has no effect on {model_file(work).name}"
        )
        status = "done" if found.verdict in _ENOUGH and works else FAILED
        return Outcome(f"{line}; {rows}", facts, files, found.notes, status)


def gate(work: Work, passes: Path | None, out: Path) -> Fix:
    """Return the result of the accuracy gate with a pass file, after the search for a fix if it fails."""
    asked, dims = task_request(work)
    how: dict[str, Any] = {"tolerance": TOLERANCE, "batch": work.request.batch, "dims": dims, "asked": asked}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the gate's reason holds what matters
        return fix(model_file(work), data_words(work), None, out, pass_path=passes, **how)


def _line(found: Fix, metric: float) -> str:
    name = f"{found.metric} {metric:.6g} against {found.baseline:.6g}"
    if found.verdict == "passes":
        return f"{name}: the gate passes"
    if found.verdict == "fixed":
        lost = f", {found.cost.given_up:.1%} of the simulated speed" if found.cost is not None else ""
        names = ", ".join(found.culprits[:3]) + (", ..." if len(found.culprits) > 3 else "")
        return (
            f"{name}: the gate passes with {len(found.culprits)} nodes in float32 ({names}{lost}); "
            f"{found.before.metric:.6g} without"
        )
    return f"{name}: the gate fails ({found.before.reason}), and float32 nodes do not help; see teco overflow"


@dataclass(frozen=True)
class Rows:
    """Whether samples are independent: ``None``: not known; ``proven`` by the graph, or tried; ``why`` not."""

    independent: bool | None
    proven: bool
    why: str

    def __str__(self) -> str:
        if self.proven:
            return "samples are proven independent: all SPA are used"
        if self.independent:
            return f"samples alone and together give the same: all SPA are used; tried, not proven ({self.why})"
        if self.independent is None:
            return f"independence of samples is not known{f' ({self.why})' if self.why else ''}"
        return f"samples depend on one another ({self.why}): a call runs on one SPA"


def _independence(work: Work) -> Rows:
    """Return what the graph proves, else what the first call over the samples shows on the card's engine."""
    from toolkit.fix.opening import SampleRequest, open_samples
    from toolkit.graph.nodes import load_named

    file = model_file(work)
    asked, dims = task_request(work)
    wanted = SampleRequest(data_words(work), work.request.batch, None, {}, dims, asked)
    try:
        with open_samples(file, load_named(file), wanted) as samples:
            spec = replace(samples.card_spec(file), dtype="float16", batch_size=work.request.batch)
            inputs = next(iter(samples.calls())).inputs
    except TecoInferError as error:  # such as a task that calls the model in a loop of its own
        sizes = {name: tuple(one) for name, one in dims.items()}
        spec, inputs = EngineSpec(ckpt=file, batch_size=work.request.batch, dims=sizes), []
        why = one_line(error)
    else:
        why = ""
    with warnings.catch_warnings(), open_engine("sdaa", spec) as engine:
        warnings.simplefilter("ignore")  # what they say is in the result
        engine.batching.learn()
        if engine.independent:
            return Rows(True, True, "")
        reason = engine.batching.why_dependent
        if not inputs:
            return Rows(engine.independent, False, reason or why)
        engine(cast_to(inputs, engine.inputs))
        return Rows(engine.independent, False, engine.batching.why_dependent or reason)
