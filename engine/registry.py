"""Table of targets and their engine classes.

Built-in targets are listed as ``module:Class``, so opening one imports only its own file. A third party adds targets by
the entry-point group ``tecoinfer.engines`` or by :func:`register`; its target takes precedence over a built-in one of
the same name, and a warning and :func:`provider` then show its package.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.base import Engine, EngineSpec, ModelError, TargetError, TecoInferError
from engine.foreign import opening_failure, reason, unusable
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.interrupts import may_be_user_interrupt
from tecoinfer_modelzoo.text import did_you_mean, typed_reason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "tecoinfer.engines"

_log = logging.getLogger(__name__)


class _Builtin(NamedTuple):
    where: str  # ``module:Class``
    computes: str  # short description of the target
    needs: tuple[str, ...] = ()  # modules, or ``module/file in its folder``, of which at least one must be installed
    extra: str = ""  # the optional dependency group of the zoo that installs them


_BUILTIN = {
    "cpu": _Builtin("engine.backends.cpu:CpuEngine", "OpenVINO or ONNX Runtime on the CPU, whichever is faster"),
    "cuda": _Builtin(
        "engine.backends.cuda:CudaEngine",
        "TensorRT, else ONNX Runtime, on an NVIDIA GPU",
        needs=("tensorrt", "onnxruntime/capi/libonnxruntime_providers_cuda.so"),
        extra="tensorrt",
    ),
    "null": _Builtin("engine.backends.null:NullEngine", "nothing computes; for tests"),
    "onnx": _Builtin("engine.backends.ort:OnnxRuntimeEngine", "ONNX Runtime on the CPU; the accuracy baseline"),
    "sdaa": _Builtin("engine.sdaa.engine:SdaaEngine", "the simulated T1 card"),
    "tvm": _Builtin("engine.backends.tvm:TvmEngine", "Apache TVM, compiled", needs=("tvm",), extra="tvm"),
}

_registered: dict[str, type[Engine]] = {}


def register(target: str, engine_class: type[Engine]) -> None:
    """Use ``engine_class`` for ``target`` in this process, before entry points and built-ins."""
    _registered[target] = engine_class


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, EntryPoint]:
    if not _group_is_mentioned():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _group_is_mentioned() -> bool:
    """Return whether an installed distribution has the entry-point group; faster than importlib.metadata."""
    section = f"[{ENTRY_POINT_GROUP}]".encode()
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # an archive, or no longer there
            continue
        for info in (name for name in names if name.endswith("-info")):
            try:
                with open(f"{folder or '.'}/{info}/entry_points.txt", "rb", buffering=0) as file:
                    if section in file.read():
                        return True
            except OSError:  # most distributions have no entry points
                continue
    return False


def _installed(builtin: _Builtin) -> bool:
    return not builtin.needs or any(_present(name) for name in builtin.needs)


def _present(name: str) -> bool:
    module, _, file = name.partition("/")
    spec = importlib.util.find_spec(module)
    return spec is not None and all(
        os.path.isfile(os.path.join(folder, file)) for folder in (spec.submodule_search_locations or ()) if file
    )


def available_targets() -> list[str]:
    """Return the names :func:`open_engine` accepts and whose packages are installed, sorted."""
    return sorted(
        {*_registered, *_entry_points(), *(name for name, builtin in _BUILTIN.items() if _installed(builtin))}
    )


def unavailable_targets() -> dict[str, str]:
    """Return the built-in targets whose packages are missing, sorted, each with the command that installs them."""
    names = available_targets()
    return {name: install_command(builtin.extra) for name, builtin in sorted(_BUILTIN.items()) if name not in names}


def computes(target: str) -> str | None:
    """Return the description of a built-in target, or ``None`` for other names."""
    return _BUILTIN[target].computes if target in _BUILTIN else None


def _unknown(target: str) -> TargetError:
    names = available_targets()
    missing = [f"{name}: {command}" for name, command in unavailable_targets().items()]
    hint = did_you_mean(target, [*names, *_BUILTIN], cutoff=0.5)
    others = f" ({'; '.join(missing)})" if missing else ""
    return TargetError(f"unknown target {target!r};{hint} available: {', '.join(names)}{others}")


def engine_class(target: str) -> type[Engine]:
    """Return a target's class: registered, third party's or built-in; raise TargetError if none can be loaded."""
    if target in _registered:
        return _registered[target]
    if target in _entry_points():
        return _third_party(_entry_points()[target])
    if target not in _BUILTIN:
        raise _unknown(target)
    module, _, name = _BUILTIN[target].where.partition(":")
    found: type[Engine] = getattr(importlib.import_module(module), name)
    return found


def _third_party(point: EntryPoint) -> type[Engine]:
    package = point.dist.name if point.dist else point.value
    try:
        found: Any = point.load()
    except BaseException as error:  # a vendor's import may raise anything, SystemExit included
        if isinstance(error, KeyboardInterrupt) and may_be_user_interrupt():
            raise
        raise TargetError(
            f"target {point.name!r} is registered by {package} ({point.value}) but cannot be loaded: {reason(error)}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise TargetError(
            f"target {point.name!r} is registered by {package} ({point.value}), which is not an engine.Engine subclass"
        )
    if point.name in _BUILTIN:
        _log.warning("target %r is served by %s, not by the built-in engine", point.name, package)
    return found


def provider(target: str) -> str:
    """Return the source of a target: ``"built-in"``, ``"registered"``, or the third party's package and version."""
    if target in _registered:
        return "registered"
    point = _entry_points().get(target)
    if point is None:
        return "built-in"
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def default_dtype(target: str) -> str:
    """Return the default precision of a target (``"float32"`` for the baseline)."""
    return engine_class(target).default_dtype


