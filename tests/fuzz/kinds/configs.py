"""Configurations: cases of models and of sweeps, cards, tables, scorecards, pass files, environment variables."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers import yaml_attacks
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    *("numpy", "onnx", "onnxruntime", "yaml", "engine", "engine.sdaa.engine", "utils.pipeline.cli", "tecoexec.sweep"),
    *("model_config.check", "model_config.structure", "toolkit.data_page", "toolkit.ops.table", "utils.fetch"),
)

READERS = str(ROOT / "tests" / "fuzz" / "readers.py")
DIGITS = ROOT / "example" / "classification" / "digits"
RUN = (*("-m", "tecoexec", "--onnx", str(DIGITS / "digits_dyn.onnx"), "--input_shapes", "4*3*32*32", "--simulateOnly"),)
RUN = (*RUN, "--iterations", "2", "--warmUp", "0")

_SCRIPT = "import sys\nprint('end to end: 1 samples', sys.argv[1:3])\nprint('eval_metric: 1.0')\n"
_PARAMS = {"ckpt": "m.onnx", "batch_size": 4, "data_path": "data", "target": "onnx", "dtype": "float32"}
_CASE = {
    "case_name": "one",
    "run_dir": "TecoInference/example/classification/tiny",
    "run_export": {"run_file": "export_onnx.py", "params": {"forms": ["dyn", "float16_dyn"], "layers": 2}},
    **{
        f"run_example_{name}": {
            "run_file": f"example_{name}.py",
            "params": {**_PARAMS, "others": {"topk": 1, "x": "y"}},
        }
        for name in ("valid", "single", "multi")
    },
    "accuracy": {"tolerance": 0.001, "baseline_ckpt": "m.onnx", "reference": 0.99, "reference_source": "a paper"},
}
_SWEEP = {
    "case_name": "digits",
    "model_name": "digits",
    "onnx_path": "example/classification/digits/digits_dyn.onnx",
    "pass_path": "default_pass.py",
    "onnx_dtype": "float16",
    "input_shapes": [[1, 3, 32, 32]],
    "batch_size": [4],
    "batch_index": 0,
    "input_dtype": ["float16"],
    "iterations": 2,
    "warm_up": 0,
    "run_sync": False,
    "history_latency": [1.5],
    "cuda_latency": 0.001,
    "desc": {"of": "one"},
}
_PACKAGE = {
    "name": "tiny",
    "what": "a model",
    "registry": "pypi",
    "package": "tiny-models",
    "version": "1.0",
    "sha256": "0" * 64,
    "licence": "MIT",
    "read_in": "LICENSE",
    "use": "any",
    "size": 5,
    "unpacked": 10,
    "members": ["tiny/*.onnx"],
}
_DATA = {
    "what": "images",
    "from": "us",
    "licence": "MIT",
    "read_in": "LICENSE",
    "use": "any",
    "files": ["docs/*.yaml"],
}
_TABLE = {
    "schema_version": 1,
    "notes": ["a note"],
    "operators": {"Conv": {"level": "stated", "source": "a page"}, "x::Y": {"level": "missing", "fix": "none"}},
    "dtypes": {"float16": {"level": "tried"}},
}
_TEXTS = {key: {"en": "reads a digit", "zh": "x"} for key in ("does", "weights")}

_OPTIONS = """\
use_passes = None
need_convert = True
skip_ops = ["Softmax"]
skip_input_name = []
convert_all = False
normalized = True
layout = "plain"
"""
# What a pass file prints is its own business, so that none of its values prints.
_PASS_VALUES = (
    *(
        "[[[0] * 9] * 9] * 9",
        "10 ** 5000",
        "'n' * 100000",
        "None",
        "float('nan')",
        "object()",
        "lambda *a: a[5]",
        "repr",
    ),
    *("{1: 2}", "[None]", "b'x'", "'\\x1b[31m'", "1 / 0", "[" * 300 + "]" * 300, "__import__('sys').exit(5)", "x"),
    *("lambda model: 5", "lambda node: 'x'", "type('T', (), {'__repr__': lambda self: 1 / 0})()", "range(10 ** 9)"),
)
VARIABLES = (
    *("MAX_ENGINE_NUMS", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "RAY_ADDRESS"),
    *("SDAA_VISIBLE_DEVICES", "TECO_INFER_PIPELINES_MAX_STEPS", "TECO_INFER_PIPELINES_WARMUP_STEPS", "TECO_SIM_CARD"),
    *("TECO_SIM_CARDS", "TECO_SIM_FAULTS", "TECO_CACHE_DIR", "TECO_FETCH_DIR", "TECO_SMI_DIR", "TECO_FONT"),
)
_GARBAGE = (
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "4",
        "3",
        "8",
        "64",
        "99999999999",
        "9" * 5000,
        "1e3",
        "nan",
        "inf",
        "None",
        "text",
        "²",
        "٣",
    ),
    *(
        "n" * 5000,
        "0,1",
        "3,1",
        "0,0",
        ",",
        "0,",
        "1.5",
        "../..",
        "/dev/null",
        "/dev/zero",
        "/proc/self/mem",
        "/nowhere/x",
    ),
    *("\udcff", "\x1b[31mred", "a\nb", "lose:spa=1,step=3", "slow:spa=0,step=0,factor=1e999", "nan:spa=9999999,step=0"),
    *(
        f"hang:spa={'9' * 4400},step=0",
        "lose:spa=0,step=0;" * 5000,
        "slow:spa=0,step=0,factor=1e308",
        "oom:spa=-1,step=-1",
    ),
    *("t1", "t1.yaml", "card.yaml", "folder", "x" * 250),
)
_SUBJECTS = ("check", "check", "check", "sweep", "sweep", "card", "scorecard", "described", "packages", "data", "table")


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Return a case; the folder ``outside`` must not change."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    what = rng.randrange(10)
    if what == 0:
        return _environment(rng, folder)
    if what == 1:
        return _pass_file(rng, folder)
    return _file(rng, folder, rng.choice(_SUBJECTS))


def _file(rng: random.Random, folder: Path, subject: str) -> Case:
    path = _place(rng, folder, subject)
    bad, done = False, ""
    how = rng.randrange(10)
    if how == 0:
        done = not_a_file_reason(rng, path)
        bad = subject not in ("scorecard", "described", "data") or not done.endswith(
            ("dangling link", "link to itself")
        )
    elif how <= 2:
        name = rng.choice(list(yaml_attacks.TEXTS))
        content, form = yaml_attacks.encoded(yaml_attacks.TEXTS[name], rng)
        path.write_bytes(content)
        bad, done = (
            subject not in ("sweep", "packages", "data", "check") or name not in ("null", "nothing"),
            f"{name} as {form}",
        )
    elif how <= 4:
        content, done = mutated(_dumped(subject, folder).encode(), rng)
        path.write_bytes(content)
    else:
        text, done = yaml_attacks.changed(_valid(subject), rng, str(folder / "outside"))
        content, form = yaml_attacks.encoded(text, rng)
        done += f" as {form}"
        path.write_bytes(content)
    return Case(
        _words(subject, path, folder),
        f"{subject}: {done}",
        judge=lambda outcome: _judged(outcome, folder, path, bad),
        env={"TECO_SIM_CARD": str(path)} if subject == "card" else {},
    )


def _valid(subject: str) -> Any:
    if subject == "card":
        return yaml.safe_load((ROOT / "engine" / "sdaa" / "t1.yaml").read_text(encoding="utf-8"))
    if subject == "scorecard":
        return yaml.safe_load((DIGITS / "numerics.yaml").read_text(encoding="utf-8"))
    found = {"check": [_CASE], "sweep": [_SWEEP], "packages": [_PACKAGE], "data": [_DATA]}
    return copy.deepcopy(found.get(subject) or {"table": _TABLE, "described": _TEXTS}[subject])


def _dumped(subject: str, folder: Path) -> str:
    return yaml.safe_dump(_valid(subject), sort_keys=False)


def _place(rng: random.Random, folder: Path, subject: str) -> Path:
    """Create the folders for the file of a subject and return its path."""
    if subject == "check":
        tiny = folder / "zoo" / "example" / "classification" / "tiny"
        (tiny / "data").mkdir(parents=True)
        (tiny / "link").symlink_to(folder / "outside")
        for name in ("export_onnx", "example_valid", "example_single", "example_multi"):
            (tiny / f"{name}.py").write_text(_SCRIPT)
        (tiny / "m.onnx").write_bytes(b"")
    (folder / "made" / "docs").mkdir(parents=True)
    (folder / "made" / "docs" / "more.yaml").write_text("")
    fixed = {"scorecard": "numerics.yaml", "described": "zoo.yaml", "data": "docs/data.yaml"}
    if subject in fixed:
        return folder / "made" / fixed[subject]
    name = odd_name(rng, ".yaml") if rng.random() < 0.1 and subject != "card" else "file.yaml"
    return folder / "made" / name


def _words(subject: str, path: Path, folder: Path) -> tuple[str, ...]:
    if subject == "card":
        return RUN
    if subject == "sweep":
        return ("-m", "tecoexec.sweep", "--config", str(path), "--out", "results")
    return (READERS, subject, str(path))


def _judged(outcome: Outcome, folder: Path, path: Path, bad: bool) -> str | None:
    """Return a finding: files written outside, an error without the file name, or an accepted invalid file."""
    outside = folder / "outside"
    if sorted(one.name for one in outside.iterdir()) != ["kept"] or (outside / "kept").read_text() != "kept":
        return f"outside there is now {sorted(one.name for one in outside.iterdir())}"
    if (
        outcome.code == 2
        and path.name.isascii()
        and path.name.isprintable()
        and path.name not in outcome.err + outcome.out
    ):
        return f"refused without the file's name: {outcome.err[:200]}"
    if bad and outcome.code == 0:
        return "taken, though it cannot be right"
    return None


def _pass_file(rng: random.Random, folder: Path) -> Case:
    path = folder / "mine.py"
    lines = _OPTIONS.splitlines()
    place = rng.randrange(len(lines))
    name, _, _ = lines[place].partition(" = ")
    name = rng.choice((name, "convert_judge", "use_passes"))
    value = rng.choice(_PASS_VALUES)
    text = "\n".join([*lines, f"{name} = {value}"]) + "\n"
    content, form = text.encode(), ""
    if rng.random() < 0.3:
        content, form = mutated(content, rng)
    if rng.random() < 0.1:
        form = not_a_file_reason(rng, path)
    else:
        path.write_bytes(content)
    return Case((*RUN, "--pass_path", str(path), "--fp16"), f"pass file: {name} = {value[:50]} {form}")


def _environment(rng: random.Random, folder: Path) -> Case:
    (folder / "folder").mkdir()
    (folder / "card.yaml").write_text(_dumped("card", folder))
    given = {rng.choice(VARIABLES): rng.choice(_GARBAGE) for _ in range(rng.randint(1, 2))}
    script = (str(DIGITS / "example_single_batch.py"), "--data_path", str(DIGITS / "data" / "val" / "7" / "0081.png"))
    valid = (str(DIGITS / "example_valid.py"), "--data_path", str(DIGITS / "data" / "val"), "--target", "onnx")
    words = rng.choice((RUN, RUN, script, valid, ("-m", "engine")))
    return Case(words, f"environment: { {k: v[:60] for k, v in given.items()}!s}", env=given)
