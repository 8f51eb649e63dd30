"""Random graphs in float16 and bfloat16, compiled for the device and uncompiled.

``python -m tests.torch_sdaa.dynamo.random_graphs [--graphs N] [--seed N|today]``

Every operator of a graph rounds its exact result to the dtype, or moves elements, so that the order in which a kernel
adds does not matter: results and gradients must be the same bits, infinities and NaN included. A result may pass
one more operator (sums, softmax, exponentials), whose values may be one number of the dtype apart, or 1e-6 of the
largest operand. Prints graphs that differ with their programs; exit code 1 where there are any.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.torch_sdaa.hard.__main__ import seed_of
from torch_sdaa import dynamo

F = torch.nn.functional

SHAPE = (6, 8)

UNARY: dict[str, Callable[[Any], Any]] = {
    "x * 0.37": lambda x: x * 0.37,
    "x * 300": lambda x: x * 300,
    "x + 1.7": lambda x: x + 1.7,
    "0.9 - x": lambda x: 0.9 - x,
    "x / 3": lambda x: x / 3,
    "1 / x": lambda x: 1 / x,
    "-x": lambda x: -x,
    "x.abs()": lambda x: x.abs(),
    "x.abs().sqrt()": lambda x: x.abs().sqrt(),
    "x.relu()": lambda x: x.relu(),
    "x.square()": lambda x: x.square(),
    "x.clamp(-2.3, 4.1)": lambda x: x.clamp(-2.3, 4.1),
    "leaky_relu(x)": lambda x: F.leaky_relu(x, 0.1),
    "hardtanh(x)": F.hardtanh,
    "x.flip(0)": lambda x: x.flip(0),
    "x.roll(1, 1)": lambda x: x.roll(1, 1),
    "x.t().contiguous().view(6, 8)": lambda x: x.t().contiguous().view(SHAPE),
    "x[:, :1] + x": lambda x: x[:, :1] + x,
    "x.amax(1, keepdim=True) - x": lambda x: x.amax(1, keepdim=True) - x,
    "cat of halves": lambda x: torch.cat([x[:, 4:], x[:, :4]], 1),
    "x.float().mul(1.1).to(x.dtype)": lambda x: x.float().mul(1.1).to(x.dtype),
    "x.detach() + x": lambda x: x.detach() + x,
}
"""Operators that round their exact result once, or move elements."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "maximum(x, y)": torch.maximum,
    "minimum(x, y)": torch.minimum,
    "where(x > y, x, y * 0.5)": lambda x, y: torch.where(x > y, x, y * 0.5),
    "where(x > 0.1, y, x)": lambda x, y: torch.where(x > 0.1, y, x),
    "x.masked_fill(y > 0, 0.3)": lambda x, y: x.masked_fill(y > 0, 0.3),
}

LAST: dict[str, Callable[[Any], Any]] = {
    "softmax(x, 1)": lambda x: x.softmax(1),
    "x.sum(1)": lambda x: x.sum(1),
    "x.mean(0)": lambda x: x.mean(0),
    "x.exp()": lambda x: x.exp(),
    "x.tanh()": lambda x: x.tanh(),
    "x.sigmoid()": lambda x: x.sigmoid(),
    "silu(x)": F.silu,
    "gelu(x)": F.gelu,
    "x.double()": lambda x: x.double(),
}
"""Operators that only the last step may be: kernels differ in the order of additions and in the last bit."""


@dataclass
class Graph:
    """A program over two inputs: each step has an operator, and the places of its operands among earlier values."""

    steps: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    last: str = ""

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the last two values, and the last one after the operator ``last``."""
        values = list(inputs)
        for name, places in self.steps:
            operands = [values[place] for place in places]
            values.append(UNARY[name](*operands) if len(operands) == 1 else BINARY[name](*operands))
        # A compiled backward multiplies the derivative of an unused result by 0, and 0 times infinity is NaN.
        return values[-1], values[-2], LAST[self.last](values[-1].detach())


def graph_of(seed: int) -> Graph:
    """Return the graph of a seed: 4 to 12 operators, most of them on recent values."""
    draw = random.Random(seed)
    made = Graph(last=draw.choice(sorted(LAST)))
    for length in range(2, 2 + draw.randint(4, 12)):
        recent = max(0, length - 4)
        if draw.random() < 0.5:
            made.steps.append((draw.choice(sorted(UNARY)), (draw.randrange(recent, length),)))
        else:
            places = draw.randrange(recent, length), draw.randrange(length)
            made.steps.append((draw.choice(sorted(BINARY)), places))
    return made


def results(function: Callable[..., Any], seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return the three results and the gradients of both inputs, on the CPU."""
    drawn = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(SHAPE, generator=drawn).mul(3).to(dtype).sdaa().requires_grad_() for _ in range(2)]
    made = function(*inputs)
    wanted = [one for one in made[:2] if one.requires_grad]
    grads = torch.autograd.grad(wanted, inputs, [torch.ones_like(one) for one in wanted], allow_unused=True)
    return [one.detach().cpu() for one in (*made, *(grad for grad in grads if grad is not None))]


def differing(seed: int, dtype: torch.dtype) -> str:
    """Return how the compiled graph of a seed differs from the uncompiled one; empty if it does not.

    Raises:
        AssertionError: a part of the graph was not compiled.
    """
    torch._dynamo.reset()
    dynamo.clear()
    graph = graph_of(seed)
    expected, made = results(graph, seed, dtype), results(torch.compile(graph, backend="sdaa"), seed, dtype)
    assert not dynamo.report().fallbacks, dynamo.report().fallbacks
    for place, (ours, theirs) in enumerate(zip(made, expected, strict=True)):
        last = place == 2
        near = torch.finfo(dtype).eps if last else 0.0
        largest = expected[0].double().nan_to_num(0, 0, 0).abs().max().item() if last else 0.0
        apart = ~torch.isclose(ours, theirs, rtol=near, atol=1e-6 * max(1.0, largest) if last else 0.0, equal_nan=True)
        if apart.any():
            return f"result {place}: {ours[apart][:3].tolist()}, uncompiled {theirs[apart][:3].tolist()}"
    return ""


def main(given: list[str] | None = None) -> int:
    """Compare the graphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=200, help="number of graphs of each dtype (default: 200)")
    parser.add_argument("--seed", type=seed_of, default=0, help="seed of the first graph; today: the date (default: 0)")
    args = parser.parse_args(given)
    if args.graphs < 1:
        parser.error(f"--graphs {args.graphs}: must be at least 1")
    first, failed = args.seed, 0
    for dtype in (torch.float16, torch.bfloat16):
        for seed in range(first, first + args.graphs):
            why = differing(seed, dtype)
            if why:
                failed += 1
                graph = graph_of(seed)
                sys.stdout.write(f"{dtype}, seed {seed}: {why}\n  {graph.steps}, {graph.last}\n")
    sys.stdout.write(f"{2 * args.graphs} graphs from seed {first}: {failed} differ\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
