"""Host cost of the training device: microseconds per operator, and a resnet18 step, compared with plain CPU PyTorch.

Both compute the same values with the same kernels, in turn, on one core; the measured time is the host's CPU time (not
the simulated card's). ``--profile`` prints the time of a step by operator, on both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from parts.bench import Turns, arguments, finish, median, take_turns

import torch_sdaa  # noqa: F401 - makes the device
from utils.export.networks.torchvision_models import import_torchvision

MOST_US = 0.8
MOST_RATIO = 1.05
Tensor = torch.Tensor

OPERATORS: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + x,
    "mul by a number": lambda x: x * 2.0,
    "relu_": lambda x: x.relu_(),
    "mm": lambda x: x @ x,
    "linear": lambda x: F.linear(x, x),
    "sum": lambda x: x.sum(),
    "softmax": lambda x: x.softmax(1),
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[1:3],
    "empty_like": lambda x: torch.empty_like(x),
    "clone": lambda x: x.clone(),
    "cat": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x > 0, x, x),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
}
"""Each on 8 x 8 float32: the time of the kernel is negligible."""


def block(call: Callable[[], Any], calls: int) -> Callable[[], float]:
    """Return a measurement: the mean CPU microseconds of ``calls`` calls."""

    def measure() -> float:
        start = time.process_time()
        for _ in range(calls):
            call()
        torch.sdaa.synchronize()
        return (time.process_time() - start) / calls * 1e6

    return measure


def operators(calls: int, rounds: int) -> dict[str, Turns]:
    """Measure every operator on both, in turn; microseconds a call."""
    found = {}
    for name, run in OPERATORS.items():
        plain, there = torch.ones(8, 8), torch.ones(8, 8, device="sdaa")
        ours, peer = (block(lambda x=x, run=run: run(x), calls) for x in (there, plain))
        take_turns(ours, peer, 2)  # warm-up
        found[name] = take_turns(ours, peer, rounds)
    return found


def step(device: str) -> Callable[[], Any]:
    """Return one training step of resnet18: 4 images of 64 x 64, SGD with momentum."""
    torch.manual_seed(0)
    model = import_torchvision().models.resnet18(num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, foreach=False)
    x, y = torch.randn(4, 3, 64, 64).to(device), torch.zeros(4, dtype=torch.long).to(device)

    def run() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return run


def steps(calls: int, rounds: int) -> Turns:
    """Measure a step on both, in turn; CPU milliseconds a step."""
    ours, peer = (block(step(device), calls) for device in ("sdaa", "cpu"))
    take_turns(ours, peer, 1)
    turns = take_turns(ours, peer, rounds)
    return Turns([us / 1e3 for us in turns.ours], [us / 1e3 for us in turns.peer])


def profile() -> None:
    """Print a step's CPU time by operator, on both."""
    for device in ("cpu", "sdaa"):
        run = step(device)
        run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            run()
        print(f"one step on {device}")
        print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--calls", type=int, default=1000, help="calls per block of an operator")
    parser.add_argument("--rounds", type=int, default=15, help="blocks per side")
    parser.add_argument("--profile", action="store_true", help="also print where a step's time goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = operators(20, 3) if args.quick else operators(args.calls, args.rounds)
    trained = steps(1, 3) if args.quick else steps(2, args.rounds)
    for name, turns in found.items():
        ours, peer = median(turns.ours), median(turns.peer)
        print(f"{name:16} sdaa {ours:6.2f} us, CPU {peer:6.2f} us, {turns.difference:+.2f} us (CPU time on the host)")
    overhead = median([turns.difference for turns in found.values()])
    print(f"overhead an operator: {overhead:.2f} us (median; at most {MOST_US:g}: ", end="")
    print("met)" if overhead <= MOST_US else "MISSED)")
    print(f"resnet18 step: sdaa {median(trained.ours):.1f} ms, CPU {median(trained.peer):.1f} ms, ", end="")
    print(f"ratio {trained.ratio:.3f} (at most {MOST_RATIO:g}: {'met' if trained.ratio <= MOST_RATIO else 'MISSED'})")
    if args.profile:
        profile()
    operator_rows = {
        name: {"sdaa_us": median(t.ours), "cpu_us": median(t.peer), "difference_us": t.difference}
        for name, t in found.items()
    }
    result = {"operators": operator_rows, "overhead_us": overhead, "most_overhead_us": MOST_US}
    result |= {"step_ratio": trained.ratio, "most_step_ratio": MOST_RATIO}
    finish("training_device", {**result, "step_sdaa_ms": trained.ours, "step_cpu_ms": trained.peer}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
