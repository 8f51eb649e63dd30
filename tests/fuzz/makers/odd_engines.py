"""Third-party engines that each misbehave in one way, installed by entry points."""

from __future__ import annotations

import builtins
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine import Array, Engine, EngineError, EngineSpec
from engine.backends.null import NullEngine


class Foreign(NullEngine):
    """Zeros of the model's shapes; a subclass changes them."""

    def infer(self, inputs: list[Array]) -> Any:
        return super().infer(inputs)


class Own(BaseException):
    """An error that is not an ``Exception``."""


class MuteError(Exception):
    """An error whose ``str()`` fails."""

    def __str__(self) -> str:
        raise ValueError("no text")


class MuteZooError(EngineError):
    """A zoo error whose ``str()`` exits the program."""

    def __str__(self) -> str:
        sys.exit(0)


def _raiser(make: Callable[[], BaseException]) -> Callable[[Any], Any]:
    def change(_: Any) -> Any:
        raise make()

    return change


def _endless_generator(results: Any) -> Iterator[Array]:
    yield from results


def _exit_in_a_thread(_: Any) -> Any:
    thread = threading.Thread(target=sys.exit, args=(0,))
    thread.start()
    thread.join()
    raise BrokenPipeError(32, "the process behind this engine ended")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "key_error": lambda: KeyError("tensor"),
    "runtime_error": lambda: RuntimeError("device busy"),
    "memory_error": MemoryError,
    "assertion_error": AssertionError,
    "exit_zero": lambda: SystemExit(0),
    "exit_none": SystemExit,
    "exit_text": lambda: SystemExit("eval_metric 1.0"),
    "generator_exit": GeneratorExit,
    "own_base": lambda: Own("outside"),
    "keyboard": KeyboardInterrupt,
    "escape": lambda: ValueError("\x1b[2J\x1b[31mred\x07"),
    "newline": lambda: ValueError("first\neval_metric 0.9999\nsummary: avg_sps: 1"),
    "megabyte": lambda: ValueError("x" * 1_000_000),
    "surrogate": lambda: ValueError("bad \udcff text \ud800"),
    "mute": MuteError,
    "mute_zoo": lambda: MuteZooError("quiet"),
    "zoo_error": lambda: EngineError("the card\x1b[1m is gone"),
    "broken_pipe": lambda: BrokenPipeError(32, "Broken pipe"),
    "connection_reset": lambda: ConnectionResetError(104, "reset"),
    "end_of_file": EOFError,
    "os_error": lambda: OSError(5, "Input/output error", "/dev/card0"),
    "stop_iteration": StopIteration,
    "recursion": lambda: RecursionError("too deep"),
    "group": lambda: builtins.BaseExceptionGroup("several", [SystemExit(0), ValueError("a")]),
}
"""Exceptions of ``infer`` by name."""

RESULTS: dict[str, Callable[[Any], Any]] = {
    "none": lambda _: None,
    "bare_array": lambda results: results[0],
    "dictionary": lambda results: {"y": results[0]},
    "generator": _endless_generator,
    "lists": lambda results: [results[0].tolist()],
    "too_few": lambda _: [],
    "too_many": lambda results: [results[0], results[0]],
    "text": lambda _: "zeros",
    "objects": lambda results: [results[0].astype(object)],
    "strings": lambda results: [results[0].astype(str)],
    "integers": lambda results: [results[0].astype(np.int64)],
    "complex_numbers": lambda results: [results[0].astype(np.complex64)],
    "records": lambda results: [np.zeros(len(results[0]), [("a", "f4")])],
    "dates": lambda results: [results[0].astype("M8[s]")],
    "rank": lambda results: [results[0][..., None]],
    "scalar": lambda _: [np.float32(1)],
    "batch": lambda results: [np.concatenate([results[0], results[0]])],
    "short_batch": lambda results: [results[0][:-1]],
    "width": lambda results: [results[0][:, :-1]],
    "no_elements": lambda results: [results[0][:0]],
    "masked": lambda results: [np.ma.masked_array(results[0], True)],
    "exit_in_a_thread": _exit_in_a_thread,
}
"""Invalid results of ``infer``, computed from the valid one."""

HARMLESS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "strided": lambda results: [np.repeat(results[0], 2, 1)[:, ::2]],
    "big_endian": lambda results: [results[0].astype(">f4")],
    "read_only": lambda results: [_locked(results[0])],
    "fortran": lambda results: [np.asfortranarray(results[0])],
    "matrix": lambda results: [results[0].view(np.matrix)],
    "double": lambda results: [results[0].astype(np.float64)],
    "memory_view": lambda results: [np.asarray(memoryview(results[0]))],
    "warns": lambda results: (warnings.warn("hot\x1b[31m", stacklevel=1), results)[1],
}
"""Equivalent results in another form."""


