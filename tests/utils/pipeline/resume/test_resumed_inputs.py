"""``--resume`` goes on only where everything that the run reads holds what it held: else the metric were a mixture."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import DIGITS, ROOT, RunPython, made

from engine import ConfigError, DataError, EngineSpec, open_engine
from utils.pipeline.flags.options import options
from utils.pipeline.resume.run_inputs import RunInputs
from utils.pipeline.valid import main
from utils.tasks.base import Flag, Task
from utils.tasks.classification.task import CLASSIFICATION
from utils.tasks.common.kept_vectors import kept_vectors
from utils.tasks.text_classification import TEXT_CLASSIFICATION
from utils.tasks.text_recognition.task import TEXT_RECOGNITION

EXAMPLE = ROOT / "example"
CRNN, LANGUAGE = EXAMPLE / "ocr" / "digit_crnn", EXAMPLE / "nlp" / "language_id"


class Run:
    """An evaluation here, stopped after two steps and then taken up again."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, task: Task, *words: object, **defaults: Any):
        self.folder, self.task, self.defaults, self.monkeypatch = folder, task, defaults, monkeypatch
        self.words = ["--target", "onnx", "--workers", "0", *map(str, words)]

    def __call__(self, *, steps: int = -1, resume: bool = True) -> float:
        self.monkeypatch.setenv("TECO_INFER_PIPELINES_MAX_STEPS", str(steps))
        result = self.folder / "result.json"
        words = [*self.words, "--json", str(result), *(["--resume", str(self.folder / "kept")] if resume else [])]
        assert main(None, self.task, argv=words, **self.defaults) == 0
        return float(json.loads(result.read_text())["metric"])

    @property
    def journal(self) -> Path:
        return self.folder / "kept" / "journal.jsonl"

    def refused(self, *names: str) -> None:
        """Take the run up, which is refused in one line that names these, and leaves the journal as it was."""
        before = self.journal.read_bytes()
        with pytest.raises(ConfigError, match="another run") as caught:
            self()
        assert "\n" not in str(caught.value)
        for name in names:
            assert f"{name} is '" in str(caught.value)
        assert self.journal.read_bytes() == before


def divided(folder: Path, scale: float = 1.0) -> Path:
    """Write the digits' model with its weights in another file."""
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            new = np.ascontiguousarray(array[::-1] if scale != 1 else array)
            tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
    path = folder / "digits.onnx"
    folder.mkdir(exist_ok=True)
    onnx.save(model, str(path), save_as_external_data=True, location="digits.data", size_threshold=0)
    return path


def in_place(path: Path, content: bytes) -> None:
    """Write other content of the same size, and set the time of the change back."""
    before = path.stat()
    assert before.st_size == len(content)
    assert path.read_bytes() != content
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_other_weights_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = divided(tmp_path), divided(tmp_path / "other", -1.0)
    assert path.read_bytes() == other.read_bytes()
    where = {"ckpt": path, "data_path": DIGITS / "data" / "val", "batch_size": 32, "input_size": 32}
    run = Run(tmp_path, monkeypatch, CLASSIFICATION, **where)
    run(steps=2)
    data, kept = path.with_name("digits.data"), path.with_name("digits.data").read_bytes()
    in_place(data, other.with_name("digits.data").read_bytes())
    run.refused("model digits.data")
    in_place(data, kept)
    assert run() == run(resume=False)


def test_another_charset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    charset = tmp_path / "charset.txt"
    charset.write_text("\n".join("0123456789") + "\n")
    where = {"ckpt": CRNN / "digit_crnn_dyn.onnx", "data_path": CRNN / "data" / "val", "batch_size": 32}
    run = Run(tmp_path, monkeypatch, TEXT_RECOGNITION, "--charset", charset, **where)
    whole = run(steps=3, resume=False)
    run(steps=2)
    kept = charset.read_bytes()
    in_place(charset, b"\n".join(b"%c" % digit for digit in b"1023456789") + b"\n")
    assert run(steps=3, resume=False) < whole
    run.refused("--charset")
    charset.unlink()
    with pytest.raises((ConfigError, DataError)):
        run()
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_bytes(kept)
    run.words = [word.replace("charset.txt", "elsewhere.txt") for word in run.words]
    assert run(steps=3) == whole  # the content counts, not the name


