"""Parts of the redirection that can be tested without switching it on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch_sdaa.loading import late_imports  # noqa: E402
from torch_sdaa.transfer import functions, groups, switch, torch_names, visible, words  # noqa: E402

pytestmark = pytest.mark.torch


def test_importing_the_modules_does_not_start_the_redirection() -> None:
    assert not switch.is_on()
    assert not torch.cuda.is_available() or torch.backends.cuda.is_built()


def test_only_names_of_cuda_are_redirected() -> None:
    assert [words.redirected(x) for x in ("cuda", "cuda:3", "cudart", "cpu", None, 2)] == [
        *("sdaa", "sdaa:3", "cudart", "cpu", None, 2)
    ]


def test_all_operators_with_a_device_argument_are_found() -> None:
    found = functions.names()
    assert {"zeros", "new_full", "to", "tensor", "fft_fftfreq", "_parse_to", "is_autocast_enabled"} <= found
    assert not {"add", "matmul", "eq", "ne", "view", "detach"} & found


def test_changes_are_restored_in_order() -> None:
    owner, changes = SimpleNamespace(a=1), words.Changes()
    changes.set(owner, "a", 2)
    changes.set(owner, "a", 3)
    changes.set(owner, "b", 4)
    assert vars(owner) == {"a": 3, "b": 4}
    changes.take_back()
    changes.take_back()
    assert vars(owner) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "numbers"), [("0,2", [0, 2]), (" 1 , 0", [1, 0]), ("", []), ("-1", []), ("GPU-8f", None), ("1,,2", None)]
)
def test_visible_devices_are_read(text: str, numbers: list[int] | None) -> None:
    assert visible._numbers(text) == numbers


@pytest.mark.slow
def test_maps_of_checkpoints_mean_devices_of_sdaa_too() -> None:
    assert torch_names._mapped({"cuda:1": "cuda:0", "cpu": "cpu"}) == {
        "sdaa:1": "cuda:0",
        "cuda:1": "cuda:0",
        "cpu": "cpu",
    }
    assert torch_names._mapped(lambda storage, location: location)(None, "sdaa:1") == "cuda:1"
    assert torch_names._mapped("cpu") == "cpu"


def test_backends_other_than_nccl_stay() -> None:
    assert [groups.backend(x) for x in (None, "gloo", "cpu:gloo")] == [None, "gloo", "cpu:gloo"]


def test_a_function_is_called_when_a_module_is_imported(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    undo = late_imports.when_imported("this_is_never_imported", lambda: called.append("never"))
    late_imports.when_imported("json", lambda: called.append("json"))
    assert called == ["json"]
    before = len(sys.meta_path)
    undo()
    undo()
    assert len(sys.meta_path) == before - 1
