"""From exported graphs to checked ONNX files, for PyTorch and PaddlePaddle: each file is checked, run on the accuracy
baseline (target ``onnx``) and compared with the source model before it replaces an older one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

import numpy as np

from engine import Array, Engine, EngineSpec, ModelError, TecoInferError, open_engine
from tecoinfer_modelzoo.formatting import plural
from utils.export.agree import FORMULA, TOLERANCES, Gap, widest_gap
from utils.export.forms import DYNAMIC, HALF, STATIC
from utils.export.graphs import first_line, foreign_ops, to_float16
from utils.export.near_ties import answers, picks_given, picks_inside, ranking_nodes, run, with_picks
from utils.export.notes import ModelNotes as ModelNotes

if TYPE_CHECKING:
    from onnx import ModelProto

Made: TypeAlias = Union["ModelProto", ModelError]
"""A graph, or the error why there is none."""

Traced: TypeAlias = "tuple[Made | None, Made | None]"
"""The static and the dynamic graph of a model; ``None`` if no requested form needs it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Inputs to check a file on, and the source model's outputs: one array per output, also if there is only one."""

    inputs: list[Array]
    wanted: list[Array]


@dataclass(frozen=True, slots=True)
class Variant:
    """The file ``<stem><suffix>.onnx``, checked on ``cases``; ``reference``: the float32 graph of a float16 graph."""

    suffix: str
    model: Made
    cases: list[Expected]
    dtype: str = "float32"
    reference: ModelProto | None = None


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result for one file.

    Attributes:
        max_relative_error: ``None`` for a file that was not run or not written.
        foreign_ops: the operators that ONNX Runtime does not support.
        error: why the file was not written, in one line; ``None`` if it was.
    """

    path: Path
    max_relative_error: float | None
    foreign_ops: tuple[str, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.path}: not written: {self.error}"
        if self.max_relative_error is None:
            return f"{self.path}: checked, not run: ONNX Runtime does not support {', '.join(self.foreign_ops)}"
        return f"{self.path}: largest relative error {self.max_relative_error:.1e} ({FORMULA})"


class ExportError(ModelError):
    """Raised if a file was not written; the others were. ``results``: one per requested form, in order."""

    def __init__(self, results: Sequence[ExportResult]) -> None:
        self.results = list(results)
        files: dict[str, list[str]] = {}
        for one in results:
            if one.error is not None:
                files.setdefault(one.error, []).append(one.path.name)
        failed = [f"{', '.join(names)}: {error}" for error, names in files.items()]
        written = ", ".join(one.path.name for one in results if one.error is None)
        older = [one.path.name for one in results if one.error is not None and one.path.exists()]
        stale = f"; the existing {', '.join(older)} is of an earlier export" if older else ""
        super().__init__(f"{'; '.join(failed)}; {f'written: {written}' if written else 'no file was written'}{stale}")


def variants_of(static: Made | None, free: Made | None, cases: list[Expected], forms: Sequence[str]) -> list[Variant]:
    """Return the files to write: static (checked on the first case only), dynamic (``free``), float16."""
    variants = []
    if static is not None and STATIC in forms:
        variants.append(Variant("", static, cases[:1]))
    if free is not None and DYNAMIC in forms:
        variants.append(Variant("_dyn", free, cases))
    if free is not None and HALF in forms:
        variants.append(_half(free, cases))
    return variants


def _half(free: Made, cases: list[Expected]) -> Variant:
    suffix, dtype = "_float16_dyn", "float16"
    if isinstance(free, ModelError):
        return Variant(suffix, free, cases, dtype)
    try:
        return Variant(suffix, to_float16(free), cases, dtype, free)
    except ModelError as error:
        return Variant(suffix, error, cases, dtype)


def write_onnx_files(
    stem: Path, variants: Sequence[Variant], notes: ModelNotes, tolerances: Mapping[str, float] = TOLERANCES
) -> list[ExportResult]:
    """Check, run and compare every variant, then write the files of those that passed.

    No file is replaced until every variant has been checked; each is then replaced atomically. Weights above 2 GiB are
    written to ``<file>.data``. ``metadata_props`` has the notes and the file's largest relative error.

    Args:
        stem: path and start of the file names; the folder is created. tolerances: maximum relative error by dtype.

    Raises:
        ExportError: a variant has no graph, fails the checker or exceeds its tolerance; the others were written.
        ModelError: the folder cannot be written.
    """
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=stem.parent) as folder:
            made = []
            for variant in variants:
                path = Path(folder, f"{stem.name}{variant.suffix}.onnx")
                made.append(_tried(path, stem.parent / path.name, variant, notes, tolerances[variant.dtype]))
            # In reverse order, data files ("x.onnx.data") are placed before their models ("x.onnx").
            for file in sorted(Path(folder).iterdir(), reverse=True):
                os.replace(file, stem.parent / file.name)
    except OSError as error:
        raise ModelError(f"{stem.parent}: cannot write the exported files: {error}; choose another folder") from error
    if any(one.error is not None for one in made):
        raise ExportError(made)
    return made


def _tried(path: Path, final: Path, variant: Variant, notes: ModelNotes, tolerance: float) -> ExportResult:
    """Write one file to a temporary folder; return the result, with the error and without files on failure."""
    try:
        if isinstance(variant.model, ModelError):
            raise variant.model
        error, foreign = _make(path, variant, variant.model, notes, tolerance)
    except TecoInferError as failed:
        for file in (path, path.with_name(f"{path.name}.data")):
            file.unlink(missing_ok=True)
        return ExportResult(final, None, error=str(failed).replace(f"{path}: ", "").replace(str(path), final.name))
    return ExportResult(final, error, foreign)


def _make(
    path: Path, variant: Variant, model: ModelProto, notes: ModelNotes, tolerance: float
) -> tuple[float | None, tuple[str, ...]]:
    """Write, check and run one file and add its metadata; return its relative error and unsupported operators."""
    import onnx

    from engine.onnx import save_model

    foreign = foreign_ops(model)
    save_model(model, path)
    _check(path, variant.dtype)
    error = None if foreign else _compared(path, variant, model, tolerance)
    noted = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(noted, dict(sorted(notes.metadata(error).items())))
    path.write_bytes(noted.SerializeToString(deterministic=True))
    return error, foreign


_WITHOUT = {"float16": "; pass float16=False to skip this file"}
"""Fix to suggest for a form that fails, by dtype."""


def _check(path: Path, dtype: str) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)  # by path, for files above 2 GiB
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = f"onnx.checker rejects the exported model: {first_line(error)}"
        raise ModelError(f"{reason}{_WITHOUT.get(dtype, '')}") from error


def _compared(path: Path, variant: Variant, model: ModelProto, tolerance: float) -> float:
    """Return the largest relative error over the variant's cases; raise ModelError above the tolerance."""
    worst, names = Gap("", 0.0), _names(model)
    for case in variant.cases:
        _check_number(case, names)
    with open_engine("onnx", EngineSpec(ckpt=path, dtype=variant.dtype)) as engine:
        for case in variant.cases:
            got = _got(engine, case, variant)
            gap = widest_gap(names, got, case.wanted, variant.dtype)
            if gap.error > tolerance:
                gap = _gap_without_ties(variant, model, case, got, tolerance) or gap
            worst = max(worst, gap, key=lambda one: one.error)
    if worst.error > tolerance:
        raise ModelError(_differs(worst, variant.dtype, tolerance))
    return worst.error


