"""teco optest of a call out of a training's dump: a case that passes on the device, and fails where values differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from engine import DataError  # noqa: E402
from toolkit.commands import optest  # noqa: E402
from toolkit.optest.aten import read_op, write_aten_case  # noqa: E402

pytestmark = pytest.mark.torch


def _told(array: Any) -> dict[str, Any]:
    strides = [step // array.itemsize for step in array.strides]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "stride": strides, "digest": ""}


def _dump(path: Path, more: float = 0.0, **changes: Any) -> Path:
    """Write a dump of one call of addmm, in the layout of docs/training_accuracy.md."""
    rng = np.random.default_rng(0)
    bias, left, right = (rng.standard_normal(size).astype(np.float32) for size in ((4,), (2, 3), (3, 4)))
    out = (torch.addmm(*map(torch.from_numpy, (bias, left, right))).numpy() + np.float32(more)).astype(np.float32)
    call = {
        "op": "aten.addmm.default",
        "number": 0,
        "args": [{"tensor": k} for k in range(3)],
        "kwargs": {"beta": 1},
        "inputs": [_told(each) for each in (bias, left, right)],
        "outputs": [_told(out)],
        "written": [-1],
        "draws": False,
        **changes,
    }
    with h5py.File(path, "w") as file:
        group = file.create_group("aten.addmm.default/0")
        group.create_dataset("call", data=np.frombuffer(json.dumps(call).encode(), np.uint8))
        for k, array in enumerate((bias, left, right)):
            group[f"input/{k}"] = array
        group["output/0"] = out
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("more", "code"), [(0.0, 0), (0.5, 1)])
def test_a_call_is_run_on_the_device(
    more: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = _dump(tmp_path / "card.h5", more), tmp_path / "case"
    assert optest.main([str(file), "aten.addmm.default", "--out", str(out)]) == code
    shown = capsys.readouterr().out
    assert ("passes on cpu and sdaa" in shown) == (code == 0)
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == [
        "call.json",
        "data.npz",
        "test_aten_addmm_default_0.py",
    ]


def test_what_cannot_be_a_case(tmp_path: Path) -> None:
    file = _dump(tmp_path / "card.h5")
    assert read_op(file, "aten.addmm.default").name == "aten.addmm.default/0"
    with pytest.raises(DataError, match=r"no call of aten.addm.default; did you mean 'aten.addmm.default'"):
        read_op(file, "aten.addm.default")
    with pytest.raises(DataError, match=r"has no call aten.addmm.default/7: it has 1 of aten.addmm.default"):
        read_op(file, "aten.addmm.default/7")
    with pytest.raises(DataError, match="does not exist"):
        read_op(tmp_path / "none.h5", "aten.addmm.default")
    (tmp_path / "cut.h5").write_bytes(file.read_bytes()[:500])
    with pytest.raises(DataError, match="cannot be read as a dump of a training"):
        read_op(tmp_path / "cut.h5", "aten.addmm.default")
    for change in ({"args": [{"opaque": "sparse tensor"}]}, {"draws": True}):
        with pytest.raises(DataError, match=r"cannot be repeated|draws random numbers"):
            write_aten_case(_dump(tmp_path / "other.h5", **change), "aten.addmm.default", tmp_path / "out")
