"""Every row of the table of fixes is listed if it applies; useless rules are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import profile_models as models
import pytest
from text_models import encoder

from toolkit.cli import execute
from toolkit.profile.fixes import AIMS, TABLE, fix_of
from toolkit.profile.record import Profile, WhatIf

CARD = Profile("m", "sdaa", True, "card", "float16", 1, "", {}, 1e12, 1e11, (), 0.0, 0.0, 0.0)
HOST = replace(CARD, target="onnx", simulated=False, dtype="float32")
FLOAT32 = replace(CARD, dtype="float32")
BLOCKED = replace(CARD, what_if=(WhatIf("layout blocked", -1.0),))  # less than the nothing that its steps take
SAVES = {"Mul": 2.5, "Gelu": -0.5}
USELESS = {"Mul": 0.0}
TRY = "teco profile --suggest tries the rewrite rules"
OWNER = "report it to the developer of the operator (teco optest writes a test case)"


@pytest.mark.parametrize(
    ("bottleneck", "profile", "saved", "expected"),
    [
        ("launch", CARD, None, f"reduce the number of launches: fuse ({TRY}), or use a larger batch"),
        ("launch", CARD, SAVES, "reduce the number of launches: the rules below, or use a larger batch"),
        ("launch", CARD, USELESS, "reduce the number of launches: use a larger batch"),
        ("launch", HOST, None, "reduce the number of launches: use a larger batch"),
        ("launch", HOST, SAVES, "reduce the number of launches: use a larger batch"),
        ("memory", FLOAT32, None, f"reduce memory traffic: fuse with its neighbours ({TRY}), or --dtype float16"),
        ("memory", CARD, USELESS, "reduce memory traffic: make these tensors smaller"),
        ("memory", FLOAT32, USELESS, "reduce memory traffic: --dtype float16, or make these tensors smaller"),
        (
            "memory",
            BLOCKED,
            USELESS,
            "reduce memory traffic: use another layout (layout in the pass file), or make these tensors smaller",
        ),
        ("memory", HOST, None, "reduce memory traffic: make these tensors smaller"),
        ("compute", CARD, None, f"replace it by a cheaper equivalent, or {OWNER}"),
        ("copies", HOST, None, "remove or merge the copies: write the model with fewer copies"),
        ("copies", CARD, USELESS, "remove or merge the copies: write the model with fewer copies"),
        ("layouts", CARD, USELESS, "use one layout and dtype throughout: export in that layout"),
    ],
)
def test_fixes(bottleneck: str, profile: Profile, saved: dict[str, float] | None, expected: str) -> None:
    assert fix_of(bottleneck, ["Mul"], profile, saved) == expected


@pytest.mark.parametrize("bottleneck", ["launch", "memory", "copies", "layouts"])
def test_rules_are_listed_only_if_they_save_time(bottleneck: str) -> None:
    assert "the rules below" in fix_of(bottleneck, ["Mul"], CARD, SAVES)
    for operator in ("Gemm", "Gelu"):
        assert "rules" not in fix_of(bottleneck, [operator], CARD, SAVES)


def test_every_bottleneck_has_a_fix() -> None:
    for bottleneck in {row.about for row in TABLE}:
        for profile in (CARD, HOST, FLOAT32, BLOCKED):
            for saved in (None, SAVES, USELESS):
                assert fix_of(bottleneck, ["Mul"], profile, saved) != AIMS.get(bottleneck, "")


# ------------------------------------------------------------------------------------------------------- the command


def profiled(*words: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, Any]]:
    out = tmp_path / "out.json"
    assert execute(["profile", *map(str, words), "--json", str(out), "--html", str(out.with_suffix(".html"))]) == 0
    return capsys.readouterr().out, json.loads(out.read_text())


def test_useless_rules_are_listed_separately(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        models.node("Reshape", ["x", "flat"], "a", "one"),
        models.node("Reshape", ["a", "back"], "b", "two"),
        models.node("Softmax", ["b"], "y", "soft"),
    ]
    weights = {"flat": [-1, 4], "back": [8, 16]}
    path = tmp_path / "m.onnx"
    onnx.save(models.model_of(nodes, {k: np.array(v) for k, v in weights.items()}, [8, 16]), path)
    out, data = profiled(path, "--suggest", tmp_path=tmp_path, capsys=capsys)
    assert "note: tried, but save no time: reshape_chain (fires 1 time)" in out.splitlines()
    assert "no rewrite rule saves time on this model" in out
    assert "rules" not in "".join(line for line in out.splitlines() if "fix:" in line)
    assert (data["suggestion"]["chosen"], data["suggestion"]["useless"]) == ([], ["reshape_chain"])
    assert "Tried, but save no time: reshape_chain (fires 1)" in (tmp_path / "out.html").read_text()


def test_used_flags_are_not_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = encoder(tmp_path / "m.onnx")
    for words, asked in ([], True), (["--suggest"], False), (["--target", "onnx", "--runs", 1], False):
        out, data = profiled(path, *words, tmp_path=tmp_path, capsys=capsys)
        fixes = [one["fix"] for one in data["bottlenecks"]]
        assert fixes
        assert ("--suggest" in out) == asked == any("--suggest" in fix for fix in fixes)