@pytest.mark.parametrize("folder", [pytest.param(False, marks=pytest.mark.slow), True], ids=["file", "folder"])
def test_another_tokenizer(folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(str(LANGUAGE / "language_id_dyn.onnx"))
    kept = [entry for entry in model.metadata_props if entry.key != "tokenizer"]
    assert len(kept) < len(model.metadata_props)
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, str(tmp_path / "model.onnx"))
    own = tmp_path / "words"
    own.mkdir()
    file = Path(shutil.copy(LANGUAGE / "tokenizer.json", own))
    given = own if folder else file
    where = {"ckpt": tmp_path / "model.onnx", "data_path": LANGUAGE / "data" / "val.tsv", "batch_size": 64}
    run = Run(tmp_path, monkeypatch, TEXT_CLASSIFICATION, "--tokenizer", given, **where, lengths=[64])
    run(steps=2)
    text = file.read_text(encoding="utf-8")
    ids = re.findall(r'"([a-z]{2})": (\d{3}),', text)
    (one, first), (other, second) = ids[0], ids[1]
    swapped = text.replace(f'"{one}": {first},', f'"{one}": {second},').replace(
        f'"{other}": {second},', f'"{other}": {first},'
    )
    in_place(file, swapped.encode())
    run.refused("--tokenizer/tokenizer.json" if folder else "--tokenizer")


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, {root!r})

import own_decoding
from utils.pipeline import cli
from utils.tasks.classification.task import CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    task = replace(CLASSIFICATION, decode=own_decoding.decode)
    where = {{"ckpt": {ckpt!r}, "data_path": {data!r}}}
    cli.valid(__doc__, task, **where, batch_size=32, input_size=32, target="onnx", workers=0)
"""
DECODING = """
import importlib
from pathlib import Path

from utils.tasks.classification.task import CLASSIFICATION

HERE = Path(__file__).resolve().parent
WEIGHT = int((HERE / "own_tables" / "weight.txt").read_text())
SIGN = importlib.import_module("own_" + "sign").SIGN


def decode(outputs, contexts, model, options):
    from own_steps.turning import turned

    name = "table"
    shift = int((HERE / f"{name}.txt").read_text())
    return CLASSIFICATION.decode(turned(outputs * SIGN * WEIGHT, shift), contexts, model, options)
"""
TURNING = """
import numpy as np


def turned(outputs, shift):
    return np.roll(outputs, shift + 0, axis=1)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A model's folder elsewhere: a script, a module, one in a package that it imports late, and a table it reads."""
    folder = tmp_path / "project"
    (folder / "own_steps").mkdir(parents=True)
    ckpt, data = str(DIGITS / "digits_dyn.onnx"), str(DIGITS / "data" / "val")
    (folder / "valid.py").write_text(SCRIPT.format(root=str(ROOT), ckpt=ckpt, data=data))
    (folder / "own_decoding.py").write_text(DECODING)
    (folder / "own_steps" / "turning.py").write_text(TURNING)
    (folder / "table.txt").write_text("0")
    (folder / "own_tables").mkdir()
    (folder / "own_tables" / "weight.txt").write_text("1")
    (folder / "own_sign.py").write_text("SIGN = +1")
    return folder


REPAIRS = {
    "script": ("valid.py", "workers=0", "workers=1"),
    "package": ("own_steps/turning.py", "shift + 0", "shift + 1"),
    "table": ("table.txt", "0", "1"),
    "table that is read at once": ("own_tables/weight.txt", "1", "0"),
    "module that is imported by a made name": ("own_sign.py", "+1", "-1"),
}


@pytest.mark.parametrize("repaired", [pytest.param(n, marks=[pytest.mark.slow] * (n == "script")) for n in REPAIRS])
def test_a_repaired_script(repaired: str, project: Path, tmp_path: Path, run_python: RunPython) -> None:
    name, old, new = REPAIRS[repaired]
    words = [project / "valid.py", "--resume", tmp_path / "kept"]
    cut = run_python(*words, TECO_INFER_PIPELINES_MAX_STEPS="2", PYTHONDONTWRITEBYTECODE="")
    assert cut.returncode == 0, cut.stderr
    file = project / name
    in_place(file, file.read_bytes().replace(old.encode(), new.encode()))
    again = run_python(*words, PYTHONDONTWRITEBYTECODE="")
    assert again.returncode == 2, again.stdout
    (line,) = again.stderr.splitlines()
    assert name in line


