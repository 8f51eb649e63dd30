from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from support import ROOT

from engine import ConfigError, InputError
from utils.metrics import Records, TopK
from utils.pipeline import Failure
from utils.pipeline.resume.journal import Journal, Step

IDENTITY = {"model": "ab" * 32, "data": "cd" * 32, "samples": 360, "batch_size": 8, "dtype": None, "topk": 1}
DTYPES = ["?", "i1", "<i8", ">u4", "<f2", "<f4", ">f8", "<c16"]


def made(index: int) -> Step:
    """Return a step that can be shown from every other; every fifth has lost a sample."""
    rng = np.random.default_rng(index)
    if index % 5:
        return Step(8, rng.random(8) < 0.7)
    failure = (Failure(f"{index}/ü\udcff.png", "it is\ncut, as it 'happens'"),)
    return Step(8, rng.random(7) < 0.7, good=(0, 1, 2, 4, 5, 6, 7), failures=failure, nan_inputs=(f"{index}.png",))


def content(array: np.ndarray) -> tuple[Any, ...]:
    return array.dtype.descr, array.shape, array.tobytes()


def facts(step: Step) -> tuple[Any, ...]:
    record = step.record
    if isinstance(record, Records):
        units = None if record.units is None else list(record.units)
        margins = None if record.margins is None else content(record.margins)
        kept = content(record.values), None if record.samples is None else content(record.samples), units, margins
        return step.size, kept, step.good, step.failures, step.nan_inputs
    return step.size, None if record is None else content(record), step.good, step.failures, step.nan_inputs


def write(folder: Path, count: int, start: int = 0) -> Path:
    with Journal.open(folder, IDENTITY) as journal:
        assert journal.done == start
        for index in range(start, count):
            journal.append(made(index))
        return journal.path


def check(folder: Path, count: int) -> None:
    with Journal.open(folder, IDENTITY) as journal:
        assert journal.done == count
        assert [facts(step) for step in journal.replayed()] == [facts(made(index)) for index in range(count)]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    size = draw(st.integers(1, 9))
    good = draw(st.none() | st.lists(st.integers(0, size - 1), unique=True).map(sorted).map(tuple))
    count = size if good is None else len(good)
    shape = (count, *draw(st.lists(st.integers(0, 3), max_size=2)))
    record = draw(hnp.arrays(draw(st.sampled_from(DTYPES)), shape))
    text = st.text(st.characters(exclude_categories=()))
    failures = draw(st.lists(st.builds(Failure, text, text), max_size=2))
    return Step(size, record if count else None, good, tuple(failures), tuple(draw(st.lists(text, max_size=2))))


@settings(deadline=None, max_examples=60)
@given(st.lists(steps(), max_size=5), st.integers(0, 5))
def test_appended_steps_are_replayed(kept: list[Step], closed_after: int) -> None:
    with TemporaryDirectory() as folder:
        with Journal.open(Path(folder), IDENTITY) as journal:
            for step in kept[:closed_after]:
                journal.append(step)
        with Journal.open(Path(folder), IDENTITY) as journal:
            assert journal.done == len(kept[:closed_after])
            for step in kept[closed_after:]:
                journal.append(step)
            for _ in range(2):
                assert [facts(step) for step in journal.replayed()] == [facts(step) for step in kept]


NESTED = np.dtype([("box", "<f4", (4,)), ("inner", [("a", "i1"), ("b", ">f8")]), ("name", "<U3")])
STRUCTURED = [NESTED, np.dtype([("a", "i1"), ("b", "f8")], align=True), np.dtype([(("title", "x"), "<i2")])]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_columns_are_replayed(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    samples = data.draw(st.none() | st.lists(st.integers(0, size - 1), max_size=6))
    count = size if samples is None else len(samples)
    dtype = data.draw(st.sampled_from([*map(np.dtype, DTYPES), *STRUCTURED]))
    values = np.frombuffer(
        data.draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)), dtype
    )
    texts = st.text(st.characters(exclude_categories=()))
    units = data.draw(st.none() | st.lists(texts, min_size=count, max_size=count))
    margins = data.draw(st.none() | hnp.arrays(np.float64, size))
    record = Records(values, None if samples is None else np.array(samples, np.int64), units, margins)
    with TemporaryDirectory() as folder, Journal.open(Path(folder), IDENTITY) as journal:
        journal.append(Step(size, record))
        (again,) = journal.replayed()
        assert isinstance(again.record, Records)
        assert facts(again) == facts(Step(size, record))
        assert again.record.values.dtype == dtype


