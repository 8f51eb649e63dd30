"""Unchanged training scripts for CUDA: redirected they give the CPU's losses, by import, variable or runner."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import ROOT, RunPython

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")
pytest.importorskip("sklearn")

from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPTS = ROOT / "tests" / "training_scripts"
SERIES = Path(__file__).with_name("transfer_series.py")

ALIKE = (
    [
        "imagenet_classic.py --epochs 1",
        "accumulate.py",
        "lstm_lm.py",
        "gan.py",
        "vae.py --epochs 1",
        "typed_tensors.py",
    ],
    ["custom_function.py --check", "config_trainer.py --epochs 1", "bert_masked.py", "prefetcher.py", "reinforce.py"],
    [
        "profiled.py",
        "resume_map_location.py",
        "resume_map_location.py --map dict",
        "resume_map_location.py --map function",
    ],
)
"""Scripts that run without CUDA, compared with the CPU."""

FLAGS = {"prefetcher.py": "--prof"}


@pytest.fixture(autouse=True)
def _one_sequence_of_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(Path(C.__file__).parents[1]))
    monkeypatch.setenv("TORCH_SDAA_RANDOM", "cpu")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")


def losses(text: str) -> list[str]:
    return re.findall(r"loss'?:? ([-\d.e]+)", text)


@pytest.mark.long
@pytest.mark.parametrize(
    "group",
    [ALIKE[0], *(pytest.param(group, marks=pytest.mark.long) for group in ALIKE[1:])],
    ids=["classic", "modern", "measured"],
)
def test_scripts_give_the_losses_of_the_cpu(group: list[str], run_python: RunPython, tmp_path: Path) -> None:
    there = run_python(SERIES, "import", *group, cwd=tmp_path)
    cpu = run_python(SERIES, "cpu", *group, cwd=tmp_path)
    assert (there.returncode, cpu.returncode) == (0, 0), there.stderr[-2000:] + cpu.stderr[-2000:]
    found, wanted = json.loads(there.stdout), json.loads(cpu.stdout)

    assert list(found) == group
    for name in group:
        assert len(losses(wanted[name])) >= 5
        assert losses(found[name]) == losses(wanted[name]), name
    report = json.loads(there.stderr.splitlines()[-1])
    assert report["refused"] == {}
    assert {"torch.device", "torch.cuda.is_available"} <= set(report["redirected"])


@pytest.mark.long
def test_double_gradients_match_the_cpu_with_a_backward_thread(run_python: RunPython) -> None:
    there = run_python(SERIES, "import", "default_device.py")
    cpu = run_python(SERIES, "thread", "default_device.py")
    assert (there.returncode, cpu.returncode) == (0, 0), there.stderr[-2000:] + cpu.stderr[-2000:]
    assert there.stdout == cpu.stdout
    assert len(losses(there.stdout)) == 13


@pytest.mark.long
@pytest.mark.parametrize(
    "script",
    [
        "amp_scaler.py",
        "accumulate.py --precision float16",
        "accumulate.py --precision bfloat16",
        "bert_masked.py --fp16",
        "nano_gpt.py",
    ],
)
def test_import_variable_and_runner_agree(script: str, run_python: RunPython, tmp_path: Path) -> None:
    name, *arguments = script.split()
    text = (SCRIPTS / name).read_text(encoding="utf-8")
    ways = {"imported.py": "from torch_sdaa.contrib import transfer_to_sdaa", "variable.py": "import torch_sdaa"}
    found = {}
    for file, line in ways.items():
        (tmp_path / file).write_text(re.sub(r"^import torch$", f"import torch\n{line}", text, count=1, flags=re.M))
        variable = {"TORCH_SDAA_TRANSFER": "1"} if file == "variable.py" else {}
        found[file] = run_python(tmp_path / file, *arguments, cwd=tmp_path, **variable)
    found["runner"] = run_python("-m", "torch_sdaa.run", SCRIPTS / name, *arguments, cwd=tmp_path)

    assert [done.returncode for done in found.values()] == [0, 0, 0], [done.stderr for done in found.values()]
    printed = [losses(done.stdout) for done in found.values()]
    assert printed[0] == printed[1] == printed[2]
    assert len(printed[0]) >= 8
    cpu = run_python(SCRIPTS / name, *arguments, cwd=tmp_path)
    assert losses(cpu.stdout) != printed[0]  # there it runs in float32


@pytest.mark.long
def test_unsupported_names_are_errors_in_one_line(run_python: RunPython, tmp_path: Path) -> None:
    for name, words in {
        "data_parallel.py": "data_parallel.py:16: DataParallel over 2 devices does not run on sdaa, where one",
        "graph_capture.py": "graph_capture.py:23: transfer_to_sdaa cannot redirect torch.cuda.CUDAGraph to sdaa: the",
    }.items():
        done = run_python("-m", "torch_sdaa.run", SCRIPTS / name, cwd=tmp_path)
        assert done.returncode == 2
        notice, line = done.stderr.splitlines()
        assert notice.startswith("torch_sdaa: CUDA is redirected to sdaa")
        assert words in line
        assert ("2 GPUs" in done.stdout) == (name == "data_parallel.py")


COMPILED = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(nn.functional.gelu(self.norm(self.first(x))))

torch.manual_seed(0)
if {how!r} == "sequential":
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).cuda()
else:
    model = Net().cuda()
if {how!r} == "method":
    model.compile({given})
elif {how!r} == "optimize":
    model = torch._dynamo.optimize({given})(model)
else:
    model = torch.compile(model, {given})
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    x = torch.randn(8, 6)
    loss = (model(x.cuda()).softmax(-1) * torch.arange(4).cuda()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", round(loss.item(), 4))
import torch_sdaa
print("partitions", sum(len(graph.partitions) for graph in torch_sdaa.dynamo.report().graphs))
"""


