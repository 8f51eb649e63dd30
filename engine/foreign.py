"""Checks of backends that are not part of the zoo: their errors, their promises and the arrays they return.

Such a backend may fail in any way, and may reuse its buffers. Engines of the zoo are exempt: they declare their
:data:`PROMISES`, and their outputs are not checked again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import numpy as np

from engine.batching.batch import Run, batch_of
from engine.signature import Array, TensorSpec
from tecoinfer_modelzoo.errors import EngineError, TecoInferError
from tecoinfer_modelzoo.interrupts import may_be_user_interrupt
from tecoinfer_modelzoo.text import one_line, printable, reason_of, shape_text, shown_value, typed_reason

PROMISES = ("outputs_owned", "inputs_untouched", "concurrent_calls")
"""What a class declares about ``infer`` and ``infer_shards``, ``True`` or ``False`` (:class:`engine.base.Engine`)."""

_COMPUTING = ("infer", "infer_shards")  # the methods that promises are about

_REPORTS: dict[str, type] = {
    "describe": str,
    "device_report": Mapping,
    "device_seconds": list,
    "calibration_samples": int,
    "calibrate": object,
    "cancel": object,
    "close": object,
}
"""Other methods and properties of an engine, and the type each returns; other types become an :class:`EngineError`."""

_MAX_CHARACTERS = 300  # length up to which the text of a foreign error is quoted
_ORDER = "infer() returns a list of one numpy array per output, in the model's order"


def complete_subclass(kind: Any) -> None:
    """Complete a class that derives from ``Engine``: remove promises that it does not make, and guard its reports.

    Promises are about the code of the class that makes them. A subclass with an ``infer`` of its own, or of a mix-in
    before the class that promises, does not inherit them. Nor does a class outside the zoo inherit those of an engine
    of the zoo, since it may change more than methods, or its ``streams``.
    """
    kind._foreign = kind.__module__.partition(".")[0] != "engine"
    for promise in PROMISES:
        if promise not in vars(kind) and not _inherits(kind, promise):
            setattr(kind, promise, False)
    if kind._foreign:
        kind._alone = any(not getattr(base, "_foreign", True) for base in kind.__mro__[1:])
        for name in _REPORTS:
            _guard(kind, name)


def _inherits(kind: Any, promise: str) -> bool:
    if not vars(kind).keys().isdisjoint(_COMPUTING):
        return False
    for base in kind.__mro__[1:]:
        if promise in vars(base):
            return not kind._foreign or getattr(base, "_foreign", True)
        if not vars(base).keys().isdisjoint(_COMPUTING):
            break
    return False


def _guard(kind: Any, name: str) -> None:
    """Guard a report that the class itself defines, or a mix-in that is not an engine."""
    base = next(base for base in kind.__mro__ if name in vars(base))
    if base is not kind and hasattr(base, "_foreign"):
        return
    found = vars(base)[name]
    if isinstance(found, property) and found.fget is not None:
        setattr(kind, name, property(_guarded(name, found.fget), doc=found.__doc__))
    elif callable(found):
        setattr(kind, name, _guarded(name, found))


def _guarded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    expected = _REPORTS[name]

    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        try:
            found = method(self, *args, **named)
        except BaseException as error:  # noqa: BLE001 - a foreign backend may raise anything
            raise_failure(self, error, f"failed in {name}()")
        if not isinstance(found, expected):
            where = f"{self.spec.ckpt}: {name_of(self)} returned {_shown(found)}"
            raise EngineError(f"{where} from {name}, which gives a {expected.__name__}")
        return printable(one_line(found), keep="") if expected is str else found

    return call


def compute(engine: Any, arrays: list[Array]) -> tuple[list[Array], float, float]:
    """Let a foreign backend compute one checked call; raise EngineError if it failed, or returned something else.

    Return an array per output, owned by the caller, and start and end of the computation (``time.perf_counter``).
    """
    with _turn(engine):
        results, start, end = _timed(engine, "infer", _inputs_for(engine, arrays))
        return _Outputs(engine, arrays).checked(results), start, end


def compute_shards(engine: Any, shards: list[list[Array]]) -> tuple[list[list[Array]], float, float]:
    """Let any backend compute checked shards; raise EngineError if it failed, or returned something else.

    Return for each shard one array per output, and the start and end of the computation.
    """
    if not engine._foreign:
        return _timed(engine, "infer_shards", shards)
    with _turn(engine):
        own = [_inputs_for(engine, shard) for shard in shards]
        results, start, end = _timed(engine, "infer_shards", own)
        if not isinstance(results, (list, tuple)) or len(results) != len(shards):
            raise _wrong(engine, f"{_shown(results)} for {_counted(len(shards), 'shard')}")
        outputs = [_Outputs(engine, *pair).checked(found) for *pair, found in zip(shards, results, strict=True)]
        if not engine.outputs_owned:
            _refuse_shared(engine, list(results))
        return outputs, start, end


def _timed(engine: Any, method: str, arrays: Any) -> tuple[Any, float, float]:
    """Return the result of a backend's method, its start and its end; its errors become an EngineError."""
    start = time.perf_counter()
    try:
        results = getattr(engine, method)(arrays)
    except BaseException as error:  # noqa: BLE001 - native runtimes raise types of their own
        raise_failure(engine, error)
    return results, start, time.perf_counter()


