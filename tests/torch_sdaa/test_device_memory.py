"""Device memory: the card's size, what is counted, what out-of-memory says, the summary."""

from __future__ import annotations

import gc

import pytest
import torch

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.core import C

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


def test_out_of_memory_says_what_was_asked_and_what_is_free() -> None:
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


def test_the_summary_shows_what_is_taken() -> None:
    held = torch.empty(3 * MIB, dtype=torch.uint8, device="sdaa:3")
    text = torch.sdaa.memory_summary(3)  # type: ignore[attr-defined]
    assert text.startswith("sdaa:3, simulated memory")
    assert f"{'allocated':<18}{3:>14.2f} MiB" in text
    assert f"{'free':<18}{15293:>14.2f} MiB" in text
    del held


def test_reserved_memory_goes_back_with_empty_cache() -> None:
    held = torch.empty(9 * MIB, dtype=torch.uint8, device="sdaa:3")
    assert C.memory_reserved(3) >= 10 * MIB
    del held
    assert C.memory_reserved(3) >= 10 * MIB
    torch.sdaa.empty_cache()  # type: ignore[attr-defined]
    assert C.memory_reserved(3) == 0
