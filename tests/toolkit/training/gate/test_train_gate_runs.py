"""Files that a run of the training gate may write, and errors for invalid ones."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine import DataError
from toolkit.training.gate.runs import read_losses

HEAD = '{"device": "sdaa:0", "seed": 0}\n'
STEP = '{"step": 0, "loss": 1.5}\n'


def read(text: str, tmp_path: Path, device: str = "sdaa") -> tuple[tuple[int, ...], tuple[float, ...]]:
    file = tmp_path / "losses.jsonl"
    file.write_text(text, encoding="utf-8")
    return read_losses(file, device, 0, "the run")


def test_losses_round_trip(tmp_path: Path) -> None:
    text = HEAD + STEP + '{"step": 5, "loss": NaN, "rate": 0.1}\n{"step": 6, "loss": 2}\n{"step": 7, "loss": -Infinity}'
    steps, losses = read(text, tmp_path)
    assert steps == (0, 5, 6, 7)
    assert (losses[0], losses[2], losses[3]) == (1.5, 2.0, -math.inf)
    assert math.isnan(losses[1])
    exact = 0.1 + 0.2
    assert read(f'{HEAD}{{"step": 0, "loss": {exact!r}}}\n', tmp_path)[1] == (exact,)
    assert read(f'{HEAD}{{"step": 0, "loss": 1{"0" * 400}}}\n', tmp_path)[1] == (math.inf,)


@pytest.mark.parametrize("device", ["sdaa", "sdaa:0"])
def test_a_device_without_an_index_matches_any_of_its_type(device: str, tmp_path: Path) -> None:
    assert read(HEAD + STEP, tmp_path, device)[0] == (0,)


@pytest.mark.parametrize("device", ["sdaa:1", "cpu", "sda", "sdaa:00"])
def test_another_device_than_requested_is_an_error(device: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"the run: .*sdaa:0, .*{device}; .*--device"):
        read(HEAD + STEP, tmp_path, device)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wrote nothing .*--losses"),
        (STEP, r'first line .* \{"device": "sdaa", "seed": 0\}'),
        ('{"device": "sdaa:0", "seed": 1}\n' + STEP, "its seed was 1, not 0; .*--seed"),
        (HEAD, "wrote no loss"),
        (HEAD + "[1, 2]\n", "line 2 .* JSON object"),
        (HEAD + "{\n", "line 2 .* JSON;"),
        (HEAD + "[" * 100_000, "line 2 .* JSON;"),
        (HEAD + '{"step": 0}\n', r'line 2 .* \{"step": 0, "loss": 2.31\}'),
        (HEAD + '{"step": 0.5, "loss": 1}\n', r'line 2 .* \{"step": 0, "loss": 2.31\}'),
        (HEAD + '{"step": 0, "loss": "1"}\n', r'line 2 .* \{"step": 0, "loss": 2.31\}'),
        (HEAD + '{"step": true, "loss": 1}\n', r'line 2 .* \{"step": 0, "loss": 2.31\}'),
        (HEAD + '{"step": 0, "loss": true}\n', r'line 2 .* \{"step": 0, "loss": 2.31\}'),
        (HEAD + STEP + STEP, "line 3 .* step 0 after 0;"),
    ],
)
def test_invalid_losses_are_one_line_with_their_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^the run: .*{message}") as caught:
        read(text, tmp_path)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_text_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "losses.jsonl"
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(DataError, match=r"the run: .*utf-8"):
        read_losses(file, "sdaa", 0, "the run")
