"""PyTorch's device-generic tests on the device: a small file in the form of PyTorch's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.torch_sdaa.operators.device_generic import ON_CPU_TOO, UNUSABLE, counts_text, main, note_control

OWN = """\
import os

import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA
from torch.testing._internal.common_utils import TestCase, run_tests


class TestOwn(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_sum(self, device, dtype):
        x = torch.ones(3, device=device, dtype=dtype)
        self.assertEqual(x.device.type, "sdaa")
        self.assertEqual(x.sum().item(), 3)

    def test_wrong(self, device):
        self.assertEqual(torch.ones(2, device=device).sum().item(), 3)

    @onlyCUDA
    def test_of_cuda(self, device):
        self.fail("this is not CUDA")

    def test_that_ends_the_process(self, device):
        os._exit(9)

    def test_zeros(self, device):
        self.assertEqual(torch.zeros(2, device=device), torch.zeros(2))


class TestNoDevice(TestCase):
    def test_cpu(self):
        self.assertEqual(torch.ones(2).sum().item(), 2)


instantiate_device_type_tests(TestOwn, globals())

if __name__ == "__main__":
    run_tests()
"""


def run(folder: Path, *words: str) -> tuple[int, dict[str, list[str]]]:
    file = folder / "outcomes.json"
    code = main([str(folder), "--json", str(file), *words])
    found = json.loads(file.read_text())["files"]["test_own.py"]
    return code, {name.split(".")[-1]: outcome for name, outcome in found.items()}


@pytest.mark.long
@pytest.mark.slow
def test_each_test_has_an_outcome_and_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "test_own.py").write_text(OWN)
    code, outcomes = run(tmp_path)
    assert code == 1
    kinds = {name: kind for name, (kind, _) in outcomes.items()}
    assert kinds == {
        "test_sum_sdaa_float32": "passed",
        "test_sum_sdaa_int64": "passed",
        "test_zeros_sdaa": "passed",
        "test_wrong_sdaa": "failed",
        "test_of_cuda_sdaa": "skipped",
        "test_that_ends_the_process_sdaa": "failed",
    }
    assert "exit code 9" in outcomes["test_that_ends_the_process_sdaa"][1]
    assert "Expected 3 but got 2" in outcomes["test_wrong_sdaa"][1]
    printed = capsys.readouterr().out
    assert "test_own.py: 6 tests, 3 passed, 2 failed, 1 skipped" in printed
    assert "skipped: Only runs on cuda" in printed


@pytest.mark.slow
@pytest.mark.long
def test_classes_without_a_device(tmp_path: Path):
    (tmp_path / "test_own.py").write_text(OWN.replace("os._exit(9)", "pass"))
    _, outcomes = run(tmp_path, "--all-classes")
    assert outcomes["test_cpu"][0] == "passed"
    assert len(outcomes) == 7


@pytest.mark.slow
@pytest.mark.long
def test_a_file_that_cannot_be_run_is_a_failure(tmp_path: Path):
    (tmp_path / "test_own.py").write_text("import no_such_module_at_all\n")
    code, outcomes = run(tmp_path)
    assert code == 1
    assert "no_such_module_at_all" in next(iter(outcomes.values()))[1]


def test_a_folder_without_tests_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_failures_on_the_cpu_too_are_marked():
    ours = {
        "test_a.TestAPRIVATEUSE1.test_x_sdaa_float32": ["failed", "one"],
        "test_a.TestBSDAA.test_y_sdaa": ["failed", "two"],
        "test_a.TestBSDAA.test_z_sdaa": ["passed", ""],
        "test_a.py": ["failed", f"{UNUSABLE}: no such module"],
    }
    on_cpu = {
        "test_a.TestACPU.test_x_cpu_float32": ["failed", "one"],
        "test_a.TestBCPU.test_y_cpu": ["passed", ""],
        "test_a.TestBCPU.test_z_cpu": ["failed", "three"],
        "test_a.py": ["failed", f"{UNUSABLE}: no such module"],
    }
    note_control(ours, on_cpu)
    assert [kind for kind, _ in ours.values()] == [ON_CPU_TOO, "failed", "passed", "failed"]
    assert counts_text(ours) == f"4 tests, 1 passed, 2 failed, 0 skipped, 1 {ON_CPU_TOO}"
