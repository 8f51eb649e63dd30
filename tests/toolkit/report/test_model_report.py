"""``teco report``: one page about a model, its JSON and its text."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import DIGITS, ROOT

from engine import ConfigError
from model_config.cases.config import read_cases
from toolkit.cli import execute
from toolkit.report import cli as command, report_of
from toolkit.report.evaluation import Run, _closing
from toolkit.report.model import SCHEMA_VERSION
from toolkit.report.sections import accuracy


class Reader(HTMLParser):
    """Collects ids, links to anchors, tags that load something, and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.anchors: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        link = given.get("href") or ""
        self.anchors += [link[1:]] if link.startswith("#") else []
        self.loads += [str(given.get(key)) for key in ("src",) if key in given]
        self.loads += [link] if link and not link.startswith("#") else []

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the page and the data of a report on digits, of 128 samples on three targets."""
    out = tmp_path_factory.mktemp("report")
    words = ["report", "digits", "--out", str(out), "--samples", "128", "--target", "sdaa", "--target", "cpu"]
    assert execute(words) == 0
    return out / "digits_report.html", json.loads((out / "digits_report.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_sections_and_figures(digits: tuple[Path, dict[str, Any]]) -> None:
    found = digits[1]
    assert found["schema_version"] == SCHEMA_VERSION
    keys = ["accuracy", "speed", "card", "operators", "overflow", "layers_sdaa", "layers_onnx", "files"]
    assert list(found["sections"]) == keys
    assert [run["target"] for run in found["runs"]] == ["onnx", "sdaa", "cpu"]
    rows = {row["target"]: row for row in found["sections"]["accuracy"]["rows"]}
    assert rows["onnx"]["verdict"] == "baseline"
    assert rows["sdaa"]["verdict"] == rows["cpu"]["verdict"] == "PASS"
    assert rows["sdaa"]["dtype"] == "float16"
    assert {row["samples"] for row in rows.values()} == {128}
    assert 0.9 < rows["sdaa"]["value"] <= 1
    assert all(row["sps"] > 0 for row in found["sections"]["speed"]["rows"])
    assert [row["batch"] for row in found["sections"]["card"]["rows"]] == [1, 16, 64]
    assert {row["op"] for row in found["sections"]["operators"]["rows"]} >= {"Conv", "Gemm"}
    assert all(row["sdaa"] in ("stated", "simulated") for row in found["sections"]["operators"]["rows"])
    assert found["sections"]["overflow"]["rows"]
    assert found["sections"]["layers_sdaa"]["rows"][0]["seconds"] > 0
    names = {row["file"] for row in found["sections"]["files"]["rows"]}
    assert names == {"digits_float16_dyn.onnx", "digits_dyn.onnx"}
    assert found["source"]["case"] == "digits"


@pytest.mark.slow
def test_partial_runs_and_simulated_figures_are_labelled(digits: tuple[Path, dict[str, Any]]) -> None:
    sections = digits[1]["sections"]
    assert any("only the first 128 samples" in note for note in sections["accuracy"]["notes"])
    assert "simulated" in sections["card"]["lead"]
    assert "simulated" in sections["layers_sdaa"]["lead"]
    assert "measured" in sections["layers_onnx"]["lead"]
    by_target = {row["target"]: row["what"] for row in sections["speed"]["rows"]}
    assert "simulates" in by_target["sdaa"]
    assert by_target["cpu"] == "this host"
    assert any("cpu reports no times of layers" in note for note in sections["layers_onnx"]["notes"])


@pytest.mark.slow
def test_the_page_is_one_file_with_all_sections(digits: tuple[Path, dict[str, Any]]) -> None:
    page, found = digits
    reader = read(page)
    assert reader.loads == []
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.anchors) <= set(reader.ids)
    text = " ".join(" ".join(reader.text).split())
    for section in found["sections"].values():
        assert section["title"] in text
    assert "Content-Security-Policy" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_file_has_no_accuracy(tmp_path: Path) -> None:
    files = report_of(DIGITS / "digits_dyn.onnx", tmp_path, targets=["sdaa"])
    found = json.loads(files.json.read_text(encoding="utf-8"))
    assert files.html.name == "digits_dyn_report.html"
    assert "accuracy" not in found["sections"]
    assert found["runs"] == []
    assert "accuracy is not known" in found["lead"]
    assert {"card", "operators", "overflow", "layers_sdaa"} <= set(found["sections"])


def write_zoo(root: Path, *scripts: str) -> None:
    """Write a repository of one model, with this valid script."""
    folder = root / "example" / "things" / "net"
    folder.mkdir(parents=True)
    shutil.copy(DIGITS / "digits_dyn.onnx", folder / "net.onnx")
    (folder / "valid.py").write_text("\n".join(scripts) + "\n", encoding="utf-8")
    (folder / "README.md").write_text("# <b>Net</b>\n\n## 1. A\n\nA <script>alert(1)</script> network.\n", "utf-8")
    params = {"ckpt": "net.onnx", "batch_size": 4, "data_path": "data", "target": "sdaa", "dtype": "float16"}
    step = {"run_file": "valid.py", "params": params}
    case: dict[str, Any] = {"case_name": "net", "run_dir": "TecoInference/example/things/net"}
    (folder / "export_onnx.py").write_text("", encoding="utf-8")
    case["run_export"] = {"run_file": "export_onnx.py"}
    case |= {f"run_example_{name}": step for name in ("valid", "single", "multi")}
    (root / "model_config").mkdir()
    (root / "model_config" / "model.yaml").write_text(yaml.safe_dump([case]), encoding="utf-8")


SUMMARY = (
    "summary: avg_sps: 9.5, e2e_time: 1.5, avg_inference_time: 1e-05, avg_preprocess_time: 0.1, avg_postprocess: 0"
)


@pytest.mark.slow
def test_targets_that_fail_have_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zoo(
        tmp_path,
        "import sys",
        "if '--json' in sys.argv: sys.exit('valid.py: error: unrecognized arguments: --json x')",
        "if 'cpu' in sys.argv: sys.exit('error: the processor is too hot')",
        "print('eval_metric', 0.5 if 'sdaa' in sys.argv else 0.75)",
        f"print({SUMMARY!r})",
    )
    words = ["net", "--out", str(tmp_path / "out"), "--target", "sdaa", "--target", "cpu"]
    assert command.main(words, tmp_path) == 1  # beyond the tolerance on sdaa
    printed = capsys.readouterr().out
    assert "the processor is too hot" in printed
    found = json.loads((tmp_path / "out" / "net_report.json").read_text(encoding="utf-8"))
    rows = {row["target"]: row for row in found["sections"]["accuracy"]["rows"]}
    assert (rows["onnx"]["value"], rows["sdaa"]["value"], rows["cpu"]["value"]) == (0.75, 0.5, None)
    assert rows["sdaa"]["verdict"] == "FAIL"
    assert "too hot" in rows["cpu"]["note"]
    assert found["sections"]["speed"]["rows"][0]["sps"] == 9.5
    page = (tmp_path / "out" / "net_report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "A &lt;script&gt;alert(1)&lt;/script&gt; network." in page


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    write_zoo(tmp_path, "import time", "time.sleep(600)")
    (case,) = read_cases([tmp_path / "model_config" / "model.yaml"], tmp_path)[0]
    files = report_of(case, tmp_path / "out", root=tmp_path, targets=["onnx"], timeout=0.5)
    found = json.loads(files.json.read_text(encoding="utf-8"))
    assert "stopped after 0.5 s" in found["sections"]["accuracy"]["rows"][0]["note"]
    assert found["sections"]["speed"]["rows"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing_like_it"], "unknown model 'nothing_like_it'"),
        (["nothing.onnx"], "nothing.onnx does not exist"),
        (["digits", "--target", "moon"], "target 'moon' is not available here"),
        (["digits", "--samples", "0"], "not a whole number"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        command.main([*words, "--out", str(tmp_path)], ROOT)
    assert list(tmp_path.iterdir()) == []


def test_a_case_with_a_problem_is_one_line(tmp_path: Path) -> None:
    write_zoo(tmp_path, "print(1)")
    config = tmp_path / "model_config" / "model.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("run_example_multi", "run_example_many"), "utf-8")
    with pytest.raises(ConfigError, match="run_example_many"):
        report_of("net", tmp_path / "out", root=tmp_path)


def test_figures_of_the_closing_lines() -> None:
    assert _closing("") == {}
    found = _closing(f"eval_metric 0.1\n...\neval_metric 0.25\n{SUMMARY}\n")
    assert (found["metric"], found["avg_sps"], found["avg_inference_time"]) == (0.25, 9.5, 1e-5)


def test_a_baseline_without_a_metric_is_said() -> None:
    made = accuracy([Run("onnx", "float32", {}, "no data"), Run("sdaa", "float16", {"metric": 1.0})])
    assert "the baseline has no metric: no data" in made.lead
    assert made.bad == {0}
