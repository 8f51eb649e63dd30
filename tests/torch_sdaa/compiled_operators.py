"""PyTorch's operator samples in ONNX: python -m tests.torch_sdaa.compiled_operators [NAME ...]

Each sample of OpInfo (float32, forward) is traced, taken apart as the backend does, written as ONNX where each step has
a form, run, and compared with the CPU. Prints what differs, and how many samples have a form. Exit code 1 where one
differs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import torch_sdaa  # noqa: F401 -- makes the device
from engine import HostSession, ModelError
from torch_sdaa.dynamo.convert import results_of, why_not, written
from torch_sdaa.dynamo.decompositions import decompositions
from torch_sdaa.dynamo.sizes import Sizes

_RANDOM = (
    "rand",
    "normal",
    "bernoulli",
    "dropout",
    "multinomial",
    "uniform",
    "exponential",
    "cauchy",
    "geometric",
    "empty",
)


def samples(name: str) -> Iterator[tuple[Callable[..., Any], list[torch.Tensor]]]:
    """Yield functions of tensors alone, and the tensors."""
    for info in (each for each in op_db if name in (each.name, f"{each.name}.{each.variant_test_name}")):
        if torch.float32 not in info.dtypes:
            continue
        for sample in info.sample_inputs("cpu", torch.float32, requires_grad=False):
            flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
            places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]

            def call(
                *tensors: torch.Tensor, flat: Any = flat, spec: Any = spec, places: Any = places, info: Any = info
            ) -> Any:
                given = list(flat)
                for place, tensor in zip(places, tensors, strict=True):
                    given[place] = tensor
                first, args, kwargs = tree_unflatten(given, spec)
                return info.op(first, *args, **kwargs)

            yield call, [flat[place] for place in places]


def compared(call: Callable[..., Any], tensors: list[torch.Tensor]) -> tuple[str, str]:
    """Return ``same``, ``left`` or ``differs``, and why."""
    try:
        graph = make_fx(call, decompositions(), tracing_mode="fake")(*(each.sdaa() for each in tensors)).graph
    except Exception as error:  # noqa: BLE001 -- what cannot be traced is not compiled either
        return "left", f"not traced: {type(error).__name__}"
    for node in graph.nodes:
        if node.op == "call_function" and (why := why_not(node, Sizes())):
            return "left", f"{node.target}: {why}"
        if node.op == "get_attr":
            return "left", "a constant tensor"
    expected = [each for each in tree_flatten(call(*tensors))[0] if isinstance(each, torch.Tensor)]
    if not all(isinstance(node, torch.fx.Node) for node in results_of(graph)) or not expected:
        return "left", "no tensor comes out"
    try:
        session = HostSession(written(graph, Sizes()), 1)
        made = session.run([each.contiguous().numpy() for each in tensors])
    except ModelError as error:
        return "left", str(error)[:150]
    for found, wanted in zip(made, expected, strict=False):
        value = torch.from_numpy(found.copy()).reshape(found.shape)
        if (value.shape, value.dtype) != (wanted.shape, wanted.dtype):
            return "differs", f"{tuple(value.shape)} {value.dtype} for {tuple(wanted.shape)} {wanted.dtype}"
        if not torch.allclose(value.double(), wanted.double(), rtol=2e-4, atol=2e-5, equal_nan=True):
            return (
                "differs",
                f"by {(value.double() - wanted.double()).abs().max()}, shapes {[tuple(t.shape) for t in tensors]}",
            )
    return "same", ""


def counted(name: str) -> tuple[dict[str, int], list[str]]:
    """Return how many samples of an operator are the same, left or differ, and why those are not the same."""
    counts, why = {"same": 0, "left": 0, "differs": 0}, []
    for call, tensors in samples(name):
        found, reason = compared(call, tensors)
        counts[found] += 1
        if reason and f"{found}: {reason}" not in why:
            why.append(f"{found}: {reason}")
    return counts, why


def said(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(names: list[str]) -> int:
    """Compare the operators that are named, else all of them that draw nothing."""
    warnings.simplefilter("ignore")
    known = sorted({info.name for info in op_db if not any(word in info.name for word in _RANDOM)})
    total, forms = {"same": 0, "left": 0, "differs": 0}, 0
    for name in names or known:
        try:
            counts, why = counted(name)
        except Exception as error:  # noqa: BLE001 -- the samples of this operator cannot be made; the others can
            said(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''}")
            continue
        forms += bool(counts["same"])
        total = {key: total[key] + counts[key] for key in total}
        shown = [each for each in why if names or each.startswith("differs")]
        if shown:
            said(f"{name}: {counts} {shown[:3]}")
    said(f"{forms} operators have a form; samples: {total}")
    return bool(total["differs"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
