"""Every stated verdict, computed again from the two metrics by the specification's rule.

The rule: the metric on the target is within 0.1 % of ONNX Runtime's (relative), and within 1 % of the source
framework's, unless the case has other tolerances. The verdicts are those of the stored scorecards, and of the JSON of
checks that run here. Nothing of ``model_config.judge`` is used.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("rich")

from stub_model import Stub, write_zoo
from support import ROOT

from model_config.check import main

TARGET, SOURCE = 0.001, 0.01
"""The tolerances of the specification."""

ONNX = "onnx float32"


def by_hand(metric: float, reference: float, tolerance: float) -> str:
    if metric == reference:
        return "PASS"
    return "PASS" if reference and abs(metric - reference) <= tolerance * abs(reference) else "FAIL"


def cases() -> dict[str, dict[str, Any]]:
    files = [ROOT / "model_config" / name for name in ("model.yaml", "full.yaml")]
    files.append(ROOT / "contrib/model_config/model.yaml")
    found = [case for file in files if file.is_file() for case in yaml.safe_load(file.read_text()) or ()]
    return {case["case_name"]: case.get("accuracy") or {} for case in found}


def scorecards() -> list[Path]:
    found = [*ROOT.glob("example/*/*/numerics.yaml"), *ROOT.glob("contrib/example/*/*/numerics.yaml")]
    return sorted(found)


def comparisons(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["metrics"]:
        for against in entry.get("against", ()):
            yield entry, against


def name_of(file: Path) -> str:
    return file.parent.relative_to(ROOT).as_posix()


def test_there_are_scorecards() -> None:
    assert len(scorecards()) >= 20


@pytest.mark.parametrize("file", scorecards(), ids=name_of)
def test_the_verdicts_of_a_scorecard(file: Path) -> None:
    found = list(comparisons(file))
    rules = cases()
    for entry, against in found:
        rule, reference = rules[entry["case"]], against["reference"]
        wanted = rule.get("tolerance", TARGET) if reference == ONNX else rule.get("reference_tolerance", SOURCE)
        assert against.get("tolerance", wanted) == wanted, entry["case"]
        value, other = entry["value"], against["value"]
        where = f"{entry['case']} against {reference}: {value} and {other}"
        if rule.get("gate") != "strict" or reference != ONNX:
            assert against["verdict"] == by_hand(value, other, wanted), where
        assert math.isclose(against["relative_difference"], (value - other) / abs(other), abs_tol=1e-9), where


@pytest.mark.parametrize("file", scorecards(), ids=name_of)
def test_the_references_of_a_scorecard(file: Path) -> None:
    """The references are the stored metric of the baseline, and the figure in the case."""
    metrics = yaml.safe_load(file.read_text(encoding="utf-8"))["metrics"]
    rules = cases()
    baselines = {entry["case"]: entry["value"] for entry in metrics if entry["target"] == "onnx"}
    for entry, against in comparisons(file):
        rule = rules[entry["case"]]
        if against["reference"] == ONNX:
            assert against["value"] == baselines.get(entry["case"], against["value"])
        elif "reference" in rule:
            assert (against["reference"], against["value"]) == (rule["reference_source"], rule["reference"])


def check_by_hand(found: dict[str, Any], exit_code: int) -> list[str]:
    """Compare all verdicts of the JSON of a check with those by hand, and return the cases' verdicts."""
    verdicts = []
    for case in found["cases"]:
        judged = [by_hand(one["metric"], one["reference"], one["tolerance"]) for one in case["accuracy"]]
        assert [one["verdict"] for one in case["accuracy"]] == judged, case["case"]
        assert case["parts"]["accuracy"] == ("FAIL" if "FAIL" in judged else "PASS")
        broken = bool(case["findings"]) or not all(step["passed"] for step in case["steps"])
        broken |= any(one["verdict"] == "FAIL" for one in case["speed"])
        verdicts.append("FAIL" if broken or "FAIL" in judged else "PASS")
        assert case["verdict"] == verdicts[-1], case["reasons"]
    assert found["verdict"] == ("FAIL" if "FAIL" in verdicts else "PASS")
    assert exit_code == (1 if "FAIL" in verdicts else 0)
    return verdicts


