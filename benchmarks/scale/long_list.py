"""A long list of images evaluated by several processes: which files each looks at, its memory, and its start.

The files are few, under many names: folders of links to the folder of the digits' images. ``whole`` is what every
process did before shares were read alone: read the list, look for all its files, and keep a share. ``limit`` is a bare
loop that reads the list's lines and looks for the files of one share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from parts.bench import DIGITS, ROOT

from utils.datasets import load_dataset
from utils.datasets.sharding import RANK, SIZE
from utils.pipeline.resume.records import Kept, SampleRecords
from utils.pipeline.resume.records.merging import merged, part_path

COUNTED = Path(__file__).with_name("counted.py")

WHOLE = """
import sys
from pathlib import Path
from utils.datasets.base import Dataset
from utils.datasets.label_file import ListedImages
dataset = Dataset.share(ListedImages(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))
open(dataset.samples[0].path, "rb").close()
"""
BARE = """
import os, sys
file, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
root, mine = os.path.dirname(file), []
with open(file, "rb") as lines:
    for number, line in enumerate(lines):
        if number % size == rank:
            path = os.path.join(root, line.rsplit(None, 1)[0].decode())
            if os.path.isfile(path):
                mine.append(line)
open(path, "rb").close()
"""


def make_list(folder: Path, files: int) -> Path:
    """Write a label file of ``files`` different paths of digits with their labels, and make the links; return it."""
    digits = load_dataset(DIGITS / "data/val")
    (folder / "images").mkdir()
    for number, sample in enumerate(digits):
        (folder / "images" / f"{number}.png").write_bytes(sample.path.read_bytes())
    labels = [sample.label for sample in digits]
    file = folder / "list.txt"
    with file.open("w", encoding="utf-8") as text:
        for start in range(0, files, len(labels)):
            link = folder / "links" / f"{start // len(labels):06d}"
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(folder / "images", target_is_directory=True)
            some = range(min(len(labels), files - start))
            text.writelines(f"links/{link.name}/{number}.png {labels[number]}\n" for number in some)
    return file


def counted(stats: Path, folder: Path, script: Path, flags: Sequence[object], environment: Mapping[str, str]) -> Any:
    """Start a script under ``counted.py``; its output is discarded."""
    command = [sys.executable, COUNTED, stats, folder, script, *flags]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(list(map(str, command)), env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def evaluated(file: Path, processes: int, steps: int, batch_size: int) -> dict[str, Any]:
    """Evaluate the list with the digits in several processes, with a journal; return their counts and the metric.

    ``steps``: batches per process; 0: all.
    """
    folder, script = file.parent, DIGITS / "example_valid.py"
    flags = ["--target", "onnx", "--data_path", file, "--batch_size", batch_size, "--json", folder / "r.json"]
    flags += ["--resume", folder / "journals"]
    running = []
    for rank in range(processes):
        environment = {RANK: str(rank), SIZE: str(processes), "OMP_NUM_THREADS": "1"}
        environment |= {"TECO_INFER_PIPELINES_MAX_STEPS": str(steps)} if steps else {}
        running.append(counted(folder / f"stats-{rank}.json", folder / "links", script, flags, environment))
    for process in running:
        _, errors = process.communicate()
        if process.returncode:
            raise SystemExit(f"a process ended with {process.returncode}: {errors.decode()}")
    rows = [json.loads((folder / f"stats-{rank}.json").read_text(encoding="utf-8")) for rank in range(processes)]
    path = folder / "r.samples.csv"
    merged(path, [Kept(part_path(path, rank, processes), "") for rank in range(processes)]).place()
    values = [record.value for record in SampleRecords(path)]
    return {"processes": rows, "samples": len(values), "top1": sum(value or 0.0 for value in values) / len(values)}


def alone(code: str, file: Path, processes: int) -> dict[str, Any]:
    """Return the counts of one process that runs a piece of code for share 0."""
    script = file.with_name("alone.py")
    script.write_text(code, encoding="utf-8")
    process = counted(file.with_name("alone.json"), file.parent / "links", script, [file, 0, processes], {})
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{script} ended with {process.returncode}: {errors.decode()}")
    found: dict[str, Any] = json.loads(file.with_name("alone.json").read_text(encoding="utf-8"))
    return found


def measured(files: int, processes: int, steps: int, batch_size: int) -> dict[str, Any]:
    """Return the counts of all processes, of the former mechanism, and of the bare loop."""
    with tempfile.TemporaryDirectory(prefix="list-") as text:
        file = make_list(Path(text), files)
        with suppress(OSError):
            os.sync()
        found = evaluated(file, processes, steps, batch_size)
        return {
            "files": files,
            "list_mb": file.stat().st_size / 1e6,
            "steps": steps,
            **found,
            "whole": alone(WHOLE, file, processes),
            "limit": alone(BARE, file, processes),
        }


def show(found: Mapping[str, Any]) -> None:
    """Print the table."""
    rows, count = found["processes"], len(found["processes"])
    share = -(-found["files"] // count)
    steps = f"{found['steps']} batches each" if found["steps"] else "all of them"
    print(f"list of {found['files']} files ({found['list_mb']:.0f} MB), {count} processes, {steps}:")
    print(f"  {found['samples']} samples, top1 {found['top1']:.4f}; a share has {share} files")
    print(f"  {'':22} {'looked for':>10} {'opened':>8} {'listed':>7}", end="")
    print(f" {'first open, CPU s':>18} {'MB then':>8} {'peak MB':>8}")
    named = [(f"process {rank}", row) for rank, row in enumerate(rows)]
    for name, row in [*named, ("whole, one process", found["whole"]), ("limit, one process", found["limit"])]:
        calls = row["calls"]
        listed = calls.get("os.listdir", 0) + calls.get("os.scandir", 0)
        print(f"  {name:22} {calls.get('stat', 0):10} {calls.get('open', 0):8} {listed:7}", end="")
        print(f" {row['first_open_cpu_s']:18.2f} {row['first_open_mb']:8.0f} {row['peak_mb']:8.0f}")
