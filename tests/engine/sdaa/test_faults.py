from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine import ConfigError
from engine.sdaa.faults import Fault, check_spas, faults_from_environment, parse_faults


def test_several_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Fault("lose", 1, 3), Fault("slow", 0, 0, 2.5), Fault("nan", 2, 7)]
    assert parse_faults(" lose:spa=1,step=3; slow:factor=2.5, spa = 0 ,step=0;nan:step=7,spa=2;") == wanted
    assert faults_from_environment() == []
    monkeypatch.setenv("TECO_SIM_FAULTS", "hang:spa=0,step=1")
    assert faults_from_environment() == [Fault("hang", 0, 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lose", "'lose' is not a fault; write kind:spa=K,step=N with kind one of lose, hang, slow, oom, nan"),
        ("burn:spa=1,step=1", "is not a fault"),
        ("lose:", "is not a fault"),
        ("lose:spa=-1,step=1", "is not a fault"),
        ("lose:spa=1", "must give spa, step, each once"),
        ("lose:spa=1,step=1,spa=2", "must give spa, step, each once"),
        ("lose:spa=1,step=1,factor=2", "must give spa, step, each once"),
        ("lose:spa=1,step=1,when=2", "must give spa, step, each once"),
        ("slow:spa=1,step=1", "must give factor, spa, step, each once"),
        ("lose:spa=one,step=1", "spa and step must be whole numbers"),
        ("lose:spa=1.5,step=1", "spa and step must be whole numbers"),
        ("lose:spa,step=1", "spa and step must be whole numbers"),
        ("slow:spa=1,step=1,factor=0", "factor must be a number of at least 1"),
        ("slow:spa=1,step=1,factor=nan", "factor must be a number of at least 1"),
        ("slow:spa=1,step=1,factor=inf", "factor must be a number of at least 1"),
        ("lose:spa=1,step=1 hang:spa=2,step=2", "is not a fault"),
    ],
)
def test_an_invalid_fault(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_faults(text)
    assert str(caught.value).startswith("TECO_SIM_FAULTS: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text("losehangw:=,;spatefcr 0123456789.-\n", max_size=40))
def test_any_text_gives_faults_or_our_error(text: str) -> None:
    try:
        faults = parse_faults(text)
    except ConfigError:
        return
    assert len(faults) == sum(bool(entry.strip()) for entry in text.split(";"))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("lose", 4, 0), r"SPA 4 .*\(0 to 3\)"),
        (Fault("lose", -1, 0), "SPA -1 "),
        (Fault("lose", 0, -1), "step -1 "),
    ],
)
def test_impossible_faults(fault: Fault, said: str) -> None:
    check_spas([Fault("lose", 3, 0)], 4)
    with pytest.raises(ConfigError, match=said):
        check_spas([fault], 4)


@pytest.mark.parametrize(("kind", "strikes"), [("lose", [0, 0, 1, 1]), ("slow", [0, 0, 1, 1]), ("oom", [0, 0, 1, 0])])
def test_steps_in_which_a_fault_is_active(kind: str, strikes: list[int]) -> None:
    fault = Fault(kind, 0, 2)  # type: ignore[arg-type]
    assert [fault.strikes(step) for step in range(4)] == [bool(s) for s in strikes]
