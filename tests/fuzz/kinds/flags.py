"""Command lines: every flag of every command with invalid values, and files in invalid places."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import random
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "yaml", "engine", "engine.sdaa.engine", "engine.sdaa.smi"),
    *("utils.pipeline.cli", "utils.pipeline.valid", "utils.pipeline.answers", "toolkit.cli", "tecoexec.cli"),
)

EXAMPLE = ROOT / "example"
MODELS = {
    "classification/digits": "digits_dyn.onnx",
    "segmentation/digit_unet": "digit_unet_dyn.onnx",
    "ocr/digit_crnn": "digit_crnn_dyn.onnx",
    "detection/digit_detector": "digit_detector_dyn.onnx",
    "nlp/language_id": "language_id_dyn.onnx",
    "nlp/bert_qa": "small_bert_qa_dyn.onnx",
    "nlp/tiny_gpt": "tiny_gpt_dyn.onnx",
    "speech/prompts_ctc": "prompts_ctc_dyn.onnx",
    "speech/silero_vad": "silero_vad_dyn.onnx",
    "gnn/digits_gcn": "digits_gcn_dyn.onnx",
    "recommendation/deepfm_synthetic": "deepfm_synthetic_dyn.onnx",
    "reinforcement/ppo_cartpole": "ppo_cartpole_dyn.onnx",
}
SCRIPTS = ("example_valid.py", "example_single_batch.py", "example_multi_batch.py")
TOOLS = (
    *(("compare",), ("dump", "make"), ("dump", "diff"), ("dump", "salvage"), ("overflow",), ("ops",)),
    *(("optest", "list"), ("optest", "cut"), ("profile",), ("info",), ("list",), ("fix",)),
    *(("completion",), ("fetch",), ("check",), ("run",)),
)
SLOW = {"--launcher", "--num_workers", "--write_docs", "--update", "--watch", "--contrib", "--html"}
"""Flags that start other processes, take long, or write into the checkout."""

OTHERS = ("--top_k", "--lengths", "--threshold", "--no_such", "-x", "--", "-", "--batch", "--js", "--input-name")
WORDS = (
    *("", " ", "0", "1", "-1", "2", "1e9", "99999999999999999999", "-99999999999999999999", "nan", "inf", "-inf"),
    *("1.5", "0x10", "\u0663\u0664", "\u00b2", "1_000", "true", "None", "[]", "{}", "%s%n", "a=b", "=", "a=", "=1"),
    *("x" * 5000, "\u4e2d" * 300, "a\x1b[31mb", "a\nb", "a\rb", "\u202ertl", "seq=128", "a=1,2,3", "a:1*3*8*8"),
    *("N*3*32*32", "1*3*32*32", "0*3*32*32", "-1*3*32*32", "N*N*N*N", "*", "1**2", "9" * 400, "1*" * 300 + "1"),
    *("onnx", "cpu", "sdaa", "null", "cuda", "int8", "float16", "float32", "bfloat16", "fetch:nothing/x", "~", "~root"),
    *("\udcff", "none", "default_pass.py", "process", "thread", "cosine=2", "4" * 20, "../..", ".", "/", "//", "/dev"),
)
"""Values of any flag."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    files = _files(rng, folder)
    if rng.random() < 0.65:
        return _script(rng, folder, files)
    if rng.random() < 0.3:
        model = _copy(rng, folder)
        shown = ["--onnx", model.name, "--iterations", "1", "--warmUp", "0"]
        return _case(rng, ("-m", "tecoexec"), _own(rng, shown, _flags(("-m", "tecoexec")), files), folder, model)
    if rng.random() < 0.1:
        words = ("-m", "engine.sdaa.smi")
        return _case(rng, words, _own(rng, [], _flags(words), files), folder, None)
    return _tool(rng, folder, files)


def _script(rng: random.Random, folder: Path, files: list[str]) -> Case:
    name, script = rng.choice(list(MODELS)), rng.choice(SCRIPTS)
    model = _copy(rng, folder, name)
    words = (str(EXAMPLE / name / script),)
    given = ["--ckpt", model.name] if rng.random() < 0.7 else []
    given += ["--target", rng.choice(("onnx", "onnx", "sdaa", "cpu"))] if rng.random() < 0.7 else []
    read = model if "--ckpt" in given else None  # of another model that lies there the results may take the place
    return _case(rng, words, _own(rng, given, _flags(words), [*files, model.name]), folder, read)


