"""Run a training for a few steps on the CPU and record its operators. Runs in its own process (``watch.py``).

Imports torch and no module of this project: a script may have its own ``utils`` or ``engine``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import dataloader

FORWARD, BACKWARD, UPDATE, HOST = "forward", "backward", "update", "host"
"""Phases: ``update`` is an optimizer's step, ``host`` runs on the host in any case, such as a DataLoader."""

_KEYS = ("CPU", "PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
_MOST_SHAPES = 3
_FIXES = {
    "not compiled with CUDA": "; it is run on the CPU: give it a flag for the device, or remove .cuda()",
    "attempted relative import": "; name it as python -m does: PACKAGE.MODULE, in the folder of the package",
}
"""What to do about errors of a script that this command causes."""
optimizers: Any = sys.modules[Optimizer.__module__]  # not exported by torch.optim
_TORCH = str(Path(torch.__file__).resolve().parent) + os.sep


class Enough(BaseException):
    """Ends a script after the requested steps; not caught by ``except Exception`` in the script."""


@dataclass(slots=True)
class Seen:
    """Records of one operator; ``forms``: distinct calls with their number, also after the first, building step."""

    calls: dict[str, int] = field(default_factory=dict)  # by phase
    dtypes: dict[str, None] = field(default_factory=dict)  # of inputs and outputs
    shapes: dict[str, None] = field(default_factory=dict)  # of inputs, the first few
    layouts: dict[str, None] = field(default_factory=dict)  # other than strided
    first: str = ""  # source of the first call
    forms: dict[str, dict[str, Any]] = field(default_factory=dict)


class NoTraining(Exception):  # noqa: N818
    """The given script or function cannot be recorded; the message is shown unchanged."""


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records every operator below autograd, including those of backward."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.seen: dict[str, Seen] = {}
        self.steps, self._limit = 0, limit
        self._phases: list[str] = []
        self._modules: list[str] = []
        self._names: dict[int, str] = {}
        self._places: dict[int, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record an operator; one that decomposes on every device is recorded as its parts."""
        kwargs = kwargs or {}
        if any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented  # nested tensors and other subclasses dispatch to their components
        if func._schema.name.startswith(("prim::", "profiler::")):
            return func(*args, **kwargs)
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        form = [encoded(args), encoded(kwargs)]  # before the call: in-place operators change their inputs
        made = func(*args, **kwargs)
        self._note(func, form, args, kwargs, made)
        return made

    def _note(self, func: Any, form: list[Any], args: Any, kwargs: Mapping[str, Any], made: Any) -> None:
        phase, place = self._phase_and_place()
        name = func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
        read = list(_tensors([args, list(kwargs.values())]))
        if phase == UPDATE and all(tensor.dim() == 0 for tensor in read):
            phase = HOST  # optimizers count their steps on the host
        seen = self.seen.setdefault(name, Seen())
        seen.calls[phase] = seen.calls.get(phase, 0) + 1
        if phase == HOST:
            return
        seen.first = seen.first or place
        for tensor in (*read, *_tensors(made)):
            seen.dtypes[str(tensor.dtype).removeprefix("torch.")] = None
            if (layout := _layout(tensor)) != "strided":
                seen.layouts[layout] = None
        shape = " ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in read[:8])
        if shape and len(seen.shapes) < _MOST_SHAPES:
            seen.shapes[shape] = None
        one = seen.forms.setdefault(_key(form), {"call": form, "calls": 0, "later": 0})
        one["calls"] += 1
        one["later"] += self.steps > 0

    def _phase_and_place(self) -> tuple[str, str]:
        """Return the phase, and the source: line of the script and module."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return BACKWARD, self._places.get(node._sequence_nr(), f"{node.name()}")
        line = _line()
        place = line or "loss"
        if self._modules:
            place = f"{self._modules[-1]} ({line})" if line else self._modules[-1]
        # The node of backward, if any, was created just before its operator runs.
        self._places.setdefault(torch.autograd._get_sequence_nr() - 1, place)
        return self._phases[-1] if self._phases else FORWARD, place

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Set the phase in a block."""
        self._phases.append(name)
        try:
            yield
        finally:
            self._phases.pop()

    def step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Begin an optimizer step."""
        self._phases.append(UPDATE)

    def step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """End an optimizer step; raise Enough if it was the last one."""
        self._phases.pop()
        self.steps += 1
        if self.steps >= self._limit:
            raise Enough

    def module_begins(self, module: torch.nn.Module, args: Any) -> None:
        """Begin the forward of a module."""
        if not self._modules and id(module) not in self._names:
            self._names |= {id(one): name or type(one).__name__ for name, one in module.named_modules()}
        self._modules.append(self._names.get(id(module), type(module).__name__))

    def module_ends(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """End the forward of a module."""
        self._modules.pop()


def _line() -> str:
    """Return the file and line that called torch; "" if this file did."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith((_TORCH, "<")):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _layout(tensor: torch.Tensor) -> str:
    if tensor.is_quantized:
        return "quantized"
    return "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")


def encoded(value: Any) -> Any:
    """Return an argument as JSON: a tensor by dtype, sizes, strides, offset and number of stored elements."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        layout = _layout(value)
        if layout == "sparse_coo":
            return {"sparse": [dtype, list(value.shape), value.sparse_dim(), value._nnz()]}
        if layout != "strided":
            return {"opaque": f"{layout} tensor"}
        stored = value.untyped_storage().nbytes() // value.element_size()
        return {"tensor": [dtype, list(value.shape), list(value.stride()), value.storage_offset(), stored]}
    if isinstance(value, (list, tuple)):
        return [encoded(one) for one in value]
    if isinstance(value, dict):
        return {"dict": {name: encoded(one) for name, one in value.items()}}
    for kind, name in ((torch.dtype, "dtype"), (torch.layout, "layout"), (torch.memory_format, "memory_format")):
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    return {"float": str(value)} if isinstance(value, float) else {"opaque": type(value).__name__}


def _key(form: Any) -> str:
    """Return the key of distinct calls, without floating-point numbers, which an optimizer changes every step."""
    return json.dumps(_without_floats(form))


def _without_floats(form: Any) -> Any:
    if isinstance(form, list):
        return [_without_floats(one) for one in form]
    if isinstance(form, dict):
        return {name: None if name == "float" else _without_floats(one) for name, one in form.items()}
    return form


# --------------------------------------------------------------------------------------------- as on the device


@contextmanager
def as_on_the_device(recorder: Recorder) -> Iterator[None]:
    """Let torch take on the CPU the code paths of the device, and call the recorder's hooks."""
    hooks = [
        optimizers.register_optimizer_step_pre_hook(recorder.step_begins),
        optimizers.register_optimizer_step_post_hook(recorder.step_ends),
        torch.nn.modules.module.register_module_forward_pre_hook(recorder.module_begins),
        torch.nn.modules.module.register_module_forward_hook(recorder.module_ends, always_call=True),
    ]
    loaded = dataloader._BaseDataLoaderIter.__next__
    devices = optimizers._get_foreach_kernels_supported_devices

    def next_batch(self: Any) -> Any:
        with recorder.phase(HOST):
            return loaded(self)

    dataloader._BaseDataLoaderIter.__next__ = next_batch
    # Optimizers use _foreach_ operators on the device, and a loop on the CPU.
    optimizers._get_foreach_kernels_supported_devices = lambda: [*devices(), "cpu"]
    try:
        yield
    finally:
        dataloader._BaseDataLoaderIter.__next__ = loaded
        optimizers._get_foreach_kernels_supported_devices = devices
        for hook in hooks:
            hook.remove()


# ---------------------------------------------------------------------------------------------------- trainings


def run_script(what: str, arguments: Sequence[str]) -> None:
    """Run a script as ``python FILE ARGUMENTS`` does, or a module as ``python -m MODULE ARGUMENTS``."""
    sys.argv = [what, *arguments]
    if Path(what).is_file():
        sys.path[0] = str(Path(what).resolve().parent)
        runpy.run_path(what, run_name="__main__")
    else:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def run_function(recorder: Recorder, place: str, name: str) -> None:
    """Run forward and backward of a model that ``module:callable`` returns; raise NoTraining without one."""
    with recorder.phase(HOST):
        build = getattr(_imported(place), name, None)
        if not callable(build):
            raise NoTraining(f"{place} has no function {name!r}; pass MODULE:NAME or FILE.py:NAME")
        made = build()
    whole = isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module)
    if not whole or not all(map(callable, made[2:])):
        raise NoTraining(f"{place}:{name} must return (model, batch) or (model, batch, loss of the model's output)")
    model, batch, *loss = made
    output = model(**batch) if isinstance(batch, dict) else model(*(batch if isinstance(batch, tuple) else (batch,)))
    value = loss[0](output) if loss else _sum(output)
    if loss and not (isinstance(value, torch.Tensor) and value.numel() == 1):
        kind = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise NoTraining(f"{place}:{name}: the loss must be a tensor of one number, got {kind}")
    if value is None or not value.requires_grad:
        raise NoTraining(f"{place}:{name}: nothing in the model's output has a gradient; return a loss as the third")
    value.backward()


def _imported(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path[0] = ""
        return importlib.import_module(place)
    sys.path[0] = str(Path(place).resolve().parent)
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    if spec is None or spec.loader is None:
        raise NoTraining(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _sum(output: Any) -> Any:
    """Return the loss of a model without one: the sum of its outputs that require gradients."""
    if isinstance(output, Mapping):
        output = output.get("loss", list(output.values()))
    parts = [tensor.sum() for tensor in _tensors(output) if tensor.requires_grad]
    return sum(parts[1:], parts[0]) if parts else None


# ------------------------------------------------------------------------------------------------------ process


def watched(recorder: Recorder, run: Callable[[], None]) -> tuple[str, str]:
    """Run under the recorder; return how it ended (``end``, ``steps``, ``time``, ``failed``, ``refused``) and why."""
    try:
        with as_on_the_device(recorder), recorder:
            run()
    except Enough as stopped:
        return ("time" if stopped.args else "steps"), ""
    except SystemExit as ended:
        return ("end", "") if ended.code in (None, 0) else ("failed", f"it ended with {ended.code!r}")
    except KeyboardInterrupt:  # the parent process received the same Ctrl-C and reports it
        raise SystemExit(130) from None
    except NoTraining as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - a script may raise any error, which is reported
        traceback.print_exception(type(error), error, _of_the_script(error))
        why = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
        return "failed", why + next((fix for text, fix in _FIXES.items() if text in why), "")
    return "end", ""


def _of_the_script(error: BaseException) -> Any:
    """Return the error's traceback without the frames that started the script."""
    trace = error.__traceback__
    ours = (__file__, runpy.__file__, "<frozen")
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    return trace


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise Enough("time")


def answer(recorder: Recorder, ended: str, why: str) -> dict[str, Any]:
    """Return the record as JSON."""
    operators = [
        {
            "name": name,
            "calls": one.calls,
            "dtypes": list(one.dtypes),
            "shapes": list(one.shapes),
            "layouts": list(one.layouts),
            "first": one.first,
            "forms": list(one.forms.values()),
            "keys": [key for key in _KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)],
        }
        for name, one in recorder.seen.items()
    ]
    return {"torch": torch.__version__, "ended": ended, "why": why, "steps": recorder.steps, "operators": operators}


def main() -> None:
    """Record the given training; write the result to a file, which leaves standard output to the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("answer", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("seconds", type=int)
    parser.add_argument("what")
    parser.add_argument("name", help="of the function; empty: a script")
    parser.add_argument("arguments", nargs="*")
    args, rest = parser.parse_known_args(sys.argv[1:6])[0], sys.argv[6:]
    recorder = Recorder(args.steps)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(args.seconds)
    run = (lambda: run_function(recorder, args.what, args.name)) if args.name else (lambda: run_script(args.what, rest))
    ended, why = watched(recorder, run)
    signal.alarm(0)
    partial = args.answer.with_suffix(".part")
    partial.write_text(json.dumps(answer(recorder, ended, why)), encoding="utf-8")
    partial.replace(args.answer)


if __name__ == "__main__":
    main()
