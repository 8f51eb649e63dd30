from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import preprocess_work as work
import pytest
from support import DIGITS, ROOT, RunPython

from engine import ConfigError, DataError, Timeline
from utils.datasets.samples import Batch
from utils.metrics import TopK
from utils.pipeline import Failure, evaluate, predict
from utils.pipeline.ahead import prepared, processes
from utils.pipeline.ahead.processes import live_cpu_seconds
from utils.pipeline.launch.exit_status import Stopped
from utils.pipeline.run.pipeline import Buffers, PreparedBatch

HERE = Path(__file__).resolve().parent


def batches(count: int, size: int = 3) -> list[Batch]:
    return [
        Batch(
            [np.full(4, i * size + j, np.float32) for j in range(size)],
            np.arange(i * size, (i + 1) * size),
            [f"s{i * size + j}" for j in range(size)],
        )
        for i in range(count)
    ]


def run(
    many: list[Batch], preprocess: Callable[..., Any], workers: int = 2, buffers: Buffers | None = None
) -> list[PreparedBatch]:
    return list(prepared(many, preprocess, Timeline(), workers, buffers, "process"))


def plain(ready: list[PreparedBatch]) -> list[Any]:
    return [
        (
            *(r.batch.names, r.failures, r.nan_inputs, r.good, r.whole.names),
            [sample.tobytes() for sample in r.batch.samples],
            None if r.batch.targets is None else r.batch.targets.tolist(),
            None if r.arrays is None else [(a.tobytes(), a.shape, a.dtype) for a in r.arrays],
        )
        for r in ready
    ]


