"""Every row of the table of advice, with the flags it asks for in use and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support import DIGITS

from engine import EngineSpec, open_engine
from utils.advice import SHORT, InUse, still_open
from utils.pipeline.flags.options import options
from utils.pipeline.report.advice import TABLE, Course, OwnAdvice, helps_most
from utils.tasks.classification.task import CLASSIFICATION

LONG = Course(10.0, samples=1000, cores=4)
DISK = "keep the data on a faster disk, or in memory"
INT8 = "--dtype int8, where the metric allows it"
FLOAT16 = "--dtype float16, where the metric allows it"
PROCESSES = "--worker_mode process, as threads take turns in the interpreter here"
CARD = "a real card: this host computes what the simulated one would"
BATCH = "a larger --batch_size"


def helps(stage: str, own: dict[str, str] | None = None, course: Course = LONG, **flags: Any) -> str:
    return helps_most(stage, replace(course, in_use=InUse(flags, {"decode": ("exact", "fused", "reduced")})), own or {})


FULL, TURNS = replace(LONG, full=True), replace(LONG, turns=True)


@pytest.mark.parametrize(
    ("stage", "course", "flags", "expected"),
    [
        ("disk", LONG, {}, DISK),
        ("decode", LONG, {}, "more --workers"),
        ("decode", LONG, {"workers": 2}, "more --workers"),
        ("decode", LONG, {"workers": 16}, ""),
        ("decode", FULL, {}, "more cores"),
        ("preprocess", TURNS, {"worker_mode": "thread"}, PROCESSES),
        ("preprocess", TURNS, {"worker_mode": "process"}, "more --workers"),
        ("preprocess", replace(TURNS, full=True), {"worker_mode": "thread"}, "more cores"),
        ("engine", LONG, {}, f"--target cpu {INT8}"),
        ("engine", LONG, {"target": "onnx", "dtype": "float32"}, f"--target cpu {INT8}"),
        ("engine", LONG, {"target": "cpu", "dtype": "float32"}, INT8),
        ("engine", LONG, {"target": "cpu", "dtype": "bfloat16"}, INT8),
        ("engine", LONG, {"target": "cpu", "dtype": "int8"}, ""),
        ("engine", FULL, {"target": "cpu", "dtype": "int8"}, "more cores"),
        ("engine", LONG, {"target": "cuda", "dtype": "float32"}, FLOAT16),
        ("engine", LONG, {"target": "cuda", "dtype": "float16", "batch_size": 1}, BATCH),
        ("engine", LONG, {"target": "cuda", "dtype": "float16", "batch_size": 1000}, ""),
        ("engine", FULL, {"target": "theirs", "dtype": "float32"}, ""),
        ("engine", replace(FULL, simulated=True), {"target": "sdaa", "dtype": "float16"}, CARD),
        ("postprocess", LONG, {"batch_size": 8}, BATCH),
        ("postprocess", LONG, {"batch_size": 1000}, ""),
    ],
)
def test_flags_in_use_are_not_advised(stage: str, course: Course, flags: dict[str, Any], expected: str) -> None:
    assert helps(stage, course=course, **flags) == expected


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.about}: {row.text}")
def test_no_entry_advises_flags_in_use(row: Any) -> None:
    used = InUse(dict(row.flags))
    for course in (LONG, FULL, TURNS, replace(FULL, simulated=True)):
        assert not (row.flags and row.open(used, replace(course, in_use=used)))


@pytest.mark.parametrize("stage", sorted({row.about for row in TABLE}))
def test_a_run_under_a_second_gets_no_advice(stage: str) -> None:
    for course in (LONG, FULL, TURNS, replace(FULL, simulated=True)):
        assert helps(stage, course=replace(course, wall=SHORT - 0.01)) == ""
        assert helps(stage, {stage: "wait"}, course=replace(course, wall=SHORT - 0.01)) == ""


OWN = dict(CLASSIFICATION.advice)


@pytest.mark.parametrize(
    ("stage", "decode", "expected"),
    [
        ("decode", "exact", "--decode reduced, or more cores"),
        ("decode", "fused", "--decode reduced, or more cores"),
        ("decode", "reduced", "more cores"),
        ("preprocess", "exact", "--decode fused, or more cores"),
        ("preprocess", "fused", "more cores"),
        ("preprocess", "reduced", "more cores"),  # it does what fused does, and more
        ("disk", "exact", "keep the images on a faster disk, or in memory"),
    ],
)
def test_a_tasks_advice_without_flags_in_use(stage: str, decode: str, expected: str) -> None:
    assert helps(stage, OWN, FULL, decode=decode) == expected


def test_common_advice_if_the_tasks_is_in_use() -> None:
    assert helps("decode", {"decode": "--decode reduced"}, FULL, decode="reduced") == "more cores"
    assert still_open("--a 1 --b 2, or --c 3", InUse({"a": 1, "b": 3, "c": 3})) == "--a 1 --b 2"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--target", "onnx"], {"target": "onnx", "dtype": "float32", "decode": "exact", "batch_size": 4}),
        (["--target", "sdaa"], {"target": "sdaa", "dtype": "float16"}),
        (["--target", "onnx", "--decode", "reduced", "--workers", "3"], {"decode": "reduced", "workers": 3}),
    ],
)
def test_the_flags_have_their_resolved_values(words: list[str], expected: dict[str, Any]) -> None:
    model = DIGITS / "digits_dyn.onnx"
    opt = options("A script.", CLASSIFICATION, "valid", words, ckpt=model, data_path=DIGITS, batch_size=4)
    with open_engine(opt.target, EngineSpec(model, batch_size=4, input_size=((1, 3, 32, 32),))) as engine:
        own = OwnAdvice.of(CLASSIFICATION, opt, {"model": engine})
    assert {name: own.in_use.flags[name] for name in expected} == expected
    assert own.in_use.orders == {"decode": ("exact", "fused", "reduced")}
    assert own.words == CLASSIFICATION.advice
