"""The quick hard checks in this process, one order of all checks, and twenty orders in .ci/long."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.torch_sdaa.hard import CHECKS, __main__ as hard
from tests.torch_sdaa.hard.check import Check
from tests.torch_sdaa.hard.run import run

SLICE = (
    "seeds_and_states",
    "memory_is_taken_and_given_back",
    "too_much_is_refused_with_both_figures",
    "copies_of_tensors_that_are_not_contiguous",
    "copies_between_devices",
    "complex_views_and_lazy_bits",
    "a_graph_that_is_kept",
    "hooks_of_tensors_and_modules",
    "checkpointing_draws_the_same_numbers_again",
    "backward_in_threads_on_all_devices",
    "set_num_threads_by_another_thread",
    "adamw",
    "tensors_on_two_devices_are_refused",
    "tied_weights_stay_tied",
)


def test_there_are_enough_checks():
    assert len(CHECKS) >= 82
    assert set(SLICE) <= set(CHECKS)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", SLICE)
def test_quick_check(name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(CHECKS[name]).why == ""


def test_a_check_that_raises_fails_with_the_place():
    def wrong() -> None:
        raise ValueError("on purpose")

    assert "ValueError: on purpose" in run(Check("wrong", wrong, costly=False)).why


def test_a_check_that_leaks_memory_or_changes_the_device_fails():
    import torch

    kept = []

    def leaves_memory() -> None:
        kept.append(torch.ones(10, device="sdaa:3"))

    def leaves_device() -> None:
        torch.sdaa.set_device(2)

    assert "left behind: memory" in run(Check("leaves_memory", leaves_memory, costly=False), 0.1).why
    kept.clear()
    before = torch.sdaa.current_device()
    try:
        assert "left behind: device" in run(Check("leaves_device", leaves_device, costly=False), 0.1).why
    finally:
        torch.sdaa.set_device(before)


def test_an_unknown_check_is_an_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        hard.main(["--only", "nothing like this"])
    assert ended.value.code == 2
    assert "no check has 'nothing like this' in its name" in capsys.readouterr().err


def test_a_process_that_ends_in_a_check_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def ends() -> None:
        raise SystemExit(5)

    monkeypatch.setitem(CHECKS, "ends", Check("ends", ends, costly=False))
    file = tmp_path / "order.json"
    with pytest.raises(SystemExit):
        hard.one_order(["ends"], 0, file)
    assert '"running": "ends"' in file.read_text()
    assert '"finished": false' in file.read_text()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.long
def test_cheap_checks_in_a_random_order():
    names = [name for name, found in CHECKS.items() if not found.costly]
    random.shuffle(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed = {name: why for name in names if (why := run(CHECKS[name]).why)}
    assert not failed, (names, failed)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.long
def test_all_checks_in_one_order_of_a_fresh_process(tmp_path: Path):
    assert hard.main(["--seed", str(random.randrange(10**6)), "--json", str(tmp_path / "orders.json")]) == 0
