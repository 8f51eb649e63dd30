"""Backend tccl: every collective on real processes; values, work objects, groups, simulated time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
from tccl_ranks import Host, hosted  # noqa: E402

import torch_sdaa  # noqa: E402, F401 -- compiles the extension where the cache has none
from engine.sdaa import load_card  # noqa: E402
from torch_sdaa.cost import prices, rings  # noqa: E402

CARD = load_card()
STEP = CARD.copy_launch_us * 1e-6
RATE = CARD.device_to_host_gb_s * 1e9
HERE = "tccl_collectives:"

needs_ranks = pytest.mark.slow


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("ranks")) as host:
        yield host


@pytest.mark.slow
@needs_ranks
@pytest.mark.parametrize("size", [2, 3])
def test_reductions_of_every_dtype_and_operation(ranks: Host, size: int) -> None:
    assert ranks.values(size, HERE + "reductions") == [[]] * size


@needs_ranks
def test_lists_of_tensors_of_other_sizes(ranks: Host) -> None:
    assert ranks.values(3, HERE + "uneven") == [[]] * 3


@needs_ranks
@pytest.mark.parametrize("size", [2, 4])
def test_moved_values_arrive(ranks: Host, size: int) -> None:
    for found in ranks.values(size, HERE + "movements"):
        assert len(found) == 10
        assert all(found.values()), found


@needs_ranks
def test_between_two_ranks(ranks: Host) -> None:
    first, *others = ranks.values(3, HERE + "between_two")
    assert first == {"ring": True, "from": [[1, 1], [2, 2]], "batch": True}
    assert others == [{"ring": True, "number": True, "batch": True}] * 2


@needs_ranks
def test_works_futures_coalescing_and_barriers(ranks: Host) -> None:
    for found in ranks.values(2, HERE + "works"):
        assert all(found.values()), found


@pytest.mark.slow
@needs_ranks
def test_groups_meshes_and_objects(ranks: Host) -> None:
    for rank, found in enumerate(ranks.values(4, HERE + "groups")):
        pair = rank // 2 * 2
        assert found.pop("evens", 2) == 2
        assert found == {
            "pairs": 2 * pair + 1,
            "split": [2 * pair + 1, "tccl"],
            "mesh": 2 * pair + 1,
            "objects": [0, 1, 2, 3],
            "received": [1, "x"],
            "got": [rank],
            "everything": [0, 1, 2, 3] if rank == 0 else None,
            "functional": [4.0, 4.0],
        }


@needs_ranks
def test_without_a_name_the_cpu_has_gloo_and_the_device_tccl(ranks: Host) -> None:
    both = "cpu:gloo,sdaa:tccl"
    expected = {"host": [2.0, 2.0], "device": [2.0, 2.0], "config": both, "name": both}
    assert ranks.values(2, HERE + "default_backends") == [expected] * 2


@needs_ranks
def test_a_collective_takes_the_ring_time_and_overlaps_with_compute(ranks: Host) -> None:
    megabytes = 64
    for found in ranks.values(2, HERE + "simulated", megabytes):
        ring = 2 * STEP + (megabytes << 20) / RATE
        assert found["all"] == pytest.approx(ring)
        assert found["product"] < 0.5 * ring
        assert found["both"] == pytest.approx(ring)


@needs_ranks
def test_invalid_calls_are_errors(ranks: Host) -> None:
    found = ranks(2, HERE + "two_on_one")
    assert [one.code for one in found] == [1, 1]
    refused = [
        rank
        for rank, one in enumerate(found)
        if f"tccl: rank {rank} uses sdaa:0, which is rank {1 - rank}'s" in one.said
    ]
    assert len(refused) == 1  # the one that came second
    assert found[1 - refused[0]].said.startswith(f"tccl: rank {1 - refused[0]} lost rank {refused[0]} ")
    for rank, said in enumerate(ranks.values(2, HERE + "mixed_devices")):
        assert said.startswith(f"tccl: all_gather of tensors on sdaa:{rank} and cpu: ")
    [said] = ranks.values(1, HERE + "sparse")
    assert "dense tensors" in said


@pytest.mark.slow
@needs_ranks
def test_waiting_has_a_limit(ranks: Host) -> None:
    said, _ = ranks.values(2, HERE + "late")
    assert said.startswith("tccl: rank 0 waited too long for the others in all_reduce: ")
    said, _ = ranks.values(2, HERE + "late_wait")
    assert said.startswith("tccl: rank 0 waited 0.2 s in all_reduce for the others: ")


@pytest.mark.parametrize(
    ("op", "read", "written", "steps", "moved"),
    [
        ("all_reduce[4]", 400, 400, 6, 600),
        ("reduce[4]", 400, 400, 3, 400),
        ("broadcast[2]", 400, 400, 1, 400),
        ("all_gather[4]", 100, 400, 3, 300),
        ("reduce_scatter[4]", 400, 100, 3, 300),
        ("all_to_all[4]", 400, 400, 3, 300),
        ("gather[4]", 100, 400, 3, 300),
        ("gather[4]", 100, 0, 1, 100),
        ("scatter[4]", 400, 100, 3, 300),
        ("scatter[4]", 0, 100, 1, 100),
        ("send[4]", 100, 0, 1, 100),
        ("recv[4]", 0, 100, 1, 100),
        ("barrier[4]", 0, 0, 6, 0),
        ("all_reduce[1]", 400, 400, 0, 0),
    ],
)
def test_rings(op: str, read: int, written: int, steps: int, moved: float) -> None:
    assert rings.ring_of("tccl::" + op, read, written) == (steps, moved)
    pricer = prices.Pricer(CARD)
    price = pricer.price("tccl::" + op, [("Byte", 1, (read,))], [("Byte", 1, (written,))])
    assert price.seconds == pytest.approx(steps * STEP + moved / RATE)
    assert price.assumed == price.seconds  # how the devices are joined is published nowhere
    assert ("collectives" in pricer.assumed) == bool(steps)


def test_an_unknown_collective_has_no_price() -> None:
    with pytest.raises(ValueError, match="no price for tccl::shout"):
        rings.ring_of("tccl::shout[4]", 1, 1)


def test_the_backend_is_registered() -> None:
    assert torch.distributed.Backend.TCCL == "tccl"
    assert torch.distributed.is_tccl_available()
    assert torch.distributed.Backend.default_device_backend_map["sdaa"] == "tccl"