def _locked(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _changing(name: str, change: Callable[[Any], Any], base: type[Engine] = Foreign) -> type[Engine]:
    def infer(self: Any, inputs: list[Array]) -> Any:
        return change(base.infer(self, inputs))

    return type(name, (base,), {"infer": infer, "__module__": __name__})


class NoInit(Foreign):
    """Does not call the base constructor."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec


class NoBind(Engine):
    """Has no inputs and outputs."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        return inputs


class OpenRaises(Foreign):
    """Cannot be opened."""

    def __init__(self, spec: EngineSpec) -> None:
        raise KeyError("licence\n\x1b[31m")


class OpenExits(Foreign):
    """Exits the program on opening."""

    def __init__(self, spec: EngineSpec) -> None:
        sys.exit(0)


class OpensNothing(Foreign):
    """Returns something other than an engine."""

    @classmethod
    def opened(cls, spec: EngineSpec) -> Any:
        return None


class CloseRaises(Foreign):
    """Cannot be closed."""

    def close(self) -> None:
        raise RuntimeError("device lost\nat the end")


class CloseExits(Foreign):
    """Exits the program on closing."""

    def close(self) -> None:
        sys.exit(0)


class DescribeExits(Foreign):
    """Exits the program in its description."""

    def describe(self) -> str:
        sys.exit(0)


class ReportRaises(Foreign):
    """Has no report of its device."""

    def device_report(self) -> dict[str, Any]:
        raise LookupError("no counters")


class DescribesNothing(Foreign):
    """Has a description that is not a string."""

    def describe(self) -> Any:
        return None


class ReportsNothing(Foreign):
    """Returns something other than a report."""

    def device_report(self) -> Any:
        return [1]


class NoStreams(Foreign):
    """Computes no call at a time."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.streams = 0


class OddMetadata(Foreign):
    """Has a model file without metadata."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.metadata = {"a": 1}  # type: ignore[dict-item]


class OddInputs(Foreign):
    """Lists its inputs by name only."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.inputs = ["x"]  # type: ignore[list-item]


class OddCalibration(Foreign):
    """Fails in the number of samples."""

    @property
    def calibration_samples(self) -> int:
        raise KeyError("samples")


class Forges(Foreign):
    """Describes itself in lines that look like a result."""

    def describe(self) -> str:
        return "mine\neval_metric 0.9999\x1b[2J"


class ThirdCall(Foreign):
    """Fails at its third call."""

    calls = 0

    def infer(self, inputs: list[Array]) -> Any:
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("third call")
        return super().infer(inputs)


class OtherKind(Foreign):
    """Returns another dtype with every call."""

    calls = 0

    def infer(self, inputs: list[Array]) -> Any:
        self.calls += 1
        return [array.astype(np.float32 if self.calls % 2 else np.int32) for array in super().infer(inputs)]


class AsyncRaises(Foreign):
    """Cannot be waited for."""

    def cancel(self) -> None:
        raise RuntimeError("no way")

    def infer(self, inputs: list[Array]) -> Any:
        raise ConnectionAbortedError(103, "gone")


class OpensNever(Foreign):
    """Never returns from opening a model."""

    def __init__(self, spec: EngineSpec) -> None:
        Endless.infer(self, [])  # type: ignore[arg-type]


class Endless(Foreign):
    """Never returns, and ignores exceptions."""

    def infer(self, inputs: list[Array]) -> Any:
        sys.stderr.write("began\n")
        sys.stderr.flush()
        while True:
            try:
                threading.Event().wait()
            except BaseException:  # noqa: BLE001, S112 - a vendor's native call hears no Ctrl-C either
                continue


CLASSES = {
    kind.__name__: kind
    for kind in (
        NoInit,
        NoBind,
        OpenRaises,
        OpenExits,
        OpensNothing,
        CloseRaises,
        CloseExits,
        DescribeExits,
        ReportRaises,
        DescribesNothing,
        ReportsNothing,
        NoStreams,
        OddMetadata,
        OddInputs,
        OddCalibration,
        ThirdCall,
        OtherKind,
        AsyncRaises,
    )
}

REFUSED = (
    {name: _changing(name, _raiser(make)) for name, make in ERRORS.items()}
    | {name: _changing(name, change) for name, change in RESULTS.items()}
    | CLASSES
)
"""Engines that must make scripts fail, by target."""


def alike() -> dict[str, type[Engine]]:
    """Return the engines that return the baseline's results in another form."""
    from engine.backends.ort import OnnxRuntimeEngine

    return {name: _changing(name, change, OnnxRuntimeEngine) for name, change in HARMLESS.items()} | {
        "one_buffer": _buffered(OnnxRuntimeEngine),
        "input_buffer": _returns_input(),
    }


def _buffered(base: type[Engine]) -> type[Engine]:
    """Return an engine that reuses its output buffer, as vendors' runtimes do."""

    class OneBuffer(base):  # type: ignore[misc, valid-type]
        room: Array | None = None

        def infer(self, inputs: list[Array]) -> list[Array]:
            (found,) = super().infer(inputs)
            if self.room is None or len(self.room) < len(found):
                self.room = np.empty((max(64, len(found)), *found.shape[1:]), found.dtype)
            self.room[:] = np.nan
            self.room[: len(found)] = found
            return [self.room[: len(found)]]

    return OneBuffer


def _returns_input() -> type[Engine]:
    """Return an engine that writes its output into the input buffer."""
    from engine.backends.ort import OnnxRuntimeEngine

    class InputBuffer(OnnxRuntimeEngine):
        def infer(self, inputs: list[Array]) -> list[Array]:
            (found,) = super().infer([inputs[0].copy()])
            inputs[0].reshape(-1)[: found.size] = found.reshape(-1)
            return [inputs[0].reshape(-1)[: found.size].reshape(found.shape)]

    return InputBuffer


def __getattr__(name: str) -> type[Engine]:
    """Find an engine by its target, as an entry point does."""
    found = REFUSED.get(name) or alike().get(name)
    if found is None:
        raise AttributeError(name)
    return found


__all__ = ["HARMLESS", "REFUSED", "alike"]