def _tool(rng: random.Random, folder: Path, files: list[str]) -> Case:
    tool = rng.choice(TOOLS)
    words = ("-m", "toolkit.cli", *tool)
    model = _copy(rng, folder, "classification/digits")
    first: list[str] = []
    if tool[0] in ("compare", "overflow", "ops", "profile", "dump", "optest"):
        first = [rng.choice((model.name, model.name, rng.choice((*files, *WORDS))))]
    elif tool[0] in ("run", "info", "fetch", "check", "fix"):
        first = [rng.choice([word for word in WORDS if word])]  # nothing that exists: these run for long, as without
    return _case(rng, words, _own(rng, first, _flags(words), [*files, model.name]), folder, model)


def _case(rng: random.Random, words: tuple[str, ...], given: list[str], folder: Path, model: Path | None) -> Case:
    before = None if model is None else _digest(model)

    def unharmed(outcome: Outcome) -> str | None:
        if model is not None and (not model.is_file() or _digest(model) != before):
            return f"the model file was changed by {given}"
        if words[0].endswith("example_valid.py") and outcome.code == 2 and "cannot be written" in outcome.err:
            kept = "eval_metric" in outcome.out or "before" in outcome.err
            return None if kept or "eval_metric" not in outcome.err else "the metric was lost"
        return None

    env = {"TECO_INFER_PIPELINES_MAX_STEPS": rng.choice(("1", "1", "1", "2"))}
    given = [word for word in given if "\0" not in word]
    text = " ".join(ascii(word) if len(word) < 60 else f"{word[:20]!a}...({len(word)})" for word in given)
    return Case((*words, *given), f"{' '.join(words[-2:])} {text}", unharmed, env=env)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _own(rng: random.Random, given: list[str], flags: list[tuple[str, bool]], files: list[str]) -> list[str]:
    """Return a command line of some flags with some values."""
    words = list(given)
    for _ in range(rng.choice((1, 1, 2, 3))):
        flag, takes = rng.choice(flags) if flags and rng.random() < 0.9 else (rng.choice(OTHERS), rng.random() < 0.5)
        if flag in SLOW:
            continue
        flag = flag[: rng.randint(3, len(flag))] if len(flag) > 3 and rng.random() < 0.03 else flag
        values = [rng.choice((*WORDS, *files, *files)) for _ in range(rng.choice((1, 1, 1, 1, 2)) if takes else 0)]
        joined = values and rng.random() < 0.3
        words += [f"{flag}={values[0]}", *values[1:]] if joined else [flag, *values]
        if not takes and rng.random() < 0.1:
            words.append(f"{flag}=")
    return [word for word in words if word] if rng.random() < 0.8 else words


@functools.cache
def _flags(words: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Return the flags in the help of a command, and whether each takes a value."""
    out = io.StringIO()
    how: Callable[[], object] = functools.partial(runpy.run_path, words[0], run_name="__main__")
    if words[0] == "-m":
        how = functools.partial(runpy.run_module, words[1], run_name="__main__", alter_sys=True)
    argv = [*(words[1:] if words[0] == "-m" else words), "--help"]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(sys.modules),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        how()
    usage = out.getvalue()
    found = re.findall(r"^  (?:-\w[^,]*, )?(--?\w[\w-]*)(.*)$", usage, re.MULTILINE)
    return [(flag, bool(re.match(r" ?[\[{A-Z]|, -", rest))) for flag, rest in found if flag not in SLOW]


def _copy(rng: random.Random, folder: Path, name: str | None = None) -> Path:
    name = name or rng.choice(list(MODELS))
    return Path(shutil.copy(EXAMPLE / name / MODELS[name], folder / "model.onnx"))


def _files(rng: random.Random, folder: Path) -> list[str]:
    """Create existing or invalid output files, and return their paths."""
    (folder / "results").mkdir()
    (folder / "old.json").write_text("{}\n")
    (folder / "link.json").symlink_to("model.onnx")
    (folder / "results" / "locked").mkdir(mode=0o500)
    (folder / "text.txt").write_text("nothing of use\n")
    place = folder / f"none{rng.randrange(9)}.json"
    not_a_file_reason(rng, place)
    os.link(folder / "text.txt", folder / "hard.json")
    long = "/".join(["d" * 200] * 25)
    return [
        *("results", "old.json", "link.json", "text.txt", "hard.json", place.name, "new.json", "out.npz", "x.txt"),
        *("missing/new.json", "missing/more/new.json", "text.txt/new.json", "n" * 300, "n" * 250 + ".json", long),
        *("./model.onnx", "results/../model.onnx", "/dev/full", "/dev/null", "/dev/zero", "/proc/self/mem", "/proc/x"),
        *(odd_name(rng, ".json"), "results/locked/new.json", "/etc/passwd/x", str(folder / "old.json")),
    ]
