"""The scaling model's arithmetic, and that the script runs; what it predicts is judged by ``--measure``, not here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support import ROOT

BENCHMARKS = ROOT / "benchmarks"
pytest.importorskip("psutil")


@pytest.fixture(scope="module")
def scaling() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import scaling

        yield scaling


def costs(scaling: Any, **other: float) -> Any:
    found = scaling.Costs(2e-3, 0.0, 1e-4, 1e-6, 1.0, 0.5, 1e-6, 50, 1e5, merge=0.0, spread=0.0)
    return replace(found, **other)


def test_the_slowest_resource_is_reported(scaling: Any) -> None:
    def bound(site: Any, **other: float) -> tuple[str, float]:
        found = scaling.predict(10_000, 10, costs(scaling, **other), site)
        return found.bound_by, found.rate

    assert bound(scaling.Site(1, 1, 2)) == ("cores", pytest.approx(1000))
    assert bound(scaling.Site(1, 1, 64)) == ("card", pytest.approx(10_000))
    assert bound(scaling.Site(2, 2, 64)) == ("card", pytest.approx(40_000))
    assert bound(scaling.Site(1, 1, 64, disk=1e8)) == ("disk", pytest.approx(1000))
    assert bound(scaling.Site(4, 1, 64, disk=1e8, storage=2e8)) == ("storage", pytest.approx(2000))
    assert bound(scaling.Site(1, 1, 64), step=1e-2) == ("loop", pytest.approx(100))


def test_the_parts_add_up_and_the_shared_listing_grows_with_the_processes(scaling: Any) -> None:
    site = scaling.Site(8, 4, 64, lookups=1e6)
    found = scaling.predict(1_000_000, 32, costs(scaling, merge=0.01), site)
    assert found.seconds == pytest.approx(found.working + found.listing + found.start + found.rest)
    assert found.listing == pytest.approx(1_000_000 * 32 / 1e6)
    assert found.listing_mb == pytest.approx(1_000_000 * 50 * 4 / 1e6)
    assert found.overall == pytest.approx(1_000_000 / found.seconds)


def test_a_label_file_is_looked_up_once_by_all_processes_together(scaling: Any) -> None:
    site = scaling.Site(8, 4, 64, lookups=1e6)
    found = scaling.predict(1_000_000, 32, costs(scaling, scan=1e-8, lookup=1e-5), site, listed=True)
    assert found.listing == pytest.approx(1.0)
    assert found.listing_mb == pytest.approx(1_000_000 / 32 * 50 * 4 / 1e6)
    slow = scaling.predict(1_000_000, 32, costs(scaling, scan=1e-8, lookup=1e-4), site, listed=True)
    assert slow.listing == pytest.approx(0.01 + 100 / 32)
    assert slow.seconds == pytest.approx(slow.working + slow.listing + slow.start + slow.rest)


@given(st.integers(1, 10**8), st.integers(1, 64), st.integers(1, 8), st.integers(1, 64))
def test_a_run_is_never_faster_than_its_limit(
    scaling: Any, images: int, machines: int, processes: int, batch: int
) -> None:
    site = scaling.Site(machines, processes, 16)
    found = scaling.predict(images, batch, costs(scaling, spread=0.1), site)
    assert found.working >= images / found.rate * (1 - 1e-9)
    assert found.overall <= found.rate


def test_the_published_table_is_read(scaling: Any) -> None:
    assert scaling.t1_seconds(32) == pytest.approx(5.57e-3 / 32)
    with pytest.raises(SystemExit, match="not published"):
        scaling.t1_seconds(33)


@pytest.mark.slow
@pytest.mark.long
def test_quick_run(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / "scaling.py"), "--quick", "--measure", "--json", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    data = json.loads(result.read_text(encoding="utf-8"))
    assert len(data["predictions"]) == 18
    assert min(data["costs"][name] for name in ("scan", "lookup")) > 0
    assert [row["processes"] for row in data["checked"]] == [1, 2, 4]
    assert min(row["measured_s"] for row in data["checked"]) > 0
    assert all(label in done.stdout for label in ("measured: ", "published: ", "assumed: "))
