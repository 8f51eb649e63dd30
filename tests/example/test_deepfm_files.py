"""The committed files of the two DeepFM belong together, and nothing of MovieLens is committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import ROOT

from engine import EngineSpec, open_engine
from utils.datasets.tabular.clicks import load_table
from utils.preprocess.features import Features
from utils.tasks.model import Model

FOLDER = ROOT / "example" / "recommendation" / "deepfm_synthetic"
FILES = ("deepfm_synthetic_dyn.onnx", "deepfm_synthetic_float16_dyn.onnx")


@pytest.mark.parametrize("name", FILES)
def test_the_onnx_files_store_the_features_of_the_training(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    assert types["ids"] == onnx.TensorProto.INT64, "float16 has no whole numbers above 2048"
    notes = {prop.key: prop.value for prop in model.metadata_props}
    told = json.loads((FOLDER / "features.json").read_text(encoding="utf-8"))
    assert Features.from_json(json.loads(notes["features"])).to_json() == told
    assert "made-up" in json.loads(notes["provenance"])["weights"]
    assert (FOLDER / name).stat().st_size < 200_000


def test_movielens_is_not_committed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "example/recommendation/deepfm_ml100k"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {Path(name).suffix for name in listed} <= {".py", ".md", ".txt", ".yaml"}


@pytest.mark.slow
@pytest.mark.long
def test_rows_equal_make_data(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "make_data.py", "--out", tmp_path], check=True, capture_output=True)
    for file in (FOLDER / "data").iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights() -> None:
    torch = pytest.importorskip("torch")
    from utils.export.networks.click_models import network_of, predictor

    features = Features.from_json(json.loads((FOLDER / "features.json").read_text(encoding="utf-8")))
    network = network_of(features).eval()
    network.load_state_dict(torch.load(FOLDER / "deepfm_synthetic.pth", weights_only=True))
    rows = load_table(FOLDER / "data" / "val.csv").samples[:200]
    expected = predictor(network, features)(rows)
    for name, dtype, apart in zip(FILES, ("float32", "float16"), (1e-5, 3e-3), strict=True):
        with open_engine("onnx", EngineSpec(ckpt=FOLDER / name, dtype=dtype)) as engine:
            model = Model.of(engine)
            arrays = features.encoded(rows)
            found = engine([arrays[one.name].astype(one.dtype) for one in model.inputs])
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found.reshape(-1), expected, atol=apart)
