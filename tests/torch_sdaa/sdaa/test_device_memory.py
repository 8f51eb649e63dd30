"""Device memory: the card's size, accounting, the out-of-memory error, the summary."""

from __future__ import annotations

import gc

import pytest
import torch

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.loading.core import C

MIB = 2**20


def _used(device: int = 3) -> int:
    gc.collect()
    return int(C.memory_allocated(device))


def test_results_views_and_resizes_are_counted_once_and_memory_is_0_after() -> None:
    assert _used() == 0
    x = torch.empty(1 << 18, device="sdaa:3")  # 1 MiB
    assert _used() == MIB
    y = x + 1
    view = y[10:]
    assert _used() == 2 * MIB
    y.resize_(1 << 19)
    assert _used() == 3 * MIB
    x.untyped_storage().resize_(0)
    assert _used() == 2 * MIB
    z = torch.nn.functional.pad(view, (1, 1))
    assert _used() > 2 * MIB
    del x, y, view, z
    assert _used() == 0


def test_out_of_memory_has_requested_and_free_bytes() -> None:
    before = C.memory_counts(3)["ooms"]
    held = torch.empty(MIB, dtype=torch.uint8, device="sdaa:3")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(15296 * MIB, dtype=torch.uint8, device="sdaa:3")
    assert "Tried to allocate 15296 MiB on sdaa:3, which has 15296 MiB, of which 15295 MiB are free" in str(
        caught.value
    )
    assert C.memory_counts(3)["ooms"] == before + 1
    del held
    assert _used() == 0


@pytest.mark.parametrize(("limit", "shown"), [((4 << 40) + MIB // 2, "4194304.5 MiB"), (1536, "1.5 KiB")])
def test_out_of_memory_prints_plain_numbers(limit: int, shown: str) -> None:
    before = C.memory_limit()
    C.set_memory_limit(limit)
    try:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(8 << 40, dtype=torch.uint8, device="sdaa:3")
    finally:
        C.set_memory_limit(before)
    assert f"Tried to allocate 8388608 MiB on sdaa:3, which has {shown}, of which {shown} are free" in str(caught.value)


@pytest.mark.parametrize("index", [4, 64, 256, 1 << 40, -2])
@pytest.mark.parametrize(
    "name",
    [
        *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_counts"),
        *("reset_peak", "reset_accumulated", "times", "worked", "default_generator", "set_device", "synchronize"),
    ],
)
def test_a_missing_device_is_an_error(name: str, index: int) -> None:
    with pytest.raises(RuntimeError, match=rf"SDAA device index {index}:.*4 devices"):
        getattr(C, name)(index)


def test_the_summary_shows_the_allocated_memory() -> None:
    held = torch.empty(3 * MIB, dtype=torch.uint8, device="sdaa:3")
    text = torch.sdaa.memory_summary(3)  # type: ignore[attr-defined]
    assert text.startswith("sdaa:3, simulated memory")
    assert f"{'allocated':<18}{3:>14.2f} MiB" in text
    assert f"{'free':<18}{15293:>14.2f} MiB" in text
    del held


def test_empty_cache_releases_reserved_memory() -> None:
    held = torch.empty(9 * MIB, dtype=torch.uint8, device="sdaa:3")
    assert C.memory_reserved(3) >= 10 * MIB
    del held
    assert C.memory_reserved(3) >= 10 * MIB
    torch.sdaa.empty_cache()  # type: ignore[attr-defined]
    assert C.memory_reserved(3) == 0
