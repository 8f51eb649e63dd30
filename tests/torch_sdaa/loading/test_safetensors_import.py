"""``safetensors`` with the device: whole files, single tensors and parts, by sdaa's and by CUDA's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")
safetensors = pytest.importorskip("safetensors")

from safetensors.torch import load_file, load_model, save_file, save_model  # noqa: E402

from torch_sdaa.transfer import switch  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    tensors = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.tensor([1, 2], dtype=torch.int64)}
    save_file({name: tensor.sdaa(1) for name, tensor in tensors.items()}, path, {"format": "pt"})
    return path


@pytest.fixture
def _redirected() -> Iterator[None]:
    switch.start(announced=True)
    yield
    switch.restore()


@pytest.mark.parametrize("device", ["sdaa:2", torch.device("sdaa", 2)])
def test_a_file_is_loaded_to_the_device(file: Path, device: Any) -> None:
    found = load_file(file, device=device)
    assert {name: (str(one.device), one.dtype) for name, one in found.items()} == {
        "a": ("sdaa:2", torch.float32),
        "b": ("sdaa:2", torch.int64),
    }
    assert found["a"].tolist() == load_file(file)["a"].tolist()
    assert load_file(file)["a"].device.type == "cpu"


def test_tensors_and_parts_are_read_to_the_device(file: Path) -> None:
    with safetensors.safe_open(str(file), framework="pt", device="sdaa:3") as opened:
        assert sorted(opened.keys()) == ["a", "b"]
        assert opened.metadata() == {"format": "pt"}
        part = opened.get_slice("a")
        assert (part.get_shape(), part.get_dtype()) == ([3, 4], "F32")
        rows = part[1:, :2]
        assert (str(rows.device), rows.tolist()) == ("sdaa:3", [[4, 5], [8, 9]])
        assert str(opened.get_tensor("b").device) == "sdaa:3"
        assert {str(one.device) for one in opened.get_tensors().values()} == {"sdaa:3"}
    with safetensors.safe_open(str(file), "np") as opened:
        assert opened.get_tensor("b").tolist() == [1, 2]


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2).sdaa()
    save_model(model, str(tmp_path / "model.safetensors"))
    other = torch.nn.Linear(3, 2).sdaa()
    load_model(other, str(tmp_path / "model.safetensors"), device="sdaa:0")
    assert torch.equal(model.weight, other.weight)


@pytest.mark.usefixtures("_redirected")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("sdaa:1")])
def test_the_name_of_cuda_is_redirected(file: Path, device: Any) -> None:
    found = load_file(file, device=device)
    assert {one.is_cuda for one in found.values()} == {True}
    assert found["a"].cpu().sum() == 66


def test_devices_that_do_not_exist_are_errors(file: Path) -> None:
    with pytest.raises(RuntimeError, match="Invalid SDAA device index 9"):
        load_file(file, device="sdaa:9")
    with pytest.raises(Exception, match="nowhere"):
        load_file(file, device="nowhere")
