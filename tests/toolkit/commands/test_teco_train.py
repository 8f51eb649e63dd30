"""``teco train``: its tools, and their earlier names, which stay valid."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from support import RunPython

from engine import ConfigError
from toolkit.cli import execute
from toolkit.command_table import COMMANDS, TRAIN, is_supervised
from toolkit.commands.completion import candidates

EARLIER = {"gate": "train-gate", "compare": "compare-train", "replay": "replay-op", "profile": "profile-train"}

LOSSES = """\
import argparse, json
parser = argparse.ArgumentParser()
for flag in ("--device", "--seed", "--losses"):
    parser.add_argument(flag)
args = parser.parse_args()
seed = int(args.seed)
lines = [{"device": args.device, "seed": seed}, {"step": 0, "loss": 1.0 + seed}]
open(args.losses, "w").write("".join(json.dumps(line) + "\\n" for line in lines))
print("eval_metric", 0.5)
"""
NET = """\
import torch
def build():
    return torch.nn.Linear(2, 2), torch.ones(1, 2), lambda y: y.sum()
"""


def shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the help that a command line prints."""
    with pytest.raises(SystemExit) as ended:
        execute(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", EARLIER)
def test_earlier_names_have_the_same_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    new = shown(["train", name, "--help"], capsys)
    assert new.startswith(f"usage: teco train {name} ")
    assert shown([EARLIER[name], "--help"], capsys) == new
    assert shown(["help", "train", name], capsys) == new


def test_ops_has_the_flags_of_the_earlier_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    new, old = (shown([*words, "--help"], capsys) for words in (["train", "ops"], ["ops", "--training"]))
    flags = {word.strip("[],") for word in old.split() if word.strip("[],").startswith("--")} - {"--training"}
    assert {"--steps", "--timeout", "--stored", "--json", "--time_limit"} <= flags
    assert all(flag in new for flag in flags)


def test_earlier_names_are_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "  train " in listed
    assert not any(name in listed for name in EARLIER.values())
    assert not set(EARLIER.values()) & set(candidates([""]))


def test_help_lists_the_tools(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [shown(words, capsys) for words in (["train"], ["train", "--help"], ["help", "train"])]
    assert len(set(texts)) == 1
    assert all(f"\n{name} " in texts[0] for name in TRAIN)
    assert set(TRAIN) == {*EARLIER, "ops"}


def test_an_unknown_tool_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"'comprae'.*'compare'"):
        execute(["train", "comprae"])


def test_tools_are_completed() -> None:
    assert candidates(["train", ""]) == sorted(TRAIN)
    assert "--seeds" in candidates(["train", "gate", "--se"])
    assert "train" in COMMANDS


def test_the_same_tools_are_supervised_under_both_names() -> None:
    assert [is_supervised(["train", name]) for name in EARLIER] == [is_supervised([name]) for name in EARLIER.values()]
    assert is_supervised(["train", "ops"]) is is_supervised(["ops", "--training"]) is True
    assert not is_supervised([])
    assert not is_supervised(["train"])


@pytest.mark.parametrize("words", [["train", "gate"], ["train-gate"]])
def test_the_gate_gives_the_same_under_both_names(words: list[str], tmp_path: Path) -> None:
    script, file = tmp_path / "losses.py", tmp_path / "gate.json"
    script.write_text(LOSSES, encoding="utf-8")
    assert execute([*words, str(script), "--device", "sdaa", "--seeds", "2", "--json", str(file)]) == 0
    found = json.loads(file.read_text(encoding="utf-8"))
    assert (found["command"], found["verdict"], len(found["rows"])) == ("teco train gate", "PASS", 2)


@pytest.mark.parametrize("words", [["train", "profile"], ["profile-train"]])
def test_an_error_is_the_same_under_both_names(words: list[str], run_python: RunPython) -> None:
    done = run_python("-m", "toolkit.cli", *words, "none.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.py" in done.stderr


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_ops_gives_the_same_under_both_spellings(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    found = []
    for words in (["train", "ops"], ["ops", "--training"]):
        file = tmp_path / f"{words[0]}.json"
        assert execute([*words, f"{tmp_path / 'net.py'}:build", "--stored", "--json", str(file)]) == 0
        found.append(json.loads(file.read_text(encoding="utf-8")))
    assert found[0] == found[1]
    assert any(row["op"] == "aten::addmm" for row in found[0]["rows"])
