"""DTensors on several devices: random numbers, FSDP2 from the meta device, tensor parallelism, the mesh's device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
from tccl_ranks import Host, hosted  # noqa: E402

import torch_sdaa  # noqa: E402, F401 -- compiles the extension where the cache has none

HERE = "tccl_sharding:"

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("ranks")) as host:
        yield host


def test_a_mesh_takes_the_device_of_local_rank_unless_one_was_selected(ranks: Host) -> None:
    for found in ranks.values(2, HERE + "placed"):
        assert found == [False, True, True, True]


@pytest.mark.parametrize("size", [2, 3])
def test_random_operators_draw_the_numbers_of_one_device(ranks: Host, size: int) -> None:
    assert ranks.values(size, HERE + "drawn") == [[]] * size


def test_new_random_tensors_are_those_of_one_device(ranks: Host) -> None:
    found = ranks.values(2, HERE + "made")
    assert {bits for one in found for bits in one} == {found[0][0]}


def test_ranks_with_other_seeds_draw_equal_replicas(ranks: Host) -> None:
    assert ranks.values(2, HERE + "unseeded") == [[True, True]] * 2


@pytest.mark.parametrize("size", [2, 4])
def test_fsdp_from_the_meta_device_is_the_model_of_one_process(ranks: Host, size: int) -> None:
    found = ranks.values(size, HERE + "recipe")
    assert {bits for one in found for bits in one["begun"]} == {found[0]["begun"][0]}
    assert len({one["bits"] for one in found}) == 1
    for one in found:
        assert one["device"]
        assert one["apart"] < 1e-4 < 1e-2 < one["moved"]


@pytest.mark.parametrize(("size", "replicas"), [(2, 1), (4, 2)])
def test_tensor_parallelism_is_the_model_of_one_process(ranks: Host, size: int, replicas: int) -> None:
    found = ranks.values(size, HERE + "tensor_parallel", replicas)
    assert {bits for one in found for bits in one["begun"]} == {found[0]["begun"][0]}
    assert len({one["bits"] for one in found}) == 1
    assert len({one["own"] for one in found}) == size
    for one in found:
        assert one["apart"] < 1e-6
