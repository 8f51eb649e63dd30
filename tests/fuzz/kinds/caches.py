"""The zoo's cache: trials, int8 models and status files of cards, damaged, replaced by other objects, or in unusable
folders."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.values_of import mutated_json
from tests.fuzz.names import not_a_file_reason

WARM = (
    "numpy",
    "onnx",
    "onnxruntime",
    "PIL.Image",
    "engine",
    "engine.sdaa.engine",
    "utils.pipeline.cli",
    "engine.sdaa.smi",
)

FOLDER = ROOT / "example" / "classification" / "digits"
ANSWER = "0081.png  7  "
RUNS = {"trials": ("--target", "cpu"), "int8": ("--target", "cpu", "--dtype", "int8")}
"""Command that fills each folder of the cache."""

STATUS = {
    "schema_version": 1,
    "pid": 1,
    "start_time": None,
    "name": "python",
    "computing": True,
    "devices": [{"index": 0, "health": "OK", "memory_used": 5, "utilisation": 0.5, "host_busy": 0.1}],
    "updated": 1.7e9,
}
"""PID of a process that is always running."""


def _words(kind: str) -> tuple[str, ...]:
    return (str(FOLDER / "example_single_batch.py"), *RUNS[kind])


@cache
def _filled(kind: str) -> dict[str, bytes]:
    """Return the cached files of a clean run, made once in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"TECO_CACHE_DIR": folder, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *_words(kind)], check=True, cwd=folder, env=env, capture_output=True)
        found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def make(rng: random.Random, folder: Path, number: int) -> Case:
    if rng.random() < 0.35:
        return _status(rng, folder)
    kind = "trials" if rng.random() < 0.7 else "int8"
    root = folder / "cache"
    for name, content in _filled(kind).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    what = _spoil_folder(rng, root, kind) if rng.random() < 0.25 else _spoil(rng, root)

    def judge(outcome: Outcome) -> str | None:
        if outcome.code:
            return f"a damaged cache stops a run: exit code {outcome.code}: {outcome.err[-200:]}"
        return None if ANSWER in outcome.out else f"another answer: {outcome.out[-200:]!r}"

    return Case(_words(kind), f"{kind}: {what}", judge, env={"TECO_CACHE_DIR": str(root)})


def _spoil(rng: random.Random, root: Path) -> str:
    """Damage one file or all of them."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    done = []
    for path in files if rng.random() < 0.2 else [rng.choice(files)]:
        if rng.random() < 0.25:
            path.unlink()
            done.append(not_a_file_reason(rng, path))
        elif path.suffix == ".json" and rng.random() < 0.7:
            text, what = mutated_json(json.loads(path.read_bytes()), rng)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            done.append(f"{path.name[-12:]}: {what[:200]}")
        else:
            content, what = mutated(path.read_bytes(), rng)
            path.write_bytes(rng.choice((content, content, b"", b"\0", b"null", b'"x"', b"[]", b"\xff\xfe{}")))
            done.append(f"{path.name[-12:]}: {what}")
    return "; ".join(done)


def _spoil_folder(rng: random.Random, root: Path, kind: str) -> str:
    how = rng.choice(("root is none", "kind is none", "read-only", "nobody's", "link to itself", "empty"))
    if how in ("root is none", "link to itself"):
        shutil.rmtree(root)
        if how == "link to itself":
            root.symlink_to(root.name)
            return how
        return not_a_file_reason(rng, root)
    if how == "kind is none":
        shutil.rmtree(root / kind)
        return not_a_file_reason(rng, root / kind)
    for path in [root, *root.rglob("*")]:
        if how == "read-only":
            path.chmod(0o555 if path.is_dir() else 0o000)
    if how == "empty":
        shutil.rmtree(root)
    return how


def _status(rng: random.Random, folder: Path) -> Case:
    """Write status files for ``teco-smi``."""
    place = folder / "smi"
    place.mkdir()
    done = []
    for number in range(rng.randint(1, 4)):
        path = (
            place
            / f"{rng.choice((1, 1, 1, 4_000_000_000_000, 10**30, 2))}-{number}.{rng.choice(('json', 'json', 'tmp'))}"
        )
        done.append(_status_file(rng, path))
    if rng.random() < 0.1:
        shutil.rmtree(place)
        done.append(not_a_file_reason(rng, place))
    words: tuple[str, ...] = ("-m", "engine.sdaa.smi", *rng.choice(((), ("--json",))))
    if rng.random() < 0.2:
        words = (str(FOLDER / "example_single_batch.py"), "--target", "sdaa")
    return Case(words, f"status: {'; '.join(done)}", env={"TECO_SMI_DIR": str(place)})


def _status_file(rng: random.Random, path: Path) -> str:
    status: dict[str, Any] = json.loads(json.dumps(STATUS))
    if rng.random() < 0.2:
        return not_a_file_reason(rng, path)
    if rng.random() < 0.2:
        content, what = mutated(json.dumps(status).encode(), rng)
    elif rng.random() < 0.1:
        content, what = b'"' + b"x" * rng.choice((1 << 10, 1 << 21)) + b'"', "huge"
    else:
        text, what = mutated_json(status, rng, 3)
        content = text.encode("utf-8", "surrogatepass")
    path.write_bytes(content)
    return f"{path.name[:20]}: {what[:150]}"
