"""OpenVINO on ONNX's node tests: the table is up to date, and target cpu agrees with target onnx."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from favoured_openvino import favour_openvino

from engine import EngineSpec, TecoInferError, open_engine
from engine.backends import trial
from tests.engine import openvino_operators as operators

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason='OpenVINO is not installed; install ".[openvino]"'
)
TABLE = json.loads(operators.TABLE.read_text(encoding="utf-8"))
WORDS = ("equal", "narrowed", "other values", "refused")
PARTS, ENOUGH = 8, 150
"""In how many parts the node tests are run, and how many runs in one type must at least be compared in each."""


def test_the_table_is_complete() -> None:
    """As far as can be said without running all: the known operators are there, with words that have a meaning."""
    rows = TABLE["operators"]
    for op, row in rows.items():
        for kind, word in row.items():
            assert word in WORDS or word.startswith("equal below 2**"), (op, kind)
    for op in ("Add", "Mul", "Div", "Mod", "Sub"):
        assert rows[op]["double"] == "narrowed"
        assert {"int64", "uint64", "int32", "uint32", "int8", "uint8"} <= rows[op].keys()
    assert rows["Mod"]["int64"].startswith("equal below")
    assert {"Relu", "Clip", "Max", "Min", "MaxPool", "ReduceMax"} <= set(TABLE["loses_nan"])


@pytest.mark.slow
@pytest.mark.long
def test_the_table_is_up_to_date() -> None:
    found = operators.table_of(operators.all_runs())
    if found["versions"] != TABLE["versions"]:
        pytest.skip("the table was made with other versions")
    assert json.loads(operators.text_of(found)) == TABLE


@pytest.fixture
def openvino_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    favour_openvino(monkeypatch, tmp_path / "cache")


def calls(case: dict[str, Any], kind: str, rng: np.random.Generator) -> Iterator[list[Any]]:
    """Yield inputs of a case in a type: its own, some with NaN, and whole numbers of every size that wrap or not."""
    made = operators.retyped(case["model"], kind)
    data = [] if made is None else made[1]
    dtype = operators.helper.tensor_dtype_to_np_dtype(operators.number_of(kind))
    own = [one.astype(dtype) if i in data else one for i, one in enumerate(case["inputs"])]
    yield own
    if kind in operators.FLOATS:
        for place in data:
            spoiled = [one.copy() for one in own]
            spoiled[place].reshape(-1)[::2] = np.nan
            yield spoiled
        yield [one + one * 1e-9 if i in data else one for i, one in enumerate(own)]
    if kind in operators.WHOLE and case["op"] not in operators.ENORMOUS:
        for bits in (3, 7, 15, 30, 40, 62):
            yield [
                operators.drawn(rng, kind, bits, one, case["op"], data.index(i)) if i in data else one
                for i, one in enumerate(case["inputs"])
            ]


QUANTISING = ("QuantizeLinear", "DynamicQuantizeLinear")
"""Operators whose whole outputs stand for rounded real numbers: halves may be rounded to either side."""


def disagreement(op: str, got: Sequence[Any], want: Sequence[Any], kind: str) -> str:
    """Return how outputs differ, or ""."""
    for place, (one, other) in enumerate(zip(got, want, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {place} is {one.dtype}{one.shape}, not {other.dtype}{other.shape}"
    if op in QUANTISING:
        pairs = zip(got, want, strict=True)
        steps = [
            one.dtype.kind in "iu" and np.abs(one.astype(int) - other.astype(int)).max() <= 1 for one, other in pairs
        ]
        got = [other if step else one for one, other, step in zip(got, want, steps, strict=True)]
    digits = 1e-9 if kind == "double" else 1e-2 if kind == "float16" else trial.TOLERANCE
    return "" if operators.near(got, want, digits) else f"outputs differ: {got} {want}"[:300]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_every_node_test_gives_the_same_on_cpu(part: int, openvino_wins: None, tmp_path: Path) -> None:
    """In its own type, and in all others that its operator takes: what is computed by OpenVINO is what onnx gives."""
    cases = operators.cases_of()
    file, wrong, compared = tmp_path / "model.onnx", {}, 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for index, kind in operators.jobs_of(cases)[part::PARTS]:
            case = cases[index]
            rng = np.random.default_rng(operators.seed_of(case, kind))
            made = operators.retyped(case["model"], kind)
            file.write_bytes((case["model"] if made is None else made[0]).SerializeToString())
            try:
                with open_engine("onnx", EngineSpec(file)) as exact, open_engine("cpu", EngineSpec(file)) as engine:
                    for inputs in calls(case, kind, rng):
                        try:
                            want = exact(inputs)
                        except TecoInferError:
                            continue
                        got = engine(inputs)
                        pair = [one if isinstance(one, list) else [one] for one in (got, want)]
                        if why := disagreement(case["op"], pair[0], pair[1], kind):
                            wrong[f"{case['name']} {kind}"] = f"{engine.describe()}: {why}"
                            break
                compared += 1
            except TecoInferError:
                continue  # ONNX Runtime has no kernel for it, or a type that numpy has not
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in sorted(wrong.items()))
    assert compared >= ENOUGH
