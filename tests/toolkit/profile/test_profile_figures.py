"""Values of a profile compared with manual ones: roofline, bounds, shares, what-if and operators."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from toolkit.profile.bottlenecks import NOTICED, ShapeFacts, find_bottlenecks, fusion, one_layout
from toolkit.profile.comparison import compare
from toolkit.profile.record import Launch, Profile, unique
from toolkit.profile.roofline import BOTTOM, TOP, roofline

NONE = ShapeFacts((), (), frozenset())


def step(
    name: str, op_type: str, seconds: float, *, flops: float = 0.0, size: int = 0, bound: str = "compute"
) -> Launch:
    roof = max(flops / 1e12, size / 1e11)
    return Launch(name, op_type, (name,), "", seconds, flops, size, roof, bound)


def profile(*steps: Launch) -> Profile:
    """Return a profile of a machine with 1e12 operations and 1e11 bytes per second: its ridge is at 10."""
    call = sum(one.seconds for one in steps)
    return Profile("m", "sdaa", True, "d", "float16", 1, "", {}, 1e12, 1e11, steps, 0.0, 0.0, call)


def test_the_roofline() -> None:
    low = step("low", "Add", 9e-3, flops=1e8, size=10**8)  # intensity 1, roof 1e11, 1.1e10 a second
    high = step("high", "Conv", 1e-3, flops=1e9, size=10**7)  # intensity 100, roof 1e12, 1e12 a second
    found = roofline(profile(low, high))
    assert found is not None
    assert [point.label for point in found.points] == [
        "low (Add): 1 FLOP/byte, 11% of the roof",
        "high (Conv): 100 FLOP/byte, 100% of the roof",
    ]
    left, right = found.points
    across, up = {label: x for x, label in found.across}, {label: y for y, label in found.up}
    assert list(across) == ["1", "10", "100"]
    assert list(up) == ["0.01", "0.1", "1"]
    assert (left.x, right.x) == (across["1"], across["100"])
    assert list(across.values()) == [0.0, 50.0, 100.0]  # of the card: labels stand beside it
    assert (up["0.01"], up["1"]) == (BOTTOM, TOP)
    assert found.peak == "1 TFLOP/s"
    assert right.y == up["1"]
    assert BOTTOM > left.y > up["0.1"]
    assert left.radius == pytest.approx(3 + 12 * 0.9**0.5, abs=0.05)
    # The roof: up to the ridge at 10 by bandwidth, and level from there.
    assert found.roof == (
        (across["1"], up["0.1"], across["10"], up["1"]),
        (across["10"], up["1"], across["100"], up["1"]),
    )


def test_sloping_line_starts_in_the_plot() -> None:
    far = step("far", "Add", 1e-3, flops=1e8, size=10**10)  # intensity 0.01: there the roof is below the slowest step
    found = roofline(profile(far))
    assert found is not None
    assert found.roof[0][1] <= BOTTOM
    assert found.roof[0][0] == {label: x for x, label in found.across}["1"]

    slow = roofline(profile(step("slow", "Add", 1e-2, flops=1e8, size=2 * 10**8)))  # 1e10 a second at intensity 0.5
    assert slow is not None
    assert slow.roof[0][:2] == (slow.across[0][0], BOTTOM)
    assert slow.across[0][1] == "0.1"


def test_a_roofline_of_one_point_has_a_width() -> None:
    found = roofline(profile(step("ridge", "Conv", 1e-3, flops=1e9, size=10**8)))
    assert found is not None
    assert [label for _, label in found.across] == ["1", "10", "100"]
    assert [label for _, label in found.up] == ["0.1", "1", "10"]


@given(st.floats(1e-9, 1e9), st.floats(1e-12, 1e12), st.floats(1e9, 1e16), st.floats(1e9, 1e13))
def test_roofline_marks_do_not_overlap(seconds: float, flops: float, peak: float, bandwidth: float) -> None:
    lone = profile(step("a", "Conv", seconds, flops=flops, size=1000))
    found = roofline(replace(lone, peak_flops=peak, bandwidth=bandwidth))
    assert found is not None
    across, up = ([place for place, label in marks if label] for marks in (found.across, found.up))
    assert 2 <= len(across) <= 8
    assert 2 <= len(up) <= 8
    assert min(right - left for left, right in pairwise(across)) > 13  # a phone's 250 pixels hold eight labels
    assert min(low - high for low, high in pairwise(up)) > 20
    assert all(len(label) <= 5 for _, label in found.across + found.up)
    for point in found.points:
        assert 0 <= point.x <= 100
        assert TOP <= point.y <= BOTTOM
    for x1, y1, x2, y2 in found.roof:
        assert 0 <= x1 <= x2 <= 100
        assert BOTTOM + 0.1 >= y1 >= y2 >= TOP


def test_no_roofline_without_arithmetic() -> None:
    assert roofline(profile(step("a", "Transpose", 1e-3, size=10))) is None
    assert roofline(profile()) is None


def test_roof_share_is_at_most_1() -> None:
    assert step("a", "Conv", 1e-3, flops=2e9).roof_share == 1.0
    assert step("a", "Conv", 4e-3, flops=2e9).roof_share == 0.5


def test_the_bottleneck_is_the_stage_with_most_time() -> None:
    steps = [
        step("a", "Conv", 3e-3, flops=1e8, bound="launch"),
        step("b", "Conv", 5e-3, flops=1e8, bound="memory"),
        step("c", "Conv", 1e-3, flops=1e8, bound="launch"),
        step("d", "Relu", 0.9e-3, bound="memory"),
    ]
    (one,) = find_bottlenecks(profile(*steps), NONE)
    assert one.text == "Conv: 3 kernels take 91% of the time at 3% of the roof, mostly memory-bound"
    assert one.nodes == ("b", "a", "c")
    assert one.seconds == pytest.approx(9e-3)
    assert not find_bottlenecks(profile(step("a", "Conv", 1e-3, flops=0.51e9)), NONE)  # over half of the roof
    assert find_bottlenecks(profile(step("a", "Conv", 1e-3, flops=0.49e9)), NONE)


@pytest.mark.parametrize(
    ("bound", "advice"),
    [("launch", "number of launches"), ("memory", "memory traffic"), ("compute", "a cheaper equivalent")],
)
def test_fix_depends_on_bound(bound: str, advice: str) -> None:
    (one,) = find_bottlenecks(profile(step("a", "Conv", 1e-3, flops=1e8, bound=bound)), NONE)
    assert f"mostly {bound}-bound" in one.text
    assert advice in one.fix


def test_costliest_is_first_and_small_shares_are_skipped() -> None:
    def mix(moved: float, turned: float) -> list[str]:
        rest = 1 - moved - turned
        steps = [step("s", "Slice", moved), step("t", "Cast", turned), step("m", "MatMul", rest, flops=rest * 0.9e12)]
        return [one.kind for one in find_bottlenecks(profile(*steps), NONE)]

    assert mix(0.1, 0.2) == ["format conversions", "copies of non-contiguous data"]
    assert mix(0.2, 0.1) == ["copies of non-contiguous data", "format conversions"]
    assert mix(NOTICED * 1.01, NOTICED * 0.99) == ["copies of non-contiguous data"]
    assert mix(NOTICED * 0.99, NOTICED * 1.01) == ["format conversions"]


def test_estimated_savings() -> None:
    steps = (step("c", "Conv", 5e-3), step("a", "Add", 2e-3), step("t", "Transpose", 1e-3), step("k", "Cast", 2e-3))
    found, facts = profile(*steps), ShapeFacts((), (), frozenset({"t"}))
    assert [one.seconds for one in fusion(found)] == [pytest.approx(8e-3)]
    assert not fusion(profile(steps[0]))
    (layout,) = one_layout(found, facts)
    assert layout.what == "one layout and dtype throughout: without 2 conversions"
    assert layout.seconds == pytest.approx(7e-3)
    assert one_layout(found, NONE)[0].seconds == pytest.approx(8e-3)
    assert not one_layout(profile(*steps[:3]), NONE)


def test_operators_are_sorted_and_names_made_unique() -> None:
    found = profile(step("a", "Add", 1e-3), step("b", "Conv", 3e-3), step("c", "Add", 1e-3))
    assert found.operators() == [("Conv", 1, 3e-3), ("Add", 2, 2e-3)]
    assert unique(["a", "", "a", "b", "a#2", "a"]) == ["a", "step_1", "a#2", "b", "a#2#4", "a#5"]


def test_a_comparison_has_the_largest_change_first() -> None:
    before = profile(step("a", "Add", 1e-3), step("b", "Conv", 3e-3), step("g", "Gone", 2e-3))
    now = profile(step("a", "Add", 1.5e-3), step("b", "Conv", 2e-3), step("n", "New", 0.1e-3))
    found = compare(before, now)
    assert [change.name for change in found.nodes] == ["g", "b", "a", "n"]
    assert [round(change.difference * 1e3, 3) for change in found.nodes] == [-2, -1, 0.5, 0.1]
    assert found.total.difference == pytest.approx(-2.4e-3)