@pytest.mark.long
def test_the_default_compiler_is_that_of_the_card(run_python: RunPython, tmp_path: Path) -> None:
    printed = {}
    for how, given in (
        ("function", ""),
        ("function", "mode='max-autotune'"),
        ("method", "backend='inductor'"),
        ("optimize", "'inductor'"),
        ("sequential", ""),
        ("sequential", "mode='reduce-overhead'"),
    ):
        script = tmp_path / "script.py"
        script.write_text(COMPILED.format(how=how, given=given), encoding="utf-8")
        done = run_python("-m", "torch_sdaa.run", script)
        assert done.returncode == 0, done.stderr
        printed[how, given] = done.stdout.splitlines()
        assert printed[how, given][-1] == "partitions 2"
    uncompiled = tmp_path / "uncompiled.py"
    uncompiled.write_text(COMPILED.format(how="function", given="backend='eager'"), encoding="utf-8")
    found = run_python("-m", "torch_sdaa.run", uncompiled).stdout.splitlines()
    assert {tuple(each[:-1]) for each in printed.values()} == {tuple(found[:-1])}
    assert len(found) == 5


@pytest.mark.long
def test_a_compiled_gpt_trains_by_import_runner_and_source(run_python: RunPython, tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    from toolkit.commands.transplant import main

    text = (SCRIPTS / "nano_gpt.py").read_text(encoding="utf-8")
    line = "from torch_sdaa.contrib import transfer_to_sdaa"
    imported = tmp_path / "imported.py"
    imported.write_text(re.sub(r"^import torch$", f"import torch\n{line}", text, count=1, flags=re.M), encoding="utf-8")
    assert main(["-i", str(SCRIPTS / "nano_gpt.py"), "-o", str(tmp_path)]) == 0
    moved = tmp_path / "training_scripts_msft" / "nano_gpt.py"
    assert 'torch.compile(model, backend="sdaa")' in moved.read_text(encoding="utf-8")
    flags = "--dtype=float32", "--compile=True"
    ways = ((imported,), ("-m", "torch_sdaa.run", SCRIPTS / "nano_gpt.py"), (moved,))
    done = [run_python(*words, *flags, cwd=tmp_path, limit=300) for words in ways]
    assert [one.returncode for one in done] == [0, 0, 0], done[0].stderr[-2000:]
    found = [losses(one.stdout) for one in done]
    assert found[0] == found[1] == found[2]
    cpu = losses(run_python(SCRIPTS / "nano_gpt.py", cwd=tmp_path).stdout)
    assert len(cpu) >= 8
    assert list(map(float, found[0])) == pytest.approx(list(map(float, cpu)), rel=1e-4)


@pytest.mark.long
def test_spawned_processes_are_redirected(run_python: RunPython, tmp_path: Path) -> None:
    if "tccl" not in torch.distributed.Backend.backend_list:
        pytest.skip("torch_sdaa registers no backend tccl")
    there = run_python("-m", "torch_sdaa.run", SCRIPTS / "ddp_spawn.py", cwd=tmp_path)
    cpu = run_python(SCRIPTS / "ddp_spawn.py", cwd=tmp_path)
    assert (there.returncode, cpu.returncode) == (0, 0), there.stderr
    assert losses(there.stdout) == losses(cpu.stdout)
    assert len(losses(cpu.stdout)) == 10


@pytest.mark.long
@pytest.mark.parametrize("flags", [[], ["--sync-bn"], ["--amp"]], ids=["plain", "sync", "amp"])
def test_torchrun_runs_the_runner(flags: list[str], run_python: RunPython, tmp_path: Path) -> None:
    if "tccl" not in torch.distributed.Backend.backend_list:
        pytest.skip("torch_sdaa registers no backend tccl")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    there = run_python(*launch, "-m", "torch_sdaa.run", SCRIPTS / "ddp_nccl.py", *flags, cwd=tmp_path)
    assert there.returncode == 0, there.stderr
    assert len(losses(there.stdout)) == 16
    if not flags:
        cpu = run_python(*launch, SCRIPTS / "ddp_nccl.py", cwd=tmp_path)
        assert losses(cpu.stdout) == losses(there.stdout)
