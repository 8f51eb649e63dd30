"""One call of an operator in a training, as stored in a dump file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.signature import Array

SCRATCH = "scratch of "  # prefix of the digest of uninitialised memory, which is equal to nothing

_OVERWRITES = tuple(
    f"aten.{name}_."
    for name in (
        *("fill", "zero", "copy", "uniform", "normal", "log_normal", "bernoulli", "random", "exponential"),
        *("geometric", "cauchy"),
    )
)
"""Operators that do not read the previous values of the tensor they write into."""


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor of a call."""

    dtype: str  # PyTorch's name, such as ``bfloat16``
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # in the run; the file has the values in order
    digest: str  # of dtype, shape and values; two tensors with the same digest are equal


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an operator.

    ``module``: path of the innermost one from the root's class (``ResNet.layer1.0.conv1``); in the backward that of its
    forward; the optimizer's class; or "".
    """

    op: str  # as PyTorch writes it, ``aten.addmm.default``
    number: int  # number of earlier calls of the operator
    index: int  # number of earlier calls of any operator
    step: int  # number of completed optimizer steps
    phase: str  # ``forward``, ``backward`` or ``optimizer``
    module: str
    source: str  # ``file.py:12 in function`` of the script, in the backward that of its forward
    device: str  # the device it ran on
    loss_scale: float | None  # that of the step; ``None`` without one
    args: Sequence[Any]  # as JSON; a tensor is ``{"tensor": k}``, the k-th input
    kwargs: Mapping[str, Any]  # as JSON; a tensor is ``{"tensor": k}``, the k-th input
    inputs: tuple[KeptTensor, ...] = ()  # tensors it read, before the call
    outputs: tuple[KeptTensor, ...] = ()  # tensors it returned or wrote into
    written: tuple[int, ...] = ()  # for each output, the index of the input it was written into; -1 for a new tensor
    view: bool = False  # whether it computes nothing
    draws: bool = False  # whether it is random
    empty: bool = False  # whether its values are uninitialised
    overflow: bool = False  # whether it returned NaN or infinity for finite inputs
    failed: str = ""  # the error it raised, in one line

    @property
    def where(self) -> str:
        """Path of the call's group, used as its name."""
        return f"{self.op}/{self.number}"

    @property
    def read_from(self) -> int:
        """Index of the first input whose values are read; an input that is only overwritten is skipped."""
        return 1 if self.op.startswith(_OVERWRITES) else 0

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> OpCall:
        """Return a call from its JSON form in the file; raise TypeError or KeyError if it is invalid."""
        for name, kind in _KINDS.items():
            if not isinstance(fields[name], kind):
                raise TypeError(f"{name} is {fields[name]!r}")
        tensors = {
            slot: tuple(
                KeptTensor(str(one["dtype"]), tuple(one["shape"]), tuple(one["stride"]), str(one["digest"]))
                for one in fields[slot]
            )
            for slot in ("inputs", "outputs")
        }
        call = cls(**{**fields, **tensors, "written": tuple(fields["written"])})
        sizes = [size for one in (*call.inputs, *call.outputs) for size in (*one.shape, *one.stride)]
        if not all(isinstance(k, int) for k in (*sizes, *call.written)) or len(call.written) != len(call.outputs):
            raise TypeError("a shape, stride or index of an input is invalid")
        if not all(-1 <= k < max(len(call.inputs), 1) for k in call.written):
            raise TypeError(f"it wrote into inputs {list(call.written)} of {len(call.inputs)}")
        return call


_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("number", "index", "step"), int),
    **dict.fromkeys(("op", "phase", "module", "source", "device", "failed"), str),
    **dict.fromkeys(("args", "inputs", "outputs", "written"), list),
    **dict.fromkeys(("view", "draws", "empty", "overflow"), bool),
    "kwargs": dict,
    "loss_scale": (int, float, type(None)),
}


@dataclass
class Recorded:
    """The contents of a group: the call, and its arrays as stored."""

    call: OpCall
    inputs: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    state: Array | None = None


def kept_tensor(array: Array, dtype: str, stride: Sequence[int]) -> KeptTensor:
    """Return the description of a tensor; the array is in the form :func:`as_numbers` takes."""
    whole = np.ascontiguousarray(array)
    digest = hashlib.blake2b(f"{dtype}{array.shape}".encode(), digest_size=16)
    digest.update(whole.reshape(-1).view(np.uint8).data)
    return KeptTensor(dtype, tuple(array.shape), tuple(stride), digest.hexdigest())


def as_numbers(array: Array, dtype: str) -> Array:
    """Return the values of a tensor as stored, or as float32 if NumPy lacks its dtype."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
