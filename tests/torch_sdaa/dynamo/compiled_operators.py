"""PyTorch's operator samples compiled: python -m tests.torch_sdaa.dynamo.compiled_operators [--dtype D] [NAME ...]

Each sample of OpInfo goes the way of a graph that ``torch.compile`` traced: functionalised and differentiated by
PyTorch, divided into partitions, computed as ONNX, what has no form left to the device. Results, gradients, changed
inputs, sizes, strides, dtypes and aliases are compared with those of the uncompiled device. Whole numbers, truth values
and what only moves or chooses numbers must be equal bit for bit, other numbers as near as ``BOUNDS`` says.
Exit code 1 where one differs or fails.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa import dynamo
from torch_sdaa.dynamo.backend import _compiled
from torch_sdaa.dynamo.decompositions import decompositions
from torch_sdaa.dynamo.options import Options

DTYPES = {
    "float32": torch.float32, "int64": torch.int64, "bool": torch.bool, "autocast": torch.float32,
    "autocast-bfloat16": torch.float32, "bfloat16": torch.bfloat16,
}  # fmt: skip
"""Dtypes of samples; ``autocast`` is float32 under autocast in float16, ``autocast-bfloat16`` in bfloat16."""

_HALVES = {"autocast": torch.float16, "autocast-bfloat16": torch.bfloat16, "bfloat16": torch.bfloat16}
"""Sums of values rounded to half the bits, and their dtypes."""

_SHARES = {torch.float16: 1e-2, torch.bfloat16: 4e-2}
"""Tolerance of such a number against the uncompiled one, relative to the largest."""

BOUNDS = {torch.float64: (2e-4, 2e-5), torch.float32: (2e-4, 2e-5), torch.float16: (1e-2, 2e-3)}
BOUNDS |= {torch.bfloat16: (8e-2, 1e-2)}
"""Relative and absolute tolerance against the uncompiled number; 5 times as much for gradients."""

_UNSTABLE = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
"""Operators with unspecified values."""

_FIGURES = {"native_batch_norm", "_native_batch_norm_legit"}
"""Operators with only one compared result: PyTorch traces statistics that the CPU's kernel leaves empty."""

_OVERWRITES = {"native_dropout_backward"}
"""Operators for which PyTorch's kernel overwrites an input by mistake: a mask with the gradient's dtype."""

_ROUGH = {"grid_sampler_2d", "logcumsumexp"}
"""Operators for which the uncompiled device is far from float64 in bfloat16."""

_MOVES = {
    "view", "reshape", "permute", "transpose", "t", "expand", "clone", "alias", "detach", "slice", "select",
    "cat", "flip", "split_with_sizes", "split", "unbind", "stack", "repeat", "roll", "tril", "triu", "full",
    "full_like", "zeros", "ones", "zeros_like", "ones_like", "where", "masked_fill", "gather", "index_select",
    "index", "scatter", "neg", "abs", "maximum", "minimum", "clamp", "relu", "constant_pad_nd", "squeeze",
    "unsqueeze", "slice_scatter", "select_scatter", "amax", "amin", "topk", "embedding", "_to_copy", "eq", "ne",
    "lt", "le", "gt", "ge", "arange", "scalar_tensor", "floor", "ceil", "round", "trunc", "sign", "copy",
    "as_strided", "max", "min", "_unsafe_view",
}  # fmt: skip
"""Operators without rounding."""


@dataclass
class Found:
    """Results of the samples of an operator."""

    counts: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def infos(names: list[str]) -> Iterator[Any]:
    """Yield the operators of these names, or all."""
    for info in op_db:
        if not names or {info.name, f"{info.name}.{info.variant_test_name}"}.intersection(names):
            yield info


def samples(info: Any, dtype: torch.dtype, grad: bool) -> Iterator[tuple[Callable[..., Any], list[torch.Tensor]]]:
    """Yield functions of tensors only, and the tensors, on the host."""
    for sample in info.sample_inputs("cpu", dtype, requires_grad=grad):
        flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]

        def call(
            *tensors: torch.Tensor, flat: Any = flat, spec: Any = spec, places: Any = places, of: Any = info.op
        ) -> Any:
            given = list(flat)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            first, args, kwargs = tree_unflatten([_moved(each) for each in given], spec)
            return of(first, *args, **kwargs)

        yield call, [flat[place].detach().requires_grad_(flat[place].requires_grad) for place in places]


def _moved(value: Any) -> Any:
    """Return an argument with the device, if it selects where to create a tensor."""
    return torch.device("sdaa:0") if value == "cpu" or value == torch.device("cpu") else value


