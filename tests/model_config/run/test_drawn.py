"""Tests of the predictions that differ, drawn with both answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("rich")

from stub_model import Stub, write_zoo

from model_config.cases.case import Command
from model_config.check import main
from model_config.results import Drawn, StepResult
from model_config.run.drawn import BASELINE, MOST, TARGET, draw
from model_config.run.foreign import Foreign
from utils.datasets.base import Batch
from utils.metrics import TopK, metric_to_json
from utils.pipeline.resume.records import record_writer, records_path

STEP = Command("valid", "example_valid.py", {"ckpt": "m.onnx", "target": "sdaa"})

ANSWERED = """\
    if opt.show:
        from PIL import Image

        opt.save.mkdir(parents=True)
        shown = []
        for index in opt.show:
            text = "wrong" if index in wrong else "right"
            Image.new("RGB", (20, 10), "red" if text == "wrong" else "green").save(opt.save / f"{index}.png")
            name = f"{answers['names']}{index}"
            shown.append({"name": name, "sample": None, "answer": text, "text": text, "file": f"{index}.png"})
        opt.json.write_text(json.dumps({"kind": "prediction", "answers": shown}))
        return
    count ="""


def evaluated(folder: Path, name: str, right: np.ndarray, own: tuple[str, ...] = ()) -> StepResult:
    """Return a valid step with JSON and records."""
    result, metric = folder / f"{name}.json", TopK()
    names = [f"{i}.png" for i in range(len(right))]
    with record_writer(records_path(result, metric), metric) as writer:
        writer.write(Batch(names, None, names), right)
    written = records_path(result, metric).name
    result.write_text(json.dumps({"metric_definition": metric_to_json(metric), "records": written}))
    command = ("python", "example_valid.py", *STEP.arguments, *own, "--json", str(result))
    logs = folder / f"{name}.stdout", folder / f"{name}.stderr"
    return StepResult("case", name, command, True, 1.0, 0, "", *logs, result=result)


class Runs:
    """Runs of the valid script, with what each was given."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        self.folder, self.changed = folder, changed
        self.given: dict[str, list[str]] = {}

    def __call__(self, step: Command, name: str, extra: Sequence[str]) -> StepResult:
        self.given[name] = list(extra)
        numbers = extra[extra.index("--show") + 1 : extra.index("--save")]
        answers = [{"name": f"{i}.png", "sample": None, "text": f"{name} {i}", "file": f"{i}.png"} for i in numbers]
        images = [self.folder / f"{name}.images" / f"{i}.png" for i in numbers]
        for image in images:
            image.parent.mkdir(exist_ok=True)
            Image.new("RGB", (4, 4)).save(image)
        result = self.folder / f"{name}.json"
        result.write_text(json.dumps({"answers": self.changed.get("answers", answers)}))
        reason = self.changed.get("reason", "")
        logs = self.folder / "out", self.folder / "err"
        return StepResult(
            "case", name, (), not reason, 1.0, 0, reason, *logs, result=result, images=tuple(images)
        )  # fmt: skip


@pytest.fixture
def both(tmp_path: Path) -> tuple[StepResult, StepResult]:
    right = np.ones(20, bool)
    worse = right.copy()
    worse[[3, 11]] = False
    own = ("--target", "onnx", "--dtype", "float32", "--ckpt", "b.onnx")
    return evaluated(tmp_path, "valid", worse), evaluated(tmp_path, "baseline", right, own)


def test_both_answers_of_the_samples_that_differ(tmp_path: Path, both: tuple[StepResult, StepResult]) -> None:
    run = Runs(tmp_path)
    found, trouble = draw(STEP, *both, run, Foreign(tmp_path))
    assert trouble == ""
    assert found == tuple(
        Drawn(
            f"{i}.png",
            "",
            f"{TARGET} {i}",
            f"{BASELINE} {i}",
            tmp_path / f"{TARGET}.images/{i}.png",
            tmp_path / f"{BASELINE}.images/{i}.png",
        )
        for i in (3, 11)
    )
    assert [run.given[name][-7:-4] for name in (TARGET, BASELINE)] == [["--show", "3", "11"]] * 2
    assert "--target" not in run.given[TARGET]
    assert run.given[BASELINE][:6] == ["--target", "onnx", "--dtype", "float32", "--ckpt", "b.onnx"]


