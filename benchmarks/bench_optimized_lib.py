"""The affinity library compared with the code it replaces: launches and simulated time of the launch log, and values.

The figures do not depend on this machine, only on the costs of the card. ``--markdown`` prints a page's rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torch_sdaa.contrib import optimized_lib as lib
from torch_sdaa.contrib.optimized_lib import plain
from torch_sdaa.cost.predicted_cost import observe
from torch_sdaa.loading.core import C

Tensor = torch.Tensor
Run = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A part of the library compared with what it replaces: launches and simulated microseconds."""

    name: str
    replaces: str
    launches: tuple[int, int]
    micros: tuple[float, float]
    equal: bool


def numbers(*sizes: int, seed: int = 0) -> Tensor:
    """Return random numbers of the device, the same on every machine."""
    return torch.rand(sizes, generator=torch.Generator().manual_seed(seed)).to("sdaa")


def boxes(count: int, seed: int) -> Tensor:
    """Return boxes whose corners are in order."""
    made = numbers(count, 4, seed=seed) * 400
    return torch.cat([made[:, :2], made[:, :2] + made[:, 2:] / 4 + 1], 1)


def row(name: str, replaces: str, before: Run, after: Run) -> Row:
    """Run both, compare what they return, and count the launches of each."""
    one, other = before(), after()
    equal = all(torch.equal(a, b) for a, b in zip(flat(one), flat(other), strict=True))
    seen = [observe(run, 0) for run in (before, after)]
    launches = len(seen[0].launches), len(seen[1].launches)
    return Row(name, replaces, launches, (seen[0].seconds * 1e6, seen[1].seconds * 1e6), equal)


def flat(value: Any) -> list[Tensor]:
    """Return the tensors in what a run returned."""
    return [x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, Tensor)]


def with_backward(run: Callable[..., Any], *given: Tensor) -> Run:
    """Return a function that runs forward and backward and returns results and gradients."""

    def both() -> Any:
        leaves = [x.detach().requires_grad_() for x in given]
        made = flat(run(*leaves))
        return made, torch.autograd.grad(made, leaves, [torch.ones_like(each) for each in made])

    return both


def shuffles() -> list[Row]:
    """Return the rows of the channel shuffle, on the widest block of a ShuffleNet at batch 32."""
    x1, x2 = numbers(32, 116, 14, 14, seed=1), numbers(32, 116, 14, 14, seed=2)
    rows = []
    for split in (True, False):
        ours = lib.ChannelShuffle(232, 2, split)

        def theirs(a: Tensor, b: Tensor, split: bool = split) -> Any:
            mixed = plain.shuffle((a, b), 2)
            return mixed.chunk(2, 1) if split else mixed

        shown = f"cat, channel_shuffle{', chunk' if split else ''}"
        rows.append(
            row("ChannelShuffle", f"{shown}: forward, backward", *(with_backward(f, x1, x2) for f in (theirs, ours)))
        )
    return rows


def detector() -> list[Row]:
    """Return the rows of the functions on boxes: 512 proposals, 80 classes."""
    left, right = boxes(512, 3), boxes(64, 4)
    proposals, scores = boxes(512, 5).repeat(1, 80), numbers(512, 81, seed=6)
    given = (480, 640, 0.97, 0.5, 100)

    def replaced() -> Any:
        height, width, least, most, best = given
        nms = torch.ops.sdaa.nms
        return plain.fast_rcnn_inference(proposals, scores, height, width, least, most, best, 100_000, nms)

    return [
        row(
            "pairwise_iou",
            "its formula: forward",
            lambda: plain.pairwise_iou(left, right),
            lambda: lib.pairwise_iou(left, right),
        ),
        row(
            "pairwise_iou",
            "its formula: forward, backward",
            *(with_backward(f, left, right) for f in (plain.pairwise_iou, lib.pairwise_iou)),
        ),
        row(
            "fast_rcnn_inference_single_image",
            "detectron2's steps, with one launch for each NMS",
            replaced,
            lambda: lib.fast_rcnn_inference_single_image(proposals, scores, given[:2], *given[2:]),
        ),
    ]


def optimizers() -> list[Row]:
    """Return the rows of the optimizers: ten steps on the parameters of twenty layers."""
    kinds: list[tuple[Any, Any, dict[str, Any]]] = [
        (torch.optim.SGD, lib.SdaaFusedSGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}),
        (torch.optim.Adam, lib.SdaaFusedAdam, {"lr": 1e-3}),
        (torch.optim.Adadelta, lib.SdaaFusedAdadelta, {"lr": 1.0}),
        (lib.Lamb, lib.SdaaFusedLamb, {"lr": 1e-3}),
    ]
    rows = []
    for theirs, ours, arguments in kinds:
        runs = []
        for kind in (theirs, ours):
            params = [numbers(64, 64, seed=k).requires_grad_() for k in range(20)]
            optimizer = kind(params, **arguments)
            for k, param in enumerate(params):
                param.grad = numbers(64, 64, seed=100 + k)
            optimizer.step()
            runs.append(lambda optimizer=optimizer, params=params: (optimizer.step(), params)[1])
        rows.append(
            row(ours.__name__, f"{theirs.__module__.split('.')[0]}'s {theirs.__name__}: a step, 20 tensors", *runs)
        )
    return rows


def preloader() -> Row:
    """Return the row of the loop over eight batches: device time, with and without overlapping copies."""
    batches = [torch.rand(32, 3, 64, 64, generator=torch.Generator().manual_seed(k)) for k in range(8)]
    weight = numbers(3 * 64 * 64, 1024, seed=9)

    def loop(source: Any) -> tuple[list[Tensor], int, float]:
        torch.sdaa.synchronize()
        before, launches = C.times(0)["now"], C.times(0)["launches"]
        made = [(batch.flatten(1) @ weight).relu() for batch in source]
        torch.sdaa.synchronize()
        after = C.times(0)
        return made, int(after["launches"] - launches), (after["now"] - before) * 1e6

    one = loop(batch.to("sdaa") for batch in batches)
    other = loop(lib.PreLoader(batches))
    equal = all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    return Row("PreLoader", ".to(device) in the loop: 8 batches", (one[1], other[1]), (one[2], other[2]), equal)


def table(rows: list[Row], markdown: bool) -> str:
    """Return the rows as text."""
    head = ("part", "instead of", "launches", "simulated us", "bits")
    lines = [
        (
            f"`{each.name}`" if markdown else each.name,
            each.replaces,
            f"{each.launches[0]} to {each.launches[1]}",
            f"{each.micros[0]:.0f} to {each.micros[1]:.0f}",
            "equal" if each.equal else "NOT EQUAL",
        )
        for each in rows
    ]
    if markdown:
        return "\n".join(
            "| " + " | ".join(line) + " |" for line in (head, ("---",) * 2 + ("---:",) * 2 + ("---",), *lines)
        )
    widths = [max(len(line[k]) for line in (head, *lines)) for k in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *lines)
    )


def all_rows() -> list[Row]:
    """Return every row."""
    return [*shuffles(), *detector(), *optimizers(), preloader()]


def main() -> int:
    """Print the table; 1 where values differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print rows of a page")
    args = parser.parse_args()
    rows = all_rows()
    print(table(rows, args.markdown))
    return 0 if all(each.equal for each in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
