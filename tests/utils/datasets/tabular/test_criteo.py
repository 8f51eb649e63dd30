"""Criteo's layout: valid and invalid lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from engine import DataError
from utils.datasets.synthetic.criteo_like import clicks
from utils.datasets.tabular.criteo import CATEGORIES, FIELDS, NUMBERS, CriteoRows, is_criteo

NUMBER = st.one_of(st.just(""), st.integers(-10, 10**9).map(str))
HASH = st.one_of(st.just(""), st.integers(0, 2**32 - 1).map("{:08x}".format))
LINE = st.tuples(st.integers(0, 1), st.tuples(*[NUMBER] * 13), st.tuples(*[HASH] * 26))


def write(folder: Path, *lines: str, name: str = "train.txt", end: str = "\n") -> Path:
    file = folder / name
    file.write_bytes(end.join([*lines, ""]).encode())
    return file


def line(label: str = "1", number: str = "5", category: str = "68fd1e64") -> str:
    return "\t".join([label] * bool(label) + [number] * 13 + [category] * 26)


@settings(max_examples=30, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_every_field_is_restored(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[int, tuple[str, ...], tuple[str, ...]]],
    end: str,
    labelled: bool,
) -> None:
    texts = ["\t".join([str(label)] * labelled + [*numbers, *hashes]) for label, numbers, hashes in lines]
    data = CriteoRows(write(tmp_path_factory.mktemp("criteo"), *texts, end=end))
    batch = data.batch(range(len(data)))
    assert [dict(sample) for sample in batch.samples] == [
        dict(zip(FIELDS, (*numbers, *hashes), strict=True)) for _, numbers, hashes in lines
    ]
    wanted = [bool(label) for label, _, _ in lines]
    assert (batch.targets is None) if not labelled else [one.clicked for one in batch.targets or ()] == wanted
    assert not data.rejected
    assert batch.units is None


def test_lines_are_read_on_access(tmp_path: Path) -> None:
    file = write(tmp_path, *clicks(50))
    data = CriteoRows(file)
    every, some = data.batch(range(50)), data.select([49, 3, 3]).batch(range(3))
    assert some.samples == [every.samples[49], every.samples[3], every.samples[3]]
    assert some.names == [f"{file}:50", f"{file}:4", f"{file}:4"]
    assert data.fingerprint() == CriteoRows(file).fingerprint()
    write(tmp_path, *clicks(50, seed=1))
    assert data.fingerprint() != CriteoRows(file).fingerprint()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("1\t2\t3", "3 fields, expected 40"),
        (line(label="2"), "label '2' must be 0 or 1"),
        (line(number="many"), "I1 'many' is not an integer"),
        (line(number="1.5"), "I1 '1.5' is not an integer"),
        (line(category="xyz"), "C1 'xyz' is not a hexadecimal number"),
        (line(category="0" * 17), "is not a hexadecimal number"),
        (line(number="-"), "I1 '-' is not an integer"),
        (line(number="\ud7ff"), "is not an integer"),
    ],
)
def test_invalid_lines_are_rejected(bad: str, why: str, tmp_path: Path) -> None:
    file = write(tmp_path, line(), bad, "", line(label="0"))
    assert is_criteo(file)
    data = CriteoRows(file)
    assert len(data) == 2
    assert data.batch([1]).names == [f"{file}:4"]
    (rejected,) = data.rejected
    assert rejected.path == Path(f"{file}:2")
    assert why in rejected.reason
    with pytest.raises(DataError, match=r"no line .*alone.txt:1: "):
        CriteoRows(write(tmp_path, bad, name="alone.txt"))


def test_recognition_of_the_layout(tmp_path: Path) -> None:
    assert is_criteo(write(tmp_path, line()))
    assert is_criteo(write(tmp_path, line(label=""), name="test.txt"))
    assert is_criteo(write(tmp_path, "", line(label="3"), line(), name="day_0"))
    assert not is_criteo(write(tmp_path, "\t".join(["label", *FIELDS]), line(), name="named.tsv"))
    assert not is_criteo(write(tmp_path, "user_id,item_id,label", "1,2,0", name="rows.csv"))
    assert not is_criteo(tmp_path)
    packed = tmp_path / "day_0.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(DataError, match=r"gunzip day_0\.gz"):
        is_criteo(packed)
    empty = write(tmp_path, name="empty.txt")
    with pytest.raises(DataError, match="it is empty"):
        CriteoRows(empty)


def test_synthetic_lines_have_the_layout() -> None:
    lines = list(clicks(300))
    assert lines == list(clicks(300)) != list(clicks(300, seed=1))
    fields = [one.split("\t") for one in lines]
    assert {len(one) for one in fields} == {1 + len(NUMBERS) + len(CATEGORIES)}
    assert 0.25 < sum(one[0] == "1" for one in fields) / 300 < 0.45
    assert 0.1 < sum(one.count("") for one in fields) / (300 * 39) < 0.2


def test_one_damaged_line_does_not_change_the_format(tmp_path: Path) -> None:
    """A labelled line without its last field looks like a line without a label."""
    short = "\t".join(line(number="1").split("\t")[:-1])
    file = write(tmp_path, *["junk"] * 30, short, *[line(), line(label="0")] * 2)
    assert is_criteo(file)
    data = CriteoRows(file)
    assert (len(data), len(data.rejected)) == (4, 31)
    assert [one.clicked for one in data.batch(range(4)).targets or ()] == [True, False, True, False]
    assert "39 fields, expected 40" in data.rejected[-1].reason
