"""Execution of a partition: an ONNX model for the sizes of a call, computed in the device's memory as one launch.

Each plan is an operator in the namespace ``sdaa_graph`` with a CPU kernel only, so that a call is handled like every
operator of the device: aliases of its memory as inputs, results on the device, an entry in the launch log, faults. Its
price is the sum of the card's kernels (:mod:`torch_sdaa.dynamo.kernels`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from torch import fx

from engine import ModelError
from engine.backends import HostSession
from engine.passes import PassOptions
from engine.sdaa import Lowered, lowered
from torch_sdaa.cost import prices
from torch_sdaa.dynamo import artefacts, cache, records
from torch_sdaa.dynamo.builder import ENDS, NARROW, Unsupported
from torch_sdaa.dynamo.convert import results_of, written
from torch_sdaa.dynamo.kernels import work_of
from torch_sdaa.dynamo.options import Options
from torch_sdaa.dynamo.sizes import Sizes

_library = torch.library.Library(prices.GRAPHS, "FRAGMENT")
_numbers = count()
_NOWHERE = torch.empty(1)
"""Stands for the memory of tensors without elements."""


class Partition(torch.nn.Module):
    """Replaces the operators of a partition in a graph.

    Args:
        graph: the operators. name: for messages and the launch log.
        device: of the results. numbers: sizes of the current call.
        strided: indices of the results that must have the traced strides.
    """

    def __init__(
        self,
        graph: fx.Graph,
        name: str,
        device: torch.device,
        numbers: Numbers,
        options: Options,
        strided: set[int],
        kept: records.Partition,
    ) -> None:
        super().__init__()
        self._graph, self._name, self._device, self._options = graph, name, device, options
        self._numbers, self._kept = numbers, kept
        results = results_of(graph)
        (given,) = graph.output_node().args
        self._single = not isinstance(given, (tuple, list))
        self._results = [node.meta["val"] for node in results]
        self._strided = strided
        self._tensors = [isinstance(node.meta["val"], torch.Tensor) for node in graph.find_nodes(op="placeholder")]
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._token: torch.Tensor | None = None
        self._written: list[int] = []

    def write(self, place: int) -> None:
        """Write a result also to one more tensor, which each call passes after the graph's inputs."""
        self._written.append(place)

    def forward(self, *values: Any) -> Any:
        """Run the plan for the current sizes; create it if it is missing."""
        key = self._numbers.key
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self.plan(self._numbers.sizes)
        plan.kept.runs += 1
        count = len(self._tensors)
        tensors = [value for value, is_tensor in zip(values[:count], self._tensors, strict=True) if is_tensor]
        changed = list(values[count:])
        if not tensors and self._token is None:  # selects the device for a partition without tensor inputs
            self._token = torch.empty(0, device=self._device)
        kept = self._options.keep and plan.kept.runs == 1
        given = artefacts.arrays(tensors) if kept else []  # before any of them is changed
        between = torch.empty(plan.between, dtype=torch.uint8, device=self._device)  # allocated during the computation
        with torch._C._AutoDispatchBelowAutograd():
            made = plan.call(tensors or [self._token], changed, self._written)
        del between
        if changed:
            torch.autograd.graph.increment_version(changed)
        if kept:
            artefacts.keep_values(self._options, plan.kept.file, given, artefacts.arrays(made))
        if self._strided:
            made = [self._laid_out(place, each) for place, each in enumerate(made)]
        return made[0] if self._single else made

    def _laid_out(self, place: int, value: Any) -> Any:
        """Return a result with the traced strides, which code outside may read."""
        if place not in self._strided:
            return value
        strides = self._numbers.sizes.shape(self._results[place].stride())
        if strides == value.stride():
            return value
        laid = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
        once = tuple(slice(None) if stride else slice(0, 1) for stride in strides)  # expanded dimensions once
        laid[once].copy_(value[once])
        return laid

    def plan(self, sizes: Sizes) -> _Plan:
        """Return a plan for sizes, from the cache or newly built.

        Raises:
            Unsupported: the graph has no ONNX form. ModelError: ONNX Runtime has no kernel for it.
        """
        began = time.perf_counter()
        nodes = [node for node in self._graph.nodes if node.op == "placeholder"]
        inputs = [node.meta["val"] for node in nodes if isinstance(node.meta["val"], torch.Tensor)]
        shapes = tuple(sizes.shape(value.shape) for value in inputs)
        numbers = [sizes.number(node.meta["val"]) for node in nodes if not isinstance(node.meta["val"], torch.Tensor)]
        key = cache.key_of(self._graph, (shapes, numbers, self._numbers.key), "")
        entry, ignored = cache.read(key) if self._options.cache else (None, "")
        source = "cache" if entry is not None else "built"
        if entry is None:
            entry = self._built(sizes)
            if self._options.cache:
                cache.write(key, entry)
        session = HostSession(entry.model, torch.get_num_threads())
        launch = f"{self._name}_{key[:8]}_{next(_numbers)}"
        seconds = prices.add_graph(f"{prices.GRAPHS}::{launch}", entry.work)
        results = [(sizes.shape(value.shape), value.dtype) for value in self._results]
        spent = time.perf_counter() - began
        file = f"{self._name}_{len(self._plans)}" if self._options.const_name else launch
        kept = records.Plan(launch, file, shapes, len(entry.work.kernels), seconds, entry.nodes, source, spent, ignored)
        self._kept.plans.append(kept)
        artefacts.keep_model(self._options, file, entry.model)
        return _Plan(session, results, launch, kept, entry.work.activations)

    def _built(self, sizes: Sizes) -> cache.Entry:
        model = written(self._graph, sizes)
        shapes = {info.name: tuple(d.dim_value for d in info.type.tensor_type.shape.dim) for info in model.graph.input}
        narrow = [info.type.tensor_type.elem_type for info in model.graph.input]
        narrow += [a.i for node in model.graph.node if node.op_type == "Cast" for a in node.attribute]
        if not set(NARROW.values()).intersection(narrow):  # the passes could move values across a rounding
            made: Lowered = lowered(model, PassOptions(), shapes, float16=False, batch=1)
            model = made.stored
        return cache.Entry(model.SerializeToString(), work_of(self._graph, sizes), len(model.graph.node))


