from __future__ import annotations

import pytest

from tecoinfer_modelzoo.process.limits import limits_of


def found(*words: str) -> tuple[float | None, float | None]:
    limits = limits_of(words)
    return limits.seconds, limits.memory


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TECO_TIME_LIMIT", raising=False)
    monkeypatch.delenv("TECO_MEMORY_LIMIT", raising=False)


def test_no_limit_by_default() -> None:
    assert found("compare", "a.onnx") == (None, None)


def test_both_forms_of_flags() -> None:
    assert found("compare", "--time_limit", "90", "--memory_limit=0.5") == (90.0, 2.0**29)


def test_the_last_flag_wins() -> None:
    assert found("--time_limit=1", "--time_limit", "2") == (2.0, None)


def test_flags_after_a_double_dash_are_ignored() -> None:
    assert found("fix", "--", "--time_limit", "5") == (None, None)


def test_a_flag_overrides_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_TIME_LIMIT", "7")
    monkeypatch.setenv("TECO_MEMORY_LIMIT", "")
    assert found() == (7.0, None)
    assert found("--time_limit", "8") == (8.0, None)


@pytest.mark.parametrize("value", ["", "0", "-1", "nan", "inf", "soon", "1e30", "9" * 5000])
def test_invalid_numbers_are_rejected(value: str) -> None:
    with pytest.raises(ValueError, match="--time_limit"):
        limits_of(["--time_limit", value])
    with pytest.raises(ValueError, match="--memory_limit"):
        limits_of([f"--memory_limit={value}"])


def test_a_flag_without_a_value_is_rejected() -> None:
    with pytest.raises(ValueError, match="--time_limit"):
        limits_of(["compare", "--time_limit"])
