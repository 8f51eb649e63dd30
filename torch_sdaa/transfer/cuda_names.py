"""``torch.cuda`` redirected to ``torch.sdaa``: functions, classes, submodules, and refused names."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.cuda.comm

from torch_sdaa import sdaa
from torch_sdaa.sdaa.absent import ABSENT
from torch_sdaa.transfer import visible
from torch_sdaa.transfer.words import COUNTS, Changes, from_outside, refuse

_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch._higher_order_ops")
"""Parts of torch that look for a CUDA device to compile for; for them there is none."""

_ANSWERS = {"is_available": False, "device_count": 0, "is_initialized": False}

_UNCHANGED = {"has_half", "has_magma", "check_error", "cudaStatus", "default_generators"}
"""Names that are not counted."""


def begin(changes: Changes) -> None:
    """Replace the names of ``torch.cuda`` and its submodules by those of ``torch.sdaa``, or refuse them."""
    public = {name for name in dir(torch.cuda) if not name.startswith("_")}
    own = vars(sdaa)
    same: dict[int, Any] = {}  # names that submodules have too, by the id of the original
    for name in sorted(public & (set(own) | set(ABSENT))):
        original = getattr(torch.cuda, name)
        if isinstance(original, ModuleType):
            if name in ABSENT and name not in ("nvtx", "profiler"):
                _refuse_module(original, ABSENT[name], changes)
            continue
        found = _counted(name, own[name]) if name in own else _refused(f"torch.cuda.{name}", ABSENT[name])
        same[id(original)] = found
        changes.set(torch.cuda, name, found)
    changes.set(torch.cuda, "default_generators", sdaa.default_generators)
    for part in ("memory", "random", "streams", "graphs"):
        module = getattr(torch.cuda, part, None)
        for name, value in list(vars(module).items()) if module else ():
            if id(value) in same and not name.startswith("_"):
                changes.set(module, name, same[id(value)])
    for name in ("_record_memory_history", "_dump_snapshot", "_snapshot"):
        if hasattr(torch.cuda.memory, name):
            changes.set(torch.cuda.memory, name, _refused(f"torch.cuda.memory.{name}", ABSENT["memory_snapshot"]))
    for name in torch.cuda.comm.__all__:
        changes.set(torch.cuda.comm, name, _refused(f"torch.cuda.comm.{name}", ABSENT["comm"]))
    _mark_ranges(changes)


def _counted(name: str, value: Any) -> Any:
    """Return a name of ``torch.sdaa`` for ``torch.cuda``: functions count their calls, others are unchanged."""
    if isinstance(value, type) or not callable(value) or name in _UNCHANGED:
        return value
    shown = f"torch.cuda.{name}"

    @functools.wraps(value)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            if name in _ANSWERS and str(sys._getframe(1).f_globals.get("__name__")).startswith(_COMPILERS):
                return _ANSWERS[name]
            visible.follow()
            if from_outside():
                COUNTS[shown] += 1
        return getattr(sdaa, name)(*args, **kwargs)

    return function


class _Refused(type):
    """Metaclass of a refused name: it may be imported and passed, but not called or used."""

    name: str
    why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise refuse(cls.name, cls.why)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(f"{cls.name}.{name}", cls.why)


def _refused(name: str, why: str) -> type:
    last = name.rpartition(".")[2]
    return _Refused(last, (), {"name": name, "why": why, "__doc__": f"Refused: {why}."})


def _refuse_module(module: ModuleType, why: str, changes: Changes) -> None:
    """Refuse the functions and classes of a submodule, which itself may be imported."""
    for name, value in list(vars(module).items()):
        hidden = name.startswith(
            "__" if module.__name__.endswith("jiterator") else "_"
        )  # all functions of jiterator start with _
        if not hidden and getattr(value, "__module__", None) == module.__name__:
            changes.set(module, name, _refused(f"{module.__name__}.{name}", why))


# ---------------------------------------------------------------------------------------------------------------- nvtx

_ranges = threading.local()


def _mark_ranges(changes: Changes) -> None:
    """Let ``torch.cuda.nvtx`` mark ranges in ``torch.profiler``."""
    nvtx = torch.cuda.nvtx
    replacements: dict[str, Callable[..., Any]] = {
        "range_push": range_push,
        "range_pop": range_pop,
        "mark": mark,
        "range_start": range_start,
        "range_end": range_end,
        "range": marked_range,
    }
    for name, function in replacements.items():
        if hasattr(nvtx, name):
            changes.set(nvtx, name, function)
    if hasattr(torch.cuda, "profiler"):
        for name in ("start", "stop", "init"):
            if hasattr(torch.cuda.profiler, name):
                shown = f"torch.cuda.profiler.{name}"
                changes.set(torch.cuda.profiler, name, _refused(shown, "use torch.profiler.profile"))


def _open(message: object) -> Any:
    COUNTS["torch.cuda.nvtx"] += 1
    record = torch.profiler.record_function(str(message))
    record.__enter__()
    return record


def range_push(msg: object) -> int:
    """Begin a range of ``torch.profiler``; return the number of open ones before."""
    if not hasattr(_ranges, "open"):
        _ranges.open = []
    _ranges.open.append(_open(msg))
    return len(_ranges.open) - 1


def range_pop() -> int:
    """End the last range; return the number of open ones, -1 if there was none."""
    opened = getattr(_ranges, "open", [])
    if not opened:
        return -1
    opened.pop().__exit__(None, None, None)
    return len(opened)


def mark(msg: object) -> None:
    """Mark a moment as a range that ends immediately."""
    _open(msg).__exit__(None, None, None)


def range_start(msg: object) -> Any:
    """Begin a range that :func:`range_end` ends."""
    return _open(msg)


def range_end(range_id: Any) -> None:
    """End a range of :func:`range_start`."""
    range_id.__exit__(None, None, None)


@contextlib.contextmanager
def marked_range(msg: object, *args: Any, **kwargs: Any) -> Any:
    """Mark the block as a range; the message may have placeholders for the arguments."""
    range_push(str(msg).format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