def test_equal_runs_are_not_run_again(tmp_path: Path, both: tuple[StepResult, StepResult]) -> None:
    run = Runs(tmp_path)
    assert draw(STEP, both[0], both[0], run, Foreign(tmp_path)) == ((), "")
    assert run.given == {}


def test_no_more_than_the_most(tmp_path: Path) -> None:
    steps = [evaluated(tmp_path, name, np.full(50, name == "a")) for name in ("a", "b")]
    found, _ = draw(STEP, *steps, Runs(tmp_path), Foreign(tmp_path))
    assert len(found) == MOST


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"answers": [], "reason": "exit code 2: no --show"}, "differing: exit code 2: no --show"),
        ({"answers": "all"}, "the script wrote no answers for --show"),
        ({"answers": [5]}, "an answer has no name"),
        ({"answers": [{"name": "3.png"}]}, "an answer has no name, sample, text or file"),
    ],
)
def test_a_failure_is_one_line(
    tmp_path: Path, both: tuple[StepResult, StepResult], changed: dict[str, Any], said: str
) -> None:
    found, trouble = draw(STEP, *both, Runs(tmp_path, **changed), Foreign(tmp_path))
    assert found == ()
    assert trouble.startswith("the predictions that differ are not drawn: ")
    assert said in trouble
    assert "\n" not in trouble


def test_files_outside_the_folder_are_not_taken(tmp_path: Path, both: tuple[StepResult, StepResult]) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    one = {"name": "3.png", "sample": "s", "text": "t", "file": str(tmp_path / "secret.png")}
    found, _ = draw(STEP, *both, Runs(tmp_path, answers=[one]), Foreign(tmp_path))
    assert found == (Drawn("3.png", "s", "t", "t"),)


def shows(stub: Stub) -> None:
    """Let a model get two samples wrong on the target, whose answers its script can show."""
    differs(stub)
    json_flag = '    parser.add_argument("--json", type=Path)\n'
    more = '    parser.add_argument("--show", type=int, nargs="+")\n    parser.add_argument("--save", type=Path)\n'
    stub.script("example_valid.py", json_flag, json_flag + more)
    stub.script("example_valid.py", "    count =", ANSWERED)


def differs(stub: Stub) -> None:
    """Let a model get two samples wrong on the target; its script has no ``--show``."""
    stub.answers["wrong"]["sdaa"] = [1, 2, 3, 70, 71]


@pytest.mark.slow
def test_the_page_of_a_check_has_both_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    root, out, page = tmp_path / "zoo", tmp_path / "out.json", tmp_path / "out.html"
    root.mkdir()
    write_zoo(root, {"shows": shows, "differs": differs})

    def checked(*words: str) -> list[dict[str, Any]]:
        work = str(tmp_path / "work")
        assert main(["--json", str(out), "--work_dir", work, "--no_host_speed", *words], root=root) == 0
        found: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["cases"]
        return found

    drawn, failed = checked("--html", str(page))
    names = [(one["name"], one["target"], one["baseline"]) for one in drawn["drawn"]]
    assert names == [("n70", "wrong", "right"), ("n71", "wrong", "right")]
    assert drawn["notes"] == []
    assert page.read_text(encoding="utf-8").count("data:image/webp") == 4
    assert failed["verdict"] == "PASS"
    assert failed["drawn"] == []
    assert [note for note in failed["notes"] if "are not drawn: differing: exit code 2" in note] == failed["notes"]
    assert len(failed["notes"]) == 1
    cached = checked("--html", str(page))[0]
    assert cached["cached"]
    assert page.read_text(encoding="utf-8").count("data:image/webp") == 4
    assert [case["drawn"] for case in checked("--no_cache")] == [[], []]