def _unforeseen(spec: EngineSpec, target: str, error: Exception) -> ModelError:
    """Return the error for a model that made a target fail with an exception of an unexpected type."""
    try:
        engine_class("onnx")(EngineSpec(ckpt=spec.ckpt)).release()
    except ModelError as refused:
        return refused
    except Exception:  # noqa: BLE001 - the first error is reported
        _log.debug("ONNX Runtime cannot open %s either", spec.ckpt, exc_info=True)
    return ModelError(
        f"{spec.ckpt}: target {target} cannot open it because of an unexpected error ({typed_reason(error, 300)}); "
        "report the model to the zoo, and use --target onnx until then"
    )


def _own(target: str, spec: EngineSpec) -> Engine:
    """Open a model on an engine of the zoo."""
    try:
        return engine_class(target).opened(spec)
    except ModelError as error:
        if type(error) is not ModelError or str(spec.ckpt) in "".join(map(str, error.args)):
            raise
        raise ModelError(f"{spec.ckpt}: {error}") from error
    except (TecoInferError, OSError):
        raise
    except MemoryError as error:
        raise ModelError(
            f"{spec.ckpt}: target {target} has not enough memory to open it ({typed_reason(error, 300)}); free memory, "
            "or export the model for smaller inputs"
        ) from error
    except Exception as error:
        raise _unforeseen(spec, target, error) from error


def _foreign(target: str, spec: EngineSpec) -> Engine:
    """Open a model on a third party's engine, which may fail in any way; raise TargetError if unusable."""
    who = f"target {target!r} ({provider(target)})"
    try:
        engine = engine_class(target).opened(spec)
        opens = "" if isinstance(engine, Engine) else f"opens a {type(engine).__name__}, not an engine.Engine"
        why = opens or unusable(engine)
    except BaseException as error:
        found = opening_failure(error, who, str(spec.ckpt))
        if found is error:
            raise
        raise found from error
    if why:
        raise TargetError(f"{spec.ckpt}: {who} {why}; report it to its author")
    return engine


def open_engine(target: str, spec: EngineSpec) -> Engine:
    """Open the model of ``spec`` on ``target``; in int8 its ``calibrate`` also compares it with float32.

    Unexpected exceptions of a built-in target become a ``ModelError``, with ONNX Runtime's message if it refuses the
    file too. Exceptions of a third party's engine become an ``EngineError``, unless they are errors of the zoo.

    Raises:
        TargetError: the target is unknown or its packages are missing.
        ModelError, PassError, ConfigError: the model, its pass file or an option is invalid.
        EngineError: a third party's engine failed.
    """
    foreign = getattr(engine_class(target), "_foreign", True)
    engine = _foreign(target, spec) if foreign else _own(target, spec)
    engine._target = target
    if engine.dtype == "int8":
        from engine.int8 import measured

        exact = replace(spec, dtype="float32", pass_path=None, streams=1)
        measured(engine, lambda: open_engine("onnx", exact))
    return engine
