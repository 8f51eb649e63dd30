"""The search finds any culprits within the documented number of trials."""

from __future__ import annotations

import math

from hypothesis import given, strategies as st

from toolkit.fix.search import smallest


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], set[str]]:
    names = [f"n{i}" for i in range(draw(st.integers(1, 300)))]
    return names, set(draw(st.lists(st.sampled_from(names), max_size=8)))


@given(cases(), st.integers(0, 400))
def test_culprits_are_found_in_k_log_n_trials(case: tuple[list[str], set[str]], likely: int) -> None:
    names, culprits = case
    asked: list[frozenset[str]] = []

    def passes(chosen: frozenset[str]) -> bool:
        asked.append(chosen)
        return culprits <= chosen

    found = smallest(names, passes, likely)
    assert set(found) == culprits
    assert len(found) == len(culprits)
    assert len(asked) == len(set(asked)) <= (len(culprits) + 2) * (math.log2(len(names)) + 2)


def test_all_candidates_if_even_all_fail() -> None:
    assert smallest(["a", "b"], lambda chosen: False) == ["a", "b"]


def test_ranked_candidates_take_few_trials() -> None:
    asked = 0

    def passes(chosen: frozenset[str]) -> bool:
        nonlocal asked
        asked += 1
        return {"n0", "n1"} <= chosen

    assert set(smallest([f"n{i}" for i in range(1000)], passes)) == {"n0", "n1"}
    assert asked <= 6


@given(st.integers(1, 20), st.integers(20, 300))
def test_culprits_that_lead_the_list_take_a_trial_each(k: int, n: int) -> None:
    asked: list[frozenset[str]] = []
    names = [f"n{i}" for i in range(n)]
    found = smallest(names, lambda chosen: bool(asked.append(chosen)) or chosen >= set(names[:k]), k)
    assert set(found) == set(names[:k])
    assert len(asked) <= k + 3  # none, all, the first k, and each of them left out


@given(st.sets(st.frozensets(st.sampled_from("abcdef")), min_size=1))
def test_result_passes_for_non_monotonic_tests(passing: set[frozenset[str]]) -> None:
    """Also if a superset of a passing set fails; all candidates together pass."""
    known = {*passing, frozenset("abcdef")}
    assert frozenset(smallest("abcdef", known.__contains__)) in known