def _on_device(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies on the device with the memory layout of the originals."""
    made = []
    for each in tensors:
        if each.layout is not torch.strided:
            raise _NotAsked("a sparse sample")
        copied = (
            torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="sdaa")
            if _plain(each)
            else each.sdaa()
        )
        made.append(
            (copied.copy_(each.detach()) if _plain(each) else copied).detach().requires_grad_(each.requires_grad)
        )
    return made


def _plain(each: torch.Tensor) -> bool:
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(each))


class _NotAsked(Exception):  # noqa: N818 -- no error: the sample says nothing about the backend
    pass


def _seeded(function: Callable[..., Any], tensors: list[torch.Tensor], half: torch.dtype | None) -> list[Any]:
    """Return results, gradients and the inputs afterwards."""
    torch.manual_seed(7)
    torch.sdaa.manual_seed(7)
    with torch.autocast("sdaa", dtype=half, enabled=half is not None and all(t.dtype is not half for t in tensors)):
        out = tree_flatten(function(*tensors))[0]
    results = [each for each in out if isinstance(each, torch.Tensor)]
    if any(each.layout is not torch.strided for each in results):
        raise _NotAsked("a sparse result, which PyTorch does not trace")
    wanted = [each for each in results if each.requires_grad]
    inputs = [each for each in tensors if each.requires_grad]
    gradients: list[Any] = []
    if wanted and inputs:
        torch.manual_seed(8)
        given = [torch.randn(each.shape).to(each.dtype).sdaa() for each in wanted]
        gradients = list(torch.autograd.grad(wanted, inputs, given, allow_unused=True))
    return [results, gradients, [each.detach() for each in tensors]]


def _how(results: list[torch.Tensor], tensors: list[torch.Tensor]) -> list[Any]:
    """Return the visible properties of results besides their numbers."""
    places = {each.untyped_storage()._cdata: place for place, each in enumerate(tensors)}
    return [
        (tuple(r.shape), r.dtype, r.device, _strides(r), places.get(r.untyped_storage()._cdata), r.requires_grad)
        for r in results
    ]


def _strides(value: torch.Tensor) -> tuple[int, ...]:
    """Return the meaningful strides: not those of sizes below 2."""
    return tuple(s for s, d in zip(value.stride(), value.shape, strict=True) if d > 1) if value.numel() else ()


def _apart(found: Any, wanted: Any, exact: bool, factor: float, half: torch.dtype | None) -> str:
    """Return how two tensors differ ("": they are equal)."""
    if found is None or wanted is None:
        return "" if found is wanted else f"{type(found).__name__} for {type(wanted).__name__}"
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{tuple(found.shape)} {found.dtype} for {tuple(wanted.shape)} {wanted.dtype}"
    found, wanted = found.detach().cpu(), wanted.detach().cpu()
    if exact or wanted.dtype not in BOUNDS:
        return "" if torch.equal(found.nan_to_num(), wanted.nan_to_num()) else f"not equal: {_first(found, wanted)}"
    rtol, atol = (factor * bound for bound in BOUNDS[wanted.dtype])
    if half and wanted.numel():  # rounded to 11 bits before it was added up
        far = (found.double() - wanted.double()).abs().nan_to_num().max().item()
        share = _SHARES[half] * factor
        near = far <= share * wanted.double().abs().nan_to_num().max().item() + 1e-2
        return "" if near else f"too far: {_first(found, wanted)}"
    near = torch.allclose(found.double(), wanted.double(), rtol=rtol, atol=atol, equal_nan=True)
    return "" if near else f"too far: {_first(found, wanted)}"


def _first(found: torch.Tensor, wanted: torch.Tensor) -> str:
    if not found.numel():
        return "empty"
    far = (found.to(torch.complex128) - wanted.to(torch.complex128)).abs().nan_to_num(nan=float("inf")).flatten()
    place = int(far.argmax())
    return f"{found.flatten()[place].item()} for {wanted.flatten()[place].item()} of {tuple(wanted.shape)}"


def compared(
    info: Any, call: Callable[..., Any], tensors: list[torch.Tensor], half: torch.dtype | None, found: Found
) -> None:
    """Count one sample."""
    try:
        plain = _on_device(tensors)
        expected = _seeded(call, plain, half)
    except Exception as error:  # noqa: BLE001 -- the uncompiled device refuses it too
        found.counts["not run"] += 1
        found.left[f"the device itself: {type(error).__name__}: {str(error)[:90]}"] += 1
        return
    dynamo.clear()
    seen, drawn = set[str](), list[Any]()

    def compiler(gm: Any, inputs: Any, stage: str) -> Any:
        seen.update(str(node.target).split(".")[1] for node in gm.graph.nodes if str(node.target).startswith("aten."))
        drawn.extend(
            node for node in gm.graph.nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        )
        return _compiled(gm, inputs, stage=stage, options=Options(cache=False))

    compiled = _traced(call, compiler)
    given = _on_device(tensors)
    sizes = [tuple(each.shape) for each in tensors]
    try:
        made = _seeded(compiled, given, half)
    except Exception as error:  # noqa: BLE001 -- each is a finding
        if _traced_by_nobody(error):
            found.counts["not traced"] += 1
            found.left[f"not traced: {type(error).__name__}"] += 1
            return
        found.counts["failed"] += 1
        found.wrong.append(f"{sizes}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}")
        return
    if drawn:  # tracing outside ``torch.compile`` does not put the generator back
        given = _on_device(tensors)
        made = _seeded(compiled, given, half)
    if info.name in _OVERWRITES:
        made[2], expected[2] = [], []
    if info.name in _FIGURES:
        made[0], expected[0] = made[0][:1], expected[0][:1]
    left = dynamo.report().fallbacks
    for each in left:
        found.left[f"{each.op}: {each.reason}"] += 1
    if _how(made[0], given) != _how(expected[0], plain):  # PyTorch itself forgets some aliases of functions it traces
        plain = _on_device(tensors)
        expected[0] = _seeded(_traced(call, lambda gm, inputs, stage: make_boxed_func(gm)), plain, half)[0]
    why = _difference(made, expected, given, plain, seen <= _MOVES, info.name in _UNSTABLE, half)
    found.counts["wrong" if why else "left" if left else "compiled"] += 1
    if why:
        found.wrong.append(f"{sizes}: {why}")


def _traced(call: Callable[..., Any], compiler: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = aot_function(
        call,
        partial(compiler, stage="forward"),
        partial(compiler, stage="backward"),
        decompositions=decompositions(),
        inference_compiler=partial(compiler, stage="inference"),
        keep_inference_input_mutations=True,
    )
    return compiled


def _traced_by_nobody(error: Exception) -> bool:
    """Return whether PyTorch itself cannot trace a function: sizes that depend on data, numbers read by the host."""
    names = {type(each).__name__ for each in (error, error.__cause__) if each is not None}
    return bool(
        names & {"DynamicOutputShapeException", "DataDependentOutputException", "UnsupportedFakeTensorException"}
    ) or (
        "tracing" in str(error)
        or "fake" in str(error).lower()
        or "GuardOnDataDependent" in str(error)
        or "meta" in str(error).lower()
    )


def _difference(
    made: list[Any],
    expected: list[Any],
    given: list[Any],
    plain: list[Any],
    exact: bool,
    unstable: bool,
    half: torch.dtype | None,
) -> str:
    if _how(made[0], given) != _how(expected[0], plain):
        return f"lies or looks otherwise: {_how(made[0], given)} for {_how(expected[0], plain)}"
    for what, ours, theirs, factor in zip(("result", "gradient", "input"), made, expected, (1, 5, 1), strict=True):
        if len(ours) != len(theirs):
            return f"{len(ours)} {what}s for {len(theirs)}"
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            why = (
                "" if unstable and what == "result" else _apart(one, other, exact and what != "gradient", factor, half)
            )
            if why:
                return f"{what} {place} {why}"
    return ""


def counted(info: Any, kind: str, seconds: float = 20.0, most: int = 1000) -> Found:
    """Compile samples of an operator until the time limit."""
    found, began, dtype = Found(), time.monotonic(), DTYPES[kind]
    if dtype not in info.dtypes or (kind == "bfloat16" and info.name in _ROUGH):
        return found
    grad = dtype.is_floating_point and info.supports_autograd and dtype in info.backward_dtypes
    torch.manual_seed(0)
    # A seed that is set within a function is set while it is traced, not when it runs.
    with mock.patch.object(common_methods_invocations, "wrapper_set_seed", lambda op, *args, **more: op(*args, **more)):
        for place, (call, tensors) in enumerate(samples(info, dtype, grad)):
            if place >= most or time.monotonic() - began > seconds:
                found.counts["not reached"] += 1
                continue
            compared(info, call, tensors, _HALVES.get(kind), found)
    return found


def said(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """Compare the given operators, or all of them."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch_sdaa.dynamo").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th operator, from the I-th")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each operator")
    parser.add_argument("--most", type=int, default=1000, help="samples of each operator")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(words)
    part, of = map(int, given.part.split("/"))
    total, left, operators = Counter[str](), Counter[str](), Counter[str]()
    for info in list(infos(given.names))[part - 1 :: of]:
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        try:
            found = counted(info, given.dtype, given.seconds, given.most)
        except Exception as error:  # noqa: BLE001 -- the samples of this operator cannot be made; the others can
            said(
                f"{name}: no samples: {type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''}"
            )
            continue
        total.update(found.counts)
        left.update(found.left.keys())
        operators["wrong" if found.wrong else "left" if found.left else "compiled"] += bool(found.counts)
        if found.wrong or given.names:
            said(f"{name}: {dict(found.counts)}")
            for line in [*found.wrong[:4], *(found.left if given.names else ())]:
                said(f"    {line[:500]}")
    said(f"{given.dtype}: operators {dict(operators)}; samples {dict(total)}")
    for reason, count in left.most_common(60):
        said(f"  left {count}: {reason}")
    return bool(operators["wrong"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