def _turn(engine: Any) -> AbstractContextManager[None]:
    """Wait until a backend may compute one more call, unless it takes any number of them at once."""
    if engine.concurrent_calls:
        return nullcontext()
    turn: AbstractContextManager[None] = engine._running.computing(1 if engine._alone else engine.streams)
    return turn


def lasting_results(engine: Any, run: Run) -> Run:
    """Return a backend's ``run`` such that the results of one piece of a call are not overwritten by the next piece."""
    if not engine._foreign:
        return run
    return lambda arrays: _Outputs(engine, arrays).checked(run(_inputs_for(engine, arrays)))


def _inputs_for(engine: Any, arrays: list[Array]) -> list[Array]:
    """Return the arrays to pass to a backend: copies, unless it promises not to change them."""
    return list(arrays) if engine.inputs_untouched else [array.copy() for array in arrays]


def raise_failure(engine: Any, error: BaseException, what: str = "failed") -> NoReturn:
    """Raise :func:`failure` for an error of a backend's code."""
    found = failure(engine, what, error)
    if found is error:
        raise error
    raise found from error


def failure(engine: Any, what: str, error: BaseException) -> BaseException:
    """Return the :class:`EngineError` for an error of a backend's code; ``what``: its verb, such as ``failed``."""
    spec = getattr(engine, "spec", None)
    return _named(error, name_of(engine), what, f"{spec.ckpt}: " if spec is not None else "", engine._foreign)


def opening_failure(error: BaseException, who: str, ckpt: str) -> BaseException:
    """Return the exception to raise for an error of a foreign engine's constructor, as :func:`failure` does."""
    return _named(error, who, "cannot open it", f"{ckpt}: ", foreign=True)


def _named(error: BaseException, who: str, what: str, where: str, foreign: bool) -> BaseException:
    """Return an error that names the engine: for errors of the zoo's own types and Ctrl-C, the error itself."""
    if isinstance(error, KeyboardInterrupt) and may_be_user_interrupt():
        return error
    if not isinstance(error, TecoInferError) or not _is_readable(error):
        return EngineError(f"{where}{who} {what}: {reason(error)}")
    if foreign and who.partition(" (")[0] not in str(error):
        error.args = (f"{who} {what}: {reason_of(error)}",)
    return error


def unusable(engine: Any) -> str:
    """Return why a foreign engine cannot be called after its constructor; "" if it can."""
    if not hasattr(engine, "_running") or not hasattr(engine, "timeline") or not engine.outputs:
        return "does not call Engine.__init__() and bind() in its constructor"
    tensors = (*engine.inputs, *engine.outputs)
    if not all(isinstance(tensor, TensorSpec) for tensor in tensors):
        return "has inputs or outputs that are not TensorSpecs"
    if isinstance(engine.streams, bool) or not isinstance(engine.streams, int) or engine.streams < 1:
        return f"has {shown_value(engine.streams)} streams; set a whole number of at least 1"
    pairs = engine.metadata.items() if isinstance(engine.metadata, Mapping) else [(0, 0)]
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        return "has metadata that is not a mapping from texts to texts"
    return ""


def _is_readable(error: TecoInferError) -> bool:
    """Return whether an error, possibly of a foreign class, can be converted to text."""
    try:
        return isinstance(str(error), str)
    except BaseException:  # noqa: BLE001 - a foreign class may raise anything
        return False


