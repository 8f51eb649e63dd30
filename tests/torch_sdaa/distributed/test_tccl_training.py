"""Training on several devices equals training on one: DDP, synchronised batch norm, FSDP2, save and resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from tccl_ranks import Host, hosted  # noqa: E402

import torch_sdaa  # noqa: E402, F401 -- compiles the extension where the cache has none

HERE = "tccl_training:"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("ranks")) as host:
        yield host


@pytest.mark.parametrize("size", [2, 4])
def test_ddp_is_bit_identical_to_one_process_for_exact_sums(ranks: Host, size: int) -> None:
    found = ranks.values(size, HERE + "exact")
    assert {value for one in found for value in one.values()} == {found[0]["alone"]}


@pytest.mark.parametrize("size", [2, 4])
def test_ddp_and_synchronised_norms_are_one_process_up_to_rounding(ranks: Host, size: int) -> None:
    found = ranks.values(size, HERE + "rounded")
    assert len({one["ddp"] for one in found}) == 1, "the ranks' weights are not the same bits"
    assert {one[name] for one in found for name in ("bits_sdaa", "bits_cpu")} == {found[0]["bits_cpu"]}
    for one in found:
        assert one["apart"] < 2e-6
        assert one["buffers"] < 2e-6


def test_gradients_of_two_ranks_equal_the_sum_of_the_parts(ranks: Host) -> None:
    found = ranks.values(2, HERE + "accumulated")
    assert {one[name] for one in found for name in ("alone", "ddp", "twice")} == {found[0]["alone"]}
    assert len({one["own"] for one in found}) == 2, "no_sync synchronised"


def test_options_of_ddp(ranks: Host) -> None:
    for rank, found in enumerate(ranks.values(2, HERE + "options")):
        assert 0 < found.pop("fp16") < 1e-2
        assert (found.pop("power"), found.pop("branching"), found.pop("joined")) == (6, 4, 2 if rank else 4)
        assert found == dict.fromkeys(("static", "views", "small buckets", "unused", "hook"), True)


def test_mixed_precision_skips_an_overflow_on_all_ranks(ranks: Host) -> None:
    found = ranks.values(2, HERE + "half_precision")
    assert found[0] == found[1]
    assert (found[0]["skipped"], found[0]["moved"], found[0]["scale"]) == (True, True, 512.0)


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 4])
def test_fsdp_is_the_unsharded_model_up_to_rounding(ranks: Host, size: int) -> None:
    found = ranks.values(size, HERE + "fsdp", False)
    assert len({one["bits"] for one in found}) == 1
    assert sum(one["local"] for one in found) == found[0]["all"]
    for one in found:
        assert one["apart"] < 1e-6
        assert one["local"] < 1.2 * one["all"] / size


def test_fsdp_in_mixed_precision(ranks: Host) -> None:
    found = ranks.values(2, HERE + "fsdp", True)
    assert len({one["bits"] for one in found}) == 1
    assert 1e-6 < found[0]["apart"] < 0.1


@pytest.mark.long
def test_a_sharded_checkpoint_resumes_on_other_device_counts(ranks: Host, tmp_path: Path) -> None:
    four, two = str(tmp_path / "four"), str(tmp_path / "two")
    whole = ranks.values(4, HERE + "checkpoint", "", 0, 6)
    ranks.values(4, HERE + "checkpoint", "", 0, 2, four)
    ranks.values(2, HERE + "checkpoint", four, 2, 4, two)
    one = ranks.values(1, HERE + "checkpoint", two, 4, 6)
    assert set(one) == set(whole)


@pytest.mark.long
def test_a_checkpoint_of_rank_0_resumes_on_other_device_counts(ranks: Host, tmp_path: Path) -> None:
    file = str(tmp_path / "checkpoint.pth")
    ranks.values(2, HERE + "ddp_checkpoint", file, 0, 3)
    whole = ranks.values(4, HERE + "ddp_checkpoint", str(tmp_path / "other.pth"), 0, 5)
    for size in (1, 2, 4):
        assert set(ranks.values(size, HERE + "ddp_checkpoint", file, 3, 5)) == set(whole)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("shape", "'1.weight' is 2x8 float32 on rank 0 and 3x8 float32 on rank 1"),
        ("late shape", "'1.weight' is 2x8 float32 on rank 0 and 3x8 float32 on rank 1"),
        ("late sharded", "'1.weight' is 2x8 float32 on rank 0 and 3x8 float32 on"),
        ("fewer", "rank 0 has a parameter '1.weight' that rank 1 lacks (4 and 2)"),
        ("dtype", "'1.weight' is 2x8 float32 on rank 0 and 2x8 float16 on rank 1"),
        ("buffer", "'buffer 1.seen' is 2 float32 on rank 0 and 3 float32 on rank 1"),
        ("sharded", "fully_shard: the ranks' models differ: '1.weight' is 2x8 float32 on rank 0 and 3x8 float32 on"),
        ("cpu", "the model is on the CPU, but its group's backend is tccl"),
    ],
)
def test_different_models_are_an_error(ranks: Host, kind: str, said: str) -> None:
    for text in ranks.values(2, HERE + "other_models", kind):
        assert said in text
        assert "\n" not in text
