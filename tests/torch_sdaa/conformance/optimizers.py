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

from tests.torch_sdaa.conformance.copies import DEVICE, DifferentError, compare, copied
from tests.torch_sdaa.conformance.tally import Entry, excuses

ALLOWED = 0
"""Maximum number of skipped entries."""
STEPS = 3


def _configurations(info: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the configurations of an optimizer: a name, and its arguments.

    The database's own, with those it keeps for CUDA (capturable); each as it is and with each of ``foreach``, ``fused``
    and ``differentiable`` that the optimizer has; and its own for sparse gradients.
    """
    seen: set[str] = set()
    for arguments in info.optim_inputs_func("cuda"):  # only its type is looked at
        for form in ("", *info.supported_impls):
            name = " & ".join([arguments.desc or "default", *([form] if form else [])])
            if name not in seen:
                seen.add(name)
                flags = {other: other == form for other in info.supported_impls} if form else {}
                yield name, {**arguments.kwargs, **flags}
    if info.supports_sparse:
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
            entry.absent = f"PyTorch refuses this configuration: {theirs}"
        else:
            entry.wrong.append(f"{ours!r} instead of {theirs!r}")
        return entry
    if isinstance(ours, Exception):
        entry.wrong.append(repr(ours))
        return entry
    try:
        compare(ours[0], theirs[0])
        _same_state(ours[1], theirs[1])
    except DifferentError as error:
        entry.wrong.append(str(error))
    entry.counts["forward"] += 1
    entry.counts["steps"] += steps
    return entry


def _same_state(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Compare the optimizers' states; a step counter may be on the CPU in both."""
    for mine, other in zip(ours, theirs, strict=True):
        if sorted(mine) != sorted(other):
            raise DifferentError(f"the state holds {sorted(mine)}, not {sorted(other)}")
        for key, value in other.items():
            if isinstance(value, Tensor) and mine[key].device.type == "cpu":
                if not mine[key].equal(value):
                    raise DifferentError(f"{key} is {mine[key]}, not {value}")
            else:
                try:
                    compare(mine[key], value)
                except DifferentError as error:
                    raise DifferentError(f"{key}: {error}") from error


def _trained(info: Any, arguments: dict[str, Any], device: str, steps: int) -> Any:
    """Return losses, parameters and states of a small network after some steps; or the error."""
    arguments = dict(arguments)
    sparse = arguments.pop("_sparse", False) or info.only_supports_sparse_grads
    torch.manual_seed(0)
    net: nn.Module = nn.Embedding(7, 3, sparse=True)
    if not sparse:
        net = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))
    net = net.to(device)
    given = copied(torch.tensor([[1, 2], [2, 6]]) if sparse else torch.linspace(-1, 2, 10).reshape(2, 5), device)
    arguments = copied(arguments, device if arguments.get("capturable") else "cpu")
    try:
        with _allowed(info, device, arguments.get("capturable", False)):
            if arguments.get("differentiable"):
                return _differentiated(info, arguments, net, given, steps)
            optimizer = info.optim_cls(net.parameters(), **arguments)

            def closure() -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = net(given).square().sum()
                loss.backward()
                return loss.detach()

            losses = [optimizer.step(closure) for _ in range(steps)]
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is compared
        return error
    return (losses, [p.detach() for p in net.parameters()]), [optimizer.state[p] for p in net.parameters()]


def _differentiated(info: Any, arguments: dict[str, Any], net: nn.Module, given: Tensor, steps: int) -> Any:
    """Return the same for steps that autograd differentiates, and the gradients of the initial values."""
    leaves = dict(net.named_parameters())
    now = {name: leaf.clone() for name, leaf in leaves.items()}
    optimizer = info.optim_cls(list(now.values()), **arguments)
    losses = []
    for _ in range(steps):
        loss = torch.func.functional_call(net, now, given).square().sum()
        for p, gradient in zip(now.values(), torch.autograd.grad(loss, list(now.values())), strict=True):
            p.grad = gradient
        optimizer.step()
        losses.append(loss.detach())
    try:
        ends = sum(p.square().sum() for p in now.values())
        back: Any = list(torch.autograd.grad(ends, list(leaves.values()), allow_unused=True))
    except RuntimeError as error:  # some steps overwrite what going back over several of them needs
        back = type(error).__name__
    states = [
        {key: value.detach() if isinstance(value, Tensor) else value for key, value in optimizer.state[p].items()}
        for p in now.values()
    ]
    return (losses, [p.detach() for p in now.values()], back), states


def _allowed(info: Any, device: str, capturable: bool) -> ExitStack:
    """Allow ``capturable`` steps on the CPU: its arithmetic differs, and PyTorch restricts it to devices."""
    stack = ExitStack()
    if capturable and device == "cpu":
        for name in ("adadelta", "adam", "adamax", "asgd", "nadam", "optimizer", "radam", "rmsprop", "rprop"):
            module = importlib.import_module(f"torch.optim.{name}")
            stack.enter_context(
                mock.patch.object(module, "_get_capturable_supported_devices", return_value=["cpu", "sdaa"])
            )
        if info.optim_cls not in (torch.optim.ASGD, torch.optim.NAdam):  # and in the device's default form
            default = importlib.import_module("torch.optim.optimizer")
            stack.enter_context(
                mock.patch.object(default, "_get_foreach_kernels_supported_devices", return_value=["cpu", "sdaa"])
            )
    return stack
