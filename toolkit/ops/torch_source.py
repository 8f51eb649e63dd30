"""A torch module before its export; torch is imported only where one is named."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.base import ConfigError, ModelError, TargetError
from toolkit.ops.judge import Finding, judge
from toolkit.ops.needs import Need
from toolkit.ops.table import Table

_EXPORTER = "the exporter has no way to write it"
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
"""Leaf modules and the ONNX operator each is known to become."""


def is_torch_source(text: str) -> bool:
    """Say whether a command's MODEL is ``module:name`` or ``file.py:name``."""
    place, colon, name = text.rpartition(":")
    return bool(colon) and name.isidentifier() and not Path(text).exists() and len(place) > 1


def load_module(source: str) -> Any:
    """Return the torch module that ``module:name`` or ``file.py:name`` means; a class or function is called.

    Raises:
        ConfigError: there is no such file, module or name, or it is no torch module.
        TargetError: torch is not installed.
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
            raise ConfigError(f"{source} failed: {_line(error)}; name a function that needs no arguments") from error
    if not operators.is_module(found):
        raise ConfigError(f"{source} is a {type(found).__name__}, not a torch module")
    return found


def _operators() -> Any:
    try:
        from utils.export import torch_operators
    except ImportError as error:
        raise TargetError(f'a torch module needs torch ({error}); run: pip install ".[torch]"') from error
    return torch_operators


def _imported(place: str, source: str) -> Any:
    try:
        if not place.endswith(".py"):
            return _from_here(place)
        if not Path(place).is_file():
            raise ConfigError(f"{source}: file {place} does not exist")
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        assert spec is not None  # noqa: S101 - every .py file has one
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{source}: cannot import {place}: {_line(error)}") from error
    return module


def _from_here(name: str) -> Any:
    """Import a module, one of the working folder too, as ``python -m`` would."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove("")


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def judge_torch(
    source: str, table: Table, shapes: Sequence[Sequence[int]]
) -> tuple[list[Finding], list[str], dict[str, Any]]:
    """Judge a torch module: what it would be as ONNX, or where it cannot be exported, its own operators.

    Args:
        source: ``module:name``. table: of the target. shapes: one per argument of ``forward``; without any, the module
            is only asked for its parts.

    Returns:
        Findings, notes, and for the JSON the torch operators.
    """
    model, operators = load_module(source), _operators()
    if not shapes:
        note = "judged by its parts alone; pass --shape INPUT=1,3,224,224 to trace it"
        return [_part(name, names, table) for name, names in operators.module_classes(model).items()], [note], {}
    inputs = operators.example(shapes)
    traced = operators.torch_operators(model, inputs)
    data = {"torch_operators": [{"name": one.name, "dtypes": one.dtypes, "modules": one.modules} for one in traced]}
    try:
        exported = operators.to_onnx(model, inputs)
    except ModelError as error:
        return [_unexported(one, table) for one in traced], [str(error)], data
    from engine.onnx_graph import infer_shapes
    from engine.sdaa.float16 import inlined

    return judge(infer_shapes(inlined(exported)), table), ["exported in memory; nothing was written"], data


def _part(name: str, names: list[str], table: Table) -> Finding:
    op = _MODULES.get(name, "")
    entry = table.operator(op) if op else None
    need = _need(f"{op or '?'} (nn.{name})", names, [], [])
    if entry is not None:
        return Finding(need, entry.level, entry.source, entry.fix)
    return Finding(need, "simulated", "not in the table" if op else "what it becomes is known only after tracing")


def _unexported(one: Any, table: Table) -> Finding:
    from toolkit.ops.judge import CUSTOM

    need = _need(one.name, one.modules, one.dtypes, one.shapes)
    if one.exportable is False:
        return Finding(need, "missing", _EXPORTER, CUSTOM)
    known = [table.dtypes[name] for name in one.dtypes if name in table.dtypes]
    bad = next((entry for entry in known if entry.level in ("host", "missing")), None)
    if bad is not None:
        return Finding(need, bad.level, bad.source, bad.fix)
    return Finding(need, "simulated", "the exporter can write it")


def _need(op: str, nodes: list[str], dtypes: list[str], shapes: list[str]) -> Need:
    return Need(op, 0, (), tuple(dtypes), {}, shapes, None, False, nodes)
