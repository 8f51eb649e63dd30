"""Trainings with accelerate, the Trainer, Lightning, PEFT, torchrl and DeepSpeed: on one device and on two."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from support import ROOT, RunPython

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.long]

SCRIPTS = ROOT / "tests" / "training_scripts" / "frameworks"
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
Done = subprocess.CompletedProcess[str]


def needs(package: str) -> pytest.MarkDecorator:
    """Skip a test without a package of the extra ``frameworks``."""
    why = f"{package} is not installed; run: pip install -c constraints.txt -e '.[frameworks]'"
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=why)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes find the compiled extension, and draw random numbers in the order of the CPU."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(Path(C.__file__).parents[1]))
    monkeypatch.setenv("TORCH_SDAA_RANDOM", "cpu")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def losses(done: Done) -> list[float]:
    """Return the losses that a successful run prints."""
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(found) for found in re.findall(r"^loss ([-\d.e]+)", done.stdout, re.MULTILINE)]


# ------------------------------------------------------------------------------------------------------ accelerate


@needs("accelerate")
@pytest.mark.parametrize("launch", [(), RANKS], ids=["one", "two"])
def test_the_checks_of_accelerate_pass(run_python: RunPython, launch: tuple[str, ...], tmp_path: Path) -> None:
    import accelerate

    script = Path(accelerate.__file__).parent / "test_utils" / "scripts" / "test_script.py"
    done = run_python(*launch, script, cwd=tmp_path, limit=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Device: sdaa" in done.stdout


@needs("accelerate")
@pytest.mark.parametrize("launch", [(), RANKS], ids=["one", "two"])
def test_accelerate_trains_saves_and_loads(run_python: RunPython, launch: tuple[str, ...], tmp_path: Path) -> None:
    found = {}
    for name, words in (("plain", ()), ("runner", ("-m", "torch_sdaa.run")), ("cpu", ())):
        kept = tmp_path / name
        more = ("cpu",) if name == "cpu" else ()
        done = run_python(*launch, *words, SCRIPTS / "accelerate_script.py", kept, *more, cwd=tmp_path)
        found[name] = losses(done)
        assert "the same after loading True" in done.stdout
        assert ("device cpu" in done.stdout) == (name == "cpu")
        assert (kept / "model.safetensors").is_file()
    assert len(found["cpu"]) == 8
    assert found["plain"] == found["runner"] == found["cpu"]


# --------------------------------------------------------------------------------------------------------- Trainer


@needs("accelerate")
@needs("transformers")
@pytest.mark.parametrize("launch", [(), RANKS], ids=["one", "two"])
def test_the_trainer_uses_the_device(run_python: RunPython, launch: tuple[str, ...], tmp_path: Path) -> None:
    script = SCRIPTS / "trainer_script.py"
    plain = run_python(*launch, script, tmp_path, cwd=tmp_path)
    visible = {} if launch else {"SDAA_VISIBLE_DEVICES": "0"}
    runner = run_python(*launch, "-m", "torch_sdaa.run", script, tmp_path, cwd=tmp_path, **visible)
    cpu = run_python(*launch, script, tmp_path, "cpu", cwd=tmp_path)
    assert len(losses(cpu)) == 6
    assert losses(plain) == losses(runner) == losses(cpu)
    assert "device sdaa 1" in plain.stdout
    assert "device cuda 1" in runner.stdout
    assert "device cpu" in cpu.stdout


@needs("accelerate")
@needs("transformers")
@pytest.mark.parametrize("flag", ["bf16", "fp16", "torch_compile"])
def test_the_trainer_trains_in_mixed_precision_and_compiled(run_python: RunPython, flag: str, tmp_path: Path) -> None:
    script = SCRIPTS / "trainer_script.py"
    cpu = losses(run_python(script, tmp_path, "cpu", cwd=tmp_path))
    runner = run_python("-m", "torch_sdaa.run", script, tmp_path, flag, cwd=tmp_path, SDAA_VISIBLE_DEVICES="0")
    assert losses(runner) == pytest.approx(cpu, rel=0.02)
    plain = run_python(script, tmp_path, flag, cwd=tmp_path)
    if flag == "torch_compile":
        assert plain.returncode == 1
        assert "python -m torch_sdaa.run" in plain.stderr.splitlines()[-1]
        return
    assert "device sdaa" in plain.stdout
    assert losses(plain) == losses(runner) != cpu


@needs("accelerate")
@needs("transformers")
@pytest.mark.parametrize("way", ["fsdp1", "fsdp2", pytest.param("deepspeed", marks=needs("deepspeed"))])
def test_the_trainer_shards_a_model_over_two_devices(run_python: RunPython, way: str, tmp_path: Path) -> None:
    script = SCRIPTS / "trainer_script.py"
    cpu = losses(run_python(*RANKS, script, tmp_path, "cpu", cwd=tmp_path))
    launch = ("-m", "accelerate.commands.launch", "--num_processes", 2) if way == "fsdp2" else RANKS
    there = run_python(*launch, script, tmp_path, way, cwd=tmp_path, limit=300)
    assert "device sdaa 1" in there.stdout
    assert losses(there) == (pytest.approx(cpu, rel=1e-5) if way == "deepspeed" else cpu)


@needs("accelerate")
@needs("transformers")
def test_a_trainer_over_several_devices_is_an_error_with_the_ways_out(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python("-m", "torch_sdaa.run", SCRIPTS / "trainer_script.py", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    for way in ("SDAA_VISIBLE_DEVICES=0", "device_ids=[0]", "torchrun --nproc_per_node=4"):
        assert way in line


# ------------------------------------------------------------------------------------------------------- Lightning


@needs("lightning")
@pytest.mark.parametrize("devices", [1, 2])
def test_lightning_trains_as_on_the_cpu(run_python: RunPython, devices: int, tmp_path: Path) -> None:
    script = SCRIPTS / "lightning_script.py"
    there = run_python("-m", "torch_sdaa.run", script, devices, "gpu", cwd=tmp_path)
    # Under the runner too: Lightning imports torchvision, whose usual wheel does not load with a PyTorch for CPUs.
    cpu = run_python("-m", "torch_sdaa.run", script, devices, "cpu", cwd=tmp_path)
    assert len(losses(cpu)) == 8
    assert losses(there) == losses(cpu)
    assert "cuda" in there.stdout
    assert "cuda" not in cpu.stdout


# ----------------------------------------------------------------------------------------------------- PEFT, torchrl


@needs("peft")
@needs("accelerate")
@pytest.mark.parametrize("launch", [(), RANKS], ids=["one", "two"])
def test_adapters_of_peft_train_as_on_the_cpu(run_python: RunPython, launch: tuple[str, ...], tmp_path: Path) -> None:
    script = SCRIPTS / "peft_script.py"
    there = run_python(*launch, script, tmp_path / "there", cwd=tmp_path)
    visible = {} if launch else {"SDAA_VISIBLE_DEVICES": "0"}
    runner = run_python(*launch, "-m", "torch_sdaa.run", script, tmp_path / "runner", cwd=tmp_path, **visible)
    cpu = run_python(*launch, script, tmp_path / "cpu", "cpu", cwd=tmp_path)
    assert len(losses(cpu)) == 6
    assert losses(there) == losses(runner) == losses(cpu)
    assert ["device sdaa" in there.stdout, "device cuda" in runner.stdout, "device cpu" in cpu.stdout] == [True] * 3
    assert all("the same after loading True" in done.stdout for done in (there, runner, cpu))


@needs("torchrl")
@pytest.mark.parametrize("launch", [(), RANKS], ids=["one", "two"])
def test_a_loss_of_torchrl_trains_as_on_the_cpu(run_python: RunPython, launch: tuple[str, ...], tmp_path: Path) -> None:
    there = run_python(*launch, "-m", "torch_sdaa.run", SCRIPTS / "torchrl_script.py", cwd=tmp_path)
    cpu = run_python(*launch, "-m", "torch_sdaa.run", SCRIPTS / "torchrl_script.py", "cpu", cwd=tmp_path)
    assert len(losses(cpu)) == 6
    assert losses(there) == losses(cpu)
    assert "cuda" in there.stdout


# ------------------------------------------------------------------------------------------------------- by import


def with_the_import(script: str, folder: Path) -> Path:
    """Return a copy of a script that redirects CUDA's names by its first line."""
    text = (SCRIPTS / script).read_text(encoding="utf-8")
    (folder / script).write_text(f"from torch_sdaa.contrib import transfer_to_sdaa\n{text}", encoding="utf-8")
    return folder / script


