"""From an exported graph to checked files: what the PyTorch and the PaddlePaddle exporter share.

Every file is simplified, checked, run on the accuracy baseline (target ``onnx``) and compared with the source model
before it replaces an older one, so a file that exists is one that passed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from engine import Array, Engine, EngineSpec, ModelError, TecoInferError, open_engine
from utils.export.agree import FORMULA, TOLERANCES, Gap, widest_gap
from utils.export.choices import answers, choices, picks_given, picks_inside, run, with_picks
from utils.export.forms import DYNAMIC, HALF, STATIC
from utils.export.graphs import first_line, foreign_ops, to_float16
from utils.export.notes import ModelNotes as ModelNotes

if TYPE_CHECKING:
    from onnx import ModelProto

Made: TypeAlias = Union["ModelProto", ModelError]
"""A graph, or why there is none."""

Traced: TypeAlias = "tuple[Made | None, Made | None]"
"""The static and the dynamic graph of a model; ``None`` where no form that is asked for is made of it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One input the file is tried on, and what the source model answers."""

    inputs: list[Array]
    wanted: list[Array]


@dataclass(frozen=True, slots=True)
class Variant:
    """One file to write: ``<stem><suffix>.onnx``.

    Attributes:
        model: its graph, or why there is none.
        cases: what it is tried on. dtype: its precision.
        reference: of a float16 graph, the float32 one that it was made of.
    """

    suffix: str
    model: Made
    cases: list[Expected]
    dtype: str = "float32"
    reference: ModelProto | None = None


@dataclass(frozen=True, slots=True)
class ExportResult:
    """One form of a model.

    Attributes:
        path: its file.
        max_relative_error: ``None`` where ONNX Runtime does not know an operator, and where there is an error.
        foreign_ops: the operators that ONNX Runtime does not know.
        error: why this form was not written, in one line; ``None`` where it was.
    """

    path: Path
    max_relative_error: float | None
    foreign_ops: tuple[str, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.path}: not written: {self.error}"
        if self.max_relative_error is None:
            return f"{self.path}: checked, not run: ONNX Runtime does not know {', '.join(self.foreign_ops)}"
        return f"{self.path}: largest relative error {self.max_relative_error:.1e} ({FORMULA})"


class ExportError(ModelError):
    """A form of the model was not written; those that passed were.

    Attributes:
        results: one per form, in the order they were asked for; ``error`` is set in those that were not written.
    """

    def __init__(self, results: Sequence[ExportResult]) -> None:
        self.results = list(results)
        files: dict[str, list[str]] = {}
        for one in results:
            if one.error is not None:
                files.setdefault(one.error, []).append(one.path.name)
        failed = [f"{', '.join(names)}: {error}" for error, names in files.items()]
        written = ", ".join(one.path.name for one in results if one.error is None)
        older = [one.path.name for one in results if one.error is not None and one.path.exists()]
        stale = f"; what lies there as {', '.join(older)} is of an earlier export" if older else ""
        super().__init__(f"{'; '.join(failed)}; {f'written: {written}' if written else 'no file was written'}{stale}")


def variants_of(static: Made | None, free: Made | None, cases: list[Expected], forms: Sequence[str]) -> list[Variant]:
    """Return the files of these forms: static (tried on the first case only), dynamic, float16.

    Args:
        static, free: the graph of fixed sizes and the dynamic one; ``None`` where no form needs it.
        cases: what the files are tried on.
        forms: of :data:`utils.export.forms.FORMS`.
    """
    variants = []
    if static is not None and STATIC in forms:
        variants.append(Variant("", static, cases[:1]))
    if free is not None and DYNAMIC in forms:
        variants.append(Variant("_dyn", free, cases))
    if free is not None and HALF in forms:
        variants.append(_half(free, cases))
    return variants


def _half(free: Made, cases: list[Expected]) -> Variant:
    if isinstance(free, ModelError):
        return Variant("_float16_dyn", free, cases, "float16")
    try:
        return Variant("_float16_dyn", to_float16(free), cases, "float16", free)
    except ModelError as error:
        return Variant("_float16_dyn", error, cases, "float16")


def write_onnx_files(
    stem: Path, variants: Sequence[Variant], notes: ModelNotes, tolerances: Mapping[str, float] = TOLERANCES
) -> list[ExportResult]:
    """Check, run and compare every variant, then put the files of those that passed in place.

    Nothing is replaced until every variant has been tried; each file is then replaced in one step. Weights above 2 GiB
    go to ``<file>.data`` beside it.

    Args:
        stem: path and start of the file names; the folder is made where it is missing.
        variants: what to write.
        notes: goes into the files' ``metadata_props``, together with each file's largest relative error.
        tolerances: largest relative error allowed, by the variant's dtype.

    Raises:
        ExportError: a variant has no graph, does not pass the checker, or its error is above its tolerance; the files
            of the others are there.
        ModelError: the folder cannot be written.
    """
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=stem.parent) as folder:
            made = []
            for variant in variants:
                path = Path(folder, f"{stem.name}{variant.suffix}.onnx")
                made.append(_tried(path, stem.parent / path.name, variant, notes, tolerances[variant.dtype]))
            # Data files sort behind their models ("x.onnx" < "x.onnx.data"): in reverse, they are there first.
            for file in sorted(Path(folder).iterdir(), reverse=True):
                os.replace(file, stem.parent / file.name)
    except OSError as error:
        raise ModelError(f"{stem.parent}: cannot write the exported files: {error}; choose another folder") from error
    if any(one.error is not None for one in made):
        raise ExportError(made)
    return made


def _tried(path: Path, final: Path, variant: Variant, notes: ModelNotes, tolerance: float) -> ExportResult:
    """Write one file to a temporary folder; where it fails, say why and leave nothing."""
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
    """Write one file, check it, run it, and add its notes; return its relative error and its foreign operators."""
    import onnx

    from engine.onnx import save_model

    foreign = foreign_ops(model)
    save_model(model, path)  # beyond 2 GiB with its weights in <file>.data
    _check(path, variant.dtype)
    error = None if foreign else _compared(path, variant, model, tolerance)
    noted = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(noted, dict(sorted(notes.metadata(error).items())))
    path.write_bytes(noted.SerializeToString(deterministic=True))
    return error, foreign


_WITHOUT = {"float16": "; pass float16=False to do without"}
"""The way out where a form fails, by its precision."""


def _check(path: Path, dtype: str) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)  # by path: the only way for files above 2 GiB
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        said = f"onnx.checker refuses the exported model: {first_line(error)}"
        raise ModelError(f"{said}{_WITHOUT.get(dtype, '')}") from error


def _compared(path: Path, variant: Variant, model: ModelProto, tolerance: float) -> float:
    """Return the largest relative error over the variant's cases; raise where it is above the tolerance."""
    worst = Gap("", 0.0)
    with open_engine("onnx", EngineSpec(ckpt=path, dtype=variant.dtype)) as engine:
        for case in variant.cases:
            got = _got(engine, case, variant)
            gap = widest_gap(_names(model), got, case.wanted, variant.dtype)
            if gap.error > tolerance:
                gap = _but_for_ties(variant, model, case, got, tolerance) or gap
            worst = max(worst, gap, key=lambda one: one.error)
    if worst.error > tolerance:
        raise ModelError(_differs(worst, variant.dtype, tolerance))
    return worst.error


