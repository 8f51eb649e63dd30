"""``teco new classification`` runs without torch; ``--arch`` begins with a published network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from zoo_copy import copy_zoo

from engine import ConfigError
from model_config.cases.config import read_cases
from model_config.structure import check_structure
from model_config.structure.readme import sections
from model_config.structure.source import SourceFile
from toolkit.commands.new import main
from utils.export.networks.published import published_classifier

CONFIG = "model_config/model.yaml"
NO_TORCH = "raise ModuleNotFoundError('torch is not installed', name='torch')\n"


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return copy_zoo(tmp_path / "zoo")


def run(zoo: Path, folder: Path, *words: str) -> str:
    """Run a script of a model in a process in which torch cannot be imported; return what it prints."""
    hidden = zoo.parent / "hidden"
    (hidden / "torch").mkdir(parents=True, exist_ok=True)
    (hidden / "torch" / "__init__.py").write_text(NO_TORCH, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(hidden), str(zoo)])}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_placeholder_needs_no_torch_and_is_right(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classification", "my_net"], zoo) == 0
    assert "pip install" not in capsys.readouterr().out  # the core install is enough
    folder = zoo / "example/classification/my_net"
    assert "largest relative error" in run(zoo, folder, "export_onnx.py")
    for target in ("onnx", "sdaa"):
        ckpt = ["--ckpt", "my_net_float16_dyn.onnx"]
        assert "eval_metric 1.0" in run(zoo, folder, "example_valid.py", "--target", target, *ckpt)
    (case,) = (one for one in read_cases([zoo / CONFIG], zoo)[0] if one.name == "my_net")
    assert check_structure(case, zoo) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "stem", "written"),
    [
        ("torchvision:resnet18", "resnet18", "resnet18"),
        pytest.param("timm:resnet18.a1_in1k", "resnet18.a1_in1k", "timm/resnet18.a1_in1k", marks=pytest.mark.long),
    ],
)
def test_a_folder_for_a_published_network(
    arch: str, stem: str, written: str, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classification", "my_net", "--arch", arch, "--contrib"], zoo) == 0
    assert "pip install -r contrib/example/classification/my_net/requirements.txt" in capsys.readouterr().out
    folder = zoo / "contrib/example/classification/my_net"
    assert f'ARCH = "{written}"' in (folder / "export_onnx.py").read_text(encoding="utf-8")
    assert ("timm" in (folder / "requirements.txt").read_text(encoding="utf-8").split()) == arch.startswith("timm")
    (case,) = (one for one in read_cases([zoo / "contrib" / CONFIG], zoo)[0] if one.name == "my_net")
    assert check_structure(case, zoo) == []
    assert {ckpt for step in case.steps for ckpt in step.ckpts.values()} == {f"{stem}_float16_dyn.onnx"}
    linted = subprocess.run([sys.executable, "-m", "ruff", "check", folder], capture_output=True, check=False)
    assert linted.returncode == 0, linted.stdout
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", folder], capture_output=True, check=False
    )
    assert formatted.returncode == 0, formatted.stdout
    assert len(sections(SourceFile(f"{folder.relative_to(zoo)}/README.md", zoo))) > 8


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
def test_a_published_network_is_exported_and_run(zoo: Path) -> None:
    pytest.importorskip("torchvision")
    assert main(["classification", "my_net", "--arch", "torchvision:squeezenet1_1"], zoo) == 0
    environment = {**os.environ, "PYTHONPATH": str(zoo)}
    folder = zoo / "example/classification/my_net"
    for words in (["export_onnx.py", "--weights", "random", "--forms", "float16_dyn", "--input_size", "64"],
                  ["example_valid.py", "--ckpt", "squeezenet1_1_float16_dyn.onnx", "--input_size", "64"]):  # fmt: skip
        done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "eval_metric" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classification", "n", "--arch", "no such/name"], "--arch 'no such/name' is not a network's name"),
        (["classification", "n", "--arch", "x" * 61], "is not a network's name"),
        (["detection", "n", "--arch", "resnet18"], "task 'detection' has no template for --arch.*classification"),
        (["classification", "n", "--arch", "resnet18", "--ckpt", "a.onnx"], "leave one of them out"),
    ],
)
def test_wrong_networks_are_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        main(words, tmp_path)
    assert not (tmp_path / "example").exists()


@pytest.mark.torch
@pytest.mark.slow
def test_a_misspelt_network_has_a_suggestion() -> None:
    pytest.importorskip("torchvision")
    with pytest.raises(ConfigError, match="torchvision has no classifier 'resnet81'; did you mean"):
        published_classifier("resnet81")
    assert published_classifier("timm:resnet18").packages == ["torch>=2.9", "torchvision", "timm"]