def children() -> list[int]:
    """Return the ids of this process's children, dead ones that were not waited for too."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it ended
            continue
        if int(text.rpartition(")")[2].split()[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def gone(pids: list[int]) -> bool:
    """Say whether processes have ended; orphans may wait a while until the system takes notice of their end."""
    return not any(running(Path(f"/proc/{pid}/stat")) for pid in pids)


def running(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Any:
    before, opened = children(), files()
    yield
    assert children() == before
    assert files() == opened


# -------------------------------------------------------------------------------------------------------------- results


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_are_those_of_the_serial_loop(workers: int) -> None:
    assert plain(run(batches(14), work.stack, workers)) == plain(list(prepared(batches(14), work.stack, Timeline(), 0)))


@pytest.mark.slow
@pytest.mark.parametrize("function", [work.into, work.turned, work.two, work.picky])
def test_all_results_of_functions(function: Callable[..., Any]) -> None:
    many = [*batches(4), *batches(3, 5), *batches(3, 2)]  # larger batches than the first, and smaller ones
    many[5].samples[2][1] = np.nan
    assert plain(run(many, function)) == plain(list(prepared(many, function, Timeline(), 0)))


def test_buffers_are_reused_only_when_free() -> None:
    buffers, seen, places = Buffers(), [], set()
    for ready in prepared(batches(20), work.into, Timeline(), 2, buffers, "process"):
        assert ready.arrays is not None
        seen.append(ready.arrays[0].copy())
        places.add(ready.arrays[0].ctypes.data)
        buffers.put(ready.arrays, np.zeros(1))
    assert np.array_equal(np.concatenate(seen)[:, 0], np.arange(60) * 3)
    assert len(places) < 10


def test_stages_measured_in_the_children_are_in_the_timeline() -> None:
    timeline, started = Timeline(), time.perf_counter()
    list(prepared(batches(6), work.stack, timeline, 2, None, "process"))
    assert (timeline.count("preprocess"), timeline.samples("preprocess")) == (6, 18)
    assert all(started < span.start < span.end < time.perf_counter() for span in timeline.spans)


def test_code_that_holds_the_interpreter_lock() -> None:
    many = [batch._replace(targets=batch.targets % 4) for batch in batches(12)]
    options: dict[str, Any] = {"workers": 2, "worker_mode": "process", "warmup": 2}
    report = evaluate(lambda arrays: arrays[0], many, work.holding_the_lock, np.asarray, TopK(1), **options)
    assert (report.samples, report.failures) == (36, [])
    assert report.busy["preprocess"] > 0
    assert report.core_share > 0
    assert report.bottleneck().startswith("bound by preprocess")


def test_cpu_time_of_children_counts_once() -> None:
    def ended() -> float:
        return os.times().children_user + os.times().children_system

    before = ended()
    stages = prepared(batches(12), work.holding_the_lock, Timeline(), 1, None, "process")
    for _ in range(8):
        next(stages)
    live = live_cpu_seconds()
    assert live > 0.02
    assert ended() - before < 0.02  # the clock's ticks
    stages.close()
    assert live_cpu_seconds() == 0
    assert ended() - before >= live - 0.02


def test_predict() -> None:
    failures: list[Failure] = []
    answers = predict(lambda a: a[0], batches(4), work.picky, list, failures=failures, workers=2, worker_mode="process")
    assert [answer.name for answer in answers] == [f"s{i}" for i in range(12) if i not in (1, 6, 7, 8)]
    assert [failure.name for failure in failures] == ["s1", "s6", "s7", "s8"]


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sample_that_ends_its_process_is_left_out(workers: int) -> None:
    timeline = Timeline()
    ready = list(prepared(batches(5), work.deadly, timeline, workers, None, "process"))
    assert [name for r in ready for name in r.batch.names] == [f"s{i}" for i in range(15) if i not in (4, 8, 9)]
    assert [failure for r in ready for failure in r.failures] == [
        Failure("s4", "ended the preprocessing process (signal SIGKILL); sample left out"),
        Failure("s8", "ended the preprocessing process (exit code 7); sample left out"),
        Failure("s9", "unreadable"),
    ]
    assert [r.good for r in ready] == [None, (0, 2), (0, 1), (1, 2), None]
    assert ready[1].arrays is not None
    assert ready[1].arrays[0][:, 0].tolist() == [3, 5]
    assert (timeline.count("preprocess"), timeline.samples("preprocess")) == (5, 12)  # of those that made it


@pytest.mark.slow
def test_a_stopped_process_is_ended_and_its_sample_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "Stopped", partial(Stopped, looks=1))
    (ready,) = prepared(batches(1), work.stopping, Timeline(), 1, None, "process")
    assert ready.failures == []
    failed = [
        failure
        for one in prepared(batches(2), work.stopping, Timeline(), 1, None, "process")
        for failure in one.failures
    ]
    assert failed == [Failure("s4", "ended the preprocessing process (signal SIGKILL); sample left out")]


def test_a_bug_ends_the_run_unchanged() -> None:
    with pytest.raises(KeyError, match=r"0\.0") as caught:
        run(batches(9), work.buggy)
    assert "in buggy" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="PeculiarError: 1 and 2"):  # cannot be pickled
        run(batches(9), work.peculiar)


def test_samples_of_different_shapes() -> None:
    many = [Batch([np.zeros(2), np.zeros(3)], None, ["a", "b"])] * 2
    with pytest.raises(DataError, match=r"\[\(2,\)\] and sample 1 \[\(3,\)\]"):
        run(many, np.stack)


def test_functions_that_cannot_be_pickled() -> None:
    with pytest.raises(ConfigError, match=r"<lambda>.*--worker_mode thread"):
        run(batches(3), lambda samples: np.stack(samples))
    with pytest.raises(ConfigError, match="worker_mode 'fork' must be one of: thread, process"):
        list(prepared(batches(3), np.stack, Timeline(), 2, None, "fork"))


def test_one_batch_and_no_workers_need_no_process() -> None:
    assert len(run(batches(1), lambda samples: np.stack(samples))) == 1
    assert len(run(batches(3), lambda samples: np.stack(samples), workers=0)) == 3


SCRIPT = """
import numpy as np
from engine.timeline import Timeline
from utils.datasets.samples import Batch
from utils.pipeline import cli
from utils.pipeline.ahead import prepared, processes

