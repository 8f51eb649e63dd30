"""The sweep over architectures: its judge sees what is wrong, a crash is one finding, and six rows run every time."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
RIGHT = [RNG.standard_normal((7, 5)).astype(np.float32), RNG.integers(0, 9, (7,))]
EXPECTED = {"dynamo/cpu int8": "has no Conv"}


@pytest.fixture(scope="module", autouse=True)
def on_the_path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield


def off(by: float) -> list[np.ndarray]:
    """Return the right outputs with one value off by a part of the largest."""
    wrong = RIGHT[0].copy()
    wrong[3, 2] += by * np.abs(wrong).max()
    return [wrong, RIGHT[1]]


# ------------------------------------------------------------------------------------------------------------ the judge


def judged(dtype: str, got: list[np.ndarray], peer: list[np.ndarray] | None = None) -> str:
    from sweep.judge import judge_values

    return judge_values(dtype, got, RIGHT, peer).status


def test_float32_may_differ_by_a_ten_thousandth() -> None:
    assert judged("float32", RIGHT) == judged("float32", off(0.9e-4)) == "agrees"
    assert judged("float32", off(1.1e-4)) == "finding"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_infinities_and_nan_are_findings(value: float) -> None:
    wrong = [RIGHT[0].copy(), RIGHT[1]]
    wrong[0][0, 0] = value
    for dtype in ("float32", "float16", "bfloat16", "int8"):
        assert judged(dtype, wrong, off(0.5)) == "finding"


def test_other_shapes_counts_and_whole_numbers_are_findings() -> None:
    assert judged("float32", [RIGHT[0][:6], RIGHT[1]]) == "finding"
    assert judged("float32", RIGHT[:1]) == "finding"
    assert judged("float32", [RIGHT[0], (RIGHT[1] + (np.arange(7) == 2))]) == "finding"
    assert judged("float32", [RIGHT[0], RIGHT[1].astype(np.float32)]) == "finding"


def test_a_constant_output_is_a_finding() -> None:
    from sweep.judge import judge_values

    flat = [np.zeros((7, 5), np.float32)]
    assert judge_values("float32", flat, flat, None).status == "finding"


@pytest.mark.parametrize(("dtype", "factor", "floor"), [("float16", 1.5, 2.0**-10), ("bfloat16", 3.0, 2.0**-7)])
def test_a_narrow_dtype_is_compared_with_torchs_error(dtype: str, factor: float, floor: float) -> None:
    peer = off(0.02)
    assert judged(dtype, off(0.019 * factor), peer) == "agrees"
    assert judged(dtype, off(0.021 * factor), peer) == "finding"
    assert judged(dtype, off(0.9 * floor), RIGHT) == "agrees"
    assert judged(dtype, off(1.1 * floor), RIGHT) == "finding"


def test_int8_is_judged_by_its_cosine() -> None:
    assert judged("int8", off(0.1)) == "agrees"
    assert judged("int8", [-RIGHT[0], RIGHT[1]]) == "finding"
    assert judged("int8", [np.roll(RIGHT[0], 1), RIGHT[1]]) == "finding"


@pytest.mark.parametrize(
    ("at", "known", "reason", "status"),
    [
        ("dynamo/cpu int8", True, "it has no Conv with constant weights", "refused"),
        ("dynamo/cpu int8", True, "the model is too large", "finding"),
        ("torchscript/cpu float32", True, "it has no Conv with constant weights", "finding"),
        ("dynamo/cpu int8", False, "it has no Conv with constant weights", "finding"),
        ("dynamo/cpu int8", True, "it has no Conv\nwith constant weights", "finding"),
        ("torchscript/cpu int8", True, "int8 is refused: its cosine to float32 is 0.61", "refused"),
        ("torchscript/cpu float32", True, "int8 is refused: its cosine to float32 is 0.61", "finding"),
    ],
)
def test_a_refusal_must_give_the_reason_that_is_expected(at: str, known: bool, reason: str, status: str) -> None:
    from sweep.judge import judge_refusal

    assert judge_refusal(at, EXPECTED, known, "ModelError", reason).status == status


def test_an_answer_where_a_refusal_was_expected_is_a_finding() -> None:
    from sweep.judge import Verdict, missing_refusal

    assert missing_refusal("dynamo/cpu int8", EXPECTED, Verdict("agrees")).status == "finding"
    assert missing_refusal("dynamo/cpu float32", EXPECTED, Verdict("agrees")).status == "agrees"


# ----------------------------------------------------------------------------------------------- processes and results

WORKER = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    def tell(**message):
        print(json.dumps(message), flush=True)
    for name in ("first", "second", "third"):
        if name in asked["done"]:
            continue
        tell(start=name)
        if name == "second" and asked["row"] == "crashes":
            os.abort()
        if name == "second" and asked["row"] == "hangs":
            time.sleep(60)
        tell(outcome={"combination": name, "verdict": {"status": "agrees", "reason": ""}})
    tell(finished=asked["row"])
"""


