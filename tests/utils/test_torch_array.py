"""Arrays that torch's functions take for tensors."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from engine import InputError
from utils.torch_array import TorchArray, as_array, like, of_the_script


def made() -> TorchArray:
    return np.arange(12, dtype=np.float32).reshape(3, 4).view(TorchArray)


def test_the_result_is_a_numpy_array() -> None:
    array = made()
    assert isinstance(array, np.ndarray)
    assert type(array.numpy()) is np.ndarray
    assert np.shares_memory(array.numpy(), array)
    copy = array.clone()
    copy[:, 0] = 9
    assert array[0, 0] == 0
    assert array.cpu() is array.detach() is array
    assert array.astype(np.float64).float().dtype == np.float32
    assert type(array[:, :2]) is TorchArray
    assert float(array.sum()) == 66


def test_methods_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(AttributeError, match="'TorchArray' object has no attribute 'numel'"):
        made().numel()
    assert type(of_the_script(np.ones(2))) is TorchArray
    assert type(like(np.ones(2), np.ones(3), None)) is TorchArray


@pytest.mark.torch
def test_torch_accepts_it_as_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    array, tensor = made(), torch.ones(3, 4)
    for result in (
        torch.cat((array, tensor)),
        torch.stack([array, array], 1),
        torch.where(tensor > 0, array, 0),
        torch.cat(tensors=[array]),
        array == tensor,
        tensor == array,
        array >= tensor[0, 0],
        array * tensor,
        tensor - array,
        torch.from_numpy(array),
        array.unsqueeze(0),
        array.to("cpu"),
    ):
        assert isinstance(result, torch.Tensor)
    assert array.numel() == 12
    assert torch.cat((array, tensor)).shape == (6, 4)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = array.nothing
    tensor[:, :2] = array[:, :2]
    assert tensor.tolist() == [[0, 1, 1, 1], [4, 5, 1, 1], [8, 9, 1, 1]]
    # a view that lies backwards, and one that cannot be written, are copied without a warning
    assert torch.cat([array[::-1], array])[0].tolist() == [8, 9, 10, 11]
    fixed = np.broadcast_to(np.float32(1), (3, 4)).view(TorchArray)
    assert torch.cat([fixed, fixed]).sum() == 24


@pytest.mark.torch
def test_tensors_are_returned_for_tensors() -> None:
    torch = pytest.importorskip("torch")
    result = np.ones((2, 2), np.float32)
    assert isinstance(like(result, np.ones(2), torch.ones(2)), torch.Tensor)
    assert isinstance(like(result, np.ones(2)), TorchArray)
    assert isinstance(of_the_script(result), torch.Tensor)
    assert as_array(torch.ones(2, dtype=torch.bfloat16), "it").dtype == np.float32
    assert as_array(torch.ones(2, requires_grad=True), "it").tolist() == [1, 1]
    assert type(as_array(made(), "it")) is np.ndarray


@pytest.mark.parametrize("value", [[[1, 2], [3]], "text", None, [object()]])
def test_invalid_arrays_are_an_error(value: object) -> None:
    with pytest.raises(InputError, match=r"^it.*numbers"):
        as_array(value, "it")
