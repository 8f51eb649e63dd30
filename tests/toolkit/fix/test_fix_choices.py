"""``teco fix --golden`` and ``--reference`` on a detector: mistakes are found, random improvements are not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT

from toolkit.cli import execute


@pytest.fixture(scope="module")
def mistakes() -> Iterator[Any]:
    pytest.importorskip("psutil")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "tools"))
        import detector_mistakes

        yield detector_mistakes


@pytest.fixture(scope="module")
def source(mistakes: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("squares")
    model, data = mistakes.squares(folder)
    return mistakes.Source(model, data, folder)


def run_fix(source: Any, path: Path, *goal: str) -> tuple[int, dict[str, Any]]:
    file = source.folder / "result.json"
    code = execute(["fix", str(path), "--data", str(source.data), "--task", "detection", *goal, "--json", str(file)])
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return code, found


@pytest.mark.slow
def test_correct_detector_needs_no_change(source: Any) -> None:
    golden, reference = source.golden({})
    for goal in (["--golden", str(golden)], ["--reference", f"{reference:.6f}"]):
        code, found = run_fix(source, source.model, *goal)
        assert code == 0
        assert found["found"] == {}
        assert found["explained"]


@pytest.mark.slow
@pytest.mark.parametrize("names", [["centre and size"], ["shares of the input", "background first"]], ids="+".join)
def test_mistakes_are_found(mistakes: Any, source: Any, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    golden, _ = source.golden({})
    path = source.exported([mistakes.MISTAKES[name] for name in names])
    right = {key: value for name in names for key, value in mistakes.MISTAKES[name].right.items()}
    code, found = run_fix(source, path, "--golden", str(golden))
    assert code == 0
    assert found["found"] == right
    assert found["store"] == {"detection": right}
    assert found["before"] < 0.5
    assert found["after"] == pytest.approx(1.0, abs=1e-3)
    assert found["metrics"]["mAP after"] == pytest.approx(mistakes_free(source), abs=1e-3)
    printed = capsys.readouterr().out
    assert f"this explains it: {found['flags']}" in printed
    assert all(f"--{key} {value}" in found["flags"] for key, value in right.items())


def mistakes_free(source: Any) -> float:
    return float(source.golden({})[1])


@pytest.mark.long
@pytest.mark.slow
def test_single_and_paired_mistakes(mistakes: Any, source: Any) -> None:
    """Mistakes of the benchmark that other tests do not cover, with few pairs."""
    alone = ["two sigmoids", "0 to 255", "stretched"]
    pairs = [("corner and size", "shares of the input")]
    rows = [row for row in mistakes.measured(source, alone, pairs) if row is not None]
    assert len(rows) == 7  # golden and the metric for what is healthy and for 0 to 255
    assert [row for row in rows if not row.found] == []


def test_metric_is_enough(mistakes: Any, source: Any) -> None:
    _, reference = source.golden({})
    path = source.exported([mistakes.MISTAKES["BGR"]])
    code, found = run_fix(source, path, "--reference", f"{reference:.6f}")
    assert (code, found["found"]) == (0, {"channel_order": "BGR"})
    assert found["equal"] == {}


@pytest.mark.long
@pytest.mark.slow
def test_unexplained_reference_is_reported(source: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A reference that no setting reaches: nothing is found, and the exit code is 1."""
    code, found = run_fix(source, source.model, "--reference", "0.999")
    assert code == 1
    assert found["found"] == {}
    assert not found["explained"]
    assert "no setting explains it" in capsys.readouterr().out


def test_source_inputs_determine_preparation(mistakes: Any, source: Any, tmp_path: Path) -> None:
    arrays = prepared(source, {"resize": "stretch", "pixel_values": "0..255"})
    np.savez(tmp_path / "inputs.npz", input=arrays)
    code, found = run_fix(source, source.model, "--golden", str(tmp_path / "inputs.npz"))
    assert (code, found["found"]) == (0, {"resize": "stretch", "pixel_values": "0..255"})


def prepared(source: Any, flags: Mapping[str, Any]) -> np.ndarray:
    import onnx

    from toolkit.fix.opening import SampleRequest, open_samples
    from toolkit.fix.task_request import TaskRequest
    from utils.tasks.detection.task import Detection

    words = [word for key, value in flags.items() for word in (f"--{key}", value)]
    wanted = SampleRequest([str(source.data)], 16, None, asked=TaskRequest(Detection, words))
    with open_samples(source.model, onnx.load(source.model), wanted) as samples:
        return np.concatenate([part.inputs[0] for part in samples])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.json", None, "cannot be read"),
        ("cut.json", '[{"image_id": 1', "is not JSON"),
        ("foreign.json", '[{"image_id": "x", "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1}]', r"foreign.*x"),
    ],
)
def test_bad_golden_files_are_one_line(
    source: Any, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    from engine import DataError

    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        run_fix(source, source.model, "--golden", str(tmp_path / name))


def test_too_few_samples(source: Any) -> None:
    from engine import DataError

    with pytest.raises(DataError, match="samples are too few"):
        run_fix(source, source.model, "--reference", "0.99", "--samples", "6")
