"""Calls of frameworks and of scripts for CUDA on several devices: the results of CUDA, or one line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
from tccl_ranks import Host, hosted  # noqa: E402

import torch_sdaa  # noqa: E402, F401 -- compiles the extension where the cache has none

HERE = "tccl_scripts:"

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("ranks")) as host:
        yield host


def test_collectives_of_tensors_of_the_inference_mode(ranks: Host) -> None:
    for found in ranks.values(2, HERE + "inference"):
        assert found["mean"] == found["normal"] == [0.5, 0.5]
        assert found["part"] == [2.0, 2.0]
        assert found["scaled"] == [1.0, 1.0]


def test_the_hook_for_bfloat16_is_accepted(ranks: Host) -> None:
    assert ranks.values(2, HERE + "bfloat16_hook") == [True, True]


def test_a_barrier_of_the_cpu_ignores_device_ids(ranks: Host) -> None:
    assert ranks.values(2, HERE + "barrier_of_gloo") == [2, 2]


@pytest.mark.parametrize(("offload", "devices"), [("false", ["sdaa"]), ("true", ["cpu", "sdaa"])])
def test_fsdp_of_accelerate_with_parameters_on_the_host(ranks: Host, offload: str, devices: list[str]) -> None:
    assert ranks.values(2, HERE + "groups_of_accelerate", offload) == [devices] * 2


def test_context_parallelism_is_an_error_of_one_line(ranks: Host) -> None:
    for found in ranks(2, HERE + "split_attention"):
        assert found.code != 0
        assert "SequenceParallel" in found.said.splitlines()[-1]


def test_a_script_for_cuda_reads_the_names_of_cuda(ranks: Host) -> None:
    for found in ranks.values(2, HERE + "names"):
        assert [found[name] for name in ("mesh", "part", "again", "script")] == ["cuda", "cuda", "cuda", "nccl"]
        assert found["compiled"] == 1
        assert found["torch"] == "tccl"
        assert found["after"] == ["sdaa", "tccl"]


def test_a_script_for_cuda_saves_and_loads_a_distributed_checkpoint(ranks: Host) -> None:
    assert ranks.values(2, HERE + "checkpoint") == [True, True]