@pytest.mark.parametrize("launch", [(), RANKS], ids=["one", "two"])
@pytest.mark.parametrize(
    ("script", "given"),
    [
        pytest.param("accelerate_script.py", ["kept"], marks=needs("accelerate")),
        pytest.param("trainer_script.py", ["kept"], marks=[needs("accelerate"), needs("transformers")]),
        pytest.param("peft_script.py", ["kept"], marks=[needs("accelerate"), needs("peft")]),
        pytest.param("torchrl_script.py", [], marks=needs("torchrl")),
    ],
)
def test_scripts_with_the_import_train_as_on_the_cpu(
    run_python: RunPython, launch: tuple[str, ...], script: str, given: list[str], tmp_path: Path
) -> None:
    visible = {} if launch else {"SDAA_VISIBLE_DEVICES": "0"}
    there = run_python(*launch, with_the_import(script, tmp_path), *given, cwd=tmp_path, **visible)
    cpu = run_python(*launch, SCRIPTS / script, *given, "cpu", cwd=tmp_path)
    assert len(losses(cpu)) >= 6
    assert losses(there) == losses(cpu)
    assert ["cuda" in there.stdout, "cuda" in cpu.stdout] == [True, False]


@needs("lightning")
@pytest.mark.parametrize("devices", [1, 2])
def test_lightning_with_the_import_trains_as_on_the_cpu(run_python: RunPython, devices: int, tmp_path: Path) -> None:
    script = with_the_import("lightning_script.py", tmp_path)
    there = run_python(script, devices, "gpu", cwd=tmp_path)
    cpu = run_python(script, devices, "cpu", cwd=tmp_path)
    assert len(losses(cpu)) == 8
    assert losses(there) == losses(cpu)
    assert ["cuda" in there.stdout, "cuda" in cpu.stdout] == [True, False]


# ------------------------------------------------------------------------------------------------------- DeepSpeed


@needs("deepspeed")
@pytest.mark.parametrize(("launch", "stage"), [((), 0), ((), 2), (RANKS, 0), (RANKS, 1), (RANKS, 2), (RANKS, 3)])
def test_deepspeed_trains_with_each_stage_of_zero(
    run_python: RunPython, launch: tuple[str, ...], stage: int, tmp_path: Path
) -> None:
    done = run_python(*launch, SCRIPTS / "deepspeed_script.py", stage, cwd=tmp_path, limit=300)
    assert losses(done) == pytest.approx(_on_the_whole_batch(5, ranks=2 if launch else 1), rel=1e-5)
    assert "sdaa" in done.stdout


def _on_the_whole_batch(steps: int, ranks: int) -> list[float]:
    """Return the losses of ``deepspeed_script.py`` on the CPU in one process: of the batches of all ranks together."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    data = torch.Generator().manual_seed(1)
    found = []
    for _ in range(steps):
        x = torch.randn(8 * ranks, 8, generator=data)
        loss = torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
