"""example/training/{imagenet,bert,ddp}: made by the tool and untouched since, and they train as the CUDA scripts do."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from moved_examples import FOLDER, MADE, moved
from support import RunPython
from walkthrough import actions, bash
from zoo_copy import copy_zoo, with_teco

for name in ("torch", "torchvision", "sklearn", "libcst"):  # torchvision may be another build's, and not to be imported
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize("name", list(MADE))
def test_committed_files_equal_the_tool_output(name: str, tmp_path: Path) -> None:
    folder = moved(name, tmp_path)
    for file in MADE[name][1]:
        same = (folder / file).read_bytes() == (FOLDER / name / file).read_bytes()
        assert same, f"{name}/{file} is another; make it again: python -m tests.moved_examples"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a copy of the zoo, and an environment in which its commands are found."""
    folder = tmp_path_factory.mktemp("moved")
    environment = {**with_teco(copy_zoo(folder / "zoo"), folder / "bin"), "OMP_NUM_THREADS": "1"}
    environment.pop("TECO_CACHE_DIR", None)  # the compiled extension lies in the usual folder
    environment["MASTER_PORT"] = str(free_port())
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
def test_the_cuda_script_on_the_cpu_has_the_losses_of_the_migrated_one(
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


ARCH = "shufflenet_v2_x0_5"
SMALL = [*f"--arch {ARCH} --image-size 32 --no-augment -b 32 -j 0 --epochs 1 --seed 1".split()]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a few images, one training's checkpoint, and a copy of the moved script."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "main.py").write_bytes((FOLDER / "imagenet" / "main.py").read_bytes())
    command = [sys.executable, str(FOLDER / "imagenet" / "make_data.py"), "--train", "64", "--val", "32"]
    subprocess.run([*command, "--out", str(folder / "data")], check=True, capture_output=True)
    return folder


def test_one_card_has_the_losses_of_the_cpu(images: Path, run_python: RunPython) -> None:
    for device in ("cpu", "sdaa"):
        done = run_python("main.py", "data", *SMALL, "--device", device, "--losses", device, cwd=images)
        assert done.returncode == 0, done.stderr
    on_cpu, on_card = ((images / name).read_text(encoding="utf-8").splitlines()[1:] for name in ("cpu", "sdaa"))
    assert on_cpu == on_card
    assert len(on_cpu) == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--device-list 0,x", "--device-list '0,x' must be distinct card numbers"),
        ("--device-list 1,1", "--device-list '1,1' must be distinct card numbers"),
        ("--loss-scale 0", "--loss-scale 0.0 must be above 0, or -1"),
        ("--loss-scale nan", "--loss-scale nan must be above 0, or -1"),
        ("--opt-level O5", "argument --opt-level: invalid choice: 'O5'"),
        ("--amp --native-amp", "--amp and --native-amp exclude one another"),
        ("--amp --device cpu", "need a card, and --device is cpu"),
        ("--port x", "--port 'x' must be a number from 1 to 65535"),
        ("--arch resnet19", "--arch resnet19 is not a classifier of torchvision.models"),
        ("--resume gone.tar", "--resume: no checkpoint found at 'gone.tar'"),
        ("-b 0", "--batch-size 0 must be 1 or more"),
        ("-j -1", "--workers -1 must be 0 or more"),
        ("--lr nan", "--lr nan must be 0 or more"),
        ("--epochs 0", "--epochs 0 must be 1 or more"),
    ],
)
def test_invalid_flag_is_one_line(
    flags: str, said: str, images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["main.py", str(images / "data"), *flags.split()])
    pytest.importorskip("torch_sdaa")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(images / "main.py"), run_name="__main__")
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--device sdaa:9", "Invalid SDAA device index 9: this process sees 4 devices"),
        ("--device cuda", "expected a device of type sdaa"),
        ("SPAWN --device-list 0,9", "Invalid SDAA device index 9: this process sees 4 devices"),
        ("SPAWN --device-list 0 --addr no-such-host.invalid", "MASTER_ADDR 'no-such-host.invalid' cannot be resolved"),
        ("SPAWN --device-list 0 --port PORT", "is in use on this host"),
        ("SPAWN --device-list 0 --dist-backend nccl", "backend 'nccl' is for other vendors' devices"),
        ("--resume damaged.tar", "'damaged.tar' is not a readable checkpoint"),
        ("--resume other.tar", "'other.tar' holds resnet18, and --arch is shufflenet_v2_x0_5"),
        ("--resume wide.tar", "'wide.tar' does not fit"),
        ("--out main.py", "--out: [Errno 17] File exists"),
        ("-b 128", "64 images in data/train are less than one batch"),
    ],
)
def test_errors_are_one_line(flags: str, said: str, images: Path, run_python: RunPython) -> None:
    torch = pytest.importorskip("torch")
    (images / "damaged.tar").write_bytes(b"PK\3\4 and no more")
    torch.save({"arch": "resnet18"}, images / "other.tar")
    torch.save({"arch": ARCH, "state_dict": {"fc.weight": torch.zeros(3)}}, images / "wide.tar")
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("", 0))
        taken.listen()
        words = flags.replace("SPAWN", "--multiprocessing-distributed").replace("PORT", str(taken.getsockname()[1]))
        done = run_python("main.py", "data", *SMALL, *words.split(), cwd=images)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if "torch/multiprocessing/spawn.py" not in line]
    assert said in line
