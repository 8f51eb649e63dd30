"""Steps of the ShuffleNet tuning case: predicted gains, and the launches in the log.

All times are simulated. The first column is predicted: a training step is traced without values, and the cost of its
operators is estimated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from network import shufflenet

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.apex import amp
from torch_sdaa.contrib.optimized_lib import SdaaFusedSGD
from torch_sdaa.cost.predicted_cost import PredictedCost, observe, predict_cost


@dataclass(frozen=True)
class Change:
    """One step of the case.

    Attributes:
        text: the change. row: in the guide's tables, F the forward pass, W the whole network. mix: operation that
            joins the branches. batch: factor of the first batch. level: of amp. fused: the optimizer is one launch.
    """

    text: str
    row: str
    mix: str | None = None
    batch: int = 1
    level: str = ""
    fused: bool = False


CHANGES = (
    Change("torchvision's network", "-"),
    Change("one selection for view, transpose, copy", "F1", "host index"),
    Change("two selections instead of chunk", "F2", "host halves"),
    Change("indices kept on the device", "W2", "buffers"),
    Change("backward by selections", "W1, W3", "own backward"),
    Change("cat, shuffle and chunk in one operator", "W7", "one operator"),
    Change("twice the batch", "W5", "one operator", 2),
    Change("amp O1", "W10", "one operator", 2, "O1"),
    Change("amp O2", "W11", "one operator", 2, "O2"),
    Change("fused SGD", "ours", "one operator", 2, "O2", True),
)


def training(change: Change, batch: int, size: int) -> Callable[[], Any]:
    """Return a callable that runs one training step on the device."""
    torch.manual_seed(0)
    model = shufflenet(change.mix).to("sdaa")
    kind = SdaaFusedSGD if change.fused else torch.optim.SGD
    optimizer = kind(model.parameters(), 0.05, momentum=0.9, weight_decay=4e-5)
    if change.level:
        model, optimizer = amp.initialize(
            model, optimizer, opt_level=change.level, loss_scale=128.0, combine_grad=change.fused, verbosity=0
        )
    else:
        amp.initialize(model, optimizer, enabled=False, verbosity=0)
    images = torch.randn(batch * change.batch, 3, size, size).to("sdaa")
    labels = (torch.arange(batch * change.batch) % 1000).to("sdaa")

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        return loss

    return step


@dataclass(frozen=True)
class Row:
    """A step of the case, predicted and measured: milliseconds for the first batch, and launches of a training step."""

    change: Change
    predicted: float
    launches: int
    observed: float | None
    observed_launches: int | None


def row(change: Change, batch: int, size: int, run: bool) -> Row:
    """Predict the cost of a step, and measure it if ``run`` is true."""
    predicted = predict_cost(lambda: training(change, batch, size))
    seen: PredictedCost | None = observe(training(change, batch, size)) if run else None
    return Row(
        change,
        predicted.seconds * 1e3 / change.batch,
        len(predicted.launches),
        seen.seconds * 1e3 / change.batch if seen else None,
        len(seen.launches) if seen else None,
    )


def table(rows: list[Row]) -> str:
    """Return the rows as text: times, launches and gains, predicted and measured."""
    lines = [f"{'step':<42}{'row':>7}{'launches':>9}{'pred. ms':>10}{'gain':>9}{'seen ms':>10}{'gain':>9}{'off':>7}"]
    for before, each in zip([rows[0], *rows], rows, strict=False):
        gain, line = before.predicted - each.predicted, f"{each.change.text:<42}{each.change.row:>7}{each.launches:>9}"
        line += f"{each.predicted:>10.3f}{gain:>9.3f}"
        if each.observed is not None and before.observed is not None:
            seen = before.observed - each.observed
            line += f"{each.observed:>10.3f}{seen:>9.3f}{abs(gain - seen) / max(abs(seen), 1e-9):>7.1%}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Predict and measure the steps, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8, help="images of the first steps (default 8)")
    parser.add_argument("--size", type=int, default=64, help="height and width of an image (default 64)")
    parser.add_argument("--tell-only", action="store_true", help="run nothing: any batch in seconds")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args()
    if args.batch < 1 or args.size < 32:
        parser.error(f"--batch {args.batch} must be at least 1, --size {args.size} at least 32")
    rows = [row(change, args.batch, args.size, not args.tell_only) for change in CHANGES]
    print(f"simulated time of a training step, for {args.batch} images of {args.size} x {args.size}")
    print(table(rows))
    if args.json:
        found = [{**vars(each), "change": vars(each.change)} for each in rows]
        args.json.write_text(json.dumps({"schema_version": 1, "steps": found}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
