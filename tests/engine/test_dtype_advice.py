"""The code in error messages about dtypes runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import ROOT

from engine import EngineSpec, InputError, TensorSpec, open_engine
from utils.tasks.collating import collate
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

TYPES = {
    "STRING": ["a", "b"],
    "BOOL": [True, False],
    "UINT8": [1, 2],
    "INT8": [1, 2],
    "INT64": [1, 2],
    "FLOAT16": [1.0, 2.0],
    "FLOAT": [1.0, 2.0],
    "DOUBLE": [1.0, 2.0],
}


@pytest.mark.filterwarnings("ignore:.* cast to the model's")
@pytest.mark.parametrize("kind", list(TYPES))
@pytest.mark.parametrize("given", ["U1", "int64", "uint64", "bool", "float64"])
def test_the_advised_command_runs_and_fits_the_model(kind: str, given: str, tmp_path: Path) -> None:
    type_ = getattr(TensorProto, kind)
    x, y = (helper.make_tensor_value_info(name, type_, ["N"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    array = np.array(["1", "0"] if given == "U1" else [1, 0]).astype(given)
    with open_engine("onnx", EngineSpec(path)) as engine:
        try:
            engine(array)
        except InputError as error:
            advice = re.search(r"array\.astype\(([a-z0-9_.]+)\)", str(error))
            assert advice is not None
            dtype = object if advice[1] == "object" else bool if advice[1] == "bool" else getattr(np, advice[1][3:])
            assert engine(array.astype(dtype)).shape == (2,)  # type: ignore[union-attr]


@pytest.mark.parametrize(("dtype", "advice"), [("?", "bool"), ("f4", "np.float32"), ("u1", "np.uint8")])
def test_a_task_gives_the_same_advice(dtype: str, advice: str) -> None:
    model = Model(Path("m.onnx"), (TensorSpec("x", np.dtype(dtype), (None, None)),))
    with pytest.raises(InputError, match=rf"astype\({advice}\)"):
        collate([Prepared([[np.zeros(1, np.complex64), np.zeros(2, np.complex64)]])], model)


def test_every_name_of_numpys_in_a_message_exists() -> None:
    names = set()
    for folder in ("engine", "utils", "toolkit", "tecoexec", "model_config", "torch_sdaa", "transplant", "serve"):
        for file in (ROOT / folder).rglob("*.py"):
            names |= set(re.findall(r"\bnp\.([a-z_0-9]+)", file.read_text(encoding="utf-8")))
    assert len(names) > 100
    assert not [name for name in names if name not in dir(np)]
