from __future__ import annotations

import csv
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError, InputError
from utils.datasets.base import Batch
from utils.metrics import Records, TopK
from utils.pipeline.resume.records import (
    RecordWriter,
    SampleRecord,
    SampleRecords,
    find_records,
    record_writer,
    records_path,
)
from utils.pipeline.resume.records.arrays import ArrayRecordWriter, read_arrays


def batch(names: list[str], labels: list[int] | None = None) -> Batch:
    return Batch([Path(name) for name in names], None if labels is None else np.array(labels, np.int64), names)


def test_the_file_next_to_the_result() -> None:
    assert records_path(Path("out/result.json")) == Path("out/result.samples.csv")
    assert records_path(Path("a.b.json")) == Path("a.b.samples.csv")
    assert records_path(Path("result")) == Path("result.samples.csv")


def test_rows_in_the_order_of_the_samples(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    with RecordWriter(path, "top1") as writer:
        writer.write(batch(["a.png", "b, c.png", 'd"e.png'], [3, 0, 7]), np.array([True, False, True]))
        writer.write(batch(["f.png", "g.png", "h.png"], [1, 1, 1]), np.array([True, False]), good=[0, 2])
        writer.write(batch(["i.png"], [2]), None)
        assert not path.exists()
    assert path.read_text().splitlines() == [
        "index,name,label,top1",
        "0,a.png,3,1",
        '1,"b, c.png",0,0',
        '2,"d""e.png",7,1',
        "3,f.png,1,1",
        "4,g.png,1,",
        "5,h.png,1,0",
        "6,i.png,2,",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["r.csv"]
    rows = SampleRecords(path)
    assert rows.metric_name == "top1"
    assert list(rows)[4:6] == [SampleRecord(4, "g.png", 1, None), SampleRecord(5, "h.png", 1, 0.0)]
    assert list(rows) == list(rows)


def test_no_labels_and_a_part_of_the_data_set(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "r.csv", "score", rank=1, size=3) as writer:
        writer.write(batch(["a", "b"]), np.array([2, -1]))
    assert [*SampleRecords(tmp_path / "r.csv")] == [SampleRecord(1, "a", None, 2.0), SampleRecord(4, "b", None, -1.0)]


names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1) | st.just(
    "not\udcffutf8"
)


@settings(deadline=None, max_examples=80)
@given(
    rows=st.lists(st.tuples(names, st.integers(0, 2**62), st.none() | st.floats()), max_size=12),
    steps=st.integers(1, 5),
    metric=names.filter(lambda name: "\r" not in name),
    dtype=st.sampled_from([np.float64, np.float32, np.float16]),
)
def test_written_records_are_read(
    rows: list[tuple[str, int, float | None]], steps: int, metric: str, dtype: type[np.floating]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "r.csv")
        want = []
        with RecordWriter(path, metric) as writer, np.errstate(over="ignore"):
            for start in range(0, len(rows), steps):
                part = rows[start : start + steps]
                good = [i for i, row in enumerate(part) if row[2] is not None]
                record = np.array([part[i][2] for i in good], dtype)
                values = dict(zip(good, record.tolist(), strict=True))
                writer.write(batch([row[0] for row in part], [row[1] for row in part]), record, good)
                want += [(start + i, row[0], row[1], repr(values.get(i))) for i, row in enumerate(part)]
        found = SampleRecords(path)
        assert [(row.index, row.name, row.label, repr(row.value)) for row in found] == want
        assert found.metric_name == metric


def test_an_exception_leaves_the_older_file(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("older")
    writer = RecordWriter(tmp_path / "r.csv", "top1")

    def interrupted() -> None:
        with writer:
            writer.write(batch(["a"], [0]), np.array([True]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("r.csv", "older")]
    writer.close()
    writer.discard()


def test_the_file_of_a_killed_run_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".r.csv.part").write_text("left over, and longer than what comes now " * 10)
    with RecordWriter(tmp_path / "r.csv", "top1") as writer:
        with pytest.raises(ConfigError, match="is in use"):
            RecordWriter(tmp_path / "r.csv", "top1")
        writer.write(batch(["a"], [0]), np.array([True]))
    assert (tmp_path / "r.csv").read_text() == "index,name,label,top1\n0,a,0,1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["r.csv"]


@pytest.mark.parametrize("record", [np.zeros(3), np.zeros((2, 2)), np.zeros(2, complex), np.array(["a", "b"])])
def test_a_record_that_does_not_fit(tmp_path: Path, record: np.ndarray) -> None:
    with (
        pytest.raises(InputError, match=r"shape .* 2 samples"),
        RecordWriter(tmp_path / "r.csv", "top1") as writer,
    ):
        writer.write(batch(["a", "b"], [0, 1]), record)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone/r\.csv.*No such file or directory"):
        RecordWriter(tmp_path / "gone" / "r.csv", "top1")


FILL = """
import resource, sys
from pathlib import Path
import numpy as np
from utils.datasets.base import Batch
from engine import ConfigError
from utils.pipeline.resume.records import RecordWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    with RecordWriter(Path(sys.argv[1]), "top1") as writer:
        for _ in range(int(sys.argv[2])):
            writer.write(Batch([], None, ["name"] * 8), np.ones(8, bool))
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("steps", [2000, 300])  # full while writing; full at the last flush
def test_a_file_that_cannot_grow(tmp_path: Path, root: Path, steps: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", FILL, str(tmp_path / "r.csv"), str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"records file {tmp_path}/r.csv cannot be written: File too large")
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.slow
def test_memory_of_a_long_run_is_bounded(tmp_path: Path) -> None:
    some, record = batch([f"folder/{i}.png" for i in range(100)], list(range(100))), np.ones(100, bool)
    tracemalloc.start()
    try:
        with RecordWriter(tmp_path / "r.csv", "top1") as writer:
            for _ in range(500):
                writer.write(some, record)
        assert sum(1 for _ in SampleRecords(tmp_path / "r.csv")) == 50_000
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text", ["", "a,b\n", "index,name,label\n", "index,name,top1,label,x\n", "a,name,label,top1\n"]
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(DataError, match=r"r\.csv.*index,name,label"):
        SampleRecords(tmp_path / "r.csv")


@pytest.mark.parametrize("row", ["1,a.png,0", "x,a.png,0,1", "1,a.png,0,u,1", "1,a.png,0,right", "1,a.png,0,1,2"])
def test_the_error_names_a_damaged_row(tmp_path: Path, row: str) -> None:
    (tmp_path / "r.csv").write_text(f"index,name,label,top1\n0,a.png,0,1\n{row}\n")
    rows = iter(SampleRecords(tmp_path / "r.csv"))
    assert next(rows) == SampleRecord(0, "a.png", 0, 1.0)
    with pytest.raises(DataError, match=r"r\.csv row 3: \["):
        next(rows)


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv.*No such file or directory"):
        SampleRecords(tmp_path / "gone.csv")
    (tmp_path / "r.csv").write_text("index,name,label," + "x" * (csv.field_size_limit() + 1))
    with pytest.raises(DataError, match=r"r\.csv.*field limit"):
        SampleRecords(tmp_path / "r.csv")


# ---------------------------------------------------------------------------------------------------- labels and units


def test_labels_of_any_kind(tmp_path: Path) -> None:
    targets = ["cat", 2.5, np.int32(7), True, None, np.zeros(2), "", "a\rb", np.float32(0.5), {"boxes": []}]
    some = Batch([None] * 10, targets, [str(i) for i in range(10)])
    with RecordWriter(tmp_path / "r.csv", "score") as writer:
        writer.write(some, np.arange(10))
    labels = [row.label for row in SampleRecords(tmp_path / "r.csv")]
    assert labels == ["cat", "2.5", 7, 1, None, None, None, "a\rb", "0.5", None]


def test_units_have_a_column(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "r.csv", "top1") as writer:
        writer.write(Batch([0, 1], [3, 4], ["a", "b"], ["ann", "b,ob"]), np.array([True, False]))
        writer.write(Batch([2], [5], ["c"], ["ann"]), None)
    assert (tmp_path / "r.csv").read_text().splitlines() == [
        "index,name,label,unit,top1",
        "0,a,3,ann,1",
        '1,b,4,"b,ob",0',
        "2,c,5,ann,",
    ]
    rows = SampleRecords(tmp_path / "r.csv")
    assert rows.has_units
    assert [(row.unit, row.value) for row in rows] == [("ann", 1.0), ("b,ob", 0.0), ("ann", None)]


@pytest.mark.parametrize("kind", [RecordWriter, ArrayRecordWriter])
def test_units_for_some_batches_only(tmp_path: Path, kind: type[RecordWriter]) -> None:
    writer = kind(tmp_path / "r.csv", "top1")
    writer.write(Batch([0], [3], ["a"], ["ann"]), np.array([True]))
    with pytest.raises(InputError, match="one batch has units"):
        writer.write(Batch([1], [3], ["b"]), np.array([True]))
    writer.discard()
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------------- arrays


class Boxes(TopK):
    per_sample = False


BOX = np.dtype([("score", "<f4"), ("right", "?")])


def test_the_kind_of_file_depends_on_the_metric(tmp_path: Path) -> None:
    result = tmp_path / "out.json"
    assert records_path(result, TopK()) == tmp_path / "out.samples.csv"
    assert records_path(result, Boxes()) == tmp_path / "out.samples.npz"
    assert find_records(result) is None
    for metric in (TopK(), Boxes(), TopK()):
        path = records_path(result, metric)
        with record_writer(path, metric) as writer:
            writer.write(batch(["a"], [0]), np.array([True]))
        assert list(tmp_path.iterdir()) == [path], "the records of an earlier run stay beside a newer result"
        assert find_records(result) == path


def test_any_number_of_records_for_each_sample(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    with ArrayRecordWriter(path, "mAP", rank=1, size=2) as writer:
        boxes = np.array([(0.5, True), (0.25, False), (0.75, True)], BOX)
        writer.write(Batch([0, 1, 2], None, ["a", "b", "\udcffc"]), Records(boxes, np.array([1, 0, 1])), good=[0, 2])
        writer.write(Batch([3], None, ["d"]), None)
        writer.write(Batch([4], None, ["e"]), Records(boxes[:0], np.zeros(0, np.int64)))
        assert not path.exists()
    found = read_arrays(path)
    assert (found.metric_name, found.names) == ("mAP", ["a", "b", "\udcffc", "d", "e"])
    assert found.index.tolist() == [1, 3, 5, 7, 9]
    assert found.ran.tolist() == [True, False, True, False, True]
    assert found.sample.tolist() == [0, 2, 2]
    assert found.values.dtype == BOX
    assert found.values["score"].tolist() == [0.25, 0.5, 0.75]
    assert (found.sample_units, found.record_units) == (None, None)
    assert [file.name for file in tmp_path.iterdir()] == ["r.npz"]


def test_units_of_samples_and_of_records(tmp_path: Path) -> None:
    with ArrayRecordWriter(tmp_path / "r.npz", "ap") as writer:
        writer.write(
            Batch([0, 1], None, ["a", "b"], ["v", "u"]), Records(np.arange(3), np.array([0, 0, 1]), ["q", "v", "q"])
        )
        writer.write(Batch([2], None, ["c"], ["v"]), Records(np.arange(1), None, ["x"]))
    found = read_arrays(tmp_path / "r.npz")
    assert found.sample_units == ["v", "u", "v"]
    assert found.record_units == ["q", "v", "q", "x"]


def test_array_files_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, 30)
    values = rng.random((int(counts.sum()), 2))
    ends = np.cumsum(counts)
    for size in (1, 7, 30):
        with ArrayRecordWriter(tmp_path / f"{size}.npz", "x") as writer:
            for start in range(0, 30, size):
                part = range(start, min(start + size, 30))
                rows = values[ends[part[0]] - counts[part[0]] : ends[part[-1]]]
                samples = np.repeat(np.arange(len(part)), counts[part.start : part.stop])
                names, units = [f"n{i}" for i in part], [f"u{i % 4}" for i in part]
                writer.write(Batch(names, None, names, units), Records(rows, samples))
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "7.npz").read_bytes() == (tmp_path / "30.npz").read_bytes()


@pytest.mark.parametrize(
    "record",
    [
        np.zeros(3),
        Records(np.zeros(1), np.array([2])),
        Records(np.zeros(1), np.array([-1])),
        Records(np.zeros(2), np.array([0])),
        Records(np.zeros(2), None, ["u"]),
        np.array([None, "a"]),
        np.float64(1),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, record: np.ndarray) -> None:
    with (
        pytest.raises(InputError, match=r"shape .* 2 samples"),
        ArrayRecordWriter(tmp_path / "r.npz", "x") as writer,
    ):
        writer.write(batch(["a", "b"]), record)
    assert not list(tmp_path.iterdir())


def test_records_with_samples_are_not_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="per_sample"), RecordWriter(tmp_path / "r.csv", "x") as writer:
        writer.write(batch(["a"]), Records(np.zeros(2), np.zeros(2, np.int64)))


def test_files_that_are_not_array_files(tmp_path: Path) -> None:
    (tmp_path / "r.npz").write_text("index,name,label,top1\n")
    with pytest.raises(DataError, match=r"r\.npz is not"):
        read_arrays(tmp_path / "r.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(DataError, match=r"other\.npz.*metric_name"):
        read_arrays(tmp_path / "other.npz")
    np.savez(tmp_path / "objects.npz", metric_name=np.array([object()]))
    with pytest.raises(DataError, match=r"objects\.npz.*Object arrays"):
        read_arrays(tmp_path / "objects.npz")
    with pytest.raises(DataError, match=r"gone\.npz.*No such file"):
        read_arrays(tmp_path / "gone.npz")


# ------------------------------------------------------------------------------------------------------------- margins


@pytest.mark.parametrize("units", [None, ["ann", "bob", "ann"]])
def test_margins_have_a_column(tmp_path: Path, units: list[str] | None) -> None:
    path = tmp_path / "r.csv"
    scores = np.array([[3.0, 1.0], [1.0, 1.5]])
    with record_writer(path, TopK()) as writer:
        record = TopK().update(scores, np.array([0, 0]))
        writer.write(Batch([0, 1, 2], [0, 1, 0], ["a", "b", "c"], units), record, good=[0, 2])
        writer.write(Batch([3], [1], ["d"], None if units is None else ["eve"]), None)
        writer.write(Batch([4], [1], ["e"], None if units is None else ["eve"]), np.array([True]))  # without margins
    column, cells = ("", [""] * 5) if units is None else ("unit,", ["ann,", "bob,", "ann,", "eve,", "eve,"])
    assert path.read_text().splitlines() == [
        f"index,name,label,{column}margin,top1",
        f"0,a,0,{cells[0]}2.0,1",
        f"1,b,1,{cells[1]},",
        f"2,c,0,{cells[2]}-0.5,0",
        f"3,d,1,{cells[3]},",
        f"4,e,1,{cells[4]}nan,1",
    ]
    rows = list(SampleRecords(path))
    assert [row.margin for row in rows[:4]] == [2.0, None, -0.5, None]
    assert np.isnan(rows[4].margin or 0)
    assert [row.value for row in rows] == [1, None, 0, None, 1]
    assert [row.unit for row in rows] == [cell.rstrip(",") or None for cell in cells]


def test_margins_of_a_metric_that_has_none_are_left_out(tmp_path: Path) -> None:
    record = Records(np.ones(1), margins=np.ones(1))
    with RecordWriter(tmp_path / "r.csv", "x") as rows, ArrayRecordWriter(tmp_path / "a.npz", "x") as arrays:
        rows.write(batch(["a"], [0]), record)
        arrays.write(batch(["a"], [0]), record)
    assert (tmp_path / "r.csv").read_text() == "index,name,label,x\n0,a,0,1.0\n"
    assert [row.margin for row in SampleRecords(tmp_path / "r.csv")] == [None]
    assert read_arrays(tmp_path / "a.npz").margins is None


@pytest.mark.parametrize("row", ["1,a.png,0,1", "1,a.png,0,x,1", "1,a.png,0,u,1,1"])
def test_a_damaged_margin(tmp_path: Path, row: str) -> None:
    (tmp_path / "r.csv").write_text(f"index,name,label,margin,top1\n{row}\n")
    with pytest.raises(DataError, match=r"r\.csv row 2: \["):
        list(SampleRecords(tmp_path / "r.csv"))


@pytest.mark.parametrize("units", [None, ["ann", "bob", "ann"]])
def test_margins_of_arrays(tmp_path: Path, units: list[str] | None) -> None:
    with record_writer(tmp_path / "r.npz", Boxes()) as writer:
        record = Records(np.arange(3), np.array([1, 1, 0]), None, np.array([0.5, -np.inf]))
        writer.write(Batch([0, 1, 2], None, ["a", "b", "c"], units), record, good=[0, 2])
        writer.write(Batch([3], None, ["d"], None if units is None else ["eve"]), None)
    found = read_arrays(tmp_path / "r.npz")
    assert np.array_equal(found.margins, [0.5, np.nan, -np.inf, np.nan], equal_nan=True)
    assert found.sample.tolist() == [0, 2, 2]
    assert found.sample_units == (None if units is None else [*units, "eve"])
