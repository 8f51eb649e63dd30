"""Telemetry of third-party packages: no files in the home folder, no network access."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import DIGITS, ROOT, RunPython

from tecoinfer_modelzoo import telemetry

PACKAGES = ("engine", "utils", "toolkit", "model_config", "tecoexec", "engine.backends.ort", "utils.pipeline.cli")
VALID = (DIGITS / "example_valid.py", "--target")
MODEL = DIGITS / "digits_dyn.onnx"
COMMANDS: dict[str, tuple[object, ...]] = {
    "onnx": (*VALID, "onnx"),
    "sdaa": (*VALID, "sdaa"),
    "cpu": (*VALID, "cpu"),
    "int8": (*VALID, "cpu", "--dtype", "int8"),
    "tool": ("-m", "toolkit.cli", "overflow", MODEL),
    "plot": ("-m", "tecoexec", "--onnx", MODEL, "--input_shapes", "8*3*32*32", "--plot", "OUT/plot.png"),
    "ray": (*VALID, "onnx", "--launcher", "ray", "--num_workers", 1),
    "export": (DIGITS / "export_onnx.py", "--out", "OUT/model.onnx"),
    "bare benchmark": (
        ROOT / "benchmarks" / "parts" / "bare_single.py",
        MODEL,
        DIGITS / "data" / "val" / "7" / "0081.png",
    ),
    "benchmark": (ROOT / "benchmarks" / "engine_overhead.py", "--quick"),
}
NEEDS = {"plot": "matplotlib", "ray": "ray", "export": "torch"}
QUICK = ("onnx", "cpu", "bare benchmark", "benchmark")
NO_NETWORK = ("unshare", "--net")
"""Command prefix for a new network namespace, whose interfaces are down; requires a privilege."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty home folder of the processes started by the test."""
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", telemetry.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name in telemetry.SWITCHES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def words(name: str, out: Path) -> list[str]:
    if (
        name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None
    ):  # importing it here would write to the real home
        pytest.skip(f"{NEEDS[name]} is not installed")
    return [str(word).replace("OUT", str(out)) for word in COMMANDS[name]]


def may(*command: str) -> bool:
    """Return whether a program is installed and permitted."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("package", [PACKAGES[0], *(pytest.param(p, marks=pytest.mark.slow) for p in PACKAGES[1:])])
def test_every_package_disables_telemetry_before_its_imports(package: str, run_python: RunPython, home: Path) -> None:
    code = f"import {package}, os, sys, onnxruntime\nsys.stdout.write(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = run_python("-c", code)
    assert (done.stdout, done.stderr) == ("1", "")
    assert below(home) == []


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=(pytest.mark.slow, pytest.mark.long)) for n in COMMANDS]
)
def test_an_empty_home_stays_empty(name: str, run_python: RunPython, home: Path, tmp_path: Path) -> None:
    done = run_python(*words(name, tmp_path))
    assert done.returncode == 0, done.stderr
    assert below(home) == []


@pytest.mark.skipif(not may(*NO_NETWORK), reason="this user may not make a network namespace")
@pytest.mark.parametrize("name", ["onnx", pytest.param("sdaa", marks=pytest.mark.slow)])
def test_without_a_network(name: str, home: Path, tmp_path: Path) -> None:
    command = [*NO_NETWORK, sys.executable, *words(name, tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert below(home) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not may("strace", "-f"), reason="strace is not installed, or may not trace")
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "ray"])  # its processes communicate by TCP
def test_no_network_connections(name: str, home: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-e", "trace=connect,sendto,sendmmsg", "-o", str(trace), sys.executable]
    done = subprocess.run([*command, *words(name, tmp_path)], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0
    assert not re.findall(r".*sa_family=AF_INET6?.*", trace.read_text())


def test_children_inherit_the_switches(run_python: RunPython, home: Path) -> None:
    """Also children that do not import the zoo, and forked ones."""
    code = (
        "import engine, multiprocessing, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import onnxruntime'], check=True)\n"
        "child = multiprocessing.get_context('fork').Process(target=__import__, args=('onnxruntime',))\n"
        "child.start(); child.join(); sys.exit(child.exitcode)\n"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert below(home) == []


@pytest.mark.parametrize("value", ["0", pytest.param("", marks=pytest.mark.slow)])
def test_other_values_do_not_allow_telemetry(value: str, run_python: RunPython, home: Path) -> None:
    assert run_python(*VALID, "onnx", TECO_TELEMETRY=value, ORT_DISABLE_TELEMETRY="").returncode == 0
    assert below(home) == []


def test_the_user_can_allow_telemetry(run_python: RunPython, home: Path) -> None:
    bare = home.parent / "bare"
    bare.mkdir()
    assert run_python("-c", "import onnxruntime", HOME=str(bare)).returncode == 0
    if not below(bare):
        pytest.skip("this ONNX Runtime writes no files")
    assert run_python("-c", "import engine, onnxruntime", TECO_TELEMETRY="1").returncode == 0
    assert below(home) == below(bare)


def test_switches_set_by_the_user_are_kept(run_python: RunPython, home: Path) -> None:
    code = "import os, sys, tecoinfer_modelzoo\nsys.stdout.write(os.environ['RAY_USAGE_STATS_ENABLED'])"
    assert run_python("-c", code, RAY_USAGE_STATS_ENABLED="1").stdout == "1"
    assert run_python("-c", code).stdout == "0"


def test_contrib_scripts_disable_telemetry(run_python: RunPython, home: Path) -> None:
    code = "import engine, os, sys\nsys.stdout.write(os.environ['ORT_DISABLE_TELEMETRY'])"
    assert run_python("-c", code, path=(ROOT / "contrib",)).stdout == "1"
