"""Redirecting CUDA's names: every form in scripts, the variable, visible devices, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import RunPython

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch_sdaa.loading.core import C  # noqa: E402
from torch_sdaa.transfer import runner, switch  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

NOTICE = "torch_sdaa: CUDA is redirected to sdaa, 4 simulated devices; transfer_to_sdaa.report() returns the counts\n"


@pytest.fixture(autouse=True)
def _compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes find the files compiled by this one."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(Path(C.__file__).parents[1]))


@pytest.mark.long
def test_every_form(run_python: RunPython) -> None:
    done = run_python("-W", "ignore", Path(__file__).with_name("transfer_checks.py"))
    assert (done.returncode, done.stdout) == (0, "32 checks\n")


@pytest.mark.long
def test_the_variable_starts_the_redirection_on_import(run_python: RunPython) -> None:
    code = "import torch, torch_sdaa; print(torch.zeros(1, device='cuda').device, torch.cuda.is_available())"
    done = run_python("-W", "error", "-c", code, TORCH_SDAA_TRANSFER="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sdaa:0 True\n", NOTICE)
    code = "import torch, torch_sdaa; print(torch.cuda.is_available())"
    done = run_python("-W", "error", "-c", code, TORCH_SDAA_TRANSFER="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    done = run_python("-c", code, TORCH_SDAA_TRANSFER="yes")
    assert done.stderr.splitlines()[-1] == (
        "tecoinfer_modelzoo.errors.ConfigError: environment variable TORCH_SDAA_TRANSFER='yes' must be 1 "
        "(redirect CUDA's names to sdaa) or 0"
    )


def test_other_ranks_have_no_output_and_both_imports_work(run_python: RunPython) -> None:
    code = "import torch, torch_sdaa.contrib.transfer_to_sdaa; print(torch.ones(1).cuda().device)"
    done = run_python("-W", "error", "-c", code, RANK="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sdaa:0\n", "")


VISIBLE = """
import os, torch
from torch_sdaa.contrib import transfer_to_sdaa
print(torch.cuda.device_count(), os.environ.get("SDAA_VISIBLE_DEVICES"))
os.environ["CUDA_VISIBLE_DEVICES"] = "3,1,0"
print(torch.cuda.device_count(), os.environ.get("SDAA_VISIBLE_DEVICES"))
torch.zeros(1, device="cuda:2")
os.environ["CUDA_VISIBLE_DEVICES"] = "2"
print(torch.cuda.device_count(), torch.cuda.is_available(), os.environ.get("SDAA_VISIBLE_DEVICES"))
"""


@pytest.mark.long
def test_visible_devices_of_cuda_are_those_of_sdaa(run_python: RunPython) -> None:
    done = run_python("-c", VISIBLE, CUDA_VISIBLE_DEVICES="1,2")
    assert done.stdout.splitlines() == ["2 1,2", "3 3,1,0", "3 True 3,1,0"]
    assert done.stderr.splitlines()[1:] == [
        "torch_sdaa: CUDA_VISIBLE_DEVICES='2' was set after the first use of a device and has no effect; set it before"
    ]
    code = "from torch_sdaa.contrib import transfer_to_sdaa; import torch; print(torch.cuda.device_count(), end=' ')"
    for value, other, count, words in (
        ("", None, 0, ""),
        ("0,7", None, 4, "CUDA_VISIBLE_DEVICES='0,7' does not list devices from 0 to 3, each once; it is ignored"),
        ("0", "1,2,3", 3, ""),
    ):
        chosen = {} if other is None else {"SDAA_VISIBLE_DEVICES": other}
        done = run_python("-c", code, CUDA_VISIBLE_DEVICES=value, **chosen)
        assert (done.returncode, done.stdout) == (0, f"{count} "), (value, done.stderr)
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1 + bool(words)


SCRIPT = """
import pickle, sys
import torch
class Net(torch.nn.Linear):
    pass
net = pickle.loads(pickle.dumps(Net(2, 1).cuda()))
print(sys.argv[1:], net.weight.is_cuda, __name__, sys.path[0])
if "fail" in sys.argv:
    {}["here"]
if "exit" in sys.argv:
    sys.exit(7)
"""


@pytest.mark.long
def test_the_runner_runs_a_script_as_python_does(run_python: RunPython, tmp_path: Path) -> None:
    script, report = tmp_path / "script.py", tmp_path / "report.json"
    script.write_text(SCRIPT, encoding="utf-8")
    done = run_python("-m", "torch_sdaa.run", "--report", report, script, "-x", "--report", "y")
    assert (done.returncode, done.stderr) == (0, NOTICE)
    assert done.stdout == f"['-x', '--report', 'y'] True __main__ {tmp_path}\n"
    counts = json.loads(report.read_text())
    assert (counts["schema_version"], counts["redirected"]["torch.Tensor.cuda"]) == (1, 2)

    done = run_python("-m", "torch_sdaa.contrib.transfer_to_sdaa", script, "fail")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[1:3] == ["Traceback (most recent call last):", f'  File "{script}", line 9, in <module>']
    assert lines[-1] == "KeyError: 'here'"
    assert "torch_sdaa" not in "".join(lines[1:])
    assert run_python("-m", "torch_sdaa.run", "-m", "script", "exit", cwd=tmp_path).returncode == 7


@pytest.mark.long
def test_errors_of_the_runner_are_one_line(run_python: RunPython, tmp_path: Path) -> None:
    old, data = tmp_path / "old.py", tmp_path / "data.py"
    old.write_text("print 'loss', 1\n", encoding="utf-8")
    data.write_bytes(b"\x00\x01\xff")
    for file, words in (
        (old, "old.py:1: not valid Python 3: Missing parentheses in call to 'print'"),
        (data, "data.py"),
    ):
        done = run_python("-m", "torch_sdaa.run", file)
        assert done.returncode == 2
        assert words in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_an_invalid_command_line_is_an_error_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (
        ([tmp_path / "none.py"], "none.py is not a file"),
        ([], "the following arguments are required: SCRIPT"),
        (["--report", tmp_path / "no" / "r.json", __file__], "no is not a folder"),
    ):
        with pytest.raises(SystemExit, match="2"):
            runner.main([str(each) for each in arguments])
        assert words in capsys.readouterr().err.splitlines()[-1]
    assert not switch.is_on()