def share_right(result: Path) -> float:
    """Return the mean of the records of a step, which is top-1."""
    with result.with_name(f"{result.stem}.samples.csv").open(newline="", encoding="utf-8") as file:
        values = [float(row["top1"]) for row in csv.DictReader(file)]
    return sum(values) / len(values)


STUBS: dict[str, tuple[int, int, float | None, str]] = {
    # wrong answers on the target, wrong answers of the baseline, figure of the source framework, verdict
    "equal": (300, 300, None, "PASS"),
    "within": (305, 300, None, "PASS"),
    "beyond": (306, 300, None, "FAIL"),
    "better": (294, 300, None, "FAIL"),
    "near_the_source": (300, 300, 0.9595, "PASS"),
    "far_of_the_source": (300, 300, 0.9597, "FAIL"),
    "far_of_both": (310, 300, 0.99, "FAIL"),
}


@pytest.mark.slow
def test_the_verdicts_of_a_check_of_stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stubs have 6000 samples and 5700 right ones in the baseline: 5.7 samples are 0.1 %."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))

    def changed(wrong: tuple[int, int, float | None, str]) -> Any:
        def change(stub: Stub) -> None:
            stub.answers["wrong"].update(sdaa=list(range(wrong[0])), onnx=list(range(wrong[1])))
            if wrong[2] is not None:
                stub.case["accuracy"] = {"reference": wrong[2], "reference_source": "the paper"}

        return change

    (tmp_path / "zoo").mkdir()
    write_zoo(tmp_path / "zoo", {name: changed(wrong) for name, wrong in STUBS.items()})
    out = tmp_path / "out.json"
    code = main(["--json", str(out), "--work-dir", str(tmp_path / "work")], root=tmp_path / "zoo")
    found = json.loads(out.read_text(encoding="utf-8"))
    assert check_by_hand(found, code) == [verdict for *_, verdict in STUBS.values()]
    for case, (target, baseline, *_) in zip(found["cases"], STUBS.values(), strict=True):
        logs = tmp_path / "work/logs" / case["case"]
        assert case["accuracy"][0]["metric"] == pytest.approx(share_right(logs / "valid.json"))
        assert share_right(logs / "valid.json") == pytest.approx(1 - target / 6000)
        assert share_right(logs / "baseline.json") == pytest.approx(1 - baseline / 6000)


@pytest.mark.slow
@pytest.mark.long  # half a minute of CPU: .ci/walk checks these models, and the stubs above have the other verdict
def test_the_verdicts_of_a_check_of_the_zoo(tmp_path: Path) -> None:
    """The digits, once more with a wrong figure of the source framework, and the graph's nodes."""
    pytest.importorskip("torch")
    listed = yaml.safe_load((ROOT / "model_config/model.yaml").read_text(encoding="utf-8"))
    digits, nodes = (next(case for case in listed if case["case_name"] == name) for name in ("digits", "digits_gcn"))
    other = {**digits, "case_name": "digits_far", "accuracy": {**digits["accuracy"], "reference": 0.98}}
    config, out = tmp_path / "cases.yaml", tmp_path / "out.json"
    config.write_text(yaml.safe_dump([digits, other, nodes], sort_keys=False), encoding="utf-8")
    words = ["--config", str(config), "--json", str(out), "--work-dir", str(tmp_path / "work")]
    code = main([*words, "--no_cache", "--no_host_speed"])
    found = json.loads(out.read_text(encoding="utf-8"))
    assert check_by_hand(found, code) == ["PASS", "FAIL", "PASS"]
    for case in found["cases"][:2]:
        logs = tmp_path / "work/logs" / case["case"]
        (ours, source) = case["accuracy"]
        assert [ours["metric"], ours["reference"]] == [
            share_right(logs / f"{name}.json") for name in ("valid", "baseline")
        ]
        assert source["metric"] == ours["metric"]
