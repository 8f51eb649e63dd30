"""Third-party engines: exceptions and results of calls, reused buffers, threads."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.odd_engines import ERRORS, HARMLESS, RESULTS

WARM = (
    *("numpy", "onnx", "onnxruntime", "engine", "utils.pipeline.cli", "utils.pipeline.valid", "utils.pipeline.answers"),
    *("utils.tasks.classification.task", "tests.fuzz.makers.odd_engines"),
)

DIGITS = ROOT / "example" / "classification" / "digits"
METRIC = "eval_metric 0.994444"
"""Metric of the digits on the baseline, at every batch size."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Run a script of the digits with a random plan of calls."""
    script, batch = rng.choice((("valid", 24), ("valid", 48), ("valid", 360), ("multi_batch", 5), ("single_batch", 1)))
    calls = {"valid": 360 // batch, "multi_batch": 8, "single_batch": 1}[script]
    bad = rng.random() < 0.6
    ways = {rng.randint(1, calls): rng.choice(list(HARMLESS)) for _ in range(rng.randint(0, 3))}
    if bad:
        ways[rng.randint(1, calls)] = rng.choice([*ERRORS, *RESULTS])
    bad = any(way not in HARMLESS for way in ways.values())
    reuses, streams = rng.random() < 0.6, rng.choice((1, 1, 2, 4))
    promises = [name for name in ("inputs_untouched", "concurrent_calls") if streams > 1 and rng.random() < 0.5]
    promises += ["outputs_owned"] if not reuses and rng.random() < 0.5 else []
    plan = {
        "at": {str(call): way for call, way in ways.items()},
        "own_buffer": reuses,
        "streams": streams,
        "promises": promises,
        "wait": rng.choice((0, 0, 1, 5)),
    }
    words = ["-m", "tests.fuzz.run_engine", json.dumps(plan), str(DIGITS / f"example_{script}.py")]
    words += ["--json", str(folder / "answers.json")]
    words += ["--batch_size", str(batch)] if script != "single_batch" else []
    if script == "valid" and rng.random() < 0.3:
        words += ["--workers", rng.choice(("0", "1", "3"))]
    return Case(
        tuple(words),
        f"{script} in batches of {batch}: {plan}",
        functools.partial(_judge, script, bad),
        codes=frozenset({2 if bad else 0}),
    )


def _judge(script: str, bad: bool, outcome: Outcome) -> str | None:
    """Return the finding of a run."""
    metrics = [line for line in outcome.out.splitlines() if line.startswith("eval_metric")]
    if not bad:
        return f"metrics {metrics}, not {METRIC}" if script == "valid" and metrics != [METRIC] else None
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    if metrics:
        return "a metric is printed although the engine failed"
    if len(errors) != 1 or "target 'odd'" not in errors[0]:
        return f"not one line that names the target, but {errors}"
    return None
