"""Optimizers: every valid configuration of PyTorch's ``optim_db``, three steps, bit for bit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.testing._internal.common_optimizers import optim_db

from tests.torch_sdaa.conformance.copies import DEVICE, Different, compare, copied
from tests.torch_sdaa.conformance.tally import Entry, excuses

ALLOWED = 0
"""How many entries may be skipped."""
STEPS = 3


def _configurations(info: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the configurations of an optimizer: a name, and its arguments.

    The database's own, with those it keeps for CUDA (capturable); each as it is and with each of ``foreach``, ``fused``
    and ``differentiable`` that the optimizer has; and its own for sparse gradients.
    """
    seen: set[str] = set()
    for told in info.optim_inputs_func("cuda"):  # only its type is looked at
        forms = [{}, *({form: True} for form in info.supported_impls)]
        for form in forms:
            if form and len(forms) > 1:
                form = {**dict.fromkeys(info.supported_impls, False), **form}
            arguments = {**told.kwargs, **form}
            name = " & ".join([told.desc or "default", *(key for key, value in form.items() if value)])
            if name not in seen:
                seen.add(name)
                yield name, arguments
    if info.supports_sparse or info.only_supports_sparse_grads:
        yield "sparse gradients", {**info.metadata_for_sparse[0], "_sparse": True}


def names() -> list[str]:
    """Return the configurations: ``Adam: capturable & foreach``."""
    return [f"{info.optim_cls.__name__}: {name}" for info in optim_db for name, _ in _configurations(info)]


def run(name: str, most: int | None = None) -> Entry:
    """Take three steps, or ``most`` where that is fewer, on the CPU and on the device."""
    entry = Entry(name, reason=excuses("optimizers")["skips"].get(name, ""))
    kind, _, configuration = name.partition(": ")
    info = next(info for info in optim_db if info.optim_cls.__name__ == kind)
    arguments = dict(_configurations(info))[configuration]
    steps = min(most or STEPS, STEPS)
    theirs = _trained(info, arguments, "cpu", steps)
    ours = _trained(info, arguments, DEVICE, steps)
    if isinstance(theirs, Exception):
        if isinstance(ours, Exception) and str(ours) == str(theirs):
            entry.counts["refused"] += 1  # not a valid configuration
        entry.wrong.append(f"{ours!r} instead of {theirs!r}")
        return entry
    if isinstance(ours, Exception):
        entry.wrong.append(repr(ours))
        return entry
    try:
        compare(ours[0], theirs[0])
        _same_state(ours[1], theirs[1])
    except Different as error:
        entry.wrong.append(str(error))
    entry.counts["forward"] += 1
    entry.counts["steps"] += steps
    return entry


def _same_state(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Compare the optimizers' states; a step counter may lie on the CPU on both."""
    for mine, other in zip(ours, theirs, strict=True):
        if sorted(mine) != sorted(other):
            raise Different(f"the state holds {sorted(mine)}, not {sorted(other)}")
        for key, value in other.items():
            if isinstance(value, Tensor) and mine[key].device.type == "cpu":
                if not mine[key].equal(value):
                    raise Different(f"{key} is {mine[key]}, not {value}")
            else:
                try:
                    compare(mine[key], value)
                except Different as error:
                    raise Different(f"{key}: {error}") from error


def _trained(info: Any, arguments: dict[str, Any], device: str, steps: int) -> Any:
    """Return the losses and parameters, and the states, of a small network after some steps; or what was raised."""
    arguments = dict(arguments)
    sparse = arguments.pop("_sparse", False)
    torch.manual_seed(0)
    net: nn.Module = (
        nn.Embedding(7, 3, sparse=True) if sparse else nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))
    )
    net = net.to(device)
    given = copied(torch.tensor([[1, 2], [2, 6]]) if sparse else torch.linspace(-1, 2, 10).reshape(2, 5), device)
    arguments = copied(arguments, "cpu" if not arguments.get("capturable") else device)
    try:
        with _allowed(device, arguments.get("capturable", False)):
            optimizer = info.optim_cls(net.parameters(), **arguments)

            def closure() -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = net(given).square().sum()
                loss.backward()
                return loss.detach()

            losses = []
            for _ in range(steps):
                if arguments.get("differentiable"):
                    losses.append(closure())
                    with torch.no_grad():
                        optimizer.step()
                else:
                    losses.append(optimizer.step(closure))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is compared
        return error
    return (losses, [p.detach() for p in net.parameters()]), [optimizer.state[p] for p in net.parameters()]


def _allowed(device: str, capturable: bool) -> ExitStack:
    """Let the CPU take the steps of ``capturable`` too: its arithmetic is another, and PyTorch keeps it for devices."""
    stack = ExitStack()
    if capturable and device == "cpu":
        for name in ("adadelta", "adam", "adamax", "asgd", "nadam", "optimizer", "radam", "rmsprop", "rprop"):
            module = importlib.import_module(f"torch.optim.{name}")
            stack.enter_context(
                mock.patch.object(module, "_get_capturable_supported_devices", lambda supports_xla=True: ["cpu", "sdaa"])
            )
    return stack
