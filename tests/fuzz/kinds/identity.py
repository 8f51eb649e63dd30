"""Resumed runs after an input was changed in place: results never mix two states."""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.kinds.flags import EXAMPLE

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "engine", "utils.pipeline.cli", "utils.pipeline.valid"),
    *("utils.pipeline.resume.journal", "utils.pipeline.run.loops", "utils.pipeline.resume.run_inputs"),
)

SCRIPT = """
import sys

sys.path.insert(0, {root!r})

from dataclasses import replace
from pathlib import Path

import own_decoding
from utils.pipeline import cli
from utils.tasks.classification.task import CLASSIFICATION

if __name__ == "__main__":
    task = replace(CLASSIFICATION, decode=own_decoding.decode)
    cli.valid(__doc__, task, ckpt=Path("model.onnx"), data_path=Path("val"), batch_size=8, input_size=32, topk=1)
# 1000
"""
DECODING = """
from pathlib import Path

from utils.tasks.classification.task import CLASSIFICATION


def decode(outputs, contexts, model, options):
    from own_steps.turning import turned

    name = "table"
    table = int((Path(__file__).resolve().parent / f"{name}.txt").read_text())
    return CLASSIFICATION.decode(turned(outputs, table), contexts, model, options)
# 1000
"""
TURNING = """
import numpy as np


def turned(outputs, by):
    return np.roll(outputs, by + 10, axis=1)
"""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Run some steps, change a file, and resume."""
    words, files = rng.choice((_divided, _charset, _tokenizer, _project))(rng, folder)
    words = (*words, "--target", rng.choice(("onnx", "onnx", "cpu")))
    env = {"TECO_CACHE_DIR": str(folder / "cache"), "TECO_INFER_PIPELINES_MAX_STEPS": str(rng.randint(1, 3))}
    _run((*words, "--resume", "kept"), folder, env)
    what, harmless = _changed(rng, folder, rng.choice(files))
    fresh = _run(words, folder, {"TECO_CACHE_DIR": env["TECO_CACHE_DIR"], "TECO_INFER_PIPELINES_MAX_STEPS": "4"})
    metric = _metric(fresh.stdout) if fresh.returncode in (0, 1) else ""
    case_env = {"TECO_CACHE_DIR": env["TECO_CACHE_DIR"], "TECO_INFER_PIPELINES_MAX_STEPS": "4"}
    judge = functools.partial(_judge, metric, harmless and words[-1] != "cpu")
    return Case((*words, "--resume", "kept"), f"{' '.join(words)[:120]}: {what}", judge, env=case_env)


def _judge(metric: str, harmless: bool, outcome: Outcome) -> str | None:
    found = _metric(outcome.out)
    if outcome.code in (0, 1) and found != metric:
        return f"the metric is {found}, and {metric or 'none'} of a run from the start"
    return "refused though no content changed" if harmless and outcome.code == 2 else None


def _metric(text: str) -> str:
    found = re.search(r"^eval_metric (\S+)", text, re.MULTILINE)
    return found[1] if found else "none"


def _run(words: tuple[str, ...], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **env}
    return subprocess.run([sys.executable, *words], cwd=folder, env=whole, capture_output=True, text=True, check=False)


def _divided(rng: random.Random, folder: Path) -> tuple[tuple[str, ...], list[str]]:
    """The digits with weights in one external file, or in one per weight."""
    import onnx

    one = rng.random() < 0.6
    how = {"all_tensors_to_one_file": one, "location": "model.data" if one else None, "size_threshold": 0}
    model = onnx.load(str(EXAMPLE / "classification/digits/digits_dyn.onnx"))
    onnx.save(model, str(folder / "model.onnx"), save_as_external_data=True, **how)
    files = [path.name for path in folder.iterdir() if path.stat().st_size > 8 and path.name != "model.onnx"]
    script = str(EXAMPLE / "classification/digits/example_valid.py")
    return (script, "--ckpt", "model.onnx", "--batch_size", "8"), [*sorted(files), "model.onnx"]


def _charset(rng: random.Random, folder: Path) -> tuple[tuple[str, ...], list[str]]:
    (folder / "charset.txt").write_text("\n".join("0123456789") + "\n")
    shutil.copy(EXAMPLE / "ocr/digit_crnn/digit_crnn_dyn.onnx", folder / "model.onnx")
    script = str(EXAMPLE / "ocr/digit_crnn/example_valid.py")
    words = (script, "--ckpt", "model.onnx", "--charset", "charset.txt", "--batch_size", "4")
    return words, ["charset.txt", "charset.txt", "model.onnx"]


def _tokenizer(rng: random.Random, folder: Path) -> tuple[tuple[str, ...], list[str]]:
    import onnx

    model = onnx.load(str(EXAMPLE / "nlp/language_id/language_id_dyn.onnx"))
    kept = [entry for entry in model.metadata_props if entry.key != "tokenizer"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, str(folder / "model.onnx"))
    (folder / "words").mkdir()
    shutil.copy(EXAMPLE / "nlp/language_id/tokenizer.json", folder / "words")
    given = rng.choice(("words", "words/tokenizer.json"))
    script = str(EXAMPLE / "nlp/language_id/example_valid.py")
    words = (script, "--ckpt", "model.onnx", "--tokenizer", given, "--batch_size", "16")
    return words, ["words/tokenizer.json", "words/tokenizer.json", "model.onnx"]


def _project(rng: random.Random, folder: Path) -> tuple[tuple[str, ...], list[str]]:
    digits = EXAMPLE / "classification/digits"
    shutil.copy(digits / "digits_dyn.onnx", folder / "model.onnx")
    shutil.copytree(digits / "data/val", folder / "val")
    texts = {"valid.py": SCRIPT.format(root=str(ROOT)), "own_decoding.py": DECODING, "table.txt": "0"}
    for name, text in {**texts, "own_steps/turning.py": TURNING}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return ("valid.py",), ["table.txt", "own_steps/turning.py", "own_decoding.py", "valid.py", "model.onnx"]


def _flip(rng: random.Random, content: bytes) -> bytes:
    places = [rng.randrange(len(content)) for _ in range(rng.choice((1, 8, 64)))]
    made = bytearray(content)
    for place in places:
        made[place] ^= 1 << rng.randrange(8)
    return bytes(made)


def _digits(rng: random.Random, content: bytes) -> bytes:
    """Another number in a text, which stays readable."""
    places = [match.start() for match in re.finditer(rb"\d", content)]
    if not places:
        return _flip(rng, content)
    place = rng.choice(places)
    return (
        content[:place]
        + str(rng.choice([d for d in range(10) if d != content[place] - 48])).encode()
        + content[place + 1 :]
    )


def _repaired(rng: random.Random, content: bytes) -> bytes:
    """Other valid code; errors of invalid code are Python's."""
    return content.replace(b"10", b"%d" % rng.randint(11, 19))


def _swap(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


_WAYS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "bits": _flip,
    "a digit": _digits,
    "lines": _swap,
    "repaired": _repaired,
}
_TEXTS = ("a digit", "lines")


def _changed(rng: random.Random, folder: Path, name: str) -> tuple[str, bool]:
    """Change a file; return how, and whether the content is equal."""
    path, chance = folder / name, rng.random()
    before, content = path.stat(), path.read_bytes()
    if chance < 0.1:
        os.utime(path)
        return f"{name} touched", True
    if chance < 0.2:
        path.unlink()
        path.write_bytes(content)
        return f"{name} written anew", True
    if chance < 0.25:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        return "the cache deleted", True
    ways = ["repaired"] if path.suffix == ".py" else [*_TEXTS, "bits"] if path.suffix in (".txt", ".json") else ["bits"]
    how = rng.choice(ways)
    new = _WAYS[how](rng, content)
    if rng.random() < 0.2:
        path.unlink()  # another inode
    path.write_bytes(new)
    kept = rng.random() < 0.8
    if kept:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"{name}: {how}{', its times set back' if kept else ''}", new == content
