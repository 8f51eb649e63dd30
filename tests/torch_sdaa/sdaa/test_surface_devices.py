"""The current device, memory, random numbers, ``torch.accelerator``."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

pytestmark = pytest.mark.torch
CARD = 15296 << 20


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    states = torch.sdaa.get_rng_state_all()
    before = torch.sdaa.current_device()
    yield
    torch.sdaa.set_device(before)
    torch.sdaa.set_rng_state_all(states)


def test_the_card_has_four_devices() -> None:
    assert torch.sdaa.is_available()
    assert torch.sdaa.is_initialized()
    assert torch.sdaa.device_count() == 4
    assert torch.sdaa.get_device_name(3) == torch.sdaa.get_device_properties("sdaa:3").name
    assert torch.sdaa.get_device_properties().total_memory == CARD
    assert torch.sdaa.get_device_capability(torch.device("sdaa:1")) == (1, 0)
    assert not torch.sdaa.can_device_access_peer(0, 1)


@pytest.mark.parametrize("device", [2, "sdaa:2", torch.device("sdaa", 2)])
def test_the_current_device_is_the_device_set(device: object) -> None:
    torch.sdaa.set_device(device)

    assert torch.sdaa.current_device() == torch.accelerator.current_device_index() == 2
    assert torch.ones(1, device="sdaa").device == torch.device("sdaa:2")
    assert torch.ones(1).sdaa().device == torch.device("sdaa:2")


def test_a_negative_number_has_no_effect() -> None:
    torch.sdaa.set_device(1)
    torch.sdaa.set_device(-1)
    with torch.sdaa.device(-1), torch.sdaa.device(None):
        assert torch.sdaa.current_device() == 1
        assert torch.sdaa.Stream(-1).device == torch.device("sdaa:1")
    x = torch.ones(1 << 20, device="sdaa:1")
    assert torch.sdaa.memory_allocated(-1) == torch.sdaa.memory_allocated(1) >= x.nbytes


def test_contexts_restore_the_previous_state() -> None:
    x = torch.ones(1, device="sdaa:3")
    with torch.sdaa.device("sdaa:1"):
        with torch.sdaa.device_of(x):
            assert torch.sdaa.current_device() == 3
        with torch.sdaa.device_of(torch.ones(1)), torch.accelerator.device_index(2):
            assert torch.sdaa.current_device() == 2
        assert torch.sdaa.current_device() == 1
    assert torch.sdaa.current_device() == 0


def test_the_current_device_is_per_thread() -> None:
    seen = []

    def work(index: int) -> None:
        torch.sdaa.set_device(index)
        x = torch.full((8, 8), float(index), device="sdaa", requires_grad=True)
        (x * x).sum().backward()
        torch.sdaa.set_device((index + 1) % 4)  # after backward too, which some cards refuse
        y = torch.ones(1, device="sdaa")
        seen.append((index, x.grad.device.index, y.device.index, x.grad.sum().item()))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(seen) == [(index, index, (index + 1) % 4, 128.0 * index) for index in range(4)]
    assert torch.sdaa.current_device() == 0


def test_memory_is_counted_by_device() -> None:
    gc.collect()
    before = torch.sdaa.memory_allocated(2)
    torch.sdaa.reset_peak_memory_stats(2)
    x = torch.empty(1 << 20, device="sdaa:2")
    during = torch.sdaa.memory_allocated("sdaa:2")
    del x

    assert during - before == 4 << 20
    assert torch.sdaa.memory_allocated(2) == before
    assert torch.sdaa.max_memory_allocated(2) == torch.accelerator.max_memory_allocated(2) == during
    assert torch.sdaa.memory_reserved(2) >= before
    assert torch.sdaa.mem_get_info(2) == (CARD - before, CARD)
    torch.sdaa.empty_cache()
    assert torch.sdaa.memory_reserved(2) == (before + (2 << 20) - 1) // (2 << 20) * (2 << 20)


def test_the_statistics_agree_in_all_their_forms() -> None:
    x = torch.empty(1 << 18, device="sdaa:1")
    stats = torch.sdaa.memory_stats(1)

    assert stats["allocated_bytes.all.current"] == torch.sdaa.memory_allocated(1) >= x.nbytes
    assert (
        torch.sdaa.memory_stats_as_nested_dict(1)["allocated_bytes"]["all"]["peak"] == stats["allocated_bytes.all.peak"]
    )
    assert torch.accelerator.memory_stats(1)["allocated_bytes.all.current"] == stats["allocated_bytes.all.current"]
    summary = torch.sdaa.memory_summary(1)
    assert "simulated" in summary
    assert f"{stats['allocated_bytes.all.current'] / 2**20:.2f} MiB" in summary
    assert len(torch.sdaa.memory_summary(1, abbreviated=True).splitlines()) < len(summary.splitlines())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("memory_cached", "memory_reserved"),
        ("max_memory_cached", "max_memory_reserved"),
        ("reset_max_memory_allocated", "reset_peak_memory_stats"),
        ("reset_max_memory_cached", "reset_peak_memory_stats"),
    ],
)
def test_a_deprecated_name_warns(old: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=new):
        assert getattr(torch.sdaa, old)(3) == getattr(torch.sdaa, new)(3)


def test_random_numbers_are_the_cpus_from_the_same_seed() -> None:
    state = torch.get_rng_state()
    try:
        torch.manual_seed(7)
        expected = torch.rand(5)
        torch.sdaa.manual_seed_all(7)
        assert all(torch.equal(torch.rand(5, device=f"sdaa:{i}").cpu(), expected) for i in range(4))
        assert torch.sdaa.initial_seed() == 7
    finally:
        torch.set_rng_state(state)


def test_a_restored_state_repeats_the_numbers() -> None:
    state, states = torch.sdaa.get_rng_state("sdaa:1"), torch.sdaa.get_rng_state_all()
    first, other = torch.rand(3, device="sdaa:1"), torch.rand(3, device="sdaa:2")
    torch.sdaa.set_rng_state(state, 1)
    assert torch.equal(torch.rand(3, device="sdaa:1"), first)
    torch.sdaa.set_rng_state_all(states)
    assert torch.equal(torch.rand(3, device="sdaa:2"), other)
    with torch.random.fork_rng(devices=[1], device_type="sdaa"):
        inside = torch.rand(3, device="sdaa:1")
    assert torch.equal(torch.rand(3, device="sdaa:1"), inside)


def test_offsets_are_errors() -> None:
    with pytest.raises(RuntimeError, match=r"^sdaa:0 .*set_offset: .*get_rng_state"):
        torch.sdaa.set_offset(123)
    with pytest.raises(RuntimeError, match=r"^sdaa:2 .*get_offset: "):
        torch.sdaa.get_offset("sdaa:2")


def test_a_generator_of_a_device() -> None:
    generator = torch.Generator(device="sdaa:1").manual_seed(3)
    first = torch.randperm(9, generator=generator, device="sdaa:1")

    assert generator.device == torch.device("sdaa:1")
    assert torch.equal(torch.randperm(9, generator=generator.manual_seed(3), device="sdaa:1"), first)
    assert torch.sdaa.default_generators[1].device == torch.device("sdaa:1")


def test_the_accelerator_is_this_card() -> None:
    torch.accelerator.set_device_index(1)

    assert torch.accelerator.current_accelerator() == torch.device("sdaa")
    assert torch.accelerator.device_count() == 4
    assert torch.accelerator.is_available()
    assert torch.accelerator.get_memory_info(2)[1] == CARD
    assert torch.float16 in torch.accelerator.get_device_capability(1)["supported_dtypes"]
    assert torch.accelerator.current_stream() == torch.sdaa.current_stream(1)
    torch.accelerator.synchronize()
