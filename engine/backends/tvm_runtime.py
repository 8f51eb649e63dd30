"""Apache TVM: graphs compiled to libraries, and libraries run, for target ``tvm``.

Imports tvm inside its functions, as do the modules that it uses: :mod:`engine.backends.tvm_schedule`,
:mod:`engine.backends.tvm_recurrent` and :mod:`engine.backends.tvm_tune`.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends import tvm_recurrent, tvm_schedule, tvm_tune
from engine.base import Array, ConfigError, EngineError, ModelError, TargetError, usable_cores
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.process.native_calls import native
from tecoinfer_modelzoo.text import one_line, shortened

if TYPE_CHECKING:
    from onnx import ModelProto

TARGET_VARIABLE = "TECO_TVM_TARGET"
"""Environment variable of the target of TVM: a kind (``cuda``), a tag, or JSON; default: the host's processor."""

_MESSAGE = 200  # length up to which TVM's messages are quoted
_CONVERTING = re.compile(r"Error converting operator (\w+)")
_UNSUPPORTED = "not supported for frontend ONNX: "
_OWN_LINE = re.compile(rb"\[\d\d:\d\d:\d\d\] \S+:\d+: ")  # beginning of a line of TVM's log

_log = logging.getLogger(__name__)

_compiling = threading.Lock()
"""TVM's compiler has global state, and so has the redirection of its messages."""

_local = threading.local()


class Compiler:
    """TVM for one target: compile graphs, load and save libraries.

    Attributes:
        version: of TVM. target: as JSON, with the processor and its features. kind: of the target, such as ``llvm``.
        processor: name and features that compiled code needs; empty if it runs on any processor.
        loops: whether it compiles recurrent layers as loops (:mod:`engine.backends.tvm_recurrent`).
        problem: why tiles of the last graph were not measured (:mod:`engine.backends.tvm_tune`), or "".

    Args:
        threads: of a call, for which tiles are measured; 0: every core.

    Raises:
        TargetError: TVM is missing, or its target has no device here or no code generator.
        ConfigError: ``TECO_TVM_TARGET`` is not a target, or ``TECO_TVM_TUNE`` not a number, or not for this target.
    """

    def __init__(self, threads: int = 0) -> None:
        tvm = _import()
        self.version: str = tvm.__version__
        self._tvm = tvm
        given = os.environ.get(TARGET_VARIABLE, "")
        with _quiet():
            self._target = _target(tvm, given)
            self.kind = str(self._target.kind.name)
            self._device = _device(tvm, self.kind, given)
        self.target = str(self._target)
        self.schedule = tvm_schedule.VERSION if self.kind == "llvm" else "TVM's own"
        self._tuner = self._tuned(threads or usable_cores())
        self.loops = self.kind == "llvm" and tvm_recurrent.converts_loops()
        found = json.loads(self.target)
        self.processor = " ".join([found["mcpu"], *found.get("mattr", ())]) if "mcpu" in found else ""

    @property
    def name(self) -> str:
        """The kind of the target and its processor, for people."""
        processor = self.processor.partition(" ")[0]
        return f"{self.kind} {processor}" if processor else self.kind

    def runs(self, processor: str) -> bool:
        """Return whether code that needs a processor (:attr:`processor`) runs here: any, this target's or the host."""
        return processor in ("", self.processor) or processor == _host(self._tvm)

    def build(self, model: ModelProto, tiled: bool = True) -> tuple[Any, bool]:
        """Compile a graph with fixed shapes; return the library, and whether it has kernels for several threads.

        ``tiled``: with channels last and the schedule for processors; ``False`` leaves layouts and loops to TVM.

        Raise ModelError, with the operator if it is known, if TVM cannot.
        """
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        said, self.problem = io.StringIO(), ""
        try:
            with _working(said), tvm_recurrent.converting_loops():
                module = from_onnx(model, keep_params_in_input=False, sanitize_input_names=True)
            if tiled and self.kind == "llvm":
                try:
                    return self._scheduled(module, said)
                except Exception as error:  # noqa: BLE001 -- for layouts or loops that TVM cannot compile
                    _log.info("compiled without the schedule of the zoo: %s", _short(error))
            with _working(said):
                pipeline = _pipeline(relax, self._target)
                return relax.build(module, self._target, relax_pipeline=pipeline), self.kind != "llvm"
        except Exception as error:  # TVM raises errors of many types
            raise ModelError(f"TVM {self.version} cannot compile the model: {_reason(error, said)}") from error

    def _scheduled(self, module: Any, said: io.StringIO) -> tuple[Any, bool]:
        """Compile a module with the schedule for processors, with measured tiles if there is a tuner."""
        from tvm import relax

        with _working(said), self._target:
            kernels = _lowered(relax, self._target, module)
            scripts = _scripts(kernels) if self._tuner else {}
        tiles: dict[str, tvm_schedule.Tile] = {}
        if self._tuner:  # by another process, in minutes, and so not as one call of native code
            tiles, self.problem = self._tuner.tiles(scripts), self._tuner.problem
        with _working(said), self._target:
            made, divided = tvm_schedule.scheduled(kernels, tiles)
            return relax.build(made, self._target, relax_pipeline=_finishing(self._target)), divided

    def _tuned(self, threads: int) -> tvm_tune.Tuner | None:
        """Return what measures tiles, if it is asked for; raise ConfigError if it cannot be."""
        self.problem = ""
        if not (count := tvm_tune.trials()):
            return None
        if self.kind != "llvm":
            raise ConfigError(f"{tvm_tune.TUNE_VARIABLE} is for targets of kind llvm, not {self.kind}; unset it")
        self.schedule += f", {tvm_tune.VERSION} of {count} tiles, {threads} threads"
        return tvm_tune.Tuner(self.target, self.version, count, threads)

    @property
    def links(self) -> bool:
        """Whether the host has a linker, without which no library can be written."""
        from tvm.support import cc

        try:
            return bool(cc.get_cc())
        except ValueError:
            return False

    def save(self, library: Any, path: Path) -> None:
        """Write a compiled library to a path; raise OSError if the linker fails."""
        try:
            with _compiling, _quiet():
                library.export_library(str(path))
        except RuntimeError as error:
            raise OSError(errno.EIO, f"the linker failed: {_short(error)}", str(path)) from error

    def load(self, path: Path) -> Any:
        """Load a library, which may run code of it; raise ModelError if TVM cannot."""
        try:
            with _compiling, _quiet():
                return self._tvm.runtime.load_module(str(path.absolute()))
        except Exception as error:  # of dlopen, or of TVM
            raise ModelError(f"{path}: TVM {self.version} cannot load it: {_short(error)}; save it again") from error

    def session(self, library: Any) -> Callable[[Sequence[Array], int], list[Array]]:
        """Return a function that runs a library, one call at a time, on arrays with a number of threads.

        0 threads: no kernel of the library is for several threads.
        """
        from tvm import relax

        with _compiling, _quiet():
            main = relax.VirtualMachine(library, self._device)["main"]
        tensor, device = self._tvm.runtime.tensor, self._device

        def compute(arrays: Sequence[Array], threads: int) -> list[Array]:
            if threads:
                _use_threads(threads)
            found = main(*[tensor(np.ascontiguousarray(array), device) for array in arrays])
            parts = [found] if hasattr(found, "numpy") else list(found)
            return [part.numpy() for part in parts]

        def run(arrays: Sequence[Array], threads: int) -> list[Array]:
            try:
                with native:
                    return _callers().submit(compute, arrays, threads).result() if threads else compute(arrays, 0)
            except Exception as error:  # TVM raises errors of many types
                raise EngineError(f"TVM failed while computing: {_short(error)}") from error

        return run


