"""What a step would cost on the device, predicted from its ATen operators before anything runs.

The step is traced on fake tensors: shapes and dtypes, no values, no launches. Each operator of the trace becomes the
launch that the device would make of it, and gets the price that the launch would get.
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
_NOTHING = (
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
"""Operators that launch nothing: memory alone."""

_ZEROS = ("zeros", "zeros_like", "new_zeros")
_FILLING = (*_ZEROS, "ones_like", "full_like", "ones", "full", "new_ones", "new_full", "scalar_tensor")
"""Operators that the device makes of ``empty`` and one launch that fills."""

_OF_A_PART = ("select_backward", "slice_backward", "diagonal_backward")
"""Gradients of views: zeros, and the part copied into them."""

_AS_OTHERS = {"stack": "aten::cat"}
"""Operators that the device makes of views and one other."""

_COPYING = ("clone", "contiguous", "_to_copy", "to", "_reshape_copy")


_SPECIAL = (*_NOTHING, *_FILLING, *_OF_A_PART, *_AS_OTHERS, *_COPYING, "copy_", "repeat")

_INNER = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
"""Where PyTorch's files lie, and ours."""

_UNTOLD = (DynamicOutputShapeException, DataDependentOutputException, UnsupportedOperatorException)


_SELECTING = ("aten::index", "aten::masked_select")
"""Operators whose result has a shape that follows from all operands but the first."""

_NO_VALUES = "its data is not allocated yet"
"""What PyTorch says where a kernel reads a tensor that has no values."""


@dataclass(frozen=True, slots=True)
class PredictedCost:
    """What a step is predicted to launch.

    Attributes:
        launches: in their order, each with its price.
        guessed: how often a line of the script reads a number that only a run knows, by ``file:line``; ``False`` was
            taken for it. Where such a number decides how the step goes on, the prediction may differ.
    """

    launches: tuple[tuple[prices.Launch, prices.Price], ...]
    guessed: Counter[str] = field(default_factory=Counter)

    @property
    def seconds(self) -> float:
        """Simulated seconds of all launches."""
        return sum(price.seconds for _, price in self.launches)

    @property
    def operators(self) -> Counter[str]:
        """How often each operator is launched."""
        return Counter(launch[0] for launch, _ in self.launches)


