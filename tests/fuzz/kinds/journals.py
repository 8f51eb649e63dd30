"""Journals of interrupted runs: changed bytes, and invalid lines with valid checksums."""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.kinds.flags import EXAMPLE
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.names import not_a_file_reason

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "engine", "utils.pipeline.cli", "utils.pipeline.valid"),
    *("utils.pipeline.resume.journal", "utils.pipeline.run.loops"),
)

RUNS = {
    "classification/digits": ("--batch_size", "64"),
    "recommendation/deepfm_synthetic": ("--batch_size", "512"),
    "nlp/language_id": ("--batch_size", "64"),
    "gnn/digits_gcn": ("--batch_size", "64"),
    "ocr/digit_crnn": ("--batch_size", "4"),
    "speech/silero_vad": ("--batch_size", "1"),
}
"""Fast example scripts, with flags for several steps."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, 10**30, 1.5, float("nan"), float("inf"), "", "x", "x" * 5000),
    *(
        "1",
        [],
        {},
        [[]],
        [1],
        [0, 0],
        [5, 1],
        {"dtype": "|b1"},
        "O",
        "|O",
        "<f8",
        "V0",
        "|S99999999",
        "AAAA",
        [["a", "<f8"]],
    ),
    *("\x1b[31m", [["a", "<f8"]], [["a", "b"]], [["a", "b", "c"]], {"a": "b"}, {"a": 1}, {"a": -5}, ["\u202e"]),
)


def make(rng: random.Random, folder: Path, number: int) -> Case:
    name = rng.choice(list(RUNS))
    whole, metric = _clean(name)
    if rng.random() < 0.08:
        return _other_run(rng, folder, name, whole)
    words = (str(EXAMPLE / name / "example_valid.py"), "--target", "onnx", *RUNS[name], "--resume", "kept")
    (folder / "kept").mkdir()
    journal = folder / "kept" / "journal.jsonl"
    lines = whole.splitlines(keepends=True)
    if rng.random() < 0.5:
        lines = lines[: rng.randint(1, len(lines))]
    how = rng.random()
    if how < 0.2:
        content, what = mutated(b"".join(lines), rng)
        journal.write_bytes(content)
    elif how < 0.27:
        what = not_a_file_reason(rng, journal)
    elif how < 0.32:
        what = _places(rng, folder, journal, b"".join(lines))
    elif how < 0.45:
        what = _shuffled(rng, lines)
        journal.write_bytes(b"".join(lines))
    else:
        what = _forged(rng, lines)
        journal.write_bytes(b"".join(lines))
    if rng.random() < 0.1 and journal.is_file():
        journal.chmod(0o400)
    return Case(words, f"{name}: {what}"[:300], functools.partial(_judge, metric))


def _other_run(rng: random.Random, folder: Path, name: str, whole: bytes) -> Case:
    """Resume with the journal of a run with other flags or of another model."""
    theirs = rng.choice([other for other in RUNS if other != name]) if rng.random() < 0.5 else name
    size = "3" if theirs == name else RUNS[name][1]
    (folder / "kept").mkdir()
    (folder / "kept" / "journal.jsonl").write_bytes(whole if theirs == name else _clean(theirs)[0])
    words = (str(EXAMPLE / name / "example_valid.py"), "--target", "onnx", "--batch_size", size, "--resume", "kept")
    return Case(words, f"{name} with the journal of {theirs}", functools.partial(_judge, _clean(name)[1]))


def _judge(metric: str, outcome: Outcome) -> str | None:
    found = _metric(outcome.out)
    if outcome.code in (0, 1) and found != metric:
        return f"the metric is {found}, and {metric} without a journal"
    named = "journal" in outcome.err or "--resume" in outcome.err
    return "refused without the journal's name" if outcome.code == 2 and not named else None


def _metric(text: str) -> str:
    found = re.search(r"^eval_metric (\S+)", text, re.MULTILINE)
    return found[1] if found else "none"


@functools.cache
def _clean(name: str) -> tuple[bytes, str]:
    """Return the journal of a whole run, and its metric."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, str(EXAMPLE / name / "example_valid.py"), "--target", "onnx", *RUNS[name]]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*words, "--resume", "kept"], cwd=folder, env=env, capture_output=True, text=True, check=True
        )
        return (Path(folder) / "kept" / "journal.jsonl").read_bytes(), _metric(done.stdout)


