"""example/training/{imagenet,bert,ddp}: made by the tool and untouched since, and they train as the CUDA scripts do."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from support import ROOT, RunPython
from walkthrough import actions, bash
from zoo_copy import copy_zoo, with_teco

for name in ("torch", "torchvision", "sklearn", "libcst"):  # torchvision may be another build's, and not to be imported
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FOLDER = ROOT / "example" / "training"
MADE = {
    "imagenet": (["-i", "cuda"], "cuda_msft", ["main.py"]),
    "bert": (["-i", "cuda"], "cuda_msft", ["model.py", "train.py"]),
    "ddp": (["-i", "cuda", "distributed", "-m", "cuda/train.py", "-t", "model"], "cuda_msft", ["train.py"]),
}
"""Of each example: the tool's arguments, the folder that it writes, and which of its files are kept."""


@pytest.mark.parametrize("name", list(MADE))
def test_what_the_tool_makes_is_what_is_here(name: str, tmp_path: Path, run_python: RunPython) -> None:
    given, folder, files = MADE[name]
    where = given.index("distributed") if "distributed" in given else len(given)
    arguments = [*given[:where], "-o", str(tmp_path), *given[where:]]
    done = run_python("-m", "toolkit.cli", "transplant", *arguments, cwd=FOLDER / name, path=[ROOT])
    assert done.returncode == 0, done.stdout + done.stderr
    for file in files:
        assert (tmp_path / folder / file).read_bytes() == (FOLDER / name / file).read_bytes(), file


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a copy of the zoo, and an environment in which its commands are found."""
    folder = tmp_path_factory.mktemp("moved")
    environment = {**with_teco(copy_zoo(folder / "zoo"), folder / "bin"), "OMP_NUM_THREADS": "1"}
    environment.pop("TECO_CACHE_DIR", None)  # the compiled extension lies in the usual folder
    return folder / "zoo" / "example" / "training", environment


def readme(name: str, zoo: tuple[Path, dict[str, str]]) -> list[list[str]]:
    """Run the commands of an example's README; return what each block prints."""
    text = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    common = "".join(re.findall(r"^common=.*\n", text, re.MULTILINE))
    blocks = [action.text for action in actions(text) if action.kind == "bash"]
    return [bash(common + block, zoo[0] / name, zoo[1]).splitlines() for block in blocks]


def ended(lines: list[str]) -> list[float]:
    return [float(line.removeprefix("eval_metric ")) for line in lines if line.startswith("eval_metric ")]


@pytest.mark.long
def test_imagenet_on_cards_with_amp_and_on_other_numbers_of_cards(zoo: tuple[Path, dict[str, str]]) -> None:
    one, several, mixed, moving = readme("imagenet", zoo)
    assert len(ended(one)) == 1
    assert len(ended(several)) == len(ended(mixed)) == 2
    assert [line for line in moving if line.startswith("=> loaded")] == [
        f"=> loaded checkpoint 'moving/checkpoint.pth.tar' (epoch {epoch})" for epoch in (1, 2, 3)
    ] + [line for line in moving if "model_best" in line]


@pytest.mark.long
def test_bert_stays_tied_and_passes_the_gate(zoo: tuple[Path, dict[str, str]]) -> None:
    trained, more, gate = readme("bert", zoo)
    assert sum("the tables are one" in line for line in trained + more) == 3
    assert [line.split(":")[0] for line in more if line.startswith("epoch")] == ["epoch 4"]
    assert gate[-1].startswith("PASS: ")


@pytest.mark.long
def test_a_single_card_script_on_several(zoo: tuple[Path, dict[str, str]]) -> None:
    script, by_hand = readme("ddp", zoo)
    assert len(ended(script)) == 1
    assert len(ended(by_hand)) == 2
    torch = pytest.importorskip("torch")
    one, two = (torch.load(zoo[0] / "ddp" / f"{name}.pt", map_location="cpu")["weights"] for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert all(torch.allclose(one[name], two[name], atol=1e-3) for name in one)  # sums in another order, in 44 steps


EASED = """
import runpy, sys
import torch, torch_sdaa
sys.argv[:] = sys.argv[1:]
sys.path[0] = ""
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script where torchvision is another build's: torch_sdaa eases its import."""


@pytest.mark.long
@pytest.mark.parametrize("name", ["imagenet", "bert"])
def test_the_cuda_script_on_the_cpu_has_the_moved_ones_losses(
    name: str, zoo: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = zoo
    small = "--train 128 --val 64" if name == "imagenet" else ""
    file, flags = (
        ("main.py", "--image-size 32 --no-augment -b 64 -j 0 --seed 0") if name == "imagenet" else ("train.py", "")
    )
    bash(f"python make_data.py {small} --out {tmp_path}/data", folder / name, environment)
    common = f"{tmp_path}/data --epochs 1 {flags} --out {tmp_path}"
    cuda = f"{file} {common} --device cpu --losses {tmp_path}/cpu"
    bash(f"cd cuda && python -c '{EASED}' {cuda}", folder / name, environment)
    drawn = {**environment, "TORCH_SDAA_RANDOM": "cpu"}  # dropout
    bash(f"python {file} {common} --losses {tmp_path}/sdaa", folder / name, drawn)
    on_cpu, on_card = ((tmp_path / where).read_text(encoding="utf-8").splitlines() for where in ("cpu", "sdaa"))
    assert (json.loads(on_cpu[0])["device"], json.loads(on_card[0])["device"]) == ("cpu", "sdaa:0")
    assert on_cpu[1:] == on_card[1:] != []