def test_a_replayed_metric_is_the_metric(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    metric, again = TopK(2), TopK(2)
    with Journal.open(tmp_path / "new" / "folder", IDENTITY) as journal:
        for count in (8, 8, 3):
            record = metric.update(rng.random((count, 5)), rng.integers(0, 5, count))
            journal.append(Step(count, record))
        for step in journal.replayed():
            again.replay(step.record)
    assert again.compute() == metric.compute()


def test_a_new_journal_is_empty_and_the_only_file(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        assert (journal.done, list(journal.replayed())) == (0, [])
    assert [path.name for path in tmp_path.iterdir()] == ["journal.jsonl"]


# ------------------------------------------------------------------------------------------------------------- damage


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_truncated_file_keeps_complete_steps(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        content = write(folder, 6).read_bytes()
        header = content.index(b"\n") + 1
        cut = data.draw(st.integers(header, len(content)))
        (folder / "journal.jsonl").write_bytes(content[:cut])
        whole = content[:cut].count(b"\n") - 1
        check(folder, whole)  # in silence: a cut last line is what a kill leaves
        write(folder, 6, start=whole)
        assert (folder / "journal.jsonl").read_bytes() == content


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_lines_from_a_damaged_one_on_are_dropped(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = write(folder, 6)
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(content.index(b"\n") + 1, len(content) - 1))
        before = content[:place].count(b"\n") - 1
        content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check(folder, before)
        shown = [str(warning.message) for warning in caught]
        if content[place:].count(b"\n") > 1 or content[-1] != ord("\n"):
            assert all(f"journal.jsonl line {before + 2} is damaged" in text for text in shown)
        assert len(shown) == (content[place:].removesuffix(b"\n").count(b"\n") > 0)
        write(folder, 6, start=before)
        check(folder, 6)


def test_zeros_of_a_power_failure_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    with path.open("ab") as file:
        file.write(bytes(4096))
    check(tmp_path, 3)


def test_a_missing_line_ends_the_journal(tmp_path: Path) -> None:
    path = write(tmp_path, 6)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    with pytest.warns(UserWarning, match=r"line 4 .* 2 lines"):
        check(tmp_path, 2)


@pytest.mark.parametrize("content", [b"", b"my notes", b"my notes\nof today\n", b'{"journal": "evaluation"}\n'])
def test_a_file_that_is_not_a_journal_is_not_changed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.jsonl").write_bytes(content)
    with pytest.raises(ConfigError, match=r"journal\.jsonl does not begin"):
        Journal.open(tmp_path, IDENTITY)
    assert (tmp_path / "journal.jsonl").read_bytes() == content


def test_another_schema_version(tmp_path: Path) -> None:
    text = json.dumps({"journal": "evaluation", "schema_version": 99, "identity": IDENTITY}).encode()
    (tmp_path / "journal.jsonl").write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    with pytest.raises(ConfigError, match=r"schema version 99.* 3"):
        Journal.open(tmp_path, IDENTITY)


def test_a_journal_that_is_truncated_during_the_run(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with Journal.open(tmp_path, IDENTITY) as journal:
        os.truncate(journal.path, journal.path.stat().st_size - 5)
        with pytest.raises(ConfigError, match=r"journal\.jsonl line 4 was changed"):
            list(journal.replayed())


# ----------------------------------------------------------------------------------------------------------- identity


def test_a_journal_of_another_run_lists_the_differences(tmp_path: Path) -> None:
    write(tmp_path, 2)
    other = {**IDENTITY, "batch_size": 16, "data": "ef" * 32, "target": "onnx"}
    with pytest.raises(ConfigError) as caught:
        Journal.open(tmp_path, other)
    text = str(caught.value)
    assert text.startswith(
        f"journal {tmp_path}/journal.jsonl was made by another run: data is '{'cd' * 32}' there and "
    )
    assert "batch_size is 8 there and 16 here" in text
    assert "target is None there and 'onnx' here" in text
    assert text.endswith("; use another folder, or delete this file")
    assert "model" not in text
    assert "\n" not in text
    check(tmp_path, 2)  # and is neither changed nor locked


def test_identities_are_compared_as_json(tmp_path: Path) -> None:
    identity = {"mean": (0.1, 0.2), "ckpt": tmp_path / "a.onnx", "ü": None, "flag": True}
    for _ in range(2):
        Journal.open(tmp_path, identity).close()


def test_processes_share_a_folder(tmp_path: Path) -> None:
    parts = [{**IDENTITY, "rank": rank, "size": 2} for rank in (0, 1)]
    with Journal.open(tmp_path, parts[0]) as first, Journal.open(tmp_path, parts[1]) as second:
        first.append(made(0))
        assert (first.done, second.done) == (1, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal-0of2.jsonl", "journal-1of2.jsonl"]
    for identity, size in (({**IDENTITY, "rank": 0, "size": 4}, 4), (IDENTITY, 1)):
        with pytest.raises(ConfigError, match=f"journal-0of2.jsonl .*size .*2 .*{size} "):
            Journal.open(tmp_path, identity)


# -------------------------------------------------------------------------------------------------------------- locks


def child(code: str, *args: object, **options: Any) -> subprocess.Popen[str]:
    """Start an interpreter that has this file's names."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "helpers", Path(__file__).parent)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", f"from test_journal import *\n{code}", *map(str, args)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


def test_concurrent_runs_are_refused_until_one_ends(tmp_path: Path) -> None:
    code = "journal = Journal.open(Path(sys.argv[1]), IDENTITY); journal.append(made(0)); print(1, flush=True)"
    with child(f"{code}; time.sleep(60)", tmp_path) as other:
        assert other.stdout.readline() == "1\n"
        with pytest.raises(ConfigError, match=r"journal\.jsonl is in use"):
            Journal.open(tmp_path, IDENTITY)
        other.kill()
    check(tmp_path, 1)


def test_one_of_two_simultaneous_runs_gets_the_lock(tmp_path: Path) -> None:
    code = """
try:
    journal = Journal.open(Path(sys.argv[1]), IDENTITY)
    journal.append(made(journal.done))
    print("mine", flush=True)
    sys.stdin.read()
except ConfigError as error:
    print("in use by another run" in str(error), flush=True)
"""
    racers = [child(code, tmp_path, stdin=subprocess.PIPE) for _ in range(4)]
    assert sorted(racer.stdout.readline() for racer in racers) == ["True\n"] * 3 + ["mine\n"]
    for racer in racers:
        racer.communicate()
    check(tmp_path, 1)


def test_a_surviving_worker_does_not_hold_the_lock(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, IDENTITY)
    worker = os.fork()
    if not worker:  # pragma: no cover -- the worker
        time.sleep(60)
        os._exit(0)
    try:
        journal.append(made(0))
        journal.close()
        deadline = time.monotonic() + 10
        while True:  # the worker may not have come to let go yet
            try:
                check(tmp_path, 1)
                break
            except ConfigError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


# --------------------------------------------------------------------------------------------------------- full disks

FILL = """
resource_limit = int(sys.argv[2])
if resource_limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource_limit, resource_limit))
journal = Journal.open(Path(sys.argv[1]), IDENTITY)
try:
    while True:
        journal.append(made(journal.done))
except ConfigError as error:
    print(error)
    journal.close()
print(journal.done)
"""


def filled(folder: Path, limit: int) -> tuple[str, int]:
    with child(FILL, folder, limit) as process:
        text, done = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return text, int(done)


def test_a_file_that_cannot_grow_is_resumed_later(tmp_path: Path) -> None:
    text, done = filled(tmp_path, 10_000)
    assert text.startswith(f"journal {tmp_path}/journal.jsonl cannot be written: File too large; ")
    assert f" {done} stored steps" in text
    assert done > 30
    assert (tmp_path / "journal.jsonl").read_bytes().endswith(b"\n")  # the cut line was taken back
    write(tmp_path, done + 5, start=done)
    check(tmp_path, done + 5)


def test_a_full_disk(tmp_path: Path) -> None:
    """On a real one: a file system of 64 KiB in memory, mounted in a name space of its own."""
    unshare = shutil.which("unshare")
    allowed = unshare and not subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode
    if not allowed:
        pytest.skip("name spaces (unshare -rm) are not allowed here")
    script = 'mount -t tmpfs -o size=64k tmpfs "$1" && "$2" -c "$3" "$1" 0; cp "$1"/journal.jsonl "$1".copy'
    code = f"from test_journal import *\n{FILL}"
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "helpers", Path(__file__).parent)))
    disk, copy = tmp_path / "disk", tmp_path / "disk.copy"
    disk.mkdir()
    command = [unshare, "-rm", "sh", "-c", script, "sh", str(disk), sys.executable, code]
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    text, done = process.stdout.splitlines()
    assert f"journal {disk}/journal.jsonl cannot be written: No space left on device" in text
    assert int(done) > 200
    (tmp_path / "resumed").mkdir()
    copy.rename(tmp_path / "resumed" / "journal.jsonl")
    check(tmp_path / "resumed", int(done))


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigError, match=r"file/journal\.jsonl.*File exists"):
        Journal.open(tmp_path / "file", IDENTITY)


# --------------------------------------------------------------------------------------------------------------- fsync


def test_steps_reach_the_disk_within_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[float] = []
    with Journal.open(tmp_path, IDENTITY, sync_every=0.1) as journal:
        real = os.fsync
        monkeypatch.setattr(os, "fsync", lambda handle: (real(handle), synced.append(time.monotonic())))
        start = time.monotonic()
        for index in range(200):
            journal.append(made(index))
            time.sleep(0.002)
        appended = time.monotonic()
        while not synced or synced[-1] < appended:  # also the last ones, though nothing is appended any more
            assert time.monotonic() < appended + 100
            time.sleep(0.01)
    assert len(synced) <= (time.monotonic() - start) / 0.1 + 2


def test_interval_zero_syncs_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    with Journal.open(tmp_path, IDENTITY, sync_every=0) as journal:
        monkeypatch.setattr(os, "fsync", calls.append)
        for index in range(3):
            journal.append(made(index))
        assert len(calls) == 3


@pytest.mark.parametrize("late", [False, True])
def test_a_disk_that_fails_later_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = Journal.open(tmp_path, IDENTITY, sync_every=60 if late else 0.01)
    monkeypatch.setattr(os, "fsync", failing)
    journal.append(made(0))
    with pytest.raises(ConfigError, match=r"Input/output error; .*\d stored"):
        use_until_it_fails(journal.close if late else lambda: journal.append(made(1)))
    monkeypatch.undo()
    if not late:
        with pytest.raises(ConfigError, match="Input/output error"):
            journal.close()
    journal.close()
    with Journal.open(tmp_path, IDENTITY) as again:
        assert again.done >= 1


def use_until_it_fails(call: Callable[[], None]) -> None:
    for _ in range(500):
        call()
        time.sleep(0.01)


# ------------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step(2, np.array([object(), None])), "a plain array with one entry per sample"),
        (Step(2, np.zeros(2, [("a", "O")])), "a plain array with one entry per sample"),
        (Step(2, Records(np.array([None]), np.zeros(1, np.int64))), "a plain array with one entry per sample"),
        (Step(2, Records(np.zeros(3))), r"shape \(3,\) cannot be stored for 2 samples"),
        (Step(2, Records(np.zeros(1), np.array([2]))), "must be whole numbers from 0 to 1"),
        (Step(2, Records(np.zeros(1), np.array([0, 1]))), r"shape \(2,\) cannot be stored for 1 samples"),
        (Step(2, Records(np.zeros(2), None, ["a"])), "1 units for 2 records; name one per record"),
        (Step(2, np.zeros(3)), r"dtype float64 and shape \(3,\) cannot be stored for 2 samples"),
        (Step(2, np.zeros(2), good=(1,)), r"shape \(2,\) cannot be stored for 1 samples"),
        (Step(2, np.float64(1.0)), r"shape \(\) cannot be stored for 2 samples"),
        (Step(2, None), "a step with 2 good samples has no record"),
    ],
)
def test_a_record_that_cannot_be_stored(tmp_path: Path, step: Step, message: str) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(made(0))
        with pytest.raises(InputError, match=message):
            journal.append(step)
    check(tmp_path, 1)


def test_a_closed_journal_cannot_be_appended_to(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, IDENTITY)
    journal.close()
    journal.close()
    with pytest.raises(ConfigError, match="Bad file descriptor"):
        journal.append(made(0))


@pytest.mark.slow
def test_memory_of_replaying_is_bounded(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        for _ in range(5000):
            journal.append(Step(64, np.ones(64)))
        assert journal.path.stat().st_size > 3_000_000
    tracemalloc.start()
    try:
        with Journal.open(tmp_path, IDENTITY) as journal:
            assert sum(step.record.size for step in journal.replayed()) == 5000 * 64
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


# -------------------------------------------------------------------------------------------------------------- kill -9

APPEND = """
with Journal.open(Path(sys.argv[1]), IDENTITY) as journal:
    while journal.done < int(sys.argv[2]):
        journal.append(made(journal.done))
        time.sleep(0.001)
"""


def killed(process: subprocess.Popen[str], folder: Path, seconds: float, *, at_work: bool) -> bool:
    """Kill a process after so many seconds, ``at_work`` counted from its first step; say whether it still ran."""
    path = folder / "journal.jsonl"
    size = path.stat().st_size if path.exists() else 0
    while at_work and process.poll() is None and not (path.exists() and path.stat().st_size > size):
        time.sleep(0.001)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_kill_at_any_moment(tmp_path: Path, seed: int) -> None:
    rng, total, before, kills = np.random.default_rng(seed), 300, 0, 0
    while True:
        with child(APPEND, tmp_path, total) as process:
            seconds = rng.uniform(0, 0.15 if kills % 2 == 0 else 0.5) if kills < 6 else 60
            kills += killed(process, tmp_path, seconds, at_work=kills % 2 == 0)
        if (tmp_path / "journal.jsonl").exists():
            with Journal.open(tmp_path, IDENTITY) as journal:
                found = [facts(step) for step in journal.replayed()]
            assert before <= len(found)  # nothing that was there is lost
            assert found == [facts(made(index)) for index in range(len(found))]
            before = len(found)
        if process.returncode == 0:
            break
    assert kills
    killed_file, whole = tmp_path / "journal.jsonl", write(tmp_path / "whole", total)
    assert killed_file.read_bytes() == whole.read_bytes()