def predict_cost(build: Callable[[], Callable[[], Any]], steps_before: int = 1) -> PredictedCost:
    """Return what a step would launch, and for how long.

    Args:
        build: makes model, data and optimizer on device ``sdaa``, and returns the step; called under fake tensors.
        steps_before: steps that are traced and not counted, as an optimizer makes its state in the first one.

    Raises:
        ConfigError: an operator of the step cannot be told from shapes.
    """
    recorder = _Recorder()
    torch.empty(1, device="sdaa")  # at exit only devices that held memory wait for autograd's threads
    with traced_as_run(), warnings.catch_warnings():
        # a combined buffer is known again by its address, which fake tensors have, too
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
    """Run a step, and return what the launch log says that it launched; the order is not that of the launches.

    Args:
        step: what to run. steps_before: how often it is run before it is observed.
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
    """Return every distinct launch so far, how often it was, and its price."""
    out: dict[tuple[Any, ...], tuple[int, prices.Price]] = {}
    for (op, inputs, outputs, flops), count, seconds, assumed in C.signatures():
        key = op, tuple(inputs), tuple(outputs), flops
        out[key] = out.get(key, (0, None))[0] + count, prices.Price(seconds, assumed)
    return out


class _Recorder(TorchDispatchMode):
    """Notes the launches that the device would make of the operators that pass."""

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
                with self:  # its steps are what is launched
                    return func._op_dk(composed, *args, **kwargs)
            out = func(*args, **kwargs)
        except _UNTOLD as error:
            out = self._from_values(func, args, kwargs)
            if out is None:
                raise ConfigError(
                    f"the cost of {_name(func)} cannot be told before it runs: its shapes or values follow from data; "
                    "write that step with fixed shapes (torch.where, masks), or run it and ask "
                    "torch.sdaa.time_summary()"
                ) from error
        except RuntimeError as error:
            if _NO_VALUES not in str(error):
                raise
            raise ConfigError(
                f"the cost of {_name(func)} cannot be told before it runs: it reads its operands on the host; run it "
                "and ask torch.sdaa.time_summary()"
            ) from error
        else:
            self.constants.learn(func, args, kwargs, out)
        if func.namespace != "prim":  # what C++ asks of a tensor: its device, its sizes
            self._note(func, args, kwargs, out)
        return out

    def _with_tensors(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments with a tensor for each number that PyTorch made of one on its way to Python."""

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
        """Return a number that the host reads: the real one where it follows from constants, else what is likely."""
        if on_card([tensor]):
            self.launches.append((_name(func), [_meta(tensor)], [], -1))
        value = self.constants.value(tensor)
        if value is not None:
            with _disable_current_modes():
                return value.item()
        self.guessed[_line_here()] += 1
        return _number(tensor)

    def _from_values(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what an operator gives whose shapes follow from values, where these are known; else None."""
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
        own = name == "aten::copy_" or "convolution" in name  # the device's, where it is no kernel of PyTorch's
        if [launch[0] for launch in launches] == [name] and not own and not _has_kernel(name):
            raise ConfigError(
                f"the cost of {name} cannot be told before it runs: the device makes it of other operators; write that "
                "step with those, or run it and ask torch.sdaa.time_summary()"
            )
        self.launches += launches


def launches_of(func: Any, args: Any, kwargs: Any, out: Any) -> list[prices.Launch]:
    """Return what the device launches for an operator of ATen, told from its tensors' shapes and dtypes.

    Args:
        func, args, kwargs: the operator and its arguments. out: what it returned.
    """
    name, short = _name(func), func._schema.name.rpartition("::")[2]
    inputs, outputs = _tensors((args, kwargs)), _tensors(out)
    if short in _NOTHING or prices.is_view(name) or not on_card(inputs + outputs):
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
    """Return the copy that a repetition is: into a view that has each size beside how often it is repeated."""
    sizes = (*repeats, *[1] * (len(repeats) - source.dim()), *source.shape)
    made = (_TYPES.get(source.dtype, str(source.dtype)), source.element_size(), tuple(int(n) for n in sizes))
    return "aten::copy_", [made], [made], -1


def _name(func: Any) -> str:
    return str(func._schema.name)


@lru_cache(maxsize=4096)
def _has_kernel(name: str) -> bool:
    """Whether the device has a kernel of an operator: of an overload (one for numbers calls that for tensors)."""
    if not name.startswith("aten::"):
        return True  # it runs the CPU's
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    names = [getattr(packet, overload).name() for overload in packet.overloads()]
    known = filter(torch._C._dispatch_has_kernel, names)  # not those of TorchScript alone
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(one, "PrivateUse1") for one in known)


@lru_cache(maxsize=4096)
def _composed(name: str, whole: str) -> Any:
    """Return under which key PyTorch composes an operator of others, where the device has no kernel of it; or None."""
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
    """Return a number that only a run knows: on the device nothing was found, the host has counted one."""
    number = 0 if on_card([tensor]) else 1
    if tensor.dtype == torch.bool:  # a loop that draws until nothing is out of bounds ends
        return False
    if number and tensor.is_floating_point():  # a hair less: NAdam divides by what is left of a product to 1
        return 1 - 2.0**-20
    return float(number) if tensor.is_floating_point() else number


def _gathered() -> bool:
    """Say whether the gradient of an index is made: of real tensors it is added to zeros in place, without a copy."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() == "IndexBackward0"


def _line_here() -> str:
    """Return the line of the script, or of a library that is not PyTorch, that is under way: ``file:line``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_INNER):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _for_card(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether an operator runs on the device: by its tensors, or by the device that it is given."""
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
    """Return the launch of a convolution, or of its backward: a multiply-add counts two."""
    backward = "backward" in name
    given = list(args[: 3 if backward else 2])
    x, weight = given[-2:]
    transposed, meets = args[7 if backward else 6], given[0] if backward else outputs[0]
    flops = 2.0 * (x if transposed else meets).numel() * weight.numel() / max(weight.shape[0], 1)
    if backward:
        flops *= sum(args[10][:2])
    return name.removesuffix("_overrideable"), [_meta(t) for t in given], [_meta(outputs[0])], flops