def own(samples):
    return np.stack(samples) + 1

def main():
    many = [Batch([np.zeros(2)], None, [str(i)]) for i in range(3)]
    print(sum(r.arrays[0].sum() for r in prepared(many, own, Timeline(), 1, None, "process")))
    return 0

"""


def test_a_function_of_the_script_itself(tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "guarded.py").write_text(SCRIPT + 'if __name__ == "__main__":\n    cli.run(main)\n')
    assert run_python(tmp_path / "guarded.py").stdout == "6.0\n"
    (tmp_path / "bare.py").write_text(SCRIPT + "cli.run(main)\n")
    done = run_python(tmp_path / "bare.py")
    assert done.returncode == 2
    assert 'put the run under `if __name__ == "__main__":`' in done.stderr
    assert "error: the preprocessing process for own ended as it started" in done.stderr
    done = run_python("-c", SCRIPT + "cli.run(main)")
    assert done.returncode == 2
    assert done.stderr.startswith("error: preprocess function own cannot be used")


# ------------------------------------------------------------------------------------------------------------------ end


@pytest.mark.parametrize("stubborn", [False, True])
def test_processes_end_when_the_consumer_stops(tmp_path: Path, stubborn: bool) -> None:
    def busy_then_stop() -> Any:
        yield from batches(2)
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        stopped.append(time.monotonic())
        raise ConfigError("stop")

    stopped: list[float] = []
    with pytest.raises(ConfigError, match="stop"):
        list(prepared(busy_then_stop(), work.Busy(tmp_path, stubborn), Timeline(), 2, None, "process"))
    assert time.monotonic() - stopped[0] < 1
    assert gone([int(path.name) for path in tmp_path.iterdir()])


BUSY = """
import sys
from pathlib import Path
import numpy as np
from preprocess_work import Busy
from utils.datasets.samples import Batch
from utils.metrics import TopK
from utils.pipeline import cli, evaluate

def main():
    many = [Batch([np.zeros(2)], np.zeros(1, int), [str(i)]) for i in range(9)]
    evaluate(list, many, Busy(Path(sys.argv[1])), np.asarray, TopK(1), workers=2, worker_mode="process")

cli.run(main)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"}
    command = [sys.executable, "-c", BUSY, str(tmp_path)]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        pids = [int(path.name) for path in tmp_path.iterdir()]
        if how == signal.SIGINT:
            os.killpg(parent.pid, how)  # as a terminal does
        else:
            parent.kill()
        sent = time.monotonic()
        _, err = parent.communicate(timeout=20)
        assert time.monotonic() - sent < 1
        until(lambda: gone(pids), 1)
    assert parent.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert err == ("interrupted after step 0 of 9 (0 samples)\n" if how == signal.SIGINT else "")


# -------------------------------------------------------------------------------------------------------------- scripts


def test_the_digits_script(run_python: RunPython) -> None:
    script = (DIGITS / "example_valid.py", "--target", "onnx", "--workers", 2, "--worker_mode")
    thread, process = (run_python(*script, mode).stdout.splitlines() for mode in ("thread", "process"))
    assert process[-2].startswith("eval_metric ")
    assert process[-2] == thread[-2]
    assert process[-3].startswith("bound by ")


def test_process_modules_are_imported_lazily(run_python: RunPython) -> None:
    code = (
        "import sys, runpy\n"
        f"sys.argv[0] = {str(DIGITS / 'example_single_batch.py')!r}\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'multiprocessing', 'concurrent.futures', 'utils.pipeline.ahead.processes'} & set(sys.modules)"
    )
    done = run_python("-c", code, "--target", "null")
    assert done.returncode == 0, done.stderr
