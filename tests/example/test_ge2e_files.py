"""The fetched voice encoder: its file read without PyTorch, its graph against PyTorch's layers, and real voices."""

from __future__ import annotations

import importlib.util
import json
import pickle
import struct
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
import torch
from support import ROOT, RunPython

from engine import EngineSpec, ModelError, open_engine
from utils.fetch import UnreachableError, fetched

FOLDER = ROOT / "example" / "speech" / "ge2e"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ge2e_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pytestmark = pytest.mark.torch

TORCH_FILE, MODEL = loaded("torch_file"), loaded("model")


def test_legacy_files_load_as_in_pytorch(tmp_path: Path) -> None:
    kept = {
        "a": torch.arange(24, dtype=torch.float32).reshape(2, 3, 4),
        "turned": torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
        "whole": torch.tensor([1, -(2**40)]),
        "half": torch.tensor(0.5, dtype=torch.float16),
        "more": {"list": [1, 2.5, None, True, "text"], "tuple": (1, 2, 3, 4), "none": []},
    }
    file = tmp_path / "old.pt"
    torch.save(kept, file, _use_new_zipfile_serialization=False)
    found = TORCH_FILE.read(file)
    for name in ("a", "turned", "whole", "half"):
        np.testing.assert_array_equal(found[name], kept[name].numpy())  # type: ignore[attr-defined]
    assert found["more"] == kept["more"]


class _Runs:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("this must not run",)


def test_no_code_in_a_file_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.pt"
    parts = (0x1950A86A20F9469CFC6C, 1001, {}, {"a": _Runs()}, [])
    file.write_bytes(b"".join(pickle.dumps(part, 2) for part in parts))
    with pytest.raises(ModelError, match="holds more than tensors"):
        TORCH_FILE.read(file)
    assert capsys.readouterr().out == ""


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    torch.save({"a": torch.zeros(2)}, file)
    with pytest.raises(ModelError, match="damaged"):
        TORCH_FILE.read(file)
    torch.save({"a": torch.zeros(200)}, file, _use_new_zipfile_serialization=False)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="damaged"):
        TORCH_FILE.read(file)
    whole = tmp_path / "b.pt"
    torch.save({"a": torch.zeros(200)}, whole, _use_new_zipfile_serialization=False)
    content = whole.read_bytes().replace(struct.pack("<q", 200), struct.pack("<q", 100))
    whole.write_bytes(content)
    with pytest.raises(ModelError, match="100 numbers of 200"):
        TORCH_FILE.read(whole)
    with pytest.raises(ModelError, match="cannot be read"):
        TORCH_FILE.read(tmp_path / "none.pt")
    with pytest.raises(ModelError, match="bias_ih_l0 is missing"):
        MODEL.checked({}, "x.pt")


def test_graph_equals_pytorch_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers, linear = torch.nn.LSTM(40, 256, 3, batch_first=True), torch.nn.Linear(256, 256)
    state = {f"lstm.{name}": value.detach().numpy() for name, value in layers.state_dict().items()}
    state |= {f"linear.{name}": value.detach().numpy() for name, value in linear.state_dict().items()}
    heard = torch.rand(2, 160, 40)
    with torch.no_grad():
        wanted = torch.nn.functional.normalize(torch.relu(linear(layers(heard)[0][:, -1])))
    onnx.save(MODEL.build(MODEL.checked(state, "x.pt"), True), tmp_path / "x.onnx")
    found = open_engine("onnx", EngineSpec(ckpt=tmp_path / "x.onnx", batch_size=2))([heard.numpy()])
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_real_voices_are_separated(tmp_path: Path, run_python: RunPython) -> None:
    """Three folders of two speakers; Allison's English and Spanish are one."""
    try:
        for package in ("voice_encoder", "voices_en", "voices_es", "voices_it"):
            fetched(package)
    except UnreachableError as error:
        pytest.skip(f"the packages cannot be had here: {error}")
    done = run_python(FOLDER / "export_onnx.py", "--out", tmp_path, "--forms", "dyn")
    assert done.returncode == 0, done.stderr
    sounds = "usr/share/asterisk/sounds"
    data = (
        f"allison__en=fetch:voices_en/{sounds}/en_US_f_Allison",
        f"allison__es=fetch:voices_es/{sounds}/es_MX_f_Allison",
        f"carlo=fetch:voices_it/{sounds}/it_IT_m_Carlo",
    )
    words = ("--of_each", "8", "--target", "onnx", "--ckpt", tmp_path / "voice_encoder_dyn.onnx")
    result = tmp_path / "r.json"
    done = run_python(FOLDER / "example_valid.py", *words, "--data_path", *data, "--json", result)
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    assert (found["samples"], found["secondary"]["speakers"]) == (24 * 23 // 2, 2)
    assert found["metric"] < 0.2
