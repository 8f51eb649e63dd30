"""Tests of the limits of steps: each is killed with all its processes, with a reason of one line."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import ConfigError
from model_config.cases.config import Case, Command
from model_config.results import StepResult
from model_config.run import supervisor
from model_config.run.runner import Limits, Slot, default_memory, run_step, workplace

MIB = 2**20
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="the limits need Linux")


class Bench:
    """Runs a script as a step of an artificial case."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.logs = folder / "logs"
        (self.tree / "example/x/m").mkdir(parents=True)

    def __call__(
        self,
        script: str,
        *,
        step: str = "multi",
        extra: tuple[str, ...] = (),
        slot: Slot | None = None,
        heard: list[tuple[str, str, str]] | None = None,
        name: str | None = None,
        limits: Limits | None = None,
    ) -> StepResult:
        (self.tree / "example/x/m/run.py").write_text(script)
        one = Command(step, "run.py", {})
        case = Case("m", "example/x/m", (one,), Path("model.yaml"))
        listen = None if heard is None else lambda *words: heard.append(words)
        used = limits or Limits(20.0, 400 * MIB, 40, MIB)
        return run_step(case, one, self.tree, self.logs, used, extra=extra, name=name, on_output=listen, slot=slot)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def mark() -> Iterator[str]:
    """A unique word for command lines or environments; at the end no process may have it."""
    word = f"marked-{os.getpid()}-{time.monotonic_ns()}"
    yield word
    assert _marked(word) == []


