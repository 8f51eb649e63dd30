"""docs/how-to/shufflenet.md works: its commands, its values and its pass."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest
from support import ROOT
from walkthrough import actions, bash, shown
from zoo_copy import with_teco

from engine import PASS_PATH, EngineSpec, open_engine
from toolkit.profile.card import prepare, profile_prepared

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.long]

PAGE = (ROOT / "docs" / "how-to" / "shufflenet.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder in which the page was followed, and all that its commands printed."""
    folder = tmp_path_factory.mktemp("shufflenet")
    environment = with_teco(ROOT, folder / "bin") | {"PYTHONIOENCODING": "utf-8"}
    printed = ""
    for action in actions(PAGE):
        before, export, after = action.text.partition("python -W ignore export.py\n")
        printed += bash(before, folder, environment)
        if export:  # in this process, which has imported torch
            with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
                patch.chdir(folder)
                warnings.simplefilter("ignore")
                runpy.run_path("export.py", run_name="__main__")
        printed += bash(after, folder, environment)
    assert (folder / "shufflenet.onnx").is_file()
    return folder, printed


def compute(model: Path, batch: int, pass_path: Path | None = None) -> float:
    spec = EngineSpec(model, batch_size=batch, pass_path=pass_path)
    return profile_prepared(spec, prepare(spec, compare=False)).compute * 1e3


def test_the_page_matches_the_output_of_the_commands(followed: tuple[Path, str]) -> None:
    lines = shown(PAGE)
    assert len(lines) == 19
    printed = [line.split() for line in followed[1].splitlines()]  # a table is as wide as the terminal lets it be
    assert [line for line in lines if line.split() not in printed] == []


def test_values_equal_cost_model(followed: tuple[Path, str]) -> None:
    model, made = followed[0] / "shufflenet.onnx", followed[0] / "my_pass.py"
    for batch, share, before, now in ((4, "13.4", "4.04", "3.5"), (512, "17.7", "21.4", "17.6")):
        old, new = compute(model, batch), compute(model, batch, made)
        assert (f"{100 * (1 - new / old):.1f}", f"{old:.3g}", f"{new:.3g}") == (share, before, now)
        text = f"{share} % at card batch {batch} ({before} to {now} ms)"
        assert text in " ".join(PAGE.split())
    assert "what if: layout blocked: 2.66 ms compute" in followed[1]
    assert "2.66 ms with the pass" in " ".join(PAGE.split())


def test_pass_equals_that_of_the_zoo(followed: tuple[Path, str]) -> None:
    model, made = followed[0] / "shufflenet.onnx", followed[0] / "my_pass.py"
    zoo = PASS_PATH / "shufflenet" / "shufflenet_pass.py"
    assert compute(model, 64, made) == compute(model, 64, zoo)


def test_the_card_computes_the_same_with_the_pass(followed: tuple[Path, str]) -> None:
    """Within the rounding of float16 storage; the simulated time falls as predicted."""
    model, made = followed[0] / "shufflenet.onnx", followed[0] / "my_pass.py"
    x = np.random.default_rng(0).standard_normal((4, 3, 224, 224)).astype(np.float16)
    results, costs = [], []
    for pass_path in (None, made):
        with open_engine("sdaa", EngineSpec(model, batch_size=4, pass_path=pass_path)) as engine:
            results.append(np.asarray(engine(x)[0], np.float32))
            costs.append(engine.cost.compute)  # type: ignore[attr-defined]
    assert np.abs(results[1] - results[0]).max() <= 2e-2 * np.abs(results[0]).max()
    assert costs[0] - costs[1] == pytest.approx((compute(model, 4) - compute(model, 4, made)) * 1e-3, rel=0.01)
