"""Cost of a step on the device, predicted from its ATen operators before it runs.

The step is traced on fake tensors: shapes and dtypes without values or launches. Each traced operator becomes the
launch that the device would make of it, with its price.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from engine import ConfigError
from engine.sdaa import load_card
from torch_sdaa.cost import prices
from torch_sdaa.cost.constant_values import ConstantValues
from torch_sdaa.cost.traced import on_card, traced_as_run
from torch_sdaa.loading.core import C

_TYPES = {torch.float32: "Float", torch.float16: "Half", torch.bfloat16: "BFloat16", torch.float64: "Double"}
_TYPES |= {torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte"}
_TYPES |= {torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble"}

_EMPTY = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "_efficientzerotensor")
_NO_LAUNCH = (
    *_EMPTY,
    "detach",
    "alias",
    "_unsafe_view",
    "lift_fresh",
    "lift",
    "set_",
    "resize_",
    "record_stream",
    "is_same_size",
)
"""Operators that launch nothing."""

_ZEROS = ("zeros", "zeros_like", "new_zeros")
_FILLING = (*_ZEROS, "ones_like", "full_like", "ones", "full", "new_ones", "new_full", "scalar_tensor")
"""Operators that the device composes of ``empty`` and one filling launch."""

_OF_A_PART = ("select_backward", "slice_backward", "diagonal_backward")
"""Gradients of views: zeros, and a copy of the part."""

_AS_OTHERS = {"stack": "aten::cat"}
"""Operators that the device composes of views and one other operator."""

_COPYING = ("clone", "contiguous", "_to_copy", "to", "_reshape_copy")


_SPECIAL = (*_NO_LAUNCH, *_FILLING, *_OF_A_PART, *_AS_OTHERS, *_COPYING, "copy_", "repeat")

_INNER = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
"""Folders of PyTorch and of this package."""

_DATA_DEPENDENT = (DynamicOutputShapeException, DataDependentOutputException, UnsupportedOperatorException)


_SELECTING = ("aten::index", "aten::masked_select")
"""Operators whose result shape depends on all operands but the first."""

_NO_VALUES = "its data is not allocated yet"
"""Part of PyTorch's message if a kernel reads a tensor without values."""


@dataclass(frozen=True, slots=True)
class PredictedCost:
    """Predicted launches of a step.

    Attributes:
        launches: in order, with their prices.
        guessed: how often a line of the script (``file:line``) reads a number that is only known at run time; ``False``
            or 0 was assumed. If it affects the course of the step, the prediction may be wrong.
    """

    launches: tuple[tuple[prices.Launch, prices.Price], ...]
    guessed: Counter[str] = field(default_factory=Counter)

    @property
    def seconds(self) -> float:
        """Simulated seconds of all launches."""
        return sum(price.seconds for _, price in self.launches)

    @property
    def operators(self) -> Counter[str]:
        """Number of launches of each operator."""
        return Counter(launch[0] for launch, _ in self.launches)


def predict_cost(build: Callable[[], Callable[[], Any]], steps_before: int = 1) -> PredictedCost:
    """Return the predicted launches of a step.

    Args:
        build: creates model, data and optimizer on device ``sdaa``, and returns the step; called under fake tensors.
        steps_before: steps that are traced and not counted; an optimizer creates its state in the first one.

    Raises:
        ConfigError: the cost of an operator cannot be determined from shapes.
    """
    recorder = _Recorder()
    torch.empty(1, device="sdaa")  # at exit, only devices with allocated memory wait for autograd's threads
    with traced_as_run(), warnings.catch_warnings():
        # combined buffers are recognized by their address, which fake tensors have too
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        with recorder:
            step = build()
            for _ in range(steps_before):
                step()
            recorder.launches.clear()
            recorder.guessed.clear()
            step()
    pricer = prices.Pricer(load_card())
    priced = [(launch, pricer.price(*launch)) for launch in recorder.launches]
    return PredictedCost(tuple(each for each in priced if each[1].launches), recorder.guessed)


def observe(step: Callable[[], Any], steps_before: int = 1) -> PredictedCost:
    """Run a step; return its launches from the launch log, in an order other than that of the launches.

    Args:
        step: the function to run. steps_before: how often it is run before.
    """
    for _ in range(steps_before):
        step()
    before = _logged()
    step()
    found = []
    for launch, (count, price) in _logged().items():
        new = count - before.get(launch, (0, price))[0]
        found += [((launch[0], list(launch[1]), list(launch[2]), launch[3]), price)] * (new if price.seconds else 0)
    return PredictedCost(tuple(found))


