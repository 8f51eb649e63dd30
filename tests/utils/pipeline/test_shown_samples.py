"""Tests of ``--show`` of a valid script: the answers to some samples, computed in their batches of the evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError
from utils.datasets import ListDataset
from utils.metrics import MeanMetric
from utils.pipeline.flags.options import options
from utils.pipeline.valid import main as evaluated
from utils.tasks import Prepared, Rendering, Task


class Share(MeanMetric):
    """The share of right answers."""

    name = "share"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> np.ndarray:
        return np.asarray(predictions) == np.asarray(targets)


class Echo(Task):
    """A task whose input is the largest number of the batch, so that answers depend on the batch."""

    name, domain = "echo", "echoes"

    def load(self, paths: Any) -> ListDataset:
        return ListDataset([str(i) for i in range(10)], list(range(10)), names=[f"n{i}" for i in range(10)])

    def prepare(self, samples: Sequence[str]) -> Prepared:
        return Prepared([np.full((len(samples), 1), max(map(float, samples)), np.float32)])

    def decode(self, outputs: Any, contexts: Any) -> Any:
        return np.asarray(outputs)[:, 0].astype(int)

    def metric(self, dataset: Any) -> Share:
        return Share()

    def show(self, sample: str, prediction: Any) -> Rendering:
        save = partial(self._save, sample) if int(sample) % 2 else None
        return Rendering(f"largest {prediction}", int(prediction), save)

    def _save(self, sample: str, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / f"{sample}.txt").write_text(self.options.script)
        return folder / f"{sample}.txt"


@pytest.fixture(scope="module")
def copier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that gives back its input."""
    from onnx import parser, save

    file = tmp_path_factory.mktemp("model") / "copier.onnx"
    graph = "copier (float[batch,1] x) => (float[batch,1] y) { y = Identity(x) }"
    save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'), str(file))
    return file


def test_answers_are_those_of_the_evaluation(
    copier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, folder = tmp_path / "out.json", tmp_path / "drawn"
    words = ["--target", "onnx", "--workers", "0", "--show", "9", "1", "4", "--json", str(out), "--save", str(folder)]
    monkeypatch.setattr("sys.argv", ["valid", *words])
    assert evaluated("", Echo, ckpt=copier, batch_size=4) == 0
    answers = json.loads(out.read_text())["answers"]
    assert answers == [
        {"name": "n1", "answer": 3, "sample": "1", "text": "largest 3", "file": "1.txt"},
        {"name": "n4", "answer": 7, "sample": "4", "text": "largest 7", "file": None},
        {"name": "n9", "answer": 9, "sample": "9", "text": "largest 9", "file": "9.txt"},
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["1.txt", "9.txt"]
    printed = capsys.readouterr().out
    assert "n4  largest 7" in printed
    assert "eval_metric" not in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn", "out.json"]


def test_a_number_beyond_the_data(copier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["valid", "--target", "onnx", "--show", "10"])
    with pytest.raises(ConfigError, match="--show 10: the data set has 10 samples"):
        evaluated("", Echo, ckpt=copier)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--save", "drawn"], "--save drawn needs --show"),
        (["--show", "-1"], "--show -1 must be at least 0"),
        (["--show", "1", "--resume", "kept"], "--resume needs all samples"),
    ],
)
def test_flags_that_do_not_fit(copier: Path, argv: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        options("", Echo, "valid", argv, ckpt=copier)


def test_the_other_scripts_have_no_show(copier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("", Echo, "multi", ["--show", "1"], ckpt=copier)
    assert "--show" in capsys.readouterr().err
    assert options("", Echo, "multi", ["--save", "drawn"], ckpt=copier).show == []