def test_a_run_without_changes_is_resumed(project: Path, tmp_path: Path, run_python: RunPython) -> None:
    words = [project / "valid.py", "--resume", tmp_path / "kept"]
    assert run_python(*words, TECO_INFER_PIPELINES_MAX_STEPS="2").returncode == 0
    copied = shutil.copytree(project, tmp_path / "copied")
    plain = run_python(project / "valid.py")
    found = run_python(copied / "valid.py", "--resume", tmp_path / "kept")
    assert found.returncode == 0, found.stderr
    metric = [line for line in found.stdout.splitlines() if line.startswith("eval_metric")]
    assert metric == [line for line in plain.stdout.splitlines() if line.startswith("eval_metric")]


def test_a_file_that_changes_during_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = divided(tmp_path), divided(tmp_path / "other", -1.0)
    data = path.with_name("digits.data")
    where = {"ckpt": path, "data_path": DIGITS / "data" / "val", "batch_size": 32, "input_size": 32}
    run = Run(tmp_path, monkeypatch, CLASSIFICATION, **where)
    opened = open_engine

    def changing(target: str, spec: EngineSpec) -> Any:
        in_place(data, other.with_name("digits.data").read_bytes())
        return opened(target, spec)

    monkeypatch.setattr("utils.pipeline.session.open_engine", changing)
    with pytest.raises(DataError, match="changed") as caught:
        run()
    assert str(data) in str(caught.value)


def test_a_journal_of_the_version_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"ckpt": DIGITS / "digits_dyn.onnx", "data_path": DIGITS / "data" / "val", "batch_size": 32}
    run = Run(tmp_path, monkeypatch, CLASSIFICATION, **where, input_size=32)
    run(steps=2)
    from zlib import crc32

    header, *steps = run.journal.read_bytes().splitlines(keepends=True)
    text = json.dumps({**json.loads(header[9:]), "schema_version": 2}).encode()
    run.journal.write_bytes(b"%08x %s\n" % (crc32(text), text) + b"".join(steps))
    with pytest.raises(ConfigError, match="schema version 2"):
        run()


def change_model(folder: Path) -> None:
    in_place(folder / "digits.data", (folder / "other" / "digits.data").read_bytes())


def change_words(folder: Path) -> None:
    (folder / "words.txt").write_text("b")


@pytest.mark.parametrize("change", [change_model, change_words])
def test_stored_vectors(change: Callable[[Path], None], tmp_path: Path) -> None:
    path = divided(tmp_path)
    divided(tmp_path / "other", -1.0)
    (tmp_path / "words.txt").write_text("a")
    opt = options(
        None, TEXT_RECOGNITION, "valid", ["--charset", str(tmp_path / "words.txt")], ckpt=path, data_path=tmp_path
    )
    made: list[int] = []

    def make(start: int, stop: int) -> tuple[Any, dict[str, int]]:
        made.append(stop - start)
        return np.zeros((stop - start, 2), np.float32), {}

    for _ in range(2):
        with open_engine("onnx", EngineSpec(path)) as engine:
            kept_vectors(tmp_path / "kept", engine, ["a"], 8, 4, make, opt)
    assert made == [4, 4]
    change(tmp_path)
    with open_engine("onnx", EngineSpec(path)) as engine:
        kept_vectors(tmp_path / "kept", engine, ["a"], 8, 4, make, opt)
    assert made == [4, 4, 4, 4]


def test_a_flag_without_a_file_is_compared_as_text(tmp_path: Path) -> None:
    words = ["--lexicon", str(tmp_path / "none.txt"), "--decoder", "beam", "--target", "onnx"]
    opt = options(None, TEXT_RECOGNITION, "valid", words, ckpt=CRNN / "digit_crnn_dyn.onnx", data_path=tmp_path)
    with RunInputs(made(TEXT_RECOGNITION, opt)) as inputs:
        assert not [name for name in inputs.contents if name.startswith("--lexicon")]


def test_a_flag_with_an_output_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "seen.txt"

    def decode(outputs: Any, contexts: Any, model: Any, opt: Any) -> Any:
        out.write_text((out.read_text() if out.exists() else "") + "batch\n")
        return CLASSIFICATION.decode(outputs, contexts, model, opt)

    flag = Flag("--seen", "where to note batches", None, writes=True)
    task = replace(CLASSIFICATION, decode=decode, flags=(*CLASSIFICATION.flags, flag))
    where = {"ckpt": DIGITS / "digits_dyn.onnx", "data_path": DIGITS / "data" / "val", "batch_size": 64}
    run = Run(tmp_path, monkeypatch, task, "--seen", out, **where, input_size=32)
    run(steps=2)
    assert run(steps=3) == run(steps=3, resume=False)
    assert out.read_text().count("batch") == 6
