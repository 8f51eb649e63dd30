"""``--resume``: an evaluation killed at any time continues with the same command, with equal results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support import DIGITS, ROOT

from utils.pipeline.resume.records import SampleRecords, records_path

SAMPLES, BATCH = 360, 8


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Job:
    """The repeated command with its files."""

    def __init__(self, folder: Path, *extra: object) -> None:
        folder.mkdir(exist_ok=True)
        self.journals = folder / "journals"
        self.result = folder / "result.json"
        self.extra = [str(word) for word in extra]

    def start(self, *extra: object, resume: bool = True) -> subprocess.Popen[str]:
        command = [sys.executable, str(DIGITS / "example_valid.py"), "--target", "onnx", "--batch_size", str(BATCH)]
        command += ["--json", str(self.result), *self.extra, *map(str, extra)]
        command += ["--resume", str(self.journals)] if resume else []
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *extra: object, resume: bool = True) -> Ended:
        with self.start(*extra, resume=resume) as process:
            out, err = process.communicate(timeout=120)
        return Ended(process.returncode, out, err)

    @property
    def journal(self) -> Path:
        return self.journals / "journal.jsonl"

    @property
    def steps(self) -> int:
        """Whole steps in the journal."""
        return max(0, self.journal.read_bytes().count(b"\n") - 1) if self.journal.exists() else 0

    def facts(self) -> dict[str, Any]:
        """The results, independent of interruptions."""
        data = json.loads(self.result.read_text())
        return {key: data[key] for key in ("metric_name", "metric", "samples", "steps", "failures", "finished")}

    def kill(self, seconds: float, *, after: int = 0) -> bool:
        """Start, and kill -9 so many seconds after so many more steps; say whether it still ran."""
        before = self.steps
        with self.start() as process:
            while process.poll() is None and self.steps < before + after:
                time.sleep(0.001)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
        return process.returncode == -signal.SIGKILL


def metric_line(out: str) -> str:
    return next(line for line in out.splitlines() if line.startswith("eval_metric "))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits and one image that cannot be read, in the middle of them."""
    folder = tmp_path_factory.mktemp("data") / "val"
    shutil.copytree(DIGITS / "data" / "val", folder)
    (folder / "4" / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> tuple[Job, Ended]:
    """An uninterrupted run."""
    job = Job(tmp_path_factory.mktemp("whole"), "--data_path", data)
    return job, job.run()


def test_an_uninterrupted_run(whole: tuple[Job, Ended], data: Path, tmp_path: Path) -> None:
    job, ended = whole
    assert ended.code == 1, ended.err  # one image could not be read
    assert job.facts()["samples"] == SAMPLES
    assert job.steps == -(-(SAMPLES + 1) // BATCH)
    rows = list(SampleRecords(records_path(job.result)))
    assert [row.index for row in rows] == list(range(SAMPLES + 1))
    (failed,) = (row for row in rows if row.value is None)
    assert failed.name == str(data / "4" / "broken.png")
    right = [row.value for row in rows if row.value is not None]
    assert sum(right) / len(right) == job.facts()["metric"]
    plain = Job(tmp_path / "plain", "--data_path", data)
    assert metric_line(plain.run(resume=False).out) == metric_line(ended.out)
    assert records_path(plain.result).read_bytes() == records_path(job.result).read_bytes()
    assert not plain.journals.exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments(whole: tuple[Job, Ended], data: Path, tmp_path: Path, seed: int) -> None:
    want, uninterrupted = whole
    rng, job, kills = np.random.default_rng(seed), Job(tmp_path / "job", "--data_path", data), 0
    for attempt in range(4):
        before = job.steps
        # In turn somewhere in the work, and at any moment from the start of the interpreter on.
        at_work = {"seconds": rng.uniform(0, 0.01), "after": int(rng.integers(1, 15))}
        if not job.kill(**at_work if attempt % 2 == 0 else {"seconds": rng.uniform(0, 1.5)}):
            break
        kills += 1
        assert job.steps >= before
    assert kills
    ended = job.run()
    assert ended.code == 1, ended.err
    assert metric_line(ended.out) == metric_line(uninterrupted.out)
    assert job.facts() == want.facts()
    assert records_path(job.result).read_bytes() == records_path(want.result).read_bytes()
    assert job.journal.read_bytes() == want.journal.read_bytes()


def test_finished_run_does_no_steps(whole: tuple[Job, Ended], data: Path, tmp_path: Path) -> None:
    want, uninterrupted = whole
    job = Job(tmp_path / "job", "--data_path", data)
    shutil.copytree(want.journals, job.journals)
    before = job.journal.read_bytes()
    ended = job.run()
    assert ended.code == 1, ended.err
    assert metric_line(ended.out) == metric_line(uninterrupted.out)
    assert job.facts() == want.facts()
    assert records_path(job.result).read_bytes() == records_path(want.result).read_bytes()
    assert job.journal.read_bytes() == before


@pytest.mark.slow
def test_run_from_the_journal_alone_has_no_bottleneck(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", "--target", "sdaa")
    first, again = job.run(), job.run()
    assert (first.code, again.code) == (0, 0)
    for start in ("bound by", "simulated:"):
        assert any(line.startswith(start) for line in first.out.splitlines())
        assert not any(line.startswith(start) for line in again.out.splitlines())
    assert first.out.splitlines()[-2] == again.out.splitlines()[-2]


def test_ctrl_c_keeps_finished_steps(data: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "job", "--data_path", data)
    with job.start() as process:
        while process.poll() is None and not job.steps:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode in (130, 1)  # 1: it had just ended
    done = job.steps
    assert job.run().code == 1
    assert job.steps >= max(done, 1)


def other_model(folder: Path, data: Path) -> list[object]:
    import onnx

    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    model.doc_string = "another file, though it computes the same"
    onnx.save(model, str(folder / "other.onnx"))
    return ["--ckpt", folder / "other.onnx"]


def other_data(folder: Path, data: Path) -> list[object]:
    shutil.copytree(data, folder / "val")
    (folder / "val" / "3").joinpath(min(os.listdir(folder / "val" / "3"))).unlink()
    return ["--data_path", folder / "val"]


def other_batch(folder: Path, data: Path) -> list[object]:
    return ["--batch_size", 16]


def other_metric(folder: Path, data: Path) -> list[object]:
    return ["--topk", 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "key"),
    [(other_model, "model"), (other_data, "data"), (other_batch, "batch_size"), (other_metric, "metric")],
)
def test_journal_of_another_run_raises(
    whole: tuple[Job, Ended],
    data: Path,
    tmp_path: Path,
    change: Callable[[Path, Path], list[object]],
    key: str,
) -> None:
    job = Job(tmp_path / "job", "--data_path", data)
    shutil.copytree(whole[0].journals, job.journals)
    before = job.journal.read_bytes()
    ended = job.run(*change(tmp_path, data))
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert line.startswith(f"error: journal {job.journal} was made by another run: ")
    differences = line.split("another run: ")[1].split("; use another folder")[0].split("; ")
    assert any(key in text.split(" is ")[0] for text in differences), line
    assert all(" there and " in text for text in differences)
    assert job.journal.read_bytes() == before
    assert not job.result.exists()


def test_two_runs_at_once(data: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "job", "--data_path", data)
    with job.start() as process:
        while process.poll() is None and not job.steps:
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        try:
            ended = job.run()
        finally:
            process.send_signal(signal.SIGCONT)
        process.communicate(timeout=60)
    assert process.returncode == 1  # the first one ends as ever
    assert ended.code == 2
    assert "is in use by another run; wait for it to end" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_full_disk_while_journalling(whole: tuple[Job, Ended], data: Path, tmp_path: Path) -> None:
    """The run ends with one line, and continues when there is space again."""
    job = Job(tmp_path / "job", "--data_path", data)
    written = whole[0].journal.read_bytes()
    most = (written.index(b"\n") + len(written)) // 2  # half of the steps
    limited = (
        f"import resource as r, runpy, sys; r.setrlimit(r.RLIMIT_FSIZE, ({most}, {most})); sys.argv = sys.argv[1:]"
    )
    code = f"{limited}; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", code, str(DIGITS / "example_valid.py"), "--target", "onnx", "--batch_size", BATCH]
    command += ["--data_path", data, "--resume", job.journals]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    full = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert full.returncode == 2, full.stderr
    (line,) = full.stderr.splitlines()
    assert f"journal {job.journal} cannot be written: File too large" in line
    done = job.steps
    assert 0 < done < 46
    assert job.run().code == 1
    assert job.steps == 46
    assert job.facts()["samples"] == SAMPLES
