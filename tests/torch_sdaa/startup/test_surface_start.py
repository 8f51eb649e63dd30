"""Importing ``torch_sdaa``: the modules that it loads, and errors before and without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import RunPython

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes find the files compiled by this one."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(Path(C.__file__).parents[1]))


@pytest.mark.long
def test_the_import_does_not_load_dynamo_and_registers_later(run_python: RunPython) -> None:
    script = """
import importlib.util, sys, torch, torch_sdaa
before = set(sys.modules)
assert not {"torch._dynamo", "torch._inductor", "onnx", "onnxruntime"} & before, before
assert importlib.util.find_spec("torch._dynamo").origin.endswith("__init__.py")
import torch._dynamo.device_interface as interfaces
interface = interfaces.get_interface_for_device("sdaa:3")
assert interface is interfaces.get_interface_for_device(torch.device("sdaa"))
assert interface.device_count() == interface.Worker.get_device_properties().multi_processor_count * 4
assert interface.is_available() and interface.is_bf16_supported() and interface.get_raw_stream(0) == 0
# what waits for inductor, which has not come
waiting = [each for each in sys.meta_path if type(each).__module__ == "torch_sdaa.loading.late_imports"]
[of_inductor] = [each for each in waiting if each._name == "torch._inductor.codegen.common"]
import torch._inductor.codegen.common
assert of_inductor not in sys.meta_path
assert torch._dynamo.__loader__ is torch._dynamo.__spec__.loader
"""
    done = run_python("-W", "error", "-c", script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.long
def test_dynamo_may_be_imported_first(run_python: RunPython) -> None:
    script = """
import torch, torch._dynamo, torch_sdaa
from torch._dynamo.device_interface import get_interface_for_device
print(get_interface_for_device("sdaa").device_count())
"""
    assert run_python("-c", script).stdout == "4\n"


def test_a_device_before_the_import_and_a_checkpoint_without_it(run_python: RunPython, tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    torch.save({"w": torch.ones(2, device="sdaa:3")}, file)
    script = f"""
import sys, torch
for call in (lambda: torch.device("sdaa"), lambda: torch.load({str(file)!r})):
    try:
        call()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
assert "torch_sdaa" not in sys.modules
print(torch.load({str(file)!r}, map_location="cpu")["w"].tolist())
import torch_sdaa
print(torch.load({str(file)!r})["w"].device)
"""
    lines = run_python("-c", script).stdout.splitlines()

    assert lines[0].endswith("device type at start of device string: sdaa")
    assert "tagged with sdaa:3" in lines[1]
    assert lines[2:] == ["[1.0, 1.0]", "sdaa:3"]


def test_an_index_beyond_fewer_devices_is_an_error(run_python: RunPython) -> None:
    script = """
import torch, torch_sdaa
print(torch.sdaa.device_count())
try:
    torch.ones(1, device="sdaa:1")
except RuntimeError as error:
    print(error)
"""
    done = run_python("-c", script, SDAA_VISIBLE_DEVICES="2")

    assert done.stdout.splitlines() == [
        "1",
        "Invalid SDAA device index 1: this process sees 1 device (sdaa:0); see SDAA_VISIBLE_DEVICES",
    ]


NONE = """
import torch, torch_sdaa
print(torch.sdaa.device_count(), torch.sdaa.is_available(), torch.accelerator.is_available())
torch.manual_seed(1), torch.sdaa.manual_seed(1), torch.sdaa.manual_seed_all(1), torch.sdaa.empty_cache()
x = torch.ones(2, requires_grad=True)
torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True).sum().backward()
for work in (
    lambda: torch.ones(1, device="sdaa"), torch.sdaa.get_device_name, torch.sdaa.synchronize, torch.sdaa.initial_seed
):
    try:
        work()
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.long
def test_an_empty_list_hides_all_devices(run_python: RunPython) -> None:
    done = run_python("-c", NONE, SDAA_VISIBLE_DEVICES="")

    assert done.stdout.splitlines() == [
        "0 False False",
        *["Invalid SDAA device index 0: this process sees no device; see SDAA_VISIBLE_DEVICES"] * 4,
    ]


DRAWS = """
import torch
torch.manual_seed(5)
dropped, negative = torch.ones(64), -torch.ones(9)
wanted = [torch.rand(3), torch.dropout(dropped, 0.5, True), torch.rand(3), torch.rrelu(negative, training=True)]
import torch_sdaa
torch.manual_seed(5)
found = [
    torch.rand(3),
    torch.dropout(dropped.to("sdaa:1"), 0.5, True).cpu(),
    torch.rand(3),
    torch.rrelu(negative.to("sdaa:2"), training=True).cpu(),
]
print([torch.equal(a, b) for a, b in zip(wanted, found, strict=True)])
print(torch.equal(torch.sdaa.get_rng_state(3), torch.get_rng_state()))
"""


@pytest.mark.long
def test_devices_may_draw_from_the_cpus_generator(run_python: RunPython) -> None:
    done = run_python("-c", DRAWS, TORCH_SDAA_RANDOM="cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:2] == [str([True] * 4), "True"]
    done = run_python("-c", DRAWS)
    assert done.stdout.split("\n")[:2] == ["[True, True, False, False]", "True"]
    done = run_python("-c", "import torch_sdaa", TORCH_SDAA_RANDOM="gpu")
    assert done.stderr.splitlines()[-1].startswith(
        "tecoinfer_modelzoo.errors.ConfigError: environment variable TORCH_SDAA_RANDOM='gpu' must be device ("
    )
