"""``torch.sdaa`` compared with ``torch.cuda``: every public name exists, or the list of absent names has advice."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch_sdaa.sdaa.absent import ABSENT  # noqa: E402

pytestmark = pytest.mark.torch

_OF_CUDA = set(torch.cuda.__all__) | {"AcceleratorError", "OutOfMemoryError", "comm", "gds", "green_contexts"}
"""Public names of ``torch.cuda``; the others are its imports."""


def test_every_name_of_cuda_exists_or_is_listed_as_absent() -> None:
    here = {name for name in _OF_CUDA if hasattr(torch.sdaa, name)}

    assert _OF_CUDA - here == set(ABSENT)


def test_the_listed_names_exist() -> None:
    missing = [name for name in torch.sdaa.__all__ if not hasattr(torch.sdaa, name)]

    assert not missing
    assert len(torch.sdaa.__all__) == len(set(torch.sdaa.__all__))


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_an_absent_name_is_an_error_with_a_replacement(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(torch.sdaa, name)

    assert str(caught.value) == f"torch.sdaa has no {name!r}, which torch.cuda has: {ABSENT[name]}"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("is_availble", "torch.sdaa has no 'is_availble'; did you mean 'is_available'?"),
        ("sychronize", "torch.sdaa has no 'sychronize'; did you mean 'synchronize'?"),
        ("zzz", "torch.sdaa has no 'zzz'; dir(torch.sdaa) lists what it has"),
    ],
)
def test_a_misspelt_name(wrong: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(torch.sdaa, wrong)

    assert str(caught.value) == message


@pytest.mark.parametrize("name", [name for name in torch.sdaa.__all__ if callable(getattr(torch.cuda, name, None))])
def test_a_function_has_the_parameters_of_cuda(name: str) -> None:
    ours, theirs = getattr(torch.sdaa, name), getattr(torch.cuda, name)
    if not (inspect.isfunction(ours) and inspect.isfunction(theirs)):
        return
    ours_takes, theirs_takes = inspect.signature(ours).parameters, inspect.signature(theirs).parameters

    assert list(ours_takes)[: len(theirs_takes)] == list(theirs_takes)


@pytest.mark.parametrize(
    "name", ["amp", "amp.autocast_mode", "amp.grad_scaler", "devices", "memory", "random", "streams"]
)
def test_a_submodule_is_one_module_under_both_names(name: str) -> None:
    module = importlib.import_module(f"torch.sdaa.{name}")

    assert isinstance(module, ModuleType)
    assert module is sys.modules[f"torch_sdaa.sdaa.{name}"]


def test_the_package_imports_as_cuda_does() -> None:
    import torch.sdaa.amp
    from torch.sdaa import memory
    from torch.sdaa.amp import GradScaler, autocast
    from torch.sdaa.random import manual_seed_all

    assert torch.sdaa is sys.modules["torch.sdaa"]
    assert torch.get_device_module("sdaa") is torch.sdaa
    assert memory.memory_allocated is torch.sdaa.memory_allocated
    assert (GradScaler, autocast) == (torch.sdaa.amp.GradScaler, torch.sdaa.amp.autocast)
    assert manual_seed_all is torch.sdaa.manual_seed_all


def test_its_objects_are_picklable_by_name() -> None:
    things = [
        torch.sdaa.memory_allocated,
        torch.sdaa.stream,
        torch.sdaa.device,
        torch.sdaa.Event,
        torch.sdaa.Stream,
        torch.sdaa.amp.autocast,
        torch.sdaa.FloatTensor,
        torch.sdaa.HalfStorage,
    ]

    assert pickle.loads(pickle.dumps(things)) == things  # noqa: S301 -- our own