def _marked(word: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if word.encode() in (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:  # it has ended, or belongs to another user
                continue
    return found


def test_memory_limit_and_peak(bench: Bench) -> None:
    result = bench("kept = []\nwhile True:\n    kept.append(b'x' * 2**20)\n", limits=Limits(20.0, 100 * MIB))
    assert result.reason.startswith("used ")
    assert result.reason.endswith(" of memory, more than the limit of 100 MiB, and was killed; use less")
    assert result.exit_code is None
    assert result.peak_memory is not None
    assert 100 * MIB < result.peak_memory < 1500 * MIB


def test_memory_is_that_of_all_processes_of_a_step_and_shared_pages_count_once(bench: Bench) -> None:
    script = (
        "import os, time\nheld = b'x' * (60 * 2**20)\nfor _ in range(3):\n    if os.fork() == 0:\n"
        "        {more}\n        time.sleep({held})\n        os._exit(0)\nfor _ in range(3):\n    os.wait()\n"
    )
    # Children that end during the sampling increase the sum: 60 * (1/4 + 1/3 + 1/2 + 1) MiB at most.
    shared = bench(script.format(more="pass", held=1), limits=Limits(60.0, 200 * MIB))
    assert shared.passed, shared.reason
    assert shared.peak_memory is not None
    assert 60 * MIB < shared.peak_memory < 200 * MIB
    # Held until the limit is found to be exceeded, however long a busy machine takes to look.
    own = bench(script.format(more="own = b'y' * (60 * 2**20)", held=60), limits=Limits(60.0, 200 * MIB))
    assert "more than the limit of 200 MiB" in own.reason


def test_memory_of_ended_process_is_zero() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it remains as a zombie
    assert supervisor._proportional(child, 60 * MIB) == 0
    os.waitpid(child, 0)
    assert supervisor._proportional(child, 60 * MIB) == 0


def test_memory_between_two_samples_counts(bench: Bench) -> None:
    result = bench("x = b'x' * (200 * 2**20)\n", limits=Limits(20.0, 100 * MIB))
    assert "of memory, more than the limit of 100 MiB" in result.reason


def test_default_memory_limit() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < default_memory() <= min(8 * 2**30, total * 3 // 4)


FORKS = """import os, time
for _ in range(400):
    if os.fork() == 0:
        {detach}
        time.sleep(30)
        os._exit(0)
    time.sleep(0.002)
time.sleep(30)
"""


@pytest.mark.parametrize("detach", ["pass", "os.setsid()"])
def test_fork_bomb_is_killed(bench: Bench, mark: str, detach: str) -> None:
    start = time.monotonic()
    result = bench(FORKS.format(detach=detach), extra=(mark,))
    assert result.reason.endswith(" processes, more than the limit of 40, and was killed; start fewer")
    assert time.monotonic() - start < 25  # not waited for: it sleeps 30 s


def test_recursive_fork_bomb_is_killed(bench: Bench, mark: str) -> None:
    # Bounded by depth: 2**8 processes at most, should the test itself be at fault.
    script = "import os, time\nfor _ in range(8):\n    os.fork()\n    time.sleep(0.05)\ntime.sleep(30)\n"
    assert "more than the limit of 40" in bench(script, extra=(mark,)).reason


DAEMON = """import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {close}
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", {mark!r}], {{}})
    os._exit(0)
os.wait()
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("close", ["pass", "os.closerange(0, 3)"])
def test_daemon_is_killed_and_reported(bench: Bench, mark: str, close: str) -> None:
    start = time.monotonic()
    result = bench(DAEMON.format(close=close, mark=mark))
    assert result.reason.startswith("left processes behind, which were killed: '")
    assert "time.sleep(60)" in result.reason
    assert (result.passed, result.exit_code, result.stdout.read_text()) == (False, 0, "done\n")
    assert time.monotonic() - start < 45  # not waited for: it sleeps 60 s


def test_a_child_that_ends_soon_after_its_parent_is_waited_for(bench: Bench) -> None:
    result = bench("import os, time\nif os.fork() == 0:\n    time.sleep(0.3)\n    print('child', flush=True)\n")
    assert result.passed
    assert result.stdout.read_text() == "child\n"


def test_a_hanging_step_that_ignores_signals_is_killed_with_its_daemon(bench: Bench, mark: str) -> None:
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + DAEMON.format(close="pass", mark=mark)
    result = bench(script + "time.sleep(60)\n", limits=Limits(1.0))
    assert result.reason == "timed out after 1 s and was killed with its child processes; make it faster"
    assert result.stdout.read_text() == "done\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_limit(bench: Bench, stream: str) -> None:
    result = bench(f"import sys\nwhile True:\n    sys.{stream}.write('x' * 99 + chr(10))\n")
    assert result.reason == f"printed more than 1 MiB to {stream} and was killed; print less"
    log = getattr(result, stream).read_text()
    assert log.endswith(f"\n... cut here: more than {MIB} bytes\n")
    assert MIB < len(log) < MIB + 100
    assert result.exit_code is None


def test_long_line_is_passed_on_in_pieces(bench: Bench) -> None:
    heard: list[tuple[str, str, str]] = []
    assert bench("import sys\nsys.stdout.write('x' * 500000)\n", heard=heard).passed
    assert all(len(line) <= 4096 for *_, line in heard)


def test_lines_are_passed_on_while_the_step_runs(bench: Bench) -> None:
    heard: list[tuple[str, str, str]] = []
    seen: list[int] = []
    slot = Slot()

    def look() -> None:
        while len(heard) < 2 and not slot.stop.is_set():
            time.sleep(0.01)
        seen.append(len(heard))
        (bench.tree / "example/x/m/go").touch()

    watcher = threading.Thread(target=look)
    watcher.start()
    script = (
        "import os, sys, time\nprint('one')\nprint('50 %', end='\\r', file=sys.stderr)\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nprint('three \\u00fc', end='')\n"
    )
    result = bench(script, heard=heard, slot=slot)
    slot.stop.set()
    watcher.join()
    assert result.passed, result.reason
    assert seen == [2]
    assert set(heard) == {("m", "multi", "one"), ("m", "multi", "50 %"), ("m", "multi", "three ü")}


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV")])
def test_a_step_killed_by_a_signal_reports_the_signal(bench: Bench, number: int, name: str) -> None:
    result = bench(f"import os\nprint('working')\nos.kill(os.getpid(), {int(number)})\n")
    shows = ", a crash in native code (`python -X faulthandler` shows where)" if name == "SIGSEGV" else ""
    assert (result.reason, result.exit_code) == (f"killed by {name}{shows}: working", -number)


@pytest.mark.parametrize("child", ["pass", "time.sleep(60) if os.fork() == 0 else None"])
def test_step_that_kills_its_supervisor_fails(bench: Bench, mark: str, child: str) -> None:
    script = (
        f"import os, signal, time\nparent = os.getppid()\n{child}\nos.kill(parent, signal.SIGKILL)\ntime.sleep(60)\n"
    )
    start = time.monotonic()
    result = bench(script, extra=(mark,))
    assert result.reason == "its supervisor was killed by SIGKILL; let the step kill only what it started"
    assert time.monotonic() - start < 45  # not waited for: it sleeps 60 s


def test_only_files_of_the_check_are_recreated(bench: Bench, tmp_path: Path) -> None:
    """``json`` in the parameters of a case is a path in the step's folder, not in that of the check."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    one = Command("export", "run.py", {"json": str(precious), "save": str(tmp_path)})
    (bench.tree / "example/x/m/run.py").touch()
    result = run_step(Case("m", "example/x/m", (one,), Path("x")), one, bench.tree, bench.logs, Limits(20.0))
    assert (result.passed, result.result, result.images) == (True, None, ())
    assert precious.read_text() == "kept"


def test_unwritable_logs(bench: Bench) -> None:
    (bench.logs / "multi.stdout").mkdir(parents=True)
    assert bench("").reason.startswith("could not be started: [Errno 21] Is a directory")


def test_a_stopped_slot_ends_its_step_at_once(bench: Bench, mark: str) -> None:
    slot = Slot()
    timer = threading.Timer(0.5, slot.stop.set)
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        bench(DAEMON.format(close="pass", mark=mark) + "time.sleep(60)\n", slot=slot)
    assert time.monotonic() - start < 45  # not waited for: it sleeps 60 s
    timer.join()


def test_a_step_keeps_to_the_cores_of_its_slot(bench: Bench) -> None:
    core = max(os.sched_getaffinity(0))
    result = bench("import os\nprint(sorted(os.sched_getaffinity(0)))\n", slot=Slot((core,)))
    assert result.stdout.read_text() == f"[{core}]\n"


def test_a_relative_cache_folder_stays_where_the_check_has_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", "own cache")
    result = bench("import os\nprint(os.environ['TECO_CACHE_DIR'])\n")
    assert result.stdout.read_text() == f"{Path.cwd() / 'own cache'}\n"


TAKES = """import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--target")
{flags}
args = parser.parse_args()
if getattr(args, "json", None): pathlib.Path(args.json).write_text("{{}}")
if getattr(args, "save", None):
    pathlib.Path(args.save).mkdir()
    for name in "ba": pathlib.Path(args.save, name + ".png").touch()
print(args.target)
"""
JSON, SAVE = 'parser.add_argument("--json")\n', 'parser.add_argument("--save")\n'


def test_results_and_images_are_requested_if_supported(bench: Bench) -> None:
    single = bench(TAKES.format(flags=JSON + SAVE), step="single")
    assert single.passed, single.reason
    assert single.result == bench.logs / "single.json"
    assert [path.name for path in single.images] == ["a.png", "b.png"]
    multi = bench(TAKES.format(flags=JSON))
    assert (multi.result, multi.images) == (bench.logs / "multi.json", ())
    assert bench("import sys\nprint(sys.argv[1:])\n", step="export").stdout.read_text() == "[]\n"


@pytest.mark.parametrize("step", ["single", "multi"])
def test_script_without_result_flags_is_run_without_them(bench: Bench, step: str) -> None:
    result = bench(TAKES.format(flags=""), step=step, extra=("--target", "onnx"))
    assert result.passed, result.reason
    assert result.command[2:] == ("--target", "onnx")
    assert (result.result, result.images) == (None, ())
    assert result.stdout.read_text() == "onnx\n"


def test_a_script_that_refuses_its_own_arguments_fails(bench: Bench) -> None:
    result = bench(TAKES.format(flags=JSON), extra=("--tarmac", "x"))
    assert result.reason.startswith("exit code 2: ")
    assert "unrecognized arguments: --tarmac x" in result.reason


def test_a_step_can_be_run_again_with_other_arguments(bench: Bench, tmp_path: Path) -> None:
    first = bench(TAKES.format(flags=JSON), extra=("--target", "sdaa"))
    chosen = tmp_path / "chosen.json"
    again = bench(
        TAKES.format(flags=JSON), extra=("--target", "onnx", "--json", str(chosen)), name="multi-onnx-float32"
    )
    assert (first.stdout.read_text(), again.stdout.read_text()) == ("sdaa\n", "onnx\n")
    assert (again.step, again.result) == ("multi-onnx-float32", chosen)
    assert again.stdout.name == "multi-onnx-float32.stdout"
    chosen_again = bench("", extra=("--json", str(chosen)))
    assert chosen_again.result is None  # the file of an earlier run is not used


def test_workplace_is_deleted_and_invalid_folder_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "repo/example/x/m"
    folder.mkdir(parents=True)
    (folder / "run.py").touch()
    case = Case("m", "example/x/m", (), Path("model.yaml"))
    with workplace(case, tmp_path, tmp_path / "repo") as tree:
        assert (tree / "example/x/m/run.py").is_file()
    os.mkfifo(folder / "pipe")
    with (
        pytest.raises(ConfigError, match=r"example/x/m cannot be copied to"),
        workplace(case, tmp_path, tmp_path / "repo"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]