def _import() -> Any:
    """Import TVM with threads that are not pinned to cores and do not spin.

    Pinning narrows the affinity that :mod:`engine.host.cores` reads; spinning threads occupy the cores that decode. By
    itself TVM uses half of the cores, taking the others for hyper-threads.
    """
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cores()))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tvm
            import tvm.relax.frontend.onnx
    except (ImportError, OSError, RuntimeError) as error:
        command = install_command("tvm")
        raise TargetError(f"target 'tvm': TVM cannot be imported ({_short(error)}); run: {command}") from error
    return tvm


def _target(tvm: Any, given: str) -> Any:
    """Return a target of TVM; raise ConfigError if the given one is unknown."""
    if not given:
        name, features = _host_parts(tvm)
        return tvm.target.Target({"kind": "llvm", "mcpu": name, "mattr": features})
    try:
        return tvm.target.Target(json.loads(given) if given.lstrip().startswith("{") else given)
    except Exception as error:  # TVM raises errors of many types
        raise ConfigError(
            f"{TARGET_VARIABLE}={shortened(given)}: {_short(error)}; pass the kind of a target, such as llvm, a tag, "
            'or JSON such as {"kind": "llvm", "mcpu": "x86-64-v3"}'
        ) from error


def _host_parts(tvm: Any) -> tuple[str, list[str]]:
    """Return name and features of the host's processor, as LLVM has them; a hypervisor may hide features of a name."""
    function = tvm.get_global_func
    name = str(function("tvm.codegen.llvm.GetHostCPUName")())
    features = function("tvm.codegen.llvm.GetHostCPUFeatures")()
    return name, sorted(f"{'+' if there else '-'}{feature}" for feature, there in features.items())


