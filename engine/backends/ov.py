"""OpenVINO on the CPU, used by target ``cpu``.

The only file that imports openvino.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from engine.backends.ov_guard import Guard
from engine.backends.ov_parts import Request, add_probes, exact_edges, parted, probe_names, probes_hold
from engine.base import Array, Engine, EngineError, EngineSpec, ModelError, TargetError, usable_cores
from engine.host.cores import host_slots
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.text import one_line, shortened

_PRECISION = {"float32": "f32", "bfloat16": "bf16"}

OV_ERRORS = (RuntimeError, TypeError, ValueError)
"""Exceptions of OpenVINO: C++ exceptions are raised as RuntimeError, invalid arguments as the others."""

_MESSAGE = 300  # length up to which OpenVINO's messages are quoted; some list every operator of the model
_MOST_BODIES = 10  # nesting depth of bodies: each level doubles OpenVINO's (2026.4) loading time, 7 s at 16

_WHERE = re.compile(r"(Exception from|Check '[^']*' failed at) \S+:\d+:? ?")
"""References to lines of OpenVINO's source code, at the start of its messages."""

_log = logging.getLogger(__name__)

_cores: list[Any] = []
_beginning = threading.Lock()


class OpenVinoEngine(Engine):
    """A model on OpenVINO's CPU device: in float32, in bfloat16, or, if it holds QuantizeLinear nodes, in int8.

    With ``streams`` above 1 each call computes with its share of the cores and holds one of the host's slots. Inputs
    and outputs keep the model's own dtypes; in bfloat16, nodes that integers pass through stay float32 up to those that
    are sensitive to their rounding.

    A call that the guard does not admit, or whose probes fail, is computed by ONNX Runtime in float32, which is opened
    for the first such call.

    Args:
        spec: what to open.
        guard: conditions under which OpenVINO computes the same as ONNX Runtime; ``None`` computes every call on
        OpenVINO.

    Raises:
        ModelError: the guard refuses the model, or OpenVINO cannot load it.
        TargetError: OpenVINO is missing, or does not support the dtype on this processor.
    """

    dtypes = ("float32", "bfloat16")
    outputs_owned = inputs_untouched = concurrent_calls = True

    def __init__(self, spec: EngineSpec, guard: Guard | None = None) -> None:
        super().__init__(spec)
        if guard is not None and guard.refusal:
            raise ModelError(f"{spec.ckpt}: OpenVINO's outputs would differ: {guard.refusal}")
        self._guard = guard
        self._judge: Engine | None = None
        self._judging = threading.Lock()
        openvino = _import()
        # OpenVINO's own signature has no symbols of dimensions.
        from engine.onnx.bounds import depth_of_bodies
        from engine.onnx.load import load_model
        from engine.onnx.view import metadata, signature

        model = load_model(spec.ckpt)
        if (depth := depth_of_bodies(model)) > _MOST_BODIES:
            raise ModelError(
                f"{spec.ckpt}: bodies of If, Loop or Scan are nested {depth} deep, which takes OpenVINO hours"
            )
        self.bind(*signature(model))
        self.metadata = metadata(model)
        self._edges = exact_edges(model) if self.dtype == "bfloat16" else set()
        del model
        self.streams = min(spec.streams, usable_cores())
        self._version = str(openvino.__version__).partition("-")[0]
        try:
            self._compiled = self._compile(openvino)
            # By name: a tensor that is both input and output, or listed twice, has only one port.
            names = [tensor.name for tensor in self.outputs]
            names += [] if guard is None else probe_names(guard)
            self._requests = [Request(self._compiled, names) for _ in range(self.streams)]
            _learn_dtypes(self._compiled)
        except TargetError:
            raise  # the processor, not the model
        except OV_ERRORS as error:
            raise ModelError(f"{spec.ckpt}: OpenVINO {self._version} cannot load the model: {_short(error)}") from error
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for request in self._requests:
            self._idle.put(request)
        self._names = [tensor.name for tensor in self.inputs]

    def _compile(self, openvino: Any) -> list[Any]:
        """Return the compiled float32 part and rest, if any; raise TargetError if bfloat16 is not supported."""
        core = _core(openvino)
        model = core.read_model(str(self.spec.ckpt))
        if self._guard is not None:
            add_probes(openvino, model, self._guard)
        model.reshape({tensor.name: [-1 if d is None else d for d in tensor.shape] for tensor in self.inputs})
        threads = max(1, usable_cores() // self.streams) * self.streams
        settings = {
            "NUM_STREAMS": self.streams,
            "INFERENCE_NUM_THREADS": threads,
            "ENABLE_CPU_PINNING": False,  # pinned threads block those that decode
        }
        compiled = []
        for part, dtype in zip(parted(openvino, model, self._edges), ("float32", self.dtype), strict=True):
            if part is not None:
                hint = {"INFERENCE_PRECISION_HINT": _PRECISION[dtype]}
                compiled.append(core.compile_model(part, "CPU", {**settings, **hint}))
                if dtype == "bfloat16" and compiled[-1].get_property(*hint) != openvino.Type.bf16:
                    raise TargetError("OpenVINO does not compute in bfloat16 on this processor; use --dtype float32")
        return compiled

    def describe(self) -> str:
        """Return the runtime, its version, device and dtype."""
        return f"OpenVINO {self._version} CPU, {self.dtype}"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run any batch: whole if the model's batch is dynamic, else in pieces of the static batch."""
        size = self.static_batch
        if size is None or inputs[self.lead].shape[self.batch_axis] == size:
            return self._run(inputs)
        return self.batching.in_pieces(self, self._run, inputs, size)

    def _run(self, arrays: list[Array]) -> list[Array]:
        guard = self._guard
        if guard is None:
            return self._computed(arrays)
        if not guard.admits(dict(zip(self._names, arrays, strict=True))):
            return self._judged(arrays)
        outputs = self._computed(arrays)
        count = len(self.outputs)
        return outputs[:count] if probes_hold(guard, outputs[count:]) else self._judged(arrays)

    def _judged(self, arrays: list[Array]) -> list[Array]:
        with self._judging:
            if self._judge is None:
                from engine.backends.ort import OnnxRuntimeEngine

                _log.info(
                    "%s: a call does not meet the conditions for OpenVINO; ONNX Runtime computes it", self.spec.ckpt
                )
                self._judge = OnnxRuntimeEngine(replace(self.spec, dtype="float32", streams=self.streams))
        return self._judge.infer(arrays)

    def _computed(self, arrays: list[Array]) -> list[Array]:
        """Compute on OpenVINO; return the outputs and the values of the probes."""
        with host_slots().taken(urgent=True) if self.streams > 1 else contextlib.nullcontext():
            request = self._idle.get()
            try:
                # The inputs are only read while this call waits; outputs are copied, as the request reuses its own.
                found: list[Array] = request.infer(dict(zip(self._names, arrays, strict=True)))
            except OV_ERRORS as error:
                raise EngineError(f"{self.spec.ckpt}: OpenVINO failed while computing: {_short(error)}") from error
            finally:
                self._idle.put(request)
        typed = [array.astype(tensor.dtype, copy=False) for array, tensor in zip(found, self.outputs, strict=False)]
        return typed + found[len(typed) :]

    def cancel(self) -> None:
        """Stop running calls between two operators of the model; they raise EngineError."""
        for request in self._requests:
            request.cancel()
        if self._judge is not None:
            self._judge.cancel()

    def close(self) -> None:
        """Free the compiled model and its weights."""
        self._requests = []  # for a late cancel()
        del self._compiled, self._idle
        if self._judge is not None:
            self._judge.release()


def _import() -> Any:
    """Import the package without its telemetry module, which reports each import to Intel."""
    report = "openvino_telemetry"
    hide = report not in sys.modules
    if hide:
        sys.modules[report] = None  # type: ignore[assignment]  # makes its import fail
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        command = install_command("openvino")
        raise TargetError(f"OpenVINO cannot be imported ({_short(error)}); run: {command}") from error
    finally:
        if hide:
            del sys.modules[report]


def _learn_dtypes(compiled: Sequence[Any]) -> None:
    """Read every port's NumPy type once, in one thread: two concurrent first calls deadlock (OpenVINO 2026.4)."""
    with _beginning:
        for port in (port for one in compiled for port in (*one.inputs, *one.outputs)):
            port.get_element_type().to_dtype()


def _core(openvino: Any) -> Any:
    """Return the only core of this process, which is never freed.

    The thread that creates OpenVINO's core gets an alternate stack for signal handlers (sigaltstack(2)), and the thread
    that destroys the core frees it. If these are different threads, the next Ctrl-C is a segmentation fault.
    """
    with _beginning:
        if not _cores:
            _cores.append(openvino.Core())
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_keep_core)
        return _cores[0]


def _keep_core() -> None:
    """Never free the core in a forked child: at exit that would wait for threads that the child does not have."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_cores[0]))


def _short(error: Exception) -> str:
    return shortened(_WHERE.sub("", one_line(error)), _MESSAGE, end=False)
