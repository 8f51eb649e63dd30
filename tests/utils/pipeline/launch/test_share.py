from __future__ import annotations

import os

import pytest
from hypothesis import given, strategies as st
from support import RunPython

from utils.pipeline.launch.share import share_of


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 20))
def test_shares_are_equal_and_disjoint(cores: int, quota: int, of: int) -> None:
    usable = min(cores, quota)
    shares = [share_of(range(100, 100 + cores), usable, index, of) for index in range(of)]
    each = max(1, usable // of)
    assert {len(set(share)) for share in shares} == {each}
    assert {core for share in shares for core in share} <= set(range(100, 100 + cores))
    if of <= usable:
        assert len({core for share in shares for core in share}) == of * each


def test_more_processes_than_cores_take_turns() -> None:
    assert [share_of([4, 6], 2, index, 4) for index in range(4)] == [[4], [6], [4], [6]]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_threads_started_later_use_the_share(run_python: RunPython) -> None:
    code = (
        "import os\nfrom engine.host.cores import usable_cores\nfrom utils.pipeline.launch.share import take_cores\n"
        "before = usable_cores()\ntake_cores(0, 1)\nassert usable_cores() == before\n"
        "take_cores(1, 2)\nassert usable_cores() == max(1, before // 2)"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