def _host(tvm: Any) -> str:
    """Return name and features of the host's processor, in the form of :attr:`Compiler.processor`."""
    name, features = _host_parts(tvm)
    return " ".join([name, *features])


def _device(tvm: Any, kind: str, given: str) -> Any:
    """Return the device of a kind of target; raise TargetError if there is none, or TVM cannot generate code for it."""
    enabled = kind == "llvm" or tvm.runtime.enabled(kind)
    try:
        device = tvm.cpu() if kind == "llvm" else tvm.device(kind)
    except ValueError:
        device = None
    if device is None or not enabled or not device.exist:
        why = "this TVM has no code generator for it" if not enabled else "no such device is found"
        raise TargetError(f"target 'tvm': {TARGET_VARIABLE}={shortened(given)}: {why}; unset it to use the processor")
    return device


def _pipeline(relax: Any, target: Any) -> Any:
    """Return TVM's own passes for a target; for a processor with kernels that keep NaN."""
    import tvm

    try:
        own = relax.get_default_pipeline(target)
    except ValueError:
        return "zero"  # a kind that TVM has no pipeline for, such as that of a vendor's fork
    return tvm.transform.Sequential([relax.transform.LegalizeOps(tvm_schedule.legalized()), own])


def _lowered(relax: Any, target: Any, module: Any) -> Any:
    """Return a module for a processor whose operators are kernels, which are not scheduled yet."""
    import tvm
    from tvm.relax.backend.cpu_generic import pipeline as parts

    passes = [
        *parts.library_dispatch_passes(target),
        relax.transform.LegalizeOps(tvm_schedule.legalized()),
        *parts.legalize_passes(target)[1:],  # without LegalizeOps
    ]
    return tvm.transform.Sequential(passes)(_channels_last(relax, module))


def _scripts(module: Any) -> dict[str, str]:
    """Return the kernels of a module as TVMScript, by name; equal ones have equal texts."""
    from tvm import tirx

    functions = [(str(name.name_hint), f) for name, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]
    return {name: function.with_attr("global_symbol", "main").script() for name, function in functions}


def _finishing(target: Any) -> Any:
    """Return TVM's own passes after scheduling."""
    import tvm
    from tvm.relax.backend.cpu_generic import pipeline as parts

    return tvm.transform.Sequential([*parts.dataflow_lower_passes(target), *parts.finalize_passes(target)])


def _channels_last(relax: Any, module: Any) -> Any:
    """Return a module whose convolutions have their channels last, where vectors of them fit any width of an image."""
    try:
        return relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})(module)
    except Exception as error:  # noqa: BLE001 -- TVM raises errors of many types, here for shapes that depend on values
        _log.debug("layouts are not converted: %s", _short(error))
        return module


def _use_threads(threads: int) -> None:
    """Set the number of threads of kernels that the calling thread starts; TVM has a pool for each calling thread."""
    if getattr(_local, "threads", 0) != threads:
        import tvm

        tvm.get_global_func("runtime.config_threadpool")(1, threads)
        _local.threads = threads


@cache
def _callers() -> ThreadPoolExecutor:
    """Return the threads that run kernels with several threads, as many as calls side by side.

    TVM has a pool of threads for each calling thread. After a fork, that of the main thread would have lost its threads
    and would end the process at its exit; these callers do not exist in the child, which starts its own.
    """
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="tvm")


def _in_child() -> None:
    global _compiling
    _compiling = threading.Lock()
    _callers.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _reason(error: Exception, said: io.StringIO) -> str:
    """Return why TVM refused a model: the operators that it lacks, or the one that it could not convert."""
    message = _short(error)
    if _UNSUPPORTED in message:
        return f"it lacks {', '.join(sorted(message.partition(_UNSUPPORTED)[2].split(', ')))}; use --target onnx"
    found = _CONVERTING.search(said.getvalue())
    return f"operator {found[1]}: {message}" if found else message


def _short(error: BaseException) -> str:
    """Return the last line of an error: TVM's messages begin with a stack of C++ functions."""
    lines = [line for line in str(error).strip().splitlines() if line.strip() and not line.startswith("#")]
    return shortened(one_line(lines[-1]) if lines else type(error).__name__, _MESSAGE, end=False)


@contextmanager
def _working(said: io.StringIO) -> Iterator[None]:
    """Run one part of a compilation at a time, with what TVM prints in a text."""
    with _compiling, native, _quiet(), redirect_stdout(said):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep TVM's log lines and warnings off standard error while it compiles or loads; others are written after."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(kept, 2)
                file.seek(0)
                for line in file:
                    if _OWN_LINE.match(line):
                        _log.debug("%s", line.decode(errors="replace").rstrip())
                    else:
                        os.write(2, line)
    finally:
        os.close(kept)
