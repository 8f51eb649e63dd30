"""What a run of the training gate may write, and what is made of a file that is otherwise."""

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


def test_losses_are_read_as_they_were_written(tmp_path: Path) -> None:
    text = HEAD + STEP + '{"step": 5, "loss": NaN, "rate": 0.1}\n{"step": 6, "loss": 2}\n{"step": 7, "loss": -Infinity}'
    steps, losses = read(text, tmp_path)
    assert steps == (0, 5, 6, 7)
    assert (losses[0], losses[2], losses[3]) == (1.5, 2.0, -math.inf)
    assert math.isnan(losses[1])
    exact = 0.1 + 0.2
    assert read(f'{HEAD}{{"step": 0, "loss": {exact!r}}}\n', tmp_path)[1] == (exact,)
    assert read(f'{HEAD}{{"step": 0, "loss": 1{"0" * 400}}}\n', tmp_path)[1] == (math.inf,)


@pytest.mark.parametrize("device", ["sdaa", "sdaa:0"])
def test_a_device_without_a_number_is_any_of_its_kind(device: str, tmp_path: Path) -> None:
    assert read(HEAD + STEP, tmp_path, device)[0] == (0,)


@pytest.mark.parametrize("device", ["sdaa:1", "cpu", "sda", "sdaa:00"])
def test_another_device_is_not_the_one_that_was_asked_for(device: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the run: it says that it ran on sdaa:0; let it use what --device says"):
        read(HEAD + STEP, tmp_path, device)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "wrote nothing to the file that --losses names"),
        (STEP, 'the first line of its losses is no {"device": "sdaa", "seed": 0}'),
        ('{"device": "sdaa:0", "seed": 1}\n' + STEP, "it says that its seed was 1; let it use what --seed says"),
        (HEAD, "wrote no loss of any step"),
        (HEAD + "[1, 2]\n", "line 2 of its losses is no JSON object"),
        (HEAD + "{\n", "line 2 of its losses is no JSON"),
        (HEAD + "[" * 100_000, "line 2 of its losses is no JSON"),
        (HEAD + '{"step": 0}\n', 'line 2 of its losses is no {"step": 0, "loss": 2.31}'),
        (HEAD + '{"step": 0.5, "loss": 1}\n', 'line 2 of its losses is no {"step": 0, "loss": 2.31}'),
        (HEAD + '{"step": 0, "loss": "1"}\n', 'line 2 of its losses is no {"step": 0, "loss": 2.31}'),
        (HEAD + '{"step": true, "loss": 1}\n', 'line 2 of its losses is no {"step": 0, "loss": 2.31}'),
        (HEAD + '{"step": 0, "loss": true}\n', 'line 2 of its losses is no {"step": 0, "loss": 2.31}'),
        (HEAD + STEP + STEP, "line 3 of its losses has step 0 behind 0; write them in order"),
    ],
)
def test_anything_else_is_one_line_that_names_the_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(text, tmp_path)
    assert str(caught.value).startswith(f"the run: {said}")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "losses.jsonl"
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(DataError, match="the run: its losses cannot be read: "):
        read_losses(file, "sdaa", 0, "the run")
