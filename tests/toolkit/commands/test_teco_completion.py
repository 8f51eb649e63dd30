"""Completion in a real bash."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import ROOT
from zoo_copy import with_teco

from toolkit.commands.completion import SCRIPTS, candidates

ASK = """
source <(teco completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_teco
printf '%s\\n' "${COMPREPLY[@]}"
"""


def bash(tmp_path: Path, *words: str) -> list[str]:
    command = ["bash", "--noprofile", "--norc", "-c", ASK, "bash", *words]
    environment = with_teco(ROOT, tmp_path / "bin")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("che",), ["check"]),
        (("run", "digit_u"), ["digit_unet"]),
        (("run", "classification/r"), ["classification/resnet"]),
        (("run", "digits", ""), ["export", "multi", "single", "valid"]),
        (("run", "digits", "valid", "--ba"), ["--batch_size"]),
        (("run", "digits", "valid", "--target", "sd"), ["sdaa"]),
        (("nonsense", "x"), []),
    ],
)
def test_bash(words: tuple[str, ...], wanted: list[str], tmp_path: Path) -> None:
    assert bash(tmp_path, "teco", *words) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "some"),
    [
        ([""], {"check", "list", "info", "run", "new", "site", "completion", "help", "--version"}),
        (["help", ""], {"check", "new"}),
        (["check", "d"], {"digits"}),
        (["check", "--"], {"--json", "--config", "--help"}),
        (["list", "--"], {"--json", "--help"}),
        (["info", "classification/"], {"classification/digits", "classification/resnet"}),
        (["new", "seg"], {"segmentation"}),
        (["new", "segmentation", "x", "--c"], {"--contrib"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["run", "--case", "res"], {"resnet18_random"}),
        (["run", "--case", "digits", "digits", "s"], {"single"}),
        (["run", "digits", "valid", "--"], {"--case", "--help", "--target", "--topk", "--input_size"}),
        (["run", "resnet", "export", "--"], {"--arch", "--weights"}),
    ],
)
def test_candidates(words: list[str], some: set[str]) -> None:
    found = candidates(words)
    assert some <= set(found)
    assert found == sorted(set(found))
    assert all(word.startswith(words[-1]) for word in found)


def test_export_completes_only_its_flags() -> None:
    assert "--target" not in candidates(["run", "resnet", "export", "--"])


def test_every_shell_calls_complete() -> None:
    for script in SCRIPTS.values():
        assert "teco _complete" in script
