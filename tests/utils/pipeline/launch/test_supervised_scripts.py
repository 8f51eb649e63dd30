from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from supervised import PATIENCE, is_alive, wait_for
from support import DIGITS, ROOT, RunPython

from tecoinfer_modelzoo.process.process_table import descendants

VENDOR = """
import ctypes, os, signal, sys
from engine.backends.ort import OnnxRuntimeEngine

class Vendor(OnnxRuntimeEngine):
    def infer(self, inputs):
        self.act()
        return super().infer(inputs)

    def act(self):
        pass

class Leaves(Vendor):
    def act(self):
        os._exit(0)

class Fails(Vendor):
    def act(self):
        os._exit(1)

class Crashes(Vendor):
    def act(self):
        os.kill(os.getpid(), signal.SIGSEGV)

class Hangs(Vendor):
    def act(self):
        os.write(2, b"computing\\n")
        ctypes.PyDLL(None).sleep(3600)  # with the interpreter's lock: no other thread runs

class Deaf(Vendor):
    def act(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            ctypes.CDLL(None).signal(int(number), 1)  # ignored, in any thread
        os.write(2, b"computing\\n")
        ctypes.PyDLL(None).sleep(3600)
"""
SCRIPTS = ("example_valid.py", "example_single_batch.py", "example_multi_batch.py")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with a vendor's package, installed as pip would leave it."""
    info = tmp_path / "teco_vendor-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teco-vendor\nVersion: 1.2\n", encoding="utf-8")
    names = ("Vendor", "Leaves", "Fails", "Crashes", "Hangs", "Deaf")
    rows = "".join(f"{name.lower()} = vendor_engines:{name}\n" for name in names)
    rows += "leaving = vendor_leaving:Engine\n"
    (info / "entry_points.txt").write_text(f"[tecoinfer.engines]\n{rows}", encoding="utf-8")
    (tmp_path / "vendor_leaving.py").write_text("import os\nos._exit(0)\n", encoding="utf-8")
    (tmp_path / "vendor_engines.py").write_text(VENDOR, encoding="utf-8")
    return tmp_path


def script_of(name: str) -> Path:
    return DIGITS / name


def check_line(said: str, *parts: str) -> None:
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in said
    assert all(part in lines[0] for part in parts)


SLOW = [pytest.param(target, marks=pytest.mark.slow) for target in ("fails", "leaving")]


@pytest.mark.parametrize("target", ["leaves", "crashes", *SLOW])
def test_an_engine_that_ends_the_process_gives_one_line(target: str, site: Path, run_python: RunPython) -> None:
    done = run_python(script_of(SCRIPTS[0]), "--target", target, path=(ROOT, site))
    assert done.returncode == 2
    assert "eval_metric" not in done.stdout
    check_line(done.stderr, target, "teco-vendor", *(["SIGSEGV"] if target == "crashes" else []))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS[1:])
def test_engines_that_end_the_other_scripts(script: str, site: Path, run_python: RunPython) -> None:
    done = run_python(script_of(script), "--target", "crashes", path=(ROOT, site))
    assert done.returncode == 2
    check_line(done.stderr, "SIGSEGV")


@pytest.mark.slow
@pytest.mark.long
def test_engines_that_end_tecoexec(site: Path, run_python: RunPython) -> None:
    model = next(DIGITS.glob("*.onnx"))
    done = run_python(
        "-m", "tecoexec", "--onnx", model, "--input_shapes=4*3*32*32", "--target", "crashes", path=(ROOT, site)
    )
    assert done.returncode == 2
    check_line(done.stderr, model.name, "SIGSEGV")


def test_a_working_engine_in_a_child_process(site: Path, run_python: RunPython) -> None:
    done = run_python(script_of(SCRIPTS[0]), "--target", "vendor", path=(ROOT, site))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2].startswith("eval_metric 0.99")
    assert done.stdout.count("eval_metric") == 1


def test_an_invalid_limit_is_an_error(site: Path, run_python: RunPython) -> None:
    done = run_python(script_of(SCRIPTS[0]), "--target", "vendor", path=(ROOT, site), TECO_TIME_LIMIT="soon")
    assert done.returncode == 2
    check_line(done.stderr, "TECO_TIME_LIMIT")


@pytest.mark.slow
@pytest.mark.long
def test_a_time_limit_ends_a_hanging_engine(site: Path, run_python: RunPython) -> None:
    done = run_python(script_of(SCRIPTS[0]), "--target", "hangs", path=(ROOT, site), TECO_TIME_LIMIT="5")
    assert done.returncode == 2
    check_line(done.stderr, "TECO_TIME_LIMIT", "hangs")


@contextmanager
def hanging(site: Path, target: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a valid script whose engine computes for ever, and the number of its child."""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    command = [sys.executable, str(script_of(SCRIPTS[0])), "--target", target]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=settings, text=True, start_new_session=True, **pipes) as process:
        child = 0
        try:
            assert process.stderr is not None
            while process.stderr.readline() != "computing\n":
                assert process.poll() is None
            child = descendants(process.pid)[0]
            yield process, child
        finally:
            if process.poll() is None:
                process.kill()
            if child:
                wait_for(lambda: not is_alive(child))


@pytest.mark.slow
@pytest.mark.parametrize("target", [pytest.param("hangs", marks=pytest.mark.slow), "deaf"])
@pytest.mark.parametrize("send", [os.kill, pytest.param(os.killpg, marks=pytest.mark.slow)])
def test_ctrl_c_ends_an_engine_that_holds_the_lock(target: str, send: object, site: Path) -> None:
    with hanging(site, target) as (process, child):
        send(process.pid, signal.SIGINT)  # type: ignore[operator]
        said = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 130
        assert said.count("interrupted") == 1
        assert not is_alive(child)


@pytest.mark.slow
@pytest.mark.long
def test_an_engine_that_ignores_sigterm_is_ended(site: Path) -> None:
    with hanging(site, "deaf") as (process, child):
        process.terminate()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGTERM
        assert not is_alive(child)
