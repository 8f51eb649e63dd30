"""Operators of a torch module before its export; torch is imported when needed."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, ModelError, TargetError
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.source_file import import_file
from tecoinfer_modelzoo.text import typed_reason
from toolkit.graph.inputs import Shapes
from toolkit.ops.judge import Judgement, dynamic_notes, judge
from toolkit.ops.needs import Need
from toolkit.ops.table import Table

if TYPE_CHECKING:
    from toolkit.ops.trial import Trial

_EXPORTER = "the exporter does not support it"
_BY_PARTS = "judged by its submodules only; pass --shape INPUT=1,3,224,224 to trace it"
_MODULES = {
    "AdaptiveAvgPool2d": "GlobalAveragePool",
    "AvgPool2d": "AveragePool",
    "BatchNorm2d": "BatchNormalization",
    "Conv1d": "Conv",
    "Conv2d": "Conv",
    "ConvTranspose2d": "ConvTranspose",
    "Embedding": "Gather",
    "Flatten": "Flatten",
    "GELU": "Gelu",
    "GRU": "GRU",
    "Hardswish": "HardSwish",
    "LSTM": "LSTM",
    "LayerNorm": "LayerNormalization",
    "Linear": "Gemm",
    "MaxPool2d": "MaxPool",
    "ReLU": "Relu",
    "Sigmoid": "Sigmoid",
    "Softmax": "Softmax",
    "Tanh": "Tanh",
    "Upsample": "Resize",
}
"""Leaf modules -> ONNX operator after the export."""
_GONE = ("nn.Dropout", "nn.Dropout1d", "nn.Dropout2d", "nn.Dropout3d", "nn.Identity")
"""Leaf modules without an operator after the export."""


def is_torch_source(text: str) -> bool:
    """Return whether MODEL is ``module:name`` or ``file.py:name``."""
    place, colon, name = text.rpartition(":")
    return bool(colon) and name.isidentifier() and not os.path.exists(text) and len(place) > 1


def load_module(source: str) -> Any:
    """Return the torch module of ``module:name`` or ``file.py:name``; a class or function is called.

    Raise ConfigError if it does not exist, or is not a torch module, TargetError if torch is not installed.
    """
    operators = _operators()
    place, _, name = source.rpartition(":")
    found = getattr(_imported(place, source), name, None)
    if found is None:
        raise ConfigError(f"{place} has no {name!r}; pass MODULE:NAME with a module, its class, or a function")
    if not operators.is_module(found) and callable(found):
        try:
            found = found()
        except Exception as error:
            why = typed_reason(error)[:300]
            raise ConfigError(f"{source} failed: {why}; pass a function without required arguments") from error
    if not operators.is_module(found):
        raise ConfigError(f"{source} is of type {type(found).__name__}, not a torch module")
    return found


def _operators() -> Any:
    try:
        from utils.export import torch_operators
    except ImportError as error:
        raise TargetError(f"a torch module needs torch ({error}); run: {install_command('torch')}") from error
    return torch_operators


def _imported(place: str, source: str) -> Any:
    try:
        if not place.endswith(".py"):
            with _found_in(""):
                return importlib.import_module(place)
        if not os.path.isfile(place):
            raise ConfigError(f"{source}: file {place} does not exist")
        return _from_file(Path(place))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{source}: cannot import {place}: {typed_reason(error)[:300]}") from error


def _from_file(file: Path) -> Any:
    """Import a file as ``python file.py`` would, with its folder on the path."""
    with _found_in(str(file.resolve().parent)):
        return import_file(file, f"teco_ops_{file.stem}")


@contextmanager
def _found_in(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def judge_torch(
    source: str, table: Table, trial: Trial | None, shapes: Shapes, dtypes: Mapping[str, str]
) -> tuple[list[Judgement], list[str], dict[str, Any]]:
    """Judge the operators of an exported torch module, or its torch operators if it cannot be exported.

    Args:
        source: ``module:name``. table: of the target. trial: tries a model on the target.
        shapes: shapes of the arguments of ``forward`` by name; if empty, only submodules are judged.
        dtypes: dtypes of arguments that are not float32.

    Returns:
        Judgements, notes, and the torch operators for the JSON.

    Raise ConfigError if the source or an argument does not exist, ModelError if the module cannot be traced.
    """
    model, operators = load_module(source), _operators()
    if not shapes:
        _no_argument("", dtypes)
        return _parts(model, operators.module_classes(model), table), [_BY_PARTS], {}
    _no_argument(", ".join(shapes), dtypes.keys() - shapes.keys())
    inputs = operators.example(shapes, dtypes)
    args, named = _call(source, model, inputs)
    traced = _traced(operators, model, args, named, shapes.keys() - dtypes.keys())
    data = {"torch_operators": [{"name": one.name, "dtypes": one.dtypes, "modules": one.modules} for one in traced]}
    try:
        exported = operators.to_onnx(model, args, named)
    except ModelError as error:
        return [_unexported(one, table) for one in traced], [str(error)], data
    from engine.onnx import infer_shapes
    from engine.sdaa import inlined

    found = judge(infer_shapes(inlined(exported)), table, trial)
    return found, ["exported in memory; no file was written", *dynamic_notes(found)], data


def _traced(
    operators: Any, model: Any, args: tuple[Any, ...], named: Mapping[str, Any], without_dtype: Iterable[str]
) -> list[Any]:
    try:
        found: list[Any] = operators.torch_operators(model, args, named)
    except ModelError as error:
        if "types: Long, Int" not in str(error):
            raise
        fix = " ".join(f"--input_dtype {name}=int64" for name in sorted(without_dtype))
        raise ModelError(f"{error}; integer inputs need a dtype: {fix}") from error
    return found


def _no_argument(known: str, names: Iterable[str]) -> None:
    wrong = next(iter(sorted(names)), None)
    if wrong is not None:
        raise ConfigError(f"--input_dtype {wrong}: pass --shape {wrong}=... too (given shapes: {known or 'none'})")


def _call(source: str, model: Any, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of ``forward``, in order for ``*args``; raise ConfigError for unknown or missing ones."""
    found = inspect.signature(model.forward).parameters.values()
    kinds = {one.kind for one in found}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return tuple(inputs.values()), {}
    free = inspect.Parameter.VAR_KEYWORD
    takes = {one.name: one.default is one.empty for one in found if one.kind is not free}
    wrong = [] if free in kinds else sorted(inputs.keys() - takes.keys())
    why = [f"forward has no argument {name!r}" for name in wrong]
    why += [f"argument {name!r} of forward is missing" for name, need in takes.items() if need and name not in inputs]
    if why:
        raise ConfigError(f"{source}: {why[0]}; its arguments: {', '.join(takes) or 'none'}: pass --shape NAME=N,N,..")
    return (), dict(inputs)