def _for_host(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of an input or output of a model."""
    return torch.float32 if dtype is torch.bfloat16 else dtype


class _Plan:
    """Computes a partition for one set of sizes."""

    def __init__(
        self,
        session: HostSession,
        results: Sequence[tuple[tuple[int, ...], torch.dtype]],
        launch: str,
        kept: records.Plan,
        between: int,
    ) -> None:
        self._session, self.kept = session.session, kept
        self.between = between
        """Peak bytes between its kernels."""
        self._inputs = [tensor.name for tensor in session.inputs]
        self._outputs = list(zip([tensor.name for tensor in session.outputs], results, strict=True))
        self._options = session._run_options
        self._idle: list[_Bound] = []
        """Bindings of earlier calls; concurrent calls use one each."""
        _library.define(f"{launch}(Tensor[] values, Tensor(a!)[] written, int[] places) -> Tensor[]")
        _library.impl(launch, self._compute, "CPU")
        self.call = getattr(getattr(torch.ops, prices.GRAPHS), launch).default

    def _compute(
        self, values: Sequence[torch.Tensor], changed: Sequence[torch.Tensor], places: Sequence[int]
    ) -> list[torch.Tensor]:
        """Compute on the host's aliases of the device's memory; contiguous tensors are not copied.

        Inputs are mutated at the end, because the model may still read them.
        """
        bound, held = self._idle.pop() if self._idle else _Bound(self._session.io_binding()), []
        for name, value in zip(self._inputs, values if self._inputs else (), strict=True):
            value = value.to(_for_host(value.dtype)).contiguous()
            held.append(value)
            bound.give(name, value)
        made = []
        for name, (shape, dtype) in self._outputs:
            result = torch.empty(shape, dtype=_for_host(dtype))
            made.append(result)
            bound.take(name, result)
        self._session.run_with_iobinding(bound.binding, self._options)
        self._idle.append(bound)
        made = [result.to(dtype) for result, (_, (_, dtype)) in zip(made, self._outputs, strict=True)]
        for tensor, place in zip(changed, places, strict=True):
            tensor.copy_(made[place])
        return made


class _Bound:
    """A session's binding that keeps unchanged addresses between calls: binding a tensor takes microseconds."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding
        self._given: dict[str, int] = {}
        self._taken: dict[str, int] = {}

    def give(self, name: str, value: torch.Tensor) -> None:
        """Bind an input; shape and dtype are the same in every call."""
        place = value.data_ptr() or _NOWHERE.data_ptr()
        if self._given.get(name) != place:
            self.binding.bind_input(name, "cpu", 0, ENDS[value.dtype], list(value.shape), place)
            self._given[name] = place

    def take(self, name: str, result: torch.Tensor) -> None:
        """Bind an output."""
        place = result.data_ptr() or _NOWHERE.data_ptr()
        if self._taken.get(name) != place:
            self.binding.bind_output(name, "cpu", 0, ENDS[result.dtype], list(result.shape), place)
            self._taken[name] = place


class Numbers:
    """Sizes of the current call, for every partition of a graph."""

    def __init__(self) -> None:
        self.sizes = Sizes()
        self.key: tuple[Any, ...] = ()

    def set(self, numbers: dict[Any, int]) -> None:
        """Set the sizes of a call."""
        if numbers:
            self.sizes = Sizes(numbers)
            self.key = tuple(sorted((str(symbol), number) for symbol, number in numbers.items()))


def label(text: str) -> str:
    """Return a text as part of an operator's name."""
    return re.sub(r"\W+", "_", text).strip("_")


__all__ = ["ModelError", "Numbers", "Partition", "Unsupported", "label"]