@pytest.mark.parametrize(
    ("row", "reason"), [("runs", ""), ("crashes", "ended by signal 6"), ("hangs", "no answer within 2 s")]
)
def test_a_crash_or_a_hang_is_one_finding_and_the_rest_runs(row: str, reason: str, tmp_path: Path) -> None:
    from sweep.runner import Worker

    with Worker(tmp_path / "log", tmp_path, 2.0, [sys.executable, "-c", WORKER]) as worker:
        outcomes = worker.run(row)
        again = worker.run("runs")
    assert [one["combination"] for one in outcomes] == ["first", "second", "third"]
    assert [one["verdict"]["status"] for one in outcomes] == ["agrees", "finding" if reason else "agrees", "agrees"]
    assert reason in outcomes[1]["verdict"]["reason"]
    assert len(again) == 3


def outcome(row: str, combination: str, status: str, **verdict: Any) -> dict[str, Any]:
    found = {"status": status, "error": None, "peer": None, "reason": "", **verdict}
    return {"row": row, "combination": combination, "verdict": found, "half": "", "parameters": 0, "seconds": 1.0}


def test_finished_rows_are_kept_for_the_same_sources_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweep import results

    path = tmp_path / "sweep.json"
    first = results.Results(path)
    first.add("a", "text", [outcome("a", "dynamo/onnx float32", "finding", reason="error 1e-2")])
    assert json.loads(path.read_text(encoding="utf-8"))["schema_version"] == 1
    assert list(results.Results(path).rows) == ["a"]
    assert [one["row"] for one in results.Results(path).findings()] == ["a"]
    assert not results.Results(path, again=True).rows
    monkeypatch.setattr(results, "digest", lambda: "other")
    assert not results.Results(path).rows


def test_the_table_has_the_worst_of_each_dtype_and_every_reason_once(tmp_path: Path) -> None:
    from sweep.table import BEGIN, END, written

    outcomes = [
        outcome("a", "dynamo/export", "agrees"),
        outcome("a", "dynamo/onnx float32", "agrees", error=1e-7),
        outcome("a", "dynamo/sdaa float32 3 SPA", "agrees", error=3e-7),
        outcome("a", "dynamo/sdaa float16 3 SPA", "agrees", error=2e-3, peer=4e-3),
        outcome("a", "dynamo/cpu bfloat16", "finding", reason="error 1"),
        outcome("a", "dynamo/cpu int8", "refused", reason="/x/y/model.onnx: no Conv"),
        outcome("a", "torchscript/cpu int8", "refused", reason="/x/z/model.onnx: no Conv"),
    ]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    written(page, {"rows": {"a": {"family": "text", "outcomes": outcomes}}, "versions": {"torch": "2"}})
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "1 architectures, 7 combinations: 4 agree, 2 are refused for the reason that was expected, 1 are" in text
    refused = "cpu bfloat16: error 1; cpu int8: model.onnx: no Conv"
    assert f"| a | 0 | 3.0e-07 | 2.0e-03 | 0.50 | **finding** | refused | {refused} |" in text


def test_there_are_at_least_sixty_architectures_of_every_kind() -> None:
    from sweep.families import FAMILIES, all_rows

    rows = all_rows()
    assert len(rows) >= 60
    assert {family for family, _ in rows.values()} == set(FAMILIES)


# ----------------------------------------------------------------------------------------------- six of them, each time

SETTINGS = ("onnx float32", "sdaa float32 3 SPA", "sdaa float16 4 SPA", "cpu float32", "cpu bfloat16", "cpu int8")
SIX = {
    "espcn (pixel shuffle)": ("dynamo",),
    "torch encoder (padding mask)": ("torchscript",),
    "decoder, stacked cache": ("torchscript",),
    "gru (time first)": ("torchscript",),
    "dlrm": ("torchscript",),
    "diffusion u-net": ("torchscript",),
}
"""One per kind: images, masked text, a decoder with a cache, time first, recommendation, diffusion."""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", SIX)
def test_an_architecture_agrees_with_torch_or_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from sweep.families import row_named
    from sweep.work import SETTINGS as EVERY, run_row

    row = replace(row_named(name), exporters=SIX[name])
    left_out = [f"{exporter}/{one}" for exporter in SIX[name] for one in EVERY if str(one) not in SETTINGS]
    monkeypatch.setenv("MAX_ENGINE_NUMS", "4")
    found = [outcome for _, outcome in run_row(row, left_out) if outcome is not None]
    assert len(found) == 1 + len(SETTINGS)
    assert not [(one.combination, one.verdict) for one in found if one.verdict.status == "finding"]
