"""Shares of label files: together they are the whole list, and a process looks only at the files of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image
from support import ROOT

from engine import DataError
from utils.datasets import label_file, load_dataset, shard
from utils.datasets.label_file import ListedImages, load_label_file
from utils.datasets.sharding import RANK, SIZE, shares_only
from utils.metrics import TopK
from utils.pipeline.resume.records import Kept, record_writer
from utils.pipeline.resume.records.merging import merged, part_path

LINES = ("a.png 1", "sub/b c.png  7", "  ./sub/../a.png 65", "gone.png 2", "notes.txt 3", "# no", "", "ä.png 4", " # é")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for name in ("a.png", "sub/b c.png", "ä.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.new("L", (1, 1)).save(folder / name)
    (folder / "notes.txt").write_text("no")
    return folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\r\n", "\r"])), min_size=1, max_size=14),
    st.integers(1, 5),
    st.integers(1, 40),
    st.booleans(),
    st.booleans(),
)
def test_shares_are_the_whole_list(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[tuple[str, str]],
    size: int,
    block: int,
    mark: bool,
    ended: bool,
) -> None:
    text = "".join(chain.from_iterable(lines))
    text = ("\ufeff" if mark else "") + (text if ended else text.rstrip("\r\n"))
    (root / "val.txt").write_bytes(text.encode())
    monkeypatch.setattr(label_file, "BLOCK", block)
    # The list as the rules of label files give it.
    rows = [(name, end) for name, end in lines if name.strip() and not name.strip().startswith("#")]
    right = [(place, *name.rpartition(" ")[::2]) for place, (name, _) in enumerate(rows)]
    used = [row for row in right if not row[1].endswith((".txt", "gone.png"))]
    if not used:
        with pytest.raises(DataError, match="lists no image" if not rows else "can be used"):
            load_label_file(root / "val.txt")
        return
    whole = load_label_file(root / "val.txt")
    names = [str((root / name.strip()).resolve()) for _, name, _ in used]
    assert [str(sample.path) for sample in whole] == names
    assert whole.labels is not None
    assert whole.labels.tolist() == [int(label) for *_, label in used]
    assert len(whole.rejected) == len(right) - len(used)
    assert (whole.numbers is None) == (len(used) == len(right))
    found = []
    rejected = 0
    for rank in range(size):
        part = shard(ListedImages(root / "val.txt"), rank, size)
        numbers = rank + size * np.arange(len(part)) if part.numbers is None else part.numbers
        batch = part.batch(range(len(part)))
        labels = [] if batch.targets is None else list(batch.targets)
        found += list(zip(numbers.tolist(), batch.names, labels, strict=True))
        rejected += len(part.rejected)
    assert sorted(found) == [(place, name, int(label)) for (place, _, label), name in zip(used, names, strict=True)]
    assert rejected == len(whole.rejected)


def test_rejected_lines_name_the_same_line_in_every_share(root: Path) -> None:
    (root / "val.txt").write_text("a.png 1\n\n# x\ngone.png 2\r\na.png 3\n")
    whole, part = load_label_file(root / "val.txt"), ListedImages(root / "val.txt").share(1, 2)
    assert [one.reason for one in whole.rejected] == ["it does not exist but is listed in val.txt line 4"]
    assert list(part.rejected) == list(whole.rejected)


def test_a_share_without_a_usable_file(root: Path) -> None:
    (root / "val.txt").write_text("a.png 1\ngone.png 2\n")
    part = ListedImages(root / "val.txt").share(1, 2)
    assert (len(part), len(part.rejected)) == (0, 1)
    (root / "val.txt").write_text("lost.png 1\ngone.png 2\n")
    with pytest.raises(DataError, match=r"none of its 2 images .*lost\.png"):
        ListedImages(root / "val.txt").share(1, 2)


def test_a_wrong_line_is_an_error_of_its_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "val.txt").write_text("a.png 1\na.png one\n")
    with pytest.raises(DataError, match=r"val\.txt:2: label 'one'"):
        load_dataset(root)
    with shares_only():
        assert load_dataset(root).most_samples() == 2
    monkeypatch.setenv(RANK, "0")
    monkeypatch.setenv(SIZE, "2")
    dataset = load_dataset(root)  # not read yet
    assert len(dataset.share(0, 2)) == 1
    with pytest.raises(DataError, match=r"val\.txt:2: label 'one'"):
        dataset.share(1, 2)


def test_records_of_several_processes_equal_those_of_one_with_missing_files(root: Path, tmp_path: Path) -> None:
    lines = ["a.png 0", "gone.png 1", "a.png 1", "a.png 1", "notes.txt 1", "a.png 0", "ä.png 1"]
    (root / "val.txt").write_text("\n".join(lines), encoding="utf-8")

    def write(path: Path, rank: int, size: int) -> None:
        part, metric = shard(ListedImages(root / "val.txt"), rank, size), TopK()
        with record_writer(path, metric, rank=rank, size=size, numbers=part.numbers) as writer:
            for batch in part.batches(2):
                writer.write(batch, metric.update(np.eye(2)[[0] * len(batch.names)], np.asarray(batch.targets)))

    write(tmp_path / "alone.csv", 0, 1)
    for rank in range(3):
        write(part_path(tmp_path / "merged.csv", rank, 3), rank, 3)
    merged(
        tmp_path / "merged.csv", [Kept(part_path(tmp_path / "merged.csv", rank, 3), "") for rank in range(3)]
    ).place()
    assert (tmp_path / "merged.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()
    rows = (tmp_path / "alone.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.partition(",")[0] for row in rows] == ["0", "2", "3", "5", "6"]


COUNTED = """
import collections, json, os, resource, sys
list_file, images = sys.argv[1:]
calls = collections.Counter()
def audited(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(images):
        calls[event] += 1
sys.addaudithook(audited)
plain = os.stat  # raises no audit event
def counted(path, *rest, **named):
    calls["stat"] += str(path).startswith(images)
    return plain(path, *rest, **named)
os.stat = counted
from utils.datasets import load_dataset, rank_and_size, shard
rank, size = rank_and_size()
dataset = shard(load_dataset(list_file, labels=None), rank, size)
loaded = dict(calls)
dataset.fingerprint()
batch = next(iter(dataset.batches(8)))
first = [str(sample) for sample in batch.samples]
print(json.dumps({"loaded": loaded, "all": dict(calls), "samples": len(dataset), "first": first}))
"""


@pytest.mark.parametrize("rank", [0, 7])
def test_a_process_looks_only_at_its_own_files(rank: int, tmp_path: Path) -> None:
    """A list of 20 000 files for 8 processes; the fingerprint is that of a journal."""
    images = tmp_path / "images"
    images.mkdir()
    Image.new("L", (8, 8)).save(images / "0.png")
    for number in range(1, 200):
        (images / f"{number}.png").hardlink_to(images / "0.png")
    for number in range(100):
        (images / f"c{number}").symlink_to(images, target_is_directory=True)
    names = [f"images/c{i % 100}/{i // 100}.png {i % 10}" for i in range(20_000)]
    (tmp_path / "list.txt").write_text("\n".join(names))
    environment = {RANK: str(rank), SIZE: "8", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", COUNTED, str(tmp_path / "list.txt"), str(images)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == 2500
    assert found["first"] == [str(tmp_path / names[rank + 8 * i].split()[0]) for i in range(8)]
    assert found["loaded"] == {"stat": 2500}  # that its own files exist
    assert found["all"] == {"stat": 5000}  # the fingerprint: size and time of each