def _check_number(case: Expected, names: Sequence[str]) -> None:
    """Raise ModelError if there is not one expected array per output of the file."""
    if len(case.wanted) == len(names):
        return
    shapes = sorted({str(list(np.shape(array))) for array in case.wanted})
    fix = "an engine and a network return the array itself if there is one output, so write [engine(x)]"
    raise ModelError(
        f"{len(case.wanted)} expected arrays (shapes {', '.join(shapes[:3])}) for {plural(len(names), 'output')} "
        f"({', '.join(names)}); pass one per output: {fix}"
    )


def _got(engine: Engine, case: Expected, variant: Variant) -> list[Array]:
    """Return the file's outputs for one case; raise ModelError if it runs only for the sizes of the example."""
    try:
        return run(engine, case.inputs, variant.dtype)
    except TecoInferError as error:
        if case is variant.cases[0]:
            raise
        shapes = [list(x.shape) for x in case.inputs]
        raise ModelError(
            f"the file has sizes of the example as constants and cannot run inputs of shapes {shapes}: {error}; "
            "leave the axis out of dynamic, or try another exporter"
        ) from error


def _names(model: ModelProto) -> list[str]:
    return [one.name for one in model.graph.output]


def _differs(worst: Gap, dtype: str, tolerance: float) -> str:
    where = f"output {worst.name!r}" if worst.name else "the outputs"
    without = _WITHOUT.get(dtype, "").replace("; ", ", or ")
    if worst.reason.startswith(("below float16", "above float16")):
        return f"{where} is {worst.reason}; let the model scale it{without}"
    reason = f" ({worst.reason})" if worst.reason else ""
    check = "check the model's operators, or " if dtype == "float32" else ""
    return (
        f"{where}: largest relative error {worst.error:.1e} ({FORMULA}) is above the tolerance "
        f"{tolerance:.0e}{reason}; {check}raise tolerances[{dtype!r}] if this is expected{without}"
    )


def _gap_without_ties(
    variant: Variant, model: ModelProto, case: Expected, got: list[Array], tolerance: float
) -> Gap | None:
    """Return the gap if both models pick the same indices among near ties; ``None`` if it exceeds the tolerance."""
    names, inputs, whole = _names(model), case.inputs, variant.reference
    if whole is None:
        return _source_picks(model, case, tolerance)
    made = ranking_nodes(whole)
    if not made:
        return None
    plain = widest_gap(names, answers(whole, inputs, "float32"), case.wanted, "float32")
    if plain.error > tolerance and _source_picks(whole, case, tolerance) is None:
        return None  # the float32 model differs from the source model, too
    found, rank = with_picks(whole, made, inputs, picks_inside(model, made, inputs, variant.dtype))
    return _within(widest_gap(names, got, found, variant.dtype), rank, tolerance)


def _source_picks(model: ModelProto, case: Expected, tolerance: float) -> Gap | None:
    """Return the gap between the source model and a float32 model with the indices in the source model's outputs."""
    made = ranking_nodes(model)
    picks = picks_given(model, made, case.wanted)
    if not picks:
        return None
    found, rank = with_picks(model, made, case.inputs, picks)
    return _within(widest_gap(_names(model), found, case.wanted, "float32"), rank, tolerance)


def _within(gap: Gap, rank: float, tolerance: float) -> Gap | None:
    error = max(gap.error, rank)
    return Gap(gap.name, error) if error <= tolerance else None