def _parts(model: Any, classes: Mapping[str, list[str]], table: Table) -> list[Judgement]:
    """Judge a module by its submodules; operators of ``forward`` itself are unknown."""
    found = [_part(name, names, table) for name, names in classes.items() if name not in _GONE]
    if any(True for _ in model.children()):
        need = _need("? (forward)", ["(itself)"], [], [])
        found.append(Judgement(need, "unknown", "operators between the submodules are known only after tracing"))
    return found


def _part(name: str, names: list[str], table: Table) -> Judgement:
    op = _MODULES.get(name.removeprefix("nn."), "") if name.startswith("nn.") else ""
    entry = table.operator(op) if op else None
    need = _need(f"{op or '?'} ({name})", names, [], [])
    if entry is not None:
        return Judgement(need, entry.level, entry.source, entry.fix)
    return Judgement(need, "unknown", "not in the table" if op else "its operators are known only after tracing")


def _unexported(one: Any, table: Table) -> Judgement:
    from toolkit.ops.judge import CUSTOM

    need = _need(one.name, one.modules, one.dtypes, one.shapes)
    if one.exportable is False:
        return Judgement(need, "missing", _EXPORTER, CUSTOM)
    known = [table.dtypes[name] for name in one.dtypes if name in table.dtypes]
    bad = next((entry for entry in known if entry.lacking), None)
    if bad is not None:
        return Judgement(need, bad.level, bad.source, bad.fix)
    return Judgement(need, "unknown", "the exporter supports it; its operators are known only after the export")


def _need(op: str, nodes: list[str], dtypes: list[str], shapes: list[str]) -> Need:
    return Need(op, 0, (), tuple(dtypes), {}, shapes, None, nodes=nodes)