def _got(engine: Engine, case: Expected, variant: Variant) -> list[Array]:
    """Return the file's outputs for one case; say where it cannot be run for other sizes than the example's."""
    try:
        return run(engine, case.inputs, variant.dtype)
    except TecoInferError as error:
        if case is variant.cases[0]:
            raise
        shapes = [list(x.shape) for x in case.inputs]
        raise ModelError(
            f"the file holds sizes of the example as constants, it cannot run inputs of shapes {shapes}: {error}; "
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


def _but_for_ties(
    variant: Variant, model: ModelProto, case: Expected, got: list[Array], tolerance: float
) -> Gap | None:
    """Return the gap that is left when both sides pick the same of near ties; ``None`` where that explains nothing."""
    names, inputs, whole = _names(model), case.inputs, variant.reference
    if whole is None:
        return _source_picks(model, case, tolerance)
    made = choices(whole)
    if not made:
        return None
    plain = widest_gap(names, answers(whole, inputs, "float32"), case.wanted, "float32")
    if plain.error > tolerance and _source_picks(whole, case, tolerance) is None:
        return None  # it is no measure of anything
    found, rank = with_picks(whole, made, inputs, picks_inside(model, made, inputs, variant.dtype))
    return _within(widest_gap(names, got, found, variant.dtype), rank, tolerance)


def _source_picks(model: ModelProto, case: Expected, tolerance: float) -> Gap | None:
    """Return the gap between a float32 model that picks what the source model's outputs say, and those outputs."""
    made = choices(model)
    picks = picks_given(model, made, case.wanted)
    if not picks:
        return None
    found, rank = with_picks(model, made, case.inputs, picks)
    return _within(widest_gap(_names(model), found, case.wanted, "float32"), rank, tolerance)


def _within(gap: Gap, rank: float, tolerance: float) -> Gap | None:
    error = max(gap.error, rank)
    return Gap(gap.name, error) if error <= tolerance else None
