"""Tests of steps that attack the check: they stop their supervisor, or leave links and pipes for the check."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_config.cases.config import Case, Command
from model_config.results import StepResult
from model_config.run import one_case
from model_config.run.preloaded import Preloaded
from model_config.run.runner import Limits, Slot, run_step
from model_config.run.snapshot import Snapshots
from model_config.run.watch import adopting, parsed, read_report, sweep_adopted
from model_config.run.workplace import workplace
from model_config.written import settle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


class Bench:
    """Runs a script as a step of an artificial case in a temporary repository."""

    def __init__(self, folder: Path) -> None:
        self.root, self.work = folder / "zoo", folder / "work"
        self.folder = self.root / "example/x/m"
        for place in (self.folder, self.root / "utils", self.work):
            place.mkdir(parents=True)
        (self.root / "utils/shared.py").write_text("shared = 1\n")
        self.case = Case("m", "example/x/m", (), Path("model.yaml"))

    def __call__(self, script: str, *, slot: Slot | None = None, limits: Limits | None = None) -> StepResult:
        (self.folder / "run.py").write_text(f"import os, signal, sys, time\nfrom pathlib import Path\n{script}\n")
        step = Command("multi", "run.py", {})
        with workplace(self.case, self.work, self.root) as tree:
            return run_step(self.case, step, tree, self.work / "logs", limits or Limits(120.0), slot=slot)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_step_that_stops_its_supervisor_is_killed_early(bench: Bench, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    result = bench(
        f"child = os.fork() or (os.setsid(), time.sleep(60))\nPath({str(pid)!r}).write_text(str(child))\n"
        "os.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(60)"
    )
    assert result.reason == (
        "its supervisor was stopped by a signal (SIGSTOP), and killed with the step; "
        "let the step kill only what it started"
    )
    assert _ended(pid.read_text())


def _ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ")[1][0] in "ZX"
    except OSError:
        return True


def test_a_supervisor_is_not_interrupted(bench: Bench) -> None:
    signals = "(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM)"
    result = bench(
        f"for one in {signals}: os.kill(os.getppid(), one)\ntime.sleep(0.1)\nos.kill(os.getpid(), signal.SIGTERM)"
    )
    assert result.reason == "killed by SIGTERM: no output"


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["os.getppid()", "above"])
def test_a_step_in_a_fork_that_stops_its_supervisor_or_the_server(bench: Bench, whom: str) -> None:
    server = Preloaded(modules=["sqlite3"])
    slot = Slot(others=server)
    above = "above = int(open(f'/proc/{os.getppid()}/stat').read().rsplit(')')[1].split()[1])\n"
    try:
        result = bench(f"{above}os.kill({whom}, signal.SIGSTOP)\ntime.sleep(60)", slot=slot)
        assert "its supervisor was stopped by a signal (SIGSTOP)" in result.reason
        ends = bench(f"{above}os.kill({whom}, signal.SIGSTOP)", slot=slot)
        assert whom == "above" or not ends.passed
        assert bench("print('well')", slot=slot).passed
    finally:
        server.close()


@pytest.mark.parametrize(
    "report",
    [
        *(b"", b"[]", b"null", b"{", b"\xff", b"[" * 60000, b'{"code": 0}'),
        b'{"code": 0, "why": "", "peak": "x", "cpu": 0, "count": 1, "left": []}',
    ],
)
def test_invalid_reports_are_ignored(report: bytes) -> None:
    assert parsed(report) is None


def test_unfinished_report_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_config.run.watch._READING", 0.05)
    reading, writing = os.pipe()
    os.write(writing, b"{")
    assert read_report(reading) == b"{"  # the pipe is still open for writing
    for end in (reading, writing):
        os.close(end)


def test_orphans_of_killed_supervisor_are_killed() -> None:
    code = (
        "import os, subprocess, sys, time\nfrom model_config.run.watch import adopting, sweep_adopted\n"
        "with adopting():\n"
        '    run = \'import os, subprocess; print(subprocess.Popen(["sleep", "60"], start_new_session=True,\'\n'
        "    run += ' env={}, stdout=2).pid)'\n"
        "    pid = subprocess.run([sys.executable, '-c', run], capture_output=False, stdout=-1).stdout\n"
        "    sweep_adopted()\n"
        "    state = open(f'/proc/{int(pid)}/stat').read().rsplit(') ')[1][0]\n"
        "print(state)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == "Z\n", done.stderr
    sweep_adopted()  # has no effect outside of `adopting`
    assert adopting is not None


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("os.mkfifo(out)", "multi.json is a pipe, a socket or a device"),
        ("out.symlink_to('/etc/passwd')", "multi.json is a link"),
        ("os.link('run.py', out)", "multi.json is a second name of another file"),
        ("open(out, 'wb').truncate(1 << 30)", "multi.json is larger than 256 MiB"),
        (
            "log = out.with_suffix('.stdout'); log.unlink(); os.mkfifo(log)",
            "multi.stdout is a pipe, a socket or a device",
        ),
    ],
)
def test_invalid_files_are_removed_and_reported(bench: Bench, script: str, what: str) -> None:
    result = bench(f"out = Path(sys.argv[sys.argv.index('--json') + 1])\n{script}")
    assert result.reason == f"left invalid files in the check's folder ({what}); write results as files"
    assert result.result is None
    assert result.stdout.is_file()


def test_removed_log_is_recreated_and_reported(bench: Bench) -> None:
    result = bench("import shutil; shutil.rmtree(Path(sys.argv[sys.argv.index('--json') + 1]).parent)")
    assert result.reason.startswith("removed its log multi.stdout; write only below the model's folder")


def test_check_does_not_write_through_links(bench: Bench, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (bench.work / "logs").mkdir()
    for name in ("multi.stdout", "multi.stderr"):
        (bench.work / "logs" / name).symlink_to(victim)
    assert bench("print('x')").passed
    assert victim.read_text() == "precious"


def test_regular_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "deep/folder").mkdir(parents=True)
    (tmp_path / "deep/file.json").write_text("{}")
    assert settle(tmp_path, 100) == ""
    for number in range(5):
        (tmp_path / f"deep/{number}").symlink_to("/")
    said = settle(tmp_path, 100)
    assert said.count(" is a link") == 3
    assert ", and 2 more)" in said
    assert [path.name for path in sorted((tmp_path / "deep").iterdir())] == ["file.json", "folder"]


WRITES = (
    "(ROOT / 'utils/shared.py').write_text('broken')",
    "p = ROOT / 'utils/shared.py'; s = p.stat(); p.write_text('SHARED = 2' + chr(10));"
    " os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))",
    "(ROOT / 'utils/shared.py').unlink()",
    "(ROOT / 'utils/new.py').write_text('x')",
    "os.link(ROOT / 'utils/shared.py', 'mine'); open('mine', 'a').write('x')",
    "open('leads_out', 'a').write('x')",
    "open('leads_back', 'a').write('x')",
)


@pytest.mark.parametrize(
    "script", [one if number < 3 else pytest.param(one, marks=pytest.mark.slow) for number, one in enumerate(WRITES)]
)
def test_a_step_cannot_write_into_the_checkout_through_links(bench: Bench, script: str) -> None:
    (bench.folder / "leads_out").symlink_to(bench.root / "utils/shared.py")
    (bench.folder / "leads_back").symlink_to(bench.folder / "own.txt")
    (bench.folder / "own.txt").write_text("own")
    os.link(bench.root / "utils/shared.py", bench.root / "utils/second.py")
    (bench.folder / "run.py").write_text(f"import os\nfrom pathlib import Path\nROOT = Path.cwd().parents[2]\n{script}")
    before = {path: path.read_bytes() for path in bench.root.rglob("*") if path.is_file()}
    snapshots = Snapshots(bench.root, bench.work)
    snapshot = snapshots.current()
    with workplace(bench.case, bench.work, bench.root, snapshot) as tree:
        subprocess.run([sys.executable, "run.py"], cwd=tree / "example/x/m", check=True)
    assert {path: path.read_bytes() for path in bench.root.rglob("*") if path.is_file()} == before
    findings = one_case._written_outside(bench.case, snapshot)
    if "leads_back" in script:  # a file of its folder: in the copy
        assert findings == []
        assert snapshots.current() is snapshot
    else:
        assert findings[0].message.startswith("utils/new.py " if "new.py" in script else "utils/shared.py ")
        assert snapshots.current() is not snapshot  # the next case gets another
        snapshots.done(snapshot)
        assert not snapshot.folder.exists()  # without users
    snapshots.close()
    assert list(bench.work.iterdir()) == []


def test_no_link_of_a_workplace_leads_into_the_checkout(bench: Bench) -> None:
    (bench.root / "example/x/other").mkdir()
    (bench.root / "example/x/other/image.png").touch()
    (bench.root / "example/x/other/again.png").symlink_to(bench.root / "example/x/other/image.png")
    with workplace(bench.case, bench.work, bench.root) as tree:
        links = [path for path in tree.rglob("*") if path.is_symlink()]
        assert (tree / "example/x/other/again.png").is_file()
        assert links
        assert not [path for path in links if path.resolve().is_relative_to(bench.root)]


def test_the_copies_of_a_read_only_checkout_can_be_written(bench: Bench) -> None:
    (bench.folder / "deep").mkdir()
    (bench.folder / "deep/own.txt").write_text("own")
    below = [bench.root, *bench.root.rglob("*")]
    try:
        for path in below:
            path.chmod(path.stat().st_mode & 0o555)
        with workplace(bench.case, bench.work, bench.root) as tree:
            own = tree / "example/x/m/deep/own.txt"
            assert [oct(path.stat().st_mode & 0o200) for path in (own, own.parent, own.parent.parent)] == ["0o200"] * 3
    finally:
        for path in below:
            path.chmod(path.stat().st_mode | 0o700)
    assert list(bench.work.iterdir()) == []


def test_ignored_files_are_watched_links_without_weights(bench: Bench) -> None:
    subprocess.run(["git", "init", "-q"], cwd=bench.root, check=True)  # noqa: S607
    (bench.root / ".gitignore").write_text("*.dat\n*.onnx\n")
    (bench.root / "utils/big.dat").write_text("data")
    (bench.root / "utils/m.onnx").write_text("weights")
    snapshots = Snapshots(bench.root, bench.work)
    snapshot = snapshots.current()
    found = set(os.listdir(snapshot.folder / "utils")) - {"__pycache__"}  # of the snapshot's own compilation
    assert found == {"big.dat", "shared.py"}
    assert snapshot.changed() == []
    (snapshot.folder / "utils/big.dat").write_text("other data")
    assert snapshot.changed() == ["utils/big.dat"]
    snapshots.close()


@pytest.fixture
def locked(bench: Bench) -> Iterator[Bench]:
    yield bench
    for path in bench.work.rglob("*"):
        path.chmod(0o700)


def test_folders_without_permissions_are_removed_too(locked: Bench) -> None:
    assert locked("os.mkdir('deep'); Path('deep/f').touch(); os.chmod('deep', 0); os.chmod('.', 0)").passed
    assert [path.name for path in locked.work.iterdir()] == ["logs"]


DIV = """
import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper
made = helper.make_tensor_value_info
graph = helper.make_graph(
    [helper.make_node("Div", ["a", "b"], ["c"])], "g",
    [made(name, TensorProto.INT64, [2]) for name in "ab"], [made("c", TensorProto.INT64, [2])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
print("sample 3", flush=True)
session.run(None, {"a": np.full(2, -(2**63)), "b": np.full(2, -1)})
"""


@pytest.mark.slow
def test_native_crash_is_reported(bench: Bench) -> None:
    pytest.importorskip("onnxruntime")
    result = bench(DIV)
    if result.passed:
        pytest.skip("this runtime survives it")
    assert result.reason == (
        "killed by SIGFPE, a crash in native code (`python -X faulthandler` shows where): sample 3"
    )
    assert result.exit_code == -signal.SIGFPE
