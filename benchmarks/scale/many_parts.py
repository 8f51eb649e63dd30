"""Merging the results of thousands of processes: records files (rows, arrays), and the metric's states.

The number of samples is fixed, so that the cost of a part shows. Each merge runs in its own process under a limit of
open files. ``in memory`` is the peer: read all records, sort, write. ``copy`` is the limit: the parts' bytes, copied.
Every merged file is compared with that of one process, byte by byte.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import ROOT

from utils.datasets.base import Batch
from utils.metrics import Records
from utils.metrics.clicks import RECORD, Clicks
from utils.pipeline.launch.parts import Part, merge
from utils.pipeline.report.report import Report
from utils.pipeline.resume.records import Kept, RecordWriter
from utils.pipeline.resume.records.arrays import ArrayRecordWriter, RecordArrays, read_arrays, write_arrays
from utils.pipeline.resume.records.merging import merged, most_open, part_path

KINDS = ("csv", "npz")
OPEN_FILES = 1024
"""Limit of open files, the usual one on Linux."""
BOXES = np.dtype([("score", "<f8"), ("right", "<u2"), ("class", "<i4"), ("image", "<i8")])
"""An array record of the kind of a detection; each sample has :data:`EACH`."""
EACH = 4
_BATCH = 4096


def write_records(path: Path, samples: int, rank: int, size: int) -> None:
    """Write the records of one process; the samples' values are functions of their index."""
    mine = np.arange(rank, samples, size)
    with mock.patch.object(os, "fsync"):  # parts are made here in minutes, not by runs of hours
        writer: Any = (RecordWriter if path.suffix == ".csv" else ArrayRecordWriter)(path, "m", rank=rank, size=size)
        with writer:
            for start in range(0, len(mine), _BATCH):
                some = mine[start : start + _BATCH]
                names = [f"links/{i // 1000:06d}/{i % 1000}.png" for i in some.tolist()]
                if path.suffix == ".csv":
                    writer.write(Batch(names, some % 10, names), np.cos(some))
                    continue
                values = np.zeros((len(some), EACH), BOXES)
                values["image"] = some[:, None]
                values["score"] = np.cos(some[:, None] + np.arange(EACH))
                owners = np.repeat(np.arange(len(some)), EACH)
                writer.write(Batch(names, None, names), Records(values.reshape(-1), owners))


def in_memory(path: Path, files: Sequence[Path]) -> None:
    """Merge with all records in memory."""
    if path.suffix == ".csv":
        rows: list[str] = []
        for file in files:
            header, *own = file.read_text(encoding="utf-8").splitlines(keepends=True)
            rows += own
        rows.sort(key=lambda row: int(row.partition(",")[0]))
        path.write_text("".join([header, *rows]), encoding="utf-8")
        return
    found = [read_arrays(file) for file in files]
    starts = np.cumsum([0, *(len(one.index) for one in found)])
    whole = RecordArrays(
        found[0].metric_name,
        np.concatenate([one.index for one in found]),
        [name for one in found for name in one.names],
        np.concatenate([one.ran for one in found]),
        np.concatenate([one.values for one in found]),
        np.concatenate([one.sample + start for one, start in zip(found, starts, strict=False)]),
    )
    with path.open("wb") as output:
        write_arrays(whole, output)


def bounded(path: Path, files: Sequence[Path]) -> None:
    """Merge as a run does."""
    merged(path, [Kept(file, "") for file in files]).place()


def copied(path: Path, files: Sequence[Path]) -> None:
    """Copy the bytes of all files into one."""
    with path.open("wb") as whole:
        for file in files:
            with file.open("rb") as part:
                shutil.copyfileobj(part, whole)


WAYS: dict[str, Callable[[Path, Sequence[Path]], None]] = {"copy": copied, "in memory": in_memory, "merged": bounded}