def _logged() -> dict[tuple[Any, ...], tuple[int, prices.Price]]:
    """Return every distinct launch so far, its count, and its price."""
    out: dict[tuple[Any, ...], tuple[int, prices.Price]] = {}
    for (op, inputs, outputs, flops), count, seconds, assumed in C.signatures():
        key = op, tuple(inputs), tuple(outputs), flops
        out[key] = out.get(key, (0, None))[0] + count, prices.Price(seconds, assumed)
    return out


class _Recorder(TorchDispatchMode):
    """Records the launches that the device would make of the dispatched operators."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[prices.Launch] = []
        self.guessed: Counter[str] = Counter()
        self.constants = ConstantValues()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._read(func, args[0])
        args = self._with_tensors(func, args)
        try:
            composed = _composed(_name(func), func.name()) if _for_card(args, kwargs) else None
            if func is torch.ops.aten.index_put.default and _gathered():
                with self:
                    return torch.ops.aten._index_put_impl_(*args, unsafe=True)
            if composed is not None:
                with self:  # record the launches of its parts
                    return func._op_dk(composed, *args, **kwargs)
            out = func(*args, **kwargs)
        except _DATA_DEPENDENT as error:
            out = self._from_values(func, args, kwargs)
            if out is None:
                raise ConfigError(
                    f"the cost of {_name(func)} cannot be predicted: its shapes or values depend on data; "
                    "write that step with fixed shapes (torch.where, masks), or run it and call "
                    "torch.sdaa.time_summary()"
                ) from error
        except RuntimeError as error:
            if _NO_VALUES not in str(error):
                raise
            raise ConfigError(
                f"the cost of {_name(func)} cannot be predicted: it reads its operands on the host; run it and call "
                "torch.sdaa.time_summary()"
            ) from error
        else:
            self.constants.learn(func, args, kwargs, out)
        if func.namespace != "prim":  # queries of C++ code: device and sizes of a tensor
            self._note(func, args, kwargs, out)
        return out

    def _with_tensors(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments with tensors for numbers that PyTorch converted from tensors."""

        def made(one: Any) -> Tensor:
            tensor = torch.tensor(one)
            with _disable_current_modes():
                value = torch.tensor(one)
            self.constants.keep(tensor, value)
            return tensor

        wanted = [str(each.type) == "Tensor" for each in func._schema.arguments]
        return tuple(
            made(one) if is_tensor and isinstance(one, int | float | complex) else one
            for one, is_tensor in zip(args, wanted, strict=False)
        )

    def _read(self, func: Any, tensor: Tensor) -> float | int | bool | complex:
        """Return a number read by the host: the real one if it follows from constants, else a likely one."""
        if on_card([tensor]):
            self.launches.append((_name(func), [_meta(tensor)], [], -1))
        value = self.constants.value(tensor)
        if value is not None:
            with _disable_current_modes():
                return value.item()
        self.guessed[_line_here()] += 1
        return _number(tensor)

    def _from_values(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of an operator whose shapes depend on known values; ``None`` if they are unknown."""
        real = self.constants.learn(func, args, kwargs, None)
        shape_alone = real is None and _name(func) in _SELECTING
        if shape_alone:
            real = self.constants.like(func, args)
        if real is None:
            return None
        device = _tensors((args, kwargs))[0].device

        def made(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            fake = torch.empty(value.shape, dtype=value.dtype, device=device)
            if not shape_alone:
                self.constants.keep(fake, value)
            return fake

        return tree_map(made, real)

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        launches, name = launches_of(func, args, kwargs, out), _name(func)
        own = name == "aten::copy_" or "convolution" in name  # kernels of the device, not of PyTorch
        if [launch[0] for launch in launches] == [name] and not own and not _has_kernel(name):
            raise ConfigError(
                f"the cost of {name} cannot be predicted: the device composes it of other operators; use those in the "
                "step, or run it and call torch.sdaa.time_summary()"
            )
        self.launches += launches


def launches_of(func: Any, args: Any, kwargs: Any, out: Any) -> list[prices.Launch]:
    """Return the launches of an ATen operator on the device, from its tensors' shapes and dtypes.

    Args:
        func, args, kwargs: the operator and its arguments. out: its result.
    """
    name, short = _name(func), func._schema.name.rpartition("::")[2]
    inputs, outputs = _tensors((args, kwargs)), _tensors(out)
    if short in _NO_LAUNCH or prices.is_view(name) or not on_card(inputs + outputs):
        return []
    if short in ("copy_", *_COPYING):
        return [_copied(inputs[-1], outputs[0])]
    if short in _FILLING:
        filled = [_meta(outputs[0])]
        return [("aten::zero_" if short in _ZEROS else "aten::fill_", filled, filled, -1)]
    if short == "repeat":
        return [_repeated(inputs[0], args[1])]
    if short.startswith("convolution"):
        return [_convolution(name, args, outputs)]
    if short in _OF_A_PART:
        whole, part = [_meta(outputs[0])], [_meta(inputs[0])]
        return [("aten::zero_", whole, whole, -1), ("aten::copy_", part, part, -1)]
    if short in _AS_OTHERS:
        return [(_AS_OTHERS[short], [_meta(t) for t in inputs], [_meta(t) for t in outputs], -1)]
    read, written = ([_meta(t) for t in tensors if on_card([t])] for tensors in (inputs, outputs))
    return [(name, read, written, -1)]


def _copied(source: Tensor, made: Tensor) -> prices.Launch:
    kinds = (source.device.type == "sdaa", made.device.type == "sdaa")
    name = {(False, True): "copy_in", (True, False): "copy_out", (True, True): "aten::copy_"}[kinds]
    if kinds == (True, True) and source.device.index != made.device.index:
        name = "copy_between"
    return name, [_meta(source)], [_meta(made)], -1


def _repeated(source: Tensor, repeats: Sequence[int]) -> prices.Launch:
    """Return the copy of a repetition: into a view with each size and its number of repetitions."""
    sizes = (*repeats, *[1] * (len(repeats) - source.dim()), *source.shape)
    made = (_TYPES.get(source.dtype, str(source.dtype)), source.element_size(), tuple(int(n) for n in sizes))
    return "aten::copy_", [made], [made], -1


def _name(func: Any) -> str:
    return str(func._schema.name)


@lru_cache(maxsize=4096)
def _has_kernel(name: str) -> bool:
    """Return whether the device has a kernel for any overload of an operator."""
    if not name.startswith("aten::"):
        return True  # the device runs the CPU's kernel
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    names = [getattr(packet, overload).name() for overload in packet.overloads()]
    known = filter(torch._C._dispatch_has_kernel, names)  # without TorchScript-only overloads
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(one, "PrivateUse1") for one in known)


@lru_cache(maxsize=4096)
def _composed(name: str, whole: str) -> Any:
    """Return the key under which PyTorch composes an operator that the device has no kernel for; else ``None``."""
    namespace, _, short = name.partition("::")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if (
        namespace != "aten"
        or short.startswith("convolution")
        or short in _SPECIAL
        or prices.is_view(name)
        or has(whole, "PrivateUse1")
    ):
        return None
    keys = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return next((getattr(torch._C.DispatchKey, key) for key in keys if has(whole, key)), None)


def _meta(tensor: Tensor) -> prices.Meta:
    return _TYPES.get(tensor.dtype, str(tensor.dtype)), tensor.element_size(), tuple(int(n) for n in tensor.shape)


def _number(tensor: Tensor) -> float | int | bool:
    """Return a likely value for a number known only at run time: 0 on the device, 1 (a count) on the host."""
    number = 0 if on_card([tensor]) else 1
    if tensor.dtype == torch.bool:  # a loop that draws until all values are in bounds ends
        return False
    if number and tensor.is_floating_point():  # slightly less: NAdam divides by 1 - product
        return 1 - 2.0**-20
    return float(number) if tensor.is_floating_point() else number


def _gathered() -> bool:
    """Return whether the gradient of an index is computed: real tensors are added to zeros in place, without a copy."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() == "IndexBackward0"


def _line_here() -> str:
    """Return the current line of the script, or of a library other than PyTorch: ``file:line``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_INNER):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _for_card(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operator runs on the device, by its tensors or its device argument."""
    tensors = _tensors((args, kwargs))
    device = kwargs.get("device")
    return on_card(tensors) or (not tensors and device is not None and torch.device(device).type == "sdaa")


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a value, each once."""
    found: list[Tensor] = []
    for leaf in torch.utils._pytree.tree_leaves(value):
        if isinstance(leaf, Tensor) and not any(leaf is known for known in found):
            found.append(leaf)
    return found


def _convolution(name: str, args: tuple[Any, ...], outputs: list[Tensor]) -> prices.Launch:
    """Return the launch of a convolution, or of its backward; a multiply-add counts two."""
    backward = "backward" in name
    given = list(args[: 3 if backward else 2])
    x, weight = given[-2:]
    transposed, meets = args[7 if backward else 6], given[0] if backward else outputs[0]
    flops = 2.0 * (x if transposed else meets).numel() * weight.numel() / max(weight.shape[0], 1)
    if backward:
        flops *= sum(args[10][:2])
    return name.removesuffix("_overrideable"), [_meta(t) for t in given], [_meta(outputs[0])], flops
