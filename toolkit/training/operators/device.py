"""The live device: its operator table, read from PyTorch's dispatcher, and single calls. Runs in its own process."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import torch_sdaa  # noqa: F401 - registers the device
from toolkit.training.operators.table import COMPOSITE, FALLBACK, KERNEL, MISSING, DeviceTable, as_text
from torch_sdaa.loading.core import C

_FAMILIES = re.compile(
    r"_?(foreach_|fused_(?!sdp|moving|rms)|adaptive_|max_pool|avg_pool|fractional_max_pool|(log_)?softmax|native_|(un)?fold"
    r"|(batch|layer|group|rms)_norm|nll_loss|\w*_loss|embedding|cat|stack|copy|fill|zero|index|gather|scatter|take|masked"
    r"|upsample|grid_sampler|im2col|col2im|reflection_pad|replication_pad|constant_pad|pixel_|channel_shuffle|roll|flip|repeat"
    r"|dropout|bernoulli|uniform|normal|random|exponential|log_normal|rand|arange|range|linspace|eye|tri[lu]|where|clone"
    r"|select_backward|slice_backward|diag|cumsum|cumprod|local_scalar_dense|empty|resize|set_|amp_|convolution|cdist"
    r"|bmm|mv|ger|dot|vdot|addbmm|addmv|addr|linear|bilinear|\w*mm_?$|addmm_activation|to_copy|prelu|glu|logsumexp|one_hot"
    r"|(elu|gelu|silu|hard\w+|leaky_relu|rrelu_with_noise|log_sigmoid|mish|softplus|softshrink|threshold)(_(back|for)ward)?_?$"
    r"|binary_cross_entropy|slow_conv|narrow_copy|trace|put_|floor_divide|weight_norm|max_unpool|aminmax|cumm)"
)
"""Operators that make one pass over their bytes, or whose multiply-adds follow from their shapes. Views, and operators
tagged by torch as pointwise or reduction, are recognized otherwise.
"""


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of one call on the device."""

    outcome: str  # ``ran``, ``refused`` (no kernel) or ``failed`` (the generated values were not accepted)
    why: str = ""  # one line, if it did not run
    seconds: float = 0.0  # simulated
    assumed: float = 0.0  # the part of them that rests on assumed rates
    launches: tuple[str, ...] = ()  # names of the launched kernels
    strict: tuple[str, ...] = ()  # why strict mode would refuse some of them