def states(path: Path, files: Sequence[Path]) -> None:
    """Merge the metric's states of as many parts as there are files, as they come from other processes."""
    samples, size = int(path.read_text(encoding="utf-8")), len(files)
    parts = []
    for rank in range(size):
        mine = np.arange(rank, samples, size)
        records = np.zeros(len(mine), RECORD)
        records["score"], records["same"], records["user"] = np.cos(mine) % 1, mine % 3 == 0, mine % 1000
        state = Clicks()
        state.replay(records)
        report = Report("auc", 0.0, len(mine), 1, 1.0, 1.0, 0.0, 0.0, 0.0, state=state)
        parts.append(pickle.loads(pickle.dumps(Part(report, rank, size, "host"))))  # noqa: S301 - made above
    began = time.process_time()
    found = merge(parts)
    _measured["value"], _measured["cpu_s"] = found.metric, time.process_time() - began


_measured: dict[str, Any] = {}


def _mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _child(way: str, path: Path, size: int) -> None:
    """Merge in this process, and print what it took."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    files = [part_path(path, rank, size) for rank in range(size)]
    before, began, wall = _mb(), time.process_time(), time.perf_counter()
    (states if way == "states" else WAYS[way])(path, files)
    taken = {"cpu_s": time.process_time() - began, "wall_s": time.perf_counter() - wall, "mb": _mb() - before}
    print(json.dumps(taken | _measured))


def run(way: str, path: Path, size: int) -> dict[str, Any]:
    """Merge in another process; return its CPU and wall seconds, and the memory it took beyond its imports, in MB."""
    command = [sys.executable, __file__, way, str(path), str(size)]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} of {size} parts ended with {done.returncode}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(samples: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row per kind and number of parts; raise SystemExit if a merged file differs from that of one process."""
    rows = []
    for kind in KINDS:
        for size in sizes:
            with tempfile.TemporaryDirectory(prefix="parts-") as text:
                path = Path(text, f"r.{kind}")
                for rank in range(size):
                    write_records(part_path(path, rank, size), samples, rank, size)
                row: dict[str, Any] = {"kind": kind, "parts": size, "samples": samples}
                row["mb"] = sum(file.stat().st_size for file in Path(text).iterdir()) / 1e6
                for way in WAYS:  # the merge removes the parts
                    row[way] = run(way, path, size)
                whole = Path(text, f"alone.{kind}")
                write_records(whole, samples, 0, 1)
                if whole.read_bytes() != path.read_bytes():
                    raise SystemExit(f"{size} merged parts ({kind}) differ from the file of one process")
            rows.append(row)
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="parts-") as text:
            path = Path(text, "samples.txt")
            path.write_text(str(samples), encoding="utf-8")
            rows.append({"kind": "states", "parts": size, "samples": samples, "merged": run("states", path, size)})
    values = {row["merged"]["value"] for row in rows if row["kind"] == "states"}
    if len(values) != 1:
        raise SystemExit(f"the AUC depends on the number of parts: {sorted(values)}")
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table."""
    print(f"records of {rows[0]['samples']} samples, at most {most_open()} files open; equal bytes in all rows:")
    print(f"  {'kind':7} {'parts':>6} {'files, MB':>9} {'merge, MB':>9} {'in memory, MB':>13}", end="")
    print(f" {'merge, CPU s':>12} {'in memory':>9} {'copy':>6}")
    for row in rows:
        ours = row["merged"]
        if row["kind"] == "states":
            print(f"  AUC     {row['parts']:6} {'':9} {ours['mb']:9.0f} {'':13} {ours['cpu_s']:12.2f}", end="")
            print(f"   {ours['cpu_s'] / row['parts'] * 1e3:.3f} ms per part")
            continue
        peer, bare = row["in memory"], row["copy"]
        print(f"  {row['kind']:7} {row['parts']:6} {row['mb']:9.1f} {ours['mb']:9.1f} {peer['mb']:13.1f}", end="")
        print(f" {ours['cpu_s']:12.2f} {peer['cpu_s']:9.2f} {bare['cpu_s']:6.2f}")


if __name__ == "__main__":
    _child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
