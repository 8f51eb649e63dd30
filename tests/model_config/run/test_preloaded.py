"""Tests of scripts in forks of one process: equal to separate processes, and isolated."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from model_config.cases.config import Case, Command
from model_config.run.preloaded import EXAMPLES, Preloaded
from model_config.run.runner import Limits, Slot, StepResult, run_step
from model_config.run.schedule import run_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Preloaded]:
    made = Preloaded(modules=["sqlite3", "no_such_module"])
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, server: Preloaded) -> SimpleNamespace:
    """Run the text of a script as the export of an artificial case."""
    tree = tmp_path / "tree"
    folder = tree / "example/x/net"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("torch>=2.9\n")

    def script(
        text: str, *words: str, limits: Limits | None = None, exports: Preloaded | None = server, name: str = "export"
    ) -> StepResult:
        (folder / "export.py").write_text(text)
        step = Command("export", "export.py", {"words": list(words)} if words else {})
        case = Case("net", "example/x/net", (step,), tree / "model.yaml")
        slot = Slot(exports=exports)
        return run_step(case, step, tree, tmp_path / "logs", limits or Limits(60.0), slot=slot, name=name)

    return SimpleNamespace(script=script, folder=folder)


REPORTS = """
import json, os, sys
import beside
found = {
    "argv": sys.argv[1:], "cwd": os.getcwd(), "name": __name__, "file": __file__, "first": sys.path[0],
    "path": os.environ["PYTHONPATH"] in ":".join(sys.path), "group": os.getpgid(0) == os.getpid(),
    "session": os.getsid(0) == os.getpid(), "stdin": sys.stdin.read(), "bytecode": sys.dont_write_bytecode,
    "main": sys.modules["__main__"].__dict__ is globals(), "fds": sorted(map(int, os.listdir("/proc/self/fd"))),
}
for name in ("stdin", "stdout", "stderr"):
    stream = getattr(sys, name)
    assert stream is getattr(sys, "__" + name + "__")
    found[name + " stream"] = [
        stream.fileno(), stream.encoding, stream.errors, stream.newlines, stream.seekable(),
        stream.isatty(), stream.line_buffering, stream.write_through, type(stream.buffer).__name__,
    ]
sys.stdout.reconfigure(errors="backslashreplace")
print("half", chr(0xD800))
print(json.dumps(found))
print("to stderr", file=sys.stderr)
import atexit
atexit.register(print, "at the end")
"""


def test_fork_equals_separate_process(run: SimpleNamespace, server: Preloaded) -> None:
    (run.folder / "beside.py").write_text("")
    forked = run.script(REPORTS, "--a", "b c", name="forked")
    plain = run.script(REPORTS, "--a", "b c", exports=None, name="plain")
    assert forked.passed
    assert plain.passed
    assert forked.stdout.read_text() == plain.stdout.read_text()
    assert forked.stderr.read_text() == plain.stderr.read_text() == "to stderr\n"
    assert forked.stdout.read_text().endswith("at the end\n")
    assert forked.command == plain.command
    assert forked.cpu_seconds
    assert forked.peak_memory


IMPORTED = "import sys\nprint('sqlite3' in sys.modules, 'utils' in sys.modules, 'model_config' in sys.modules)\n"


def test_only_requested_modules_are_preloaded(run: SimpleNamespace) -> None:
    assert run.script(IMPORTED).stdout.read_text() == "True False False\n"
    assert run.script(IMPORTED, exports=None).stdout.read_text() == "False False False\n"


def test_examples_share_their_imports_without_torch(tmp_path: Path) -> None:
    script = tmp_path / "example/x/net/valid.py"
    script.parent.mkdir(parents=True)
    (script.parent / "requirements.txt").write_text("torch>=2.9\n")
    script.write_text("import os, sys\nprint([name in sys.modules for name in ('onnxscript', 'torch')])\n")
    step = Command("multi", "valid.py", {})
    case = Case("net", "example/x/net", (step,), tmp_path / "model.yaml")
    cores = (min(os.sched_getaffinity(0)),)
    others = Preloaded(cores, EXAMPLES)
    try:
        slot = Slot(cores, exports=Preloaded(modules=["no_such_module"]), others=others)
        result = run_step(case, step, tmp_path, tmp_path / "logs", Limits(60.0), slot=slot)
    finally:
        others.close()
    assert result.stdout.read_text() == "[True, False]\n"
    assert not others.given_up


def test_scripts_are_isolated(run: SimpleNamespace, server: Preloaded) -> None:
    seen = "import os, sqlite3\nprint(getattr(sqlite3, 'mine', None), os.environ.get('MINE'), os.getcwd())\n"
    run.script(seen + "sqlite3.mine = 1\nos.environ['MINE'] = '1'\nos.chdir('/')\n")
    assert run.script(seen).stdout.read_text() == f"None None {run.folder}\n"


NATIVE = ", a crash in native code (`python -X faulthandler` shows where)"


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("raise SystemExit(3)", 3, "exit code 3: no output"),
        ("raise SystemExit('what is wrong')", 1, "exit code 1: what is wrong"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", -11, f"killed by SIGSEGV{NATIVE}: no output"),
        ("import os\nos._exit(7)", 7, "exit code 7: no output"),
        ("1 / 0", 1, "exit code 1: ZeroDivisionError: division by zero"),
        ("import no_such_module", 1, "exit code 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("a b", 1, "exit code 1: SyntaxError: invalid syntax"),
    ],
)
def test_failure_equals_that_of_separate_process(run: SimpleNamespace, text: str, code: int, reason: str) -> None:
    forked, plain = run.script(text, name="forked"), run.script(text, exports=None, name="plain")
    assert (forked.exit_code, forked.reason) == (code, reason)
    assert (plain.exit_code, plain.reason) == (code, reason)
    assert forked.stderr.read_text() == plain.stderr.read_text()
    assert run.script("print('well')").stdout.read_text() == "well\n"


def test_limits_apply_to_forks(run: SimpleNamespace) -> None:
    slow = run.script("import time\nprint('begun')\ntime.sleep(60)", limits=Limits(1.0))
    assert slow.reason.startswith("timed out after 1 s")
    assert slow.stdout.read_text() == "begun\n"
    large = run.script("x = bytearray(400 << 20)\nimport time\ntime.sleep(60)", limits=Limits(60.0, 200 << 20))
    assert "of memory, more than the limit of 200 MiB, and was killed" in large.reason
    left = run.script("import subprocess\nprint(subprocess.Popen(['sleep', '60']).pid)", limits=Limits(60.0, grace=0.2))
    assert "left processes behind" in left.reason
    assert not Path("/proc", left.stdout.read_text().strip()).exists()


def test_a_script_that_kills_its_supervisor_leaves_nothing(run: SimpleNamespace) -> None:
    kills = """
