from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError
from utils.datasets.base import Batch
from utils.metrics import TopK
from utils.pipeline import evaluate
from utils.pipeline.report.report import Report
from utils.pipeline.resume.journal import Journal
from utils.pipeline.resume.locks import open_locked

IDENTITY = {"model": "m"}


def batches() -> list[Batch]:
    sizes = (4, 4, 2)
    return [
        Batch(samples=list(range(n)), targets=np.arange(n) % 3, names=[f"{i}/{k}" for k in range(n)])
        for i, n in enumerate(sizes)
    ]


def run(folder: Path) -> float:
    rng = np.random.default_rng(0)
    with Journal.open(folder, IDENTITY, sync_every=100) as journal:
        found = evaluate(
            lambda inputs: rng.random((len(inputs[0]), 3)).astype("f4"),
            batches(),
            lambda samples: np.zeros((len(samples), 1), "f4"),
            np.asarray,
            TopK(),
            workers=0,
            journal=journal,
        )
    return found.metric


def forge(folder: Path, number: int, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change what a line says, and give it the checksum of that."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    content = json.loads(lines[number][9:])
    change(content)
    text = json.dumps(content).encode()
    lines[number] = b"%08x %s\n" % (zlib.crc32(text), text)
    path.write_bytes(b"".join(lines))
    return path


def sets(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(values)


def record(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["record"].get("values", content["record"]).update(values)


ARRAY = {"dtype": "|b1", "shape": [4], "data": "AAEAAQ=="}

NINE = {**ARRAY, "dtype": "|i1", "data": "AAkAAQ=="}

FORGED = {
    "no record": (sets(record=None), "record is missing"),
    "no record key": (lambda content: content.pop("record"), "record is missing"),
    "a record of text": (sets(record="x"), "record must be"),
    "no size": (lambda content: content.pop("size"), "size is None"),
    "another size": (sets(size=3), "an array has 4 rows for 3"),
    "all of another size": (sets(size=2, record={**ARRAY, "shape": [2], "data": "AAE="}), "it has 2 samples"),
    "a size of text": (sets(size="4"), "size is '4'"),
    "a huge size": (sets(size=10**30), "size is 1000"),
    "good beyond": (sets(good=[0, 1, 2, 9]), "good must"),
    "good twice": (sets(good=[0, 1, 1, 2]), "good must"),
    "good of text": (sets(good=["0", 1, 2, 3]), "a position in good is '0'"),
    "fewer without a reason": (sets(good=[0], record={**ARRAY, "shape": [1], "data": "AA=="}), "samples are missing"),
    "none at all": (sets(good=[], record=None), "samples are missing"),
    "failures of text": (sets(failures="x"), "failures must be"),
    "failures of others": (sets(failures=[["other", "why"]]), "'other'"),
    "NaN of others": (sets(nan_outputs=["other"]), "'other'"),
    "NaN of numbers": (sets(nan_inputs=[1]), "nan_inputs"),
    "counts of text": (sets(counts={"a": "b"}), "'a'"),
    "more keys": (sets(more=1), "unknown key 'more'"),
    "no such dtype": (record(dtype="nothing"), "unknown dtype"),
    "objects": (record(dtype="|O"), "objects"),
    "fields that are none": (record(dtype=[["a", "b", "c"]]), "unknown dtype"),
    "a shape of text": (record(shape=["4"]), "a size of an array is '4'"),
    "no shape": (record(shape=[]), "no dimensions"),
    "more data": (record(data="AAEAAQAA"), "does not fit its shape"),
    "no base64": (record(data="A"), "base64"),
    "a value that none is": (record(dtype="|i1", data="AAcAAQ=="), "outside 0 to 1"),
    "samples that are none": (
        sets(record={"values": ARRAY, "samples": {**ARRAY, "dtype": "|i1", "data": "AAkAAQ=="}}),
        "samples of",
    ),
    "margins of text": (sets(record={"values": ARRAY, "margins": "x"}), "an array needs"),
    "margins of another dtype": (
        sets(record={"values": ARRAY, "margins": {**ARRAY, "dtype": "<f4", "data": "AAAA" * 5 + "AA=="[:4]}}),
        "margins must be float64",
    ),
    "margins of another number": (
        sets(record={"values": ARRAY, "margins": {**ARRAY, "dtype": "<f8", "shape": [1], "data": "AAAAAAAAAAA="}}),
        "an array has 1 rows for 4",
    ),
    "margins of two dimensions": (
        sets(record={"values": ARRAY, "margins": {**ARRAY, "dtype": "<f8", "shape": [4, 0], "data": ""}}),
        "margins must be float64",
    ),
    "units that are none": (sets(record={"values": ARRAY, "units": [1, 2, 3, 4]}), "units must be"),
}


@pytest.mark.parametrize("what", list(FORGED))
def test_a_forged_step_is_an_error(tmp_path: Path, what: str) -> None:
    change, why = FORGED[what]
    run(tmp_path)
    forge(tmp_path, 2, change)
    with pytest.raises(ConfigError, match=r"journal\.jsonl line 3") as caught:
        run(tmp_path)
    assert why in str(caught.value)


def test_more_steps_than_the_data_has(tmp_path: Path) -> None:
    metric = run(tmp_path)
    path = tmp_path / "journal.jsonl"
    last = json.loads(path.read_bytes().splitlines()[-1][9:])
    text = json.dumps({**last, "step": 3}).encode()
    path.write_bytes(path.read_bytes() + b"%08x %s\n" % (zlib.crc32(text), text))
    with pytest.raises(ConfigError, match=r"line 5 .* 3 steps"):
        run(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    assert 0 <= metric <= 1


@pytest.mark.parametrize("text", [b"null", b"[]", b"{", b"[" * 5000, b"9" * 5000, b"\xff"])
@pytest.mark.parametrize("number", [0, 1])
def test_lines_that_are_not_objects(tmp_path: Path, text: bytes, number: int) -> None:
    run(tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number] = b"%08x %s\n" % (zlib.crc32(text), text)
    path.write_bytes(b"".join(lines))
    with pytest.raises(ConfigError, match=rf"line {number + 1} .*JSON"):
        run(tmp_path)


@pytest.mark.parametrize("identity", [None, [], "x", 1])
def test_an_invalid_identity(tmp_path: Path, identity: Any) -> None:
    run(tmp_path)
    forge(tmp_path, 0, sets(identity=identity))
    with pytest.raises(ConfigError, match=r"journal\.jsonl has no identity"):
        run(tmp_path)


@pytest.mark.parametrize("name", ["journal.jsonl", "journal.new"])
@pytest.mark.parametrize("what", ["pipe", "folder", "device", "circle"])
def test_paths_that_are_not_files(tmp_path: Path, name: str, what: str) -> None:
    place = tmp_path / name
    if what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero" if what == "device" else name)
    with pytest.raises(ConfigError, match=r"journal .*journal.jsonl cannot be written"):
        run(tmp_path)


def test_creating_a_file_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".r.part").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic links"):
        open_locked(tmp_path / ".r.part", create=True)
    assert (tmp_path / "precious").read_text() == "mine"


class Odd:
    """Finds the first batch odd."""

    def __init__(self) -> None:
        self.seen = 0

    def see(self, *_: Any) -> None:
        self.seen += 1

    def hints(self) -> list[str]:
        return ["try --box_format"] if self.seen else []


def test_hints_are_stored_with_the_steps(tmp_path: Path) -> None:
    from utils.pipeline.run.function_task import FunctionTask
    from utils.pipeline.run.loops import evaluate_pipeline
    from utils.pipeline.run.pipeline import Pipeline

    def found() -> Report:
        task = FunctionTask(
            lambda inputs: np.zeros((len(inputs[0]), 3), "f4"),
            lambda samples: np.zeros((len(samples), 1), "f4"),
            np.asarray,
        )
        pipeline = Pipeline(task, {})
        pipeline.diagnostics = Odd()
        with Journal.open(tmp_path, IDENTITY, sync_every=100) as journal:
            return evaluate_pipeline(pipeline, batches(), TopK(), workers=0, journal=journal)

    assert found().hints == ["try --box_format"]
    for _ in range(2):
        again = found()
        assert (again.resumed_steps, again.steps, again.hints) == (3, 3, ["try --box_format"])