def _places(rng: random.Random, folder: Path, journal: Path, content: bytes) -> str:
    what = rng.choice(("a link to the journal", "a new one is a link", "a new one is a pipe", "the folder is a file"))
    if what == "a link to the journal":
        (folder / "elsewhere").write_bytes(content)
        journal.symlink_to("../elsewhere")
    elif what == "a new one is a link":
        (folder / "precious").write_text("mine")
        journal.with_suffix(".new").symlink_to("../precious")
    elif what == "a new one is a pipe":
        os.mkfifo(journal.with_suffix(".new"))
    else:
        (folder / "kept").rmdir()
        (folder / "kept").write_bytes(content)
    return what


def _shuffled(rng: random.Random, lines: list[bytes]) -> str:
    what = rng.choice(("twice", "swapped", "gone", "of another run", "renumbered"))
    place = rng.randrange(len(lines))
    if what == "twice":
        lines.insert(place, lines[place])
    elif what == "swapped":
        other = rng.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    elif what == "gone":
        del lines[place]
    elif what == "of another run":
        theirs = _clean(rng.choice(list(RUNS)))[0].splitlines(keepends=True)
        lines[place] = rng.choice(theirs)
    else:
        content = _content(lines[place])
        content["step"] = rng.choice((-1, 0, 1, 2**70, "1", 1.0, True, None, len(lines)))
        lines[place] = _line(content)
    return f"line {place + 1} {what}"


def _forged(rng: random.Random, lines: list[bytes]) -> str:
    """Change the content of a line and update its checksum."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        place = rng.randrange(len(lines))
        content = _content(lines[place])
        how, what = rng.choice(list(_FORGED.items()))
        what(rng, content)
        lines[place] = _line(content)
        done.append(f"line {place + 1} {how}")
    if rng.random() < 0.1:
        place, text = (
            rng.randrange(len(lines)),
            rng.choice((b"[" * 5000, b"null", b"[]", b"{}", b"1", b"{" * 3, b'"x"')),
        )
        lines[place] = b"%08x %s\n" % (zlib.crc32(text), text)
        done.append(f"line {place + 1} is {text[:10]!r}")
    return "; ".join(done)


def _content(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line[9:])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _line(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _holders(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a line whose values can be changed."""
    found, rest = [], [content]
    while rest:
        one = rest.pop()
        found.append(one)
        rest += [value for value in one.values() if isinstance(value, dict)]
    return [one for one in found if one]


def _set(rng: random.Random, content: dict[str, Any]) -> None:
    holders = _holders(content)
    if holders:
        holder = rng.choice(holders)
        key = rng.choice(sorted(holder))
        value = copy.deepcopy(rng.choice(VALUES))
        if key != "data":  # other valid numbers cannot be detected
            holder[key] = value


def _drop(rng: random.Random, content: dict[str, Any]) -> None:
    holders = _holders(content)
    if holders:
        holder = rng.choice(holders)
        del holder[rng.choice(sorted(holder))]


def _add(rng: random.Random, content: dict[str, Any]) -> None:
    key = rng.choice(("good", "failures", "nan_inputs", "nan_outputs", "units", "samples", "record", "more", "step"))
    content[key] = copy.deepcopy(rng.choice(VALUES))


def _null(rng: random.Random, content: dict[str, Any]) -> None:
    content["record"] = None


def _fewer(rng: random.Random, content: dict[str, Any]) -> None:
    size = content.get("size", 4)
    if isinstance(size, int) and 0 < size < 10**6:
        content["good"] = list(range(size - 1))


_FORGED: dict[str, Callable[[random.Random, dict[str, Any]], None]] = {
    "has another value": _set,
    "lacks a key": _drop,
    "has one more": _add,
    "has no record": _null,
    "lacks a sample": _fewer,
}