def live_table() -> DeviceTable:
    """Return how the device of this process serves each ATen operator."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    levels = {name: level_of(name) for name in sorted(names)}
    tag = torch.Tag.dynamic_output_shape
    return DeviceTable(torch.__version__, levels, frozenset(n for n in names if tag in (_overload(n)).tags))


def level_of(name: str) -> str:
    """Return how the device serves an operator, from its dispatch table entry."""
    found = re.search(r"^PrivateUse1: .*\[(.+)\]$", torch._C._dispatch_dump_table(name), re.MULTILINE)
    way = found[1] if found else ""
    if way in ("math kernel", "default backend kernel"):
        return COMPOSITE
    if way == "kernel":
        return KERNEL if not _boxed(name) or _priced(name) else FALLBACK
    on_cpu = torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")
    return FALLBACK if way == "backend fallback" and on_cpu else MISSING


def _boxed(name: str) -> bool:
    """Return whether the generic kernel serves an operator; a specific kernel has a signature."""
    lines = torch._C._dispatch_dump(name).splitlines()
    line = next(line for line in lines if line.startswith("PrivateUse1: "))
    return line.endswith(":: (none) [ boxed ]") and ".py:" not in line


def _priced(name: str) -> bool:
    """Return whether shapes determine the work of an operator."""
    overload = _overload(name)
    view = any(one.alias_info is not None and not one.alias_info.is_write for one in overload._schema.returns)
    tagged = torch.Tag.pointwise in overload.tags or torch.Tag.reduction in overload.tags
    return view or tagged or _FAMILIES.match(name.removeprefix("aten::").partition(".")[0].lstrip("_")) is not None


def _overload(name: str) -> Any:
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")


# ------------------------------------------------------------------------------------------------------- single calls


def tried(name: str, call: Sequence[Any]) -> Tried:
    """Make one call on the device, on tensors of the recorded sizes, strides and dtypes, with generated values."""
    try:
        args, kwargs = (decoded(one) for one in call)
        function = _overload(name)
    except (ValueError, AttributeError) as error:
        return Tried("failed", str(error))
    C.settle()
    known, before = _counts(), dict(C.times(0))
    try:
        with torch.no_grad():
            function(*args, **kwargs)
    except NotImplementedError as error:
        return Tried("refused", str(error).strip().partition("\n")[0])
    except Exception as error:  # noqa: BLE001 - operators raise any type of error for invalid values
        return Tried("failed", f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0])
    C.settle()
    after = dict(C.times(0))
    launches = [one for one, count, seconds, _ in C.signatures() if count > known.get(repr(one), 0) and seconds]
    took = {key: after[key] - before[key] for key in ("compute", "copies", "assumed")}
    strict = dict.fromkeys(filter(None, map(_refusal(), launches)))
    names = dict.fromkeys(str(one[0]) for one in launches)
    return Tried("ran", "", took["compute"] + took["copies"], took["assumed"], tuple(names), tuple(strict))


def _counts() -> dict[str, int]:
    """Return the number of launches by signature."""
    return {repr(one): count for one, count, _, _ in C.signatures()}


def _refusal() -> Callable[[Any], str]:
    """Return the function that returns why strict mode refuses a launch, or ""."""
    if importlib.util.find_spec("torch_sdaa.options.strict") is None:
        return lambda launch: ""
    found: Callable[[Any], str] = importlib.import_module("torch_sdaa.options.strict").refusal
    return found


def decoded(value: Any) -> Any:
    """Return an argument on the device from its recorded form; raise ValueError if its type was not recorded."""
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {name: decoded(one) for name, one in content.items()}
    if kind == "tensor":
        return _made(*content)
    if kind == "sparse":
        return _sparse(*content)
    if kind == "float":
        return float(content)
    if kind == "device":
        return torch.device("sdaa", 0)
    if kind == "opaque":
        raise ValueError(f"not tried: it takes a {content}")
    return getattr(torch, content)


def _made(dtype: str, shape: Sequence[int], stride: Sequence[int], offset: int, stored: int) -> torch.Tensor:
    """Return a tensor on the device: integers are 0, a valid index everywhere, other values lie between 0 and 1."""
    kind: torch.dtype = getattr(torch, dtype)
    storage = torch.zeros(stored, dtype=kind, device="sdaa")
    if kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        storage.uniform_(generator=torch.Generator("sdaa").manual_seed(0))
    return storage.as_strided(tuple(shape), tuple(stride), offset)


def _sparse(dtype: str, shape: Sequence[int], sparse: int, count: int) -> torch.Tensor:
    """Return a sparse tensor on the device, all elements at index 0."""
    values = torch.zeros(count, *shape[sparse:], dtype=getattr(torch, dtype), device="sdaa")
    places = torch.zeros(sparse, count, dtype=torch.int64, device="sdaa")
    return torch.sparse_coo_tensor(places, values, tuple(shape), check_invariants=False)


def examined(calls: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, Any]:
    """Return the table, and the results of all calls in the given order."""
    found = {name: [asdict(tried(name, call)) for call in forms] for name, forms in calls.items()}
    return {"table": as_text(live_table()), "tried": found}


def main() -> None:
    """Read the calls from one JSON file and write the results to another."""
    question, answer = map(Path, sys.argv[1:3])
    found = examined(json.loads(question.read_text(encoding="utf-8")))
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
