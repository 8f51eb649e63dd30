"""Faults planted in a training are named and repeated; a healthy one has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ROOT

pytest.importorskip("torch")
pytest.importorskip("h5py")
pytest.importorskip("psutil")

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def benchmark() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "tools"))
        patch.setenv("TORCH_SDAA_RANDOM", "cpu")
        import located_training_faults

        yield located_training_faults


@pytest.mark.long
@pytest.mark.parametrize("way", ["cpu", "amp"])
def test_device_faults_are_named(way: str, benchmark: Any, tmp_path: Path) -> None:
    bench = benchmark.Bench("images", way, tmp_path)
    rows = [bench.healthy(), *(bench.device(kind, 0) for kind in ("perturb", "nan", "deny"))]
    assert [row for row in rows if not row.found or row.replays is False] == []


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("precision", ["amp", "apex"])
def test_overflows_are_found(precision: str, phase: str, benchmark: Any, tmp_path: Path) -> None:
    try:
        row = benchmark.overflows("images", precision, phase, tmp_path)
    finally:
        benchmark._forget_apex()
    assert (row.found, row.replays) == (True, True), row
