from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError, Timeline, usable_cores
from utils.datasets import load_dataset
from utils.datasets.samples import Batch
from utils.pipeline.ahead import prepared
from utils.pipeline.run.pipeline import Failure
from utils.preprocess.pytorch.classification import preprocess

WORKERS = [0, 1, 2, 5, None]


def batches(count: int, size: int = 3) -> list[Batch]:
    return [
        Batch(
            [np.full(2, i * size + j, np.float32) for j in range(size)],
            np.arange(i * size, (i + 1) * size),
            [f"s{i * size + j}" for j in range(size)],
        )
        for i in range(count)
    ]


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("preprocess")]


def slow_stack(samples: list[np.ndarray]) -> np.ndarray:
    time.sleep(0.002 * float(samples[0][0] % 4))  # later batches overtake earlier ones
    return np.stack(samples)


@pytest.mark.parametrize("workers", WORKERS)
def test_batches_are_in_order_for_any_number_of_workers(workers: int | None) -> None:
    timeline = Timeline()
    ready = list(prepared(batches(20), slow_stack, timeline, workers))
    assert [r.batch.names for r in ready] == [b.names for b in batches(20)]
    np.testing.assert_array_equal(
        np.concatenate([r.arrays[0] for r in ready]), np.repeat(np.arange(60, dtype=np.float32), 2).reshape(60, 2)
    )
    assert timeline.count("preprocess") == 20
    assert timeline.samples("preprocess") == 60
    assert not own_threads()


def test_several_arrays_per_batch() -> None:
    ready = next(prepared(batches(1), lambda s: (np.stack(s), np.arange(len(s))), Timeline(), 0))
    assert [array.shape for array in ready.arrays] == [(3, 2), (3,)]


@pytest.mark.parametrize("workers", WORKERS)
def test_bad_samples_are_isolated(workers: int | None) -> None:
    calls = []

    def picky(samples: list[np.ndarray]) -> list[np.ndarray]:
        calls.append(len(samples))
        if any(sample[0] in (1, 6, 7, 8) for sample in samples):
            raise ValueError("bad luck")
        return [np.stack(samples), np.stack(samples) * 2]

    ready = list(prepared(batches(4), picky, Timeline(), workers))
    assert [r.batch.names for r in ready] == [["s0", "s2"], ["s3", "s4", "s5"], [], ["s9", "s10", "s11"]]
    assert ready[0].batch.targets.tolist() == [0, 2]
    assert [a.tolist() for a in ready[0].arrays] == [[[0, 0], [2, 2]], [[0, 0], [4, 4]]]
    assert ready[2].arrays is None
    assert [f for r in ready for f in r.failures] == [Failure(f"s{i}", "bad luck") for i in (1, 6, 7, 8)]
    assert sorted(calls) == [1] * 6 + [3] * 4  # only a batch that failed is done again, one by one


def test_bad_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    good = np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)
    for name in ("a", "c", "g"):
        Image.fromarray(good).save(tmp_path / f"{name}.png")
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "b.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "d.png").write_bytes(b"")
    (tmp_path / "e.png").write_text("not an image")
    Image.new("RGB", (100, 100)).save(tmp_path / "f.png")
    (tmp_path / "notes.txt").write_text("hello")
    dataset = load_dataset(tmp_path)
    assert [path.name for path, _ in dataset.rejected] == ["notes.txt"]

    def prepare(samples: list[Path]) -> np.ndarray:
        return preprocess(samples, "float32", 16, 16)

    ready = list(prepared(dataset.batches(3), prepare, Timeline(), 2))
    assert [Path(name).name for r in ready for name in r.batch.names] == ["a.png", "c.png", "g.png"]
    reasons = {Path(f.name).name: f.reason for r in ready for f in r.failures}
    for name, reason in {
        "b.png": "truncated",
        "d.png": "empty",
        "e.png": "not an image",
        "f.png": "decompression bomb",
    }.items():
        assert reason in reasons[name]
    assert len(reasons) == 4
    expected = prepare([tmp_path / f"{name}.png" for name in ("a", "c", "g")])
    np.testing.assert_array_equal(np.concatenate([r.arrays[0] for r in ready if r.arrays]), expected)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_bug_in_preprocess_ends_the_run(workers: int | None) -> None:
    def buggy(samples: list[np.ndarray]) -> np.ndarray:
        return samples + 1  # type: ignore[operator, return-value]

    with pytest.raises(TypeError):
        list(prepared(batches(10), buggy, Timeline(), workers))
    assert not own_threads()


def test_samples_of_different_shapes() -> None:
    samples = [Batch([np.zeros(2), np.zeros(2), np.zeros(3)], None, ["a", "b", "c"])]
    with pytest.raises(DataError, match=r"\[\(2,\)\] and sample 2 \[\(3,\)\]"):
        list(prepared(samples, np.stack, Timeline(), 0))


@pytest.mark.parametrize("workers", WORKERS)
def test_samples_with_nan_are_reported_and_run(workers: int | None) -> None:
    many = batches(4)
    many[1].samples[2][1] = np.nan
    many[3].samples[0][:] = np.nan
    ready = list(prepared(many, np.stack, Timeline(), workers))
    assert [r.nan_inputs for r in ready] == [[], ["s5"], [], ["s9"]]
    assert all(len(r.arrays[0]) == 3 for r in ready)


def test_nan_is_searched_in_floats_with_a_batch() -> None:
    arrays = [np.zeros(3, np.int64), np.array(np.nan), np.full((2, 2), np.nan), np.zeros((3, 0), np.float32)]
    (ready,) = prepared(batches(1), lambda samples: arrays, Timeline(), 0)
    assert ready.nan_inputs == []


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_look_ahead_is_bounded(workers: int) -> None:
    taken = 0

    def counted() -> Iterator[Batch]:
        nonlocal taken
        for batch in batches(40):
            taken += 1
            yield batch

    ahead = []
    for done, _ in enumerate(prepared(counted(), np.stack, Timeline(), workers), start=1):
        ahead.append(taken - done)
    assert max(ahead) == workers + 1
    assert taken == 40


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_end_when_the_consumer_stops_early(workers: int) -> None:
    ran = []

    def counted(samples: list[np.ndarray]) -> np.ndarray:
        ran.append(len(samples))
        return slow_stack(samples)

    stages = prepared(batches(50), counted, Timeline(), workers)
    next(stages)
    assert own_threads()
    stages.close()
    assert not own_threads()
    assert len(ran) <= workers + 3  # what had not begun was cancelled


def test_an_error_of_the_data_set_is_raised() -> None:
    def broken() -> Iterator[Batch]:
        yield from batches(3)
        raise ConfigError("the disk went away")

    with pytest.raises(ConfigError, match="the disk went away"):
        list(prepared(broken(), np.stack, Timeline(), 2))
    assert not own_threads()


def test_a_single_batch_needs_no_thread() -> None:
    seen = []

    def where(samples: list[np.ndarray]) -> np.ndarray:
        seen.append(threading.current_thread())
        return np.stack(samples)

    list(prepared(batches(1), where, Timeline(), 8))
    assert seen == [threading.current_thread()]
    assert usable_cores() >= 1


def test_no_batches() -> None:
    for workers in WORKERS:
        assert list(prepared([], np.stack, Timeline(), workers)) == []
