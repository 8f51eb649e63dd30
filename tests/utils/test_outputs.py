"""What an output is: flags before metadata, metadata before the graph, the graph before the dtype."""

from __future__ import annotations

import json
import os
import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extended_models import small_model
from support import ROOT

from engine import EngineSpec, ModelError, open_engine
from toolkit.commands import info
from toolkit.zoo import find_model, load_zoo
from utils.outputs import CHANNELS_FIRST, CHANNELS_LAST, LABELS, LOGITS, PROBABILITIES, OutputForm
from utils.stored import ModelMetadata
from utils.tasks.model import Model

GEMM = {"w": np.ones((4, 5), np.float32)}
ROWS = "float[N, 5] y"


def described(path: Path) -> Model:
    with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
        return Model.of(engine)


def made(folder: Path, body: str, y: str = ROWS, x: str = "float[N, 4] x", **notes: Any) -> Model:
    """Return a described model whose body reads the product ``h``."""
    return described(small_model(folder / "m.onnx", body, y, x, GEMM, **notes))


def form(model: Model, place: int = 0, **flags: Any) -> OutputForm:
    return model.form(Namespace(**flags), place)


SOFTMAX = "h = MatMul(x, w) y = Softmax<axis = -1>(h)"


def test_the_source_of_a_form(tmp_path: Path) -> None:
    plain = made(tmp_path, SOFTMAX)
    found = form(plain)
    assert (found.kind, found.source, found.operator, found.classes) == (PROBABILITIES, "graph", "Softmax", 5)
    assert (form(plain, output_kind="logits").kind, form(plain, output_kind="logits").source) == (LOGITS, "flag")
    noted = made(tmp_path, "h = MatMul(x, w) y = Relu(h)", outputs={"y": {"kind": "probabilities"}})
    assert (form(noted).kind, form(noted).source) == (PROBABILITIES, "metadata")
    assert form(noted, output_kind="logits").source == "flag"
    unknown = made(tmp_path, "h = MatMul(x, w) y = Relu(h)")
    assert (form(unknown).kind, form(unknown).source) == (LOGITS, "default")
    whole = made(tmp_path, "h = MatMul(x, w) y = Shape(h)", "int64[2] y")
    assert (form(whole).kind, form(whole).source) == (LABELS, "dtype")


@pytest.mark.parametrize("kind", ["logits", "labels"])
def test_metadata_that_contradicts_the_graph(kind: str, tmp_path: Path) -> None:
    model = made(tmp_path, SOFTMAX, outputs={"y": {"kind": kind}})
    with pytest.raises(ModelError, match="Softmax"):
        form(model)
    assert form(model, output_kind="probabilities").kind == PROBABILITIES
    same = made(tmp_path, "h = MatMul(x, w) y = LogSoftmax<axis = -1>(h)", outputs={"y": {"kind": "logits"}})
    assert form(same).kind == LOGITS  # a softmax of either is the same


@pytest.mark.parametrize(
    "outputs", [["logits"], {"y": "logits"}, {"y": {"kind": "scores"}}, {"y": {"layout": "NHWC"}}, {"y": {"other": 1}}]
)
def test_invalid_metadata(outputs: Any) -> None:
    with pytest.raises(ModelError, match="outputs"):
        ModelMetadata({"outputs": json.dumps(outputs)}).check()


def test_metadata_of_another_output(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="scores"):
        form(made(tmp_path, SOFTMAX, outputs={"scores": {"kind": "probabilities"}}))


def test_each_output_has_its_own_form(tmp_path: Path) -> None:
    model = made(tmp_path, SOFTMAX + " z = ArgMax<axis = 1>(h)", f"{ROWS}, int64[N, 1] z")
    assert [one.kind for one in model.forms.all()] == [PROBABILITIES, LABELS]
    assert pickle.loads(pickle.dumps(model)).form(None, 1).kind == LABELS  # noqa: S301 -- its own bytes
    assert Model(Path("absent.onnx")).form(None).kind == LOGITS


@pytest.mark.parametrize(
    ("y", "labels", "layout"),
    [
        ("float[N, 3, 8, 8] y", None, None),
        ("float[N, 3, 8, 8] y", 3, CHANNELS_FIRST),
        ("float[N, 8, 8, 3] y", 3, CHANNELS_LAST),
        ("float[N, 3, 8, 3] y", 3, None),
        ("float[N, 4, 8, 8] y", 3, None),
    ],
)
def test_a_layout_by_the_labels(y: str, labels: int | None, layout: str | None, tmp_path: Path) -> None:
    notes = {} if labels is None else {"class_labels": [str(i) for i in range(labels)]}
    model = made(tmp_path, "y = Abs(x)", y, y.replace(" y", " x"), **notes)
    assert form(model).layout == layout
    assert form(model, output_layout=CHANNELS_LAST).layout == CHANNELS_LAST


def test_a_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    assert form(made(tmp_path, SOFTMAX)).kind == PROBABILITIES
    model = made(tmp_path, "y = MatMul(x, w)")
    os.utime(tmp_path / "m.onnx", ns=(1, 1))  # whatever the clock's resolution
    assert form(model).kind == LOGITS


def test_info_lists_the_forms_of_outputs() -> None:
    model, _ = find_model("digit_crnn", load_zoo(ROOT).models)
    found = info.gather(model)
    (one,) = json.loads(json.dumps(found))["outputs"]["digit_crnn_dyn.onnx"]
    assert (one["name"], one["kind"], one["decided_by"]) == ("probabilities", PROBABILITIES, "graph")
    assert (one["operator"], one["layout"]) == ("Softmax", CHANNELS_LAST)
    assert any("probabilities (graph: Softmax)" in line for line in info.lines(found))
