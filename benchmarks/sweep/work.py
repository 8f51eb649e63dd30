"""The combinations of one row, each run and judged: exporter, target, dtype, number of SPA."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import Engine, EngineSpec, TecoInferError, open_engine
from sweep.exporting import export
from sweep.judge import AGREES, FINDING, Verdict, judge_refusal, judge_values, missing_refusal
from sweep.reference import module_of, narrow_outputs, outputs_of
from sweep.row import Array, Row, dims

BATCH = 7
"""Samples of a call: no multiple of 3 or 4, so that shards are padded."""

CALLS = 10
CALIBRATION = CALLS * BATCH
"""Samples that int8 is calibrated with, in so many calls."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Target of a file; ``spas`` is 0 without a card."""

    target: str
    dtype: str
    spas: int = 0

    def __str__(self) -> str:
        return f"{self.target} {self.dtype}" + (f" {self.spas} SPA" if self.spas else "")


SETTINGS = (
    Setting("onnx", "float32"),
    *(Setting("sdaa", dtype, spas) for dtype in ("float32", "float16") for spas in (1, 3, 4)),
    *(Setting("cpu", dtype) for dtype in ("float32", "bfloat16", "int8")),
)


@dataclass(frozen=True)
class Outcome:
    """What came of one combination.

    Attributes:
        row, combination: which. verdict: how it is judged. seconds: it took.
        batching: ``proven``, ``depends`` or ``not told``; empty where no engine opened.
        warned: the first lines of warnings. half: how torch's narrow outputs came to be.
        parameters: of the module.
    """

    row: str
    combination: str
    verdict: Verdict
    seconds: float
    batching: str = ""
    warned: tuple[str, ...] = ()
    half: str = ""
    parameters: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


class Work:
    """One row: its module, its files, and torch's outputs, each made when it is first needed."""

    def __init__(self, row: Row, folder: Path) -> None:
        self.row, self.folder = row, folder
        self._files: dict[str, Path] = {}
        self._narrow: dict[str, tuple[list[Array], str]] = {}

    @cached_property
    def module(self) -> torch.nn.Module:
        """The module."""
        return module_of(self.row)

    @cached_property
    def inputs(self) -> list[Array]:
        """What every engine is called with."""
        return self.row.inputs(np.random.default_rng(7), BATCH)

    @cached_property
    def wanted(self) -> list[Array]:
        """torch's outputs in float32."""
        return outputs_of(self.module, self.inputs)

    def narrow(self, dtype: str) -> tuple[list[Array], str]:
        """Return torch's outputs in a narrow dtype, and how they came to be."""
        if dtype not in self._narrow:
            self._narrow[dtype] = narrow_outputs(self.module, self.inputs, dtype)
        return self._narrow[dtype]

    def exported(self, exporter: str) -> Path:
        """Write the file of an exporter."""
        folder = self.folder / exporter
        folder.mkdir(exist_ok=True)
        self._files[exporter] = export(self.row, self.module, exporter, folder)
        return self._files[exporter]

    def outputs(self, exporter: str, setting: Setting) -> tuple[list[Array], str]:
        """Open a file, call it, and return its outputs and what is known of its batch."""
        os.environ["MAX_ENGINE_NUMS"] = str(setting.spas or 4)
        spec = EngineSpec(
            ckpt=self._files[exporter],
            batch_size=BATCH,
            dtype=setting.dtype,
            dims=dims(self.row, self.inputs),
            calibration=CALIBRATION,
        )
        with open_engine(setting.target, spec) as engine:
            if engine.calibration_samples:
                rng = np.random.default_rng(3)
                engine.calibrate([self._ordered(engine, self.row.inputs(rng, BATCH)) for _ in range(CALLS)])
            found = engine(self._ordered(engine, self.inputs))
            batching = {True: "proven", False: "depends", None: "not told"}[engine.independent]
        return found if isinstance(found, list) else [found], batching

    def _ordered(self, engine: Engine, arrays: Sequence[Array]) -> list[Array]:
        """Return inputs in the order and the width of float that a file has; exporters drop what nothing reads."""
        own = dict(zip(self.row.names, arrays, strict=True))
        fed = [(own[tensor.name], tensor.dtype) for tensor in engine.inputs]
        return [a.astype(dtype) if a.dtype.kind == "f" else a for a, dtype in fed]


def run_row(row: Row, done: Sequence[str] = ()) -> Iterator[tuple[str, Outcome | None]]:
    """Yield every combination of a row twice: its name before it is run, and its outcome.

    Args:
        row: the architecture. done: combinations that have been run already, by a process that then died.
    """
    with tempfile.TemporaryDirectory(prefix="model-sweep-") as folder:
        work = Work(row, Path(folder))
        for exporter in row.exporters:
            yield from _run_exporter(work, exporter, frozenset(done))


def _run_exporter(work: Work, exporter: str, done: frozenset[str]) -> Iterator[tuple[str, Outcome | None]]:
    """Yield the combinations of one exporter; where nothing is exported, only that."""
    export_name = f"{exporter}/export"
    left = {f"{exporter}/{setting}": setting for setting in SETTINGS if f"{exporter}/{setting}" not in done}
    if export_name in done and (not left or len(left) == len(SETTINGS)):
        return  # all of them were run, or the export failed
    if export_name not in done:
        yield export_name, None
    outcome = _judged(work, exporter, None)
    if export_name not in done:
        yield export_name, outcome
    if outcome.verdict.status == AGREES:
        for name, setting in left.items():
            yield name, None
            yield name, _judged(work, exporter, setting)


def _judged(work: Work, exporter: str, setting: Setting | None) -> Outcome:
    """Run one combination, or an export, and judge what comes of it."""
    combination = f"{exporter}/{setting or 'export'}"
    start, batching, half = time.perf_counter(), "", ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if setting is None:
                verdict = _exported(work, exporter)
            else:
                peer, half = work.narrow(setting.dtype) if "float16" in setting.dtype else (None, "")
                got, batching = work.outputs(exporter, setting)
                verdict = judge_values(setting.dtype, _widened(got), work.wanted, peer)
            verdict = missing_refusal(combination, work.row.refusals, verdict)
        except Exception as error:  # noqa: BLE001 - whatever is raised is judged
            known = isinstance(error, TecoInferError)
            verdict = judge_refusal(combination, work.row.refusals, known, type(error).__name__, str(error))
    if verdict.status == AGREES and batching == "depends" and not work.row.dependent:
        verdict = Verdict(FINDING, verdict.error, verdict.peer, "samples were found to depend on one another")
    seconds = time.perf_counter() - start
    said = tuple(dict.fromkeys(str(one.message).splitlines()[0][:300] for one in caught))
    parameters = sum(p.numel() for p in work.module.parameters()) if setting is None else 0
    return Outcome(work.row.name, combination, verdict, round(seconds, 3), batching, said, half, parameters)


def _exported(work: Work, exporter: str) -> Verdict:
    work.exported(exporter)
    return Verdict(AGREES)


def _widened(arrays: Sequence[Array]) -> list[Array]:
    return [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays]