import os, signal, subprocess
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(child.pid, flush=True)
os.kill(os.getppid(), signal.SIGKILL)
"""
    result = run.script(kills)
    assert result.reason.startswith("its supervisor was killed by SIGKILL")
    pid = Path("/proc", result.stdout.read_text().strip())
    deadline = time.monotonic() + 10
    while pid.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not pid.exists()
    assert run.script("print('well')").stdout.read_text() == "well\n"


def test_a_server_that_was_killed_is_started_again(run: SimpleNamespace, server: Preloaded) -> None:
    parent = "import os\nppid = int(open(f'/proc/{os.getppid()}/stat').read().rsplit(')')[1].split()[1])\nprint(ppid)"
    first = int(run.script(parent).stdout.read_text())
    os.kill(first, signal.SIGKILL)
    assert run.script("print('well')").stdout.read_text() == "well\n"  # in a new or separate process
    second = int(run.script(parent).stdout.read_text())
    assert second != first
    server.close()
    assert not Path(f"/proc/{second}").exists()


def test_module_with_thread_is_not_forked(run: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    threaded = Preloaded(modules=["tests.model_config.run.keeps_a_thread:start"])
    with caplog.at_level("INFO"):
        result = run.script("print('well')", exports=threaded)
    threaded.close()
    assert result.stdout.read_text() == "well\n"
    assert threaded.given_up
    assert "keeps a thread, which a fork would not have" in caplog.text


def test_cases_share_one_import_per_place_and_nothing_is_left(tmp_path: Path) -> None:
    step = Command("export", "export.py", {})
    cases = [Case(f"net{number}", f"example/x/net{number}", (step,), tmp_path / "model.yaml") for number in range(3)]
    tree = tmp_path / "tree"
    for case in cases:
        folder = tree / case.run_dir
        folder.mkdir(parents=True)
        (folder / "requirements.txt").write_text("torch\n")
        (folder / "export.py").write_text("import os\nprint(open(f'/proc/{os.getppid()}/stat').read().split()[3])")
    servers = set()

    def work(case: Case, slot: Slot) -> None:
        assert slot.exports is not None
        slot.exports.modules = ["sqlite3"]
        result = run_step(case, step, tree, tmp_path / "logs" / case.name, Limits(60.0), slot=slot)
        assert result.passed, result.reason
        servers.add(int(result.stdout.read_text()))

    list(run_all(cases, work, parallel=1))  # type: ignore[arg-type,func-returns-value]
    [server] = servers
    assert not Path(f"/proc/{server}").exists()
