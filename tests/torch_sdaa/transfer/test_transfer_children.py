"""Python processes that a script under the runner starts: redirected too, and otherwise like any other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import ROOT, RunPython

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch_sdaa.loading.core import C  # noqa: E402
from torch_sdaa.transfer.switch import RUNNER  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.long]


@pytest.fixture(autouse=True)
def _compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes find the files compiled by this one."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(Path(C.__file__).parents[1]))


PARENT = """
import os, subprocess, sys
import torch.multiprocessing as mp

def work(rank):
    import torch
    print("worker", rank, torch.ones(1).cuda(rank).is_cuda, flush=True)

if __name__ == "__main__":
    os.chdir("/")
    for code in (
        "import torch; print('child', torch.cuda.is_available(), torch.ones(1, device='cuda:2'))",
        "import torch_sdaa, torch; print('other order', torch.cuda.is_available())",
        "import sys; import json; print('plain', 'torch' in sys.modules, 'torch_sdaa' in sys.modules)",
        "import os, subprocess, sys; subprocess.run([sys.executable, '-c', "
        "\\"import torch; print('grandchild', torch.zeros(1).cuda().is_cuda)\\"], check=True)",
    ):
        subprocess.run([sys.executable, "-c", code], check=True)
    mp.spawn(work, nprocs=2)
"""


@pytest.mark.parametrize("module", [False, True])
def test_children_are_redirected_when_they_import_torch(run_python: RunPython, tmp_path: Path, module: bool) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    words = ("-m", "torch_sdaa.run", *(("-m", "parent") if module else (script,)))
    done = run_python(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "child True tensor([1.], device='sdaa:2')",
        "grandchild True",
        "other order True",
        "plain False False",
        "worker 0 True",
        "worker 1 True",
    ]
    assert len(done.stderr.splitlines()) == 1  # the notice of the parent


def test_another_sitecustomize_is_loaded_too(run_python: RunPython, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the own one')\n", encoding="utf-8")
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; print(\"child\")'], check=True)"
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    done = run_python("-m", "torch_sdaa.run", script, path=(tmp_path, ROOT))
    assert sorted(done.stdout.splitlines()) == ["child", "the own one", "the own one"]


def test_another_environment_is_not_redirected(run_python: RunPython) -> None:
    children = ROOT / "torch_sdaa" / "transfer" / "children"
    code = "import sys, torch; print('torch_sdaa' in sys.modules)"
    for prefix, found in ((sys.prefix, "True"), ("/opt/other", "False")):
        done = run_python("-c", code, path=(children, ROOT), **{RUNNER: prefix})
        assert (done.returncode, done.stdout) == (0, f"{found}\n"), done.stderr


DERIVATIVES = """
import torch
from torch_sdaa.contrib import transfer_to_sdaa
from torch.func import hessian, jacfwd, jacrev, jvp, linearize, vmap
import torch.autograd.forward_ad as fwAD

def f(x):
    return (x.sin() * x.cumsum(0)).square().sum()

def g(x):
    return torch.stack([x.exp().prod(), (x @ x)])

torch.manual_seed(0)
x = torch.randn(5, dtype=torch.float64)
for name, made in {
    "jvp": lambda x: jvp(f, (x,), (torch.ones_like(x),))[1],
    "jacfwd": jacfwd(g),
    "jacrev": jacrev(g),
    "hessian": hessian(f),
    "vmap": lambda x: vmap(jacfwd(g))(torch.stack([x, x + 1])),
    "linearize": lambda x: linearize(f, x)[1](torch.ones_like(x)),
    "functional hessian": lambda x: torch.autograd.functional.hessian(f, x),
    "functional jvp": lambda x: torch.autograd.functional.jvp(g, x, torch.ones_like(x))[1],
}.items():
    there = made(x.cuda())
    torch.testing.assert_close(there.cpu(), made(x), rtol=1e-12, atol=1e-12)
    assert there.is_cuda and there.device.type == "cuda", name
    print(name)
with fwAD.dual_level():
    dual = fwAD.make_dual(x.cuda(), torch.ones(5, dtype=torch.float64, device="cuda"))
    assert fwAD.unpack_dual(f(dual)).tangent.is_cuda
print("dual")
"""


@pytest.mark.parametrize("redirected", [True, False])
def test_forward_mode_derivatives(run_python: RunPython, redirected: bool) -> None:
    code = DERIVATIVES
    if not redirected:
        code = code.replace("from torch_sdaa.contrib import transfer_to_sdaa", "import torch_sdaa")
        code = code.replace("cuda", "sdaa")
    done = run_python("-W", "ignore", "-c", code)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 9


OWN_PATH = """
import os, subprocess, sys
import multiprocessing

CODE = "import sys, torch; print('/own' in sys.path, torch.ones(1).cuda().is_cuda)"

def work(name):
    import torch
    print(name, "/own" in os.environ["PYTHONPATH"], torch.ones(1).cuda().is_cuda, flush=True)

if __name__ == "__main__":
    subprocess.run([sys.executable, "-c", CODE], env={**os.environ, "PYTHONPATH": "/own"}, check=True)
    kept = os.environ.pop("PYTHONPATH")
    subprocess.run([sys.executable, "-c", CODE], check=True)
    os.environ["PYTHONPATH"] = "/own"
    print(os.environ["PYTHONPATH"], flush=True)
    subprocess.run([sys.executable, "-c", CODE], check=True)
    worker = multiprocessing.get_context("spawn").Process(target=work, args=("worker",))
    worker.start()
    worker.join()
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    code = "import torch; print('clean', torch.cuda.is_available())"
    subprocess.run([sys.executable, "-c", code], env=clean, check=True)
    os.execv(sys.executable, [sys.executable, "-c", CODE])
"""


def test_a_path_of_the_script_does_not_end_the_redirection(run_python: RunPython, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(OWN_PATH, encoding="utf-8")
    done = run_python("-m", "torch_sdaa.run", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    own, one = "/own", "True True"
    assert done.stdout.splitlines() == [one, "False True", own, one, f"worker {one}", "clean False", one]