def reason(error: BaseException) -> str:
    """Return the type and text of a foreign error in one line, even if converting it to text raises an error."""
    try:
        return typed_reason(error, _MAX_CHARACTERS)
    except BaseException as other:  # noqa: BLE001 - a foreign class may raise anything
        return f"{type(error).__name__}, whose text raises {type(other).__name__}"


def name_of(engine: Any) -> str:
    """Return the name of an engine in messages: its target if it was opened by one, else its class."""
    target = getattr(engine, "_target", "")
    return f"target {target!r}" if target else type(engine).__name__


class _Outputs:
    """Checks the arrays that a foreign backend returns for one call with the inputs ``arrays``."""

    def __init__(self, engine: Any, arrays: Sequence[Array]) -> None:
        self._engine, self._samples = engine, batch_of(arrays, engine.inputs)
        self._batch: int | str | None = None
        """Fixed size or symbol of the batch; ``None``: the model has no batch, or one without a symbol."""
        if engine.inputs and (axis := engine.inputs[engine.lead].batch_axis) is not None:
            lead = engine.inputs[engine.lead]
            self._batch = lead.shape[axis] or (lead.symbols[axis] if lead.symbols else None)

    def checked(self, results: Any) -> list[Array]:
        """Return plain arrays owned by the caller; raise EngineError if number, dtype or shape is wrong."""
        outputs = self._engine.outputs
        if not isinstance(results, (list, tuple)):
            raise _wrong(self._engine, f"{_shown(results)}, not a list")
        if len(results) != len(outputs):
            names = ", ".join(spec.name for spec in outputs)
            counts = f"{_counted(len(results), 'array')} for {_counted(len(outputs), 'output')}"
            raise _wrong(self._engine, f"{counts} ({names})")
        return [self._checked(value, spec) for value, spec in zip(results, outputs, strict=True)]

    def _checked(self, value: Any, spec: TensorSpec) -> Array:
        if isinstance(value, np.generic) and not spec.shape:
            value = np.asarray(value)
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            raise _wrong(self._engine, f"{_shown(value)} for output {spec.name!r}, not a numpy array")
        kind = value.dtype.kind
        if kind != spec.dtype.kind and not (spec.dtype.kind == "O" and kind in "UST"):
            raise _wrong(self._engine, f"dtype {value.dtype} for output {spec.name!r}, which is {spec.dtype}")
        if len(value.shape) != len(spec.shape) or not all(
            self._may_be(got, axis, spec) for axis, got in enumerate(value.shape)
        ):
            call = "" if self._batch is None else f" in a call of {_counted(self._samples, 'sample')}"
            shapes = f"shape {shape_text(value.shape)} for output {spec.name!r}, which is {shape_text(spec.shape)}"
            raise _wrong(self._engine, f"{shapes}{call}")
        if self._engine.outputs_owned and type(value) is np.ndarray and value.dtype.isnative:
            return value
        return np.array(value, value.dtype.newbyteorder("="), order="C", subok=False)

    def _may_be(self, got: int, axis: int, spec: TensorSpec) -> bool:
        """Return whether the model allows this size of a dimension of an output."""
        size = spec.shape[axis]
        if axis == spec.batch_axis and self._batch is not None:
            named = spec.symbols[axis] if size is None and spec.symbols else size
            if named == self._batch:
                return got == self._samples
        return size is None or got == size


def _wrong(engine: Any, what: str) -> EngineError:
    return EngineError(f"{engine.spec.ckpt}: {name_of(engine)} returned {what}; {_ORDER}")


def _shown(value: Any) -> str:
    return (
        f"{type(value).__name__} of length {len(value)}" if isinstance(value, (list, tuple)) else type(value).__name__
    )


def _refuse_shared(engine: Any, shards: Sequence[Sequence[Any]]) -> None:
    """Raise EngineError if results of several shards share memory: all but the last are overwritten."""
    for i, column in enumerate(zip(*shards, strict=True)):
        for j, one in enumerate(column):
            if any(_share(one, other) for other in column[:j]):
                raise _wrong(engine, f"the same memory for output {i} of several shards, each of which needs its own")


def _share(one: Any, other: Any) -> bool:
    try:
        return np.shares_memory(one, other, max_work=1000)  # type: ignore[arg-type]  # any number is taken
    except np.exceptions.TooHardError:  # interleaved in a way that takes long to check: not one buffer
        return False


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
