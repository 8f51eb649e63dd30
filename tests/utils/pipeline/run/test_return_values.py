"""What a task's functions return is of the kind that the contract asks for, or one line says what it is."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import made

from engine import ConfigError, TensorSpec
from utils.datasets import ListDataset
from utils.metrics import MeanMetric
from utils.pipeline.answers import main as answered
from utils.pipeline.flags.options import options
from utils.pipeline.run.function_task import FunctionTask
from utils.pipeline.run.pipeline import Failure, Pipeline, Preprocessor, measure, nothing_evaluated, returned
from utils.pipeline.valid import main as evaluated
from utils.tasks import Artifact, Flag, Model, Prepared, Task


class Share(MeanMetric):
    """The share of answers that are right."""

    name = "share"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> np.ndarray:
        return np.asarray(predictions) == np.asarray(targets)


class Nameless(Share):
    """A metric whose author forgot its name."""

    name = None  # type: ignore[assignment]


def load(paths: Mapping[str, Path], opt: argparse.Namespace) -> ListDataset:
    return ListDataset([0.0, 1.0, 2.0], [0, 1, 2])


def prepare(samples: Any, model: Model, opt: argparse.Namespace) -> Prepared:
    return Prepared([np.array(samples, np.float32)[:, None]])


def wrong(*_: object, value: object = None) -> Any:
    """Return what no contract asks for."""
    return value


def task(**changed: Any) -> Task:
    parts: dict[str, Any] = {
        "load": load,
        "prepare": prepare,
        "decode": lambda outputs, contexts, model, opt: np.asarray(outputs)[:, 0].astype(int),
        "metric": lambda opt, dataset, model: Share(),
        "show": lambda sample, prediction, model, opt: Artifact(str(prediction), prediction),
    }
    return Task(name="echo", domain="echoes", **{**parts, **changed})


@pytest.fixture(scope="module")
def copier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that gives back its input."""
    from onnx import parser, save

    file = tmp_path_factory.mktemp("model") / "copier.onnx"
    graph = "copier (float[batch,1] x) => (float[batch,1] y) { y = Identity(x) }"
    save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'), str(file))
    return file


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("load", [0.0], "load_it of here returned a value of type list; let it return a Dataset"),
        ("prepare", np.ones((3, 1), np.float32), "returned a value of type ndarray; let it return a Prepared"),
        ("prepare", Prepared(np.ones((3, 1), np.float32)), "returned Prepared with an array of shape (3, 1); let it"),
        (
            "prepare",
            Prepared([np.ones((3, 1))], [1, 2]),
            "2 contexts for 3 samples; let it return one for each",
        ),
        ("decode", None, "returned nothing; let it return a list or an array with one prediction for each sample"),
        ("metric", Share, "returned the class Share itself; let it return a Metric"),
        ("metric", None, "returned nothing; let it return a Metric"),
        ("metric", Nameless(), "metric Nameless has no name; add a line such as name = 'nameless' to its class"),
    ],
)
def test_wrong_return_types_give_one_line(
    copier: Path, monkeypatch: pytest.MonkeyPatch, part: str, value: object, said: str
) -> None:
    function = partial(wrong, value=value)
    if part == "load":

        def load_it(paths: object, opt: object) -> Any:
            return value

        load_it.__qualname__, load_it.__module__ = "load_it", "here"
        function = load_it  # type: ignore[assignment]
    monkeypatch.setattr("sys.argv", ["valid", "--target", "onnx", "--workers", "0"])
    with pytest.raises(ConfigError) as caught:
        evaluated("", task(**{part: function}), ckpt=copier, batch_size=3)
    text = str(caught.value)
    assert text.startswith("task echo: ")
    assert said in text
    assert "\n" not in text


def test_show_must_return_a_rendering(copier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["multi", "--target", "onnx", "--workers", "0"])
    with pytest.raises(ConfigError, match=r"type str;.* Rendering \(docs/reference/tasks.md\)"):
        answered("", task(show=partial(wrong, value="seven")), "multi", ckpt=copier, batch_size=3)


def test_save_must_return_a_file(copier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["multi", "--target", "onnx", "--workers", "0", "--save", str(tmp_path / "drawn")])
    with pytest.raises(ConfigError, match=r"echo: wrong .*Path"):
        answered("", task(show=partial(wrong, value=Artifact("seven", 7, wrong))), "multi", ckpt=copier, batch_size=3)


def test_valid_values_are_returned_unchanged(copier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Share()
    assert measure(metric, wrong, "echo") is metric
    assert returned("text", str, wrong, "echo") == "text"
    for value in ([7], (1,), np.zeros(1), {0: 1}):
        pipeline = Pipeline(FunctionTask(None, wrong, partial(wrong, value=value)), {})
        assert pipeline.predictions(np.zeros(1), None, 1) is value
    monkeypatch.setattr("sys.argv", ["valid", "--target", "onnx", "--workers", "0"])
    assert evaluated("", task(), ckpt=copier, batch_size=3) == 0


def test_out_is_passed_and_the_result_checked() -> None:
    def into(samples: Any, model: Model, opt: argparse.Namespace, out: Any = None) -> Any:
        return Prepared([out]) if out is not None else np.zeros(1)

    model = Model(Path("m.onnx"), inputs=(TensorSpec("x", ("batch", 1), np.dtype(np.float32)),))
    front = Preprocessor(made(task(prepare=into), options("", task(), "valid", [], ckpt="m.onnx"), model))
    room = np.ones((2, 1))
    assert front.prepare([1, 2], room).arrays[0] is room
    with pytest.raises(ConfigError, match=r"into.* of type ndarray"):
        front.prepare([1, 2])


def test_a_flag_without_dashes_is_an_error() -> None:
    bad = task(flags=(Flag("history", "values of the past"),))
    with pytest.raises(ConfigError, match="task echo: flag 'history' has no dashes; call it '--history'"):
        options("", bad, "valid", [], ckpt="m.onnx")


def test_a_reason_with_the_samples_name() -> None:
    failures = [Failure("a.csv", "a.csv:20: is no number"), Failure("b.csv", "is empty")]
    assert str(nothing_evaluated(failures)) == "no sample could be evaluated: a.csv:20: is no number; b.csv: is empty"
