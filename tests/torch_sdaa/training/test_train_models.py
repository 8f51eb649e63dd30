"""Three training steps of complete models, on the CPU and on all devices: equal bits, and all memory freed."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torchvision") is None:  # one whose operators do not load is enough
    pytest.skip("torchvision is not installed", allow_module_level=True)

from tests.torch_sdaa.training import train_models
from tests.torch_sdaa.training.train_models import MODELS, Row, compare, main

SOON = ("GAN", "diffusion U-Net")
LATER = tuple(name for name in MODELS if name not in SOON)


def check(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torchvision and transformers
        rows = compare(name)
    assert [row.device for row in rows] == list(train_models.DEVICES)
    assert [row for row in rows if not row.passed] == []
    assert len(rows[0].losses) >= train_models.STEPS


def test_the_models_of_the_page():
    assert len(train_models.TORCHVISION) == 12
    assert {"tied BERT", "LSTM", "GAN", "diffusion U-Net"} <= set(MODELS)


def test_a_row_passes_only_if_all_values_are_equal_and_no_memory_is_left():
    row = {"model": "m", "device": "sdaa:0", "losses": [1.0], "compared": 2}
    assert Row(**row, losses_equal=True, different=[], bytes_left=0).passed
    assert not Row(**row, losses_equal=False, different=[], bytes_left=0).passed
    assert not Row(**row, losses_equal=True, different=["0.weight"], bytes_left=0).passed
    assert not Row(**row, losses_equal=True, different=[], bytes_left=512).passed


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", SOON)
def test_small_models(name: str):
    check(name)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", LATER)
def test_models(name: str):
    check(name)


@pytest.mark.slow
def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--only", "GAN", "--json", str(tmp_path / "rows.json")]) == 0
    assert "4 of 4 rows equal to the CPU, with no memory left" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 4
    with pytest.raises(SystemExit) as ended:
        main(["--only", "nothing like this"])
    assert ended.value.code == 2
