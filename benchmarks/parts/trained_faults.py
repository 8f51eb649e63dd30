"""Small trainings and their faults, for ``located_training_faults``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import torch_sdaa  # noqa: F401 -- it makes the device


class Block(nn.Module):
    """A layer of a transformer, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)
        self.act = nn.functional.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        y = self.norm1(x)
        scores = self.query(y) @ self.key(y).transpose(-1, -2) / y.shape[-1] ** 0.5
        x = x + self.drop(self.out(scores.softmax(-1) @ self.value(y)))
        return x + self.drop(self.narrow(self.act(self.wide(self.norm2(x)))))


class Texts(nn.Module):
    """Token numbers to one of five classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(Block(32) for _ in range(2))
        self.head = nn.Linear(32, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # noqa: D102
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Images(nn.Module):
    """Images to one of five classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.hidden, self.head = nn.Linear(64, 32), nn.Linear(32, 5)
        self.act = torch.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        x = self.pool(self.body(self.stem(x))).flatten(1)
        return self.head(self.act(self.hidden(x)))


class Masks(nn.Module):
    """Images to one of five classes, by way of a small U-Net: depthwise, transposed, resized, normed in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.depth, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GroupNorm(2, 8)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 4, 1)
        self.hidden, self.head = nn.Linear(16, 16), nn.Linear(16, 5)
        self.act = nn.functional.silu

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        fine = self.act(self.norm(self.depth(self.down(x))))
        coarse = nn.functional.interpolate(fine, scale_factor=0.5, mode="bilinear")
        x = self.out(torch.cat([fine, self.up(coarse)], 1))
        x = nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)
        return self.head(self.hidden(x).tanh())


class Cubed(torch.autograd.Function):
    """An operator with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # noqa: D102
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class Series(nn.Module):
    """A recurrent network over token numbers, with a repeated forward and weights that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(20, 12), nn.LSTM(12, 12, batch_first=True)
        self.norm, self.wide = nn.LayerNorm(12), nn.Linear(12, 12)
        self.back = nn.Linear(12, 20, bias=False)
        self.back.weight = self.embed.weight
        self.hidden, self.head = nn.Linear(20, 12), nn.Linear(12, 5)
        self.act = nn.functional.elu

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        """What a checkpoint repeats."""
        return self.act(self.wide(self.norm(x)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # noqa: D102
        x, _ = self.lstm(self.embed(tokens))
        x = checkpoint(self.inner, x, use_reentrant=False)
        return self.head(Cubed.apply(self.hidden(self.back(x[:, -1])).tanh()))


@dataclass(frozen=True, slots=True)
class Training:
    """A training of a few steps.

    Attributes:
        model: creates it. batch: returns a batch and its classes. optimizer: creates it from parameters.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    optimizer: Callable[[Any], torch.optim.Optimizer]


TRAININGS = {
    "texts": Training(
        Texts, lambda: (torch.randint(0, 50, (4, 12)), torch.randint(0, 5, (4,))), lambda p: torch.optim.AdamW(p, 1e-3)
    ),
    "images": Training(
        Images,
        lambda: (torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))),
        lambda p: torch.optim.SGD(p, 0.05, 0.9),
    ),
    "masks": Training(
        Masks,
        lambda: (torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))),
        lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.9),
    ),
    "series": Training(
        Series, lambda: (torch.randint(0, 20, (4, 6)), torch.randint(0, 5, (4,))), lambda p: torch.optim.Adam(p, 1e-3)
    ),
}


@dataclass
class Way:
    """Settings of a run of a training.

    Attributes:
        device: of it. precision: ``float32``, ``amp`` (autocast with a GradScaler) or ``apex`` (O1).
        scale: initial loss scale. changed: modifies the model before the training.
        rate: factor of the learning rate. turned: whether the classes of the batch are permuted.
    """

    device: str = "sdaa"
    precision: str = "float32"
    scale: float = 1024.0
    changed: Callable[[nn.Module], None] = field(default=lambda model: None)
    rate: float = 1.0
    turned: bool = False


def train(
    training: Training,
    way: Way,
    path: Path,
    steps: int = 2,
    inside: AbstractContextManager[Any] | None = None,
    **dumped: Any,
) -> Any:
    """Train, and dump it; return the dumper. An error of the device ends the training.

    Args:
        inside: is entered around the steps. dumped: arguments of the dumper; without any it keeps all.
    """
    from torch_sdaa.utils import dumper

    torch.manual_seed(0)
    model, (x, classes) = training.model(), training.batch()
    way.changed(model)
    torch.manual_seed(1)
    model = model.to(way.device)
    optimizer = training.optimizer(model.parameters())
    for group in optimizer.param_groups:
        group["lr"] *= way.rate
    if way.turned:
        classes = (classes + 1) % 5
    step = _step_of(way, model, optimizer)
    found = dumper(dump_path=path, **(dumped or {"use_dump": True}))
    with contextlib.suppress(RuntimeError), found, inside or contextlib.nullcontext():
        for _ in range(steps):
            optimizer.zero_grad()
            step(x.to(way.device), classes.to(way.device))
    return found


def _step_of(
    way: Way, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[torch.Tensor, torch.Tensor], None]:
    def plain(x: torch.Tensor, classes: torch.Tensor) -> None:
        nn.functional.cross_entropy(model(x), classes).backward()
        optimizer.step()

    if way.precision == "float32":
        return plain
    if way.precision == "apex":
        from torch_sdaa.apex import amp

        amp.initialize(model, optimizer, opt_level="O1", loss_scale=way.scale, verbosity=0)

        def scaled(x: torch.Tensor, classes: torch.Tensor) -> None:
            with amp.scale_loss(nn.functional.cross_entropy(model(x), classes), optimizer) as loss:
                loss.backward()
            optimizer.step()

        return scaled
    scaler = torch.amp.GradScaler(way.device, init_scale=way.scale)

    def cast(x: torch.Tensor, classes: torch.Tensor) -> None:
        with torch.autocast(way.device, torch.float16):
            loss = nn.functional.cross_entropy(model(x), classes)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return cast


@contextlib.contextmanager
def planted(*faults: Any) -> Iterator[None]:
    """Inject faults into a device in the ``with`` block."""
    from torch_sdaa.faults import operator_faults

    operator_faults.plant(*faults)
    try:
        yield
    finally:
        operator_faults.clear()


class Reached(TorchDispatchMode):
    """Records the number of the device's call for each recorded call; entered inside the dumper.

    The device also runs operators inside others, which are not in the dump.

    Attributes:
        calls: name of a call (``aten.mm.default/3``) -> how many calls of its operator the device had before.
    """

    def __init__(self, ops: Sequence[str]) -> None:
        super().__init__()
        self._places = {op: k for k, op in enumerate(ops)}
        self._ops, self._counts = ops, dict.fromkeys(ops, 0)
        self.calls: dict[str, int] = {}

    def __enter__(self) -> Any:
        from torch_sdaa.faults import operator_faults

        operator_faults.plant(*(operator_faults.OpFault("deny", op, 2**40) for op in self._ops))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        from torch_sdaa.faults import operator_faults

        super().__exit__(*error)
        operator_faults.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch_sdaa.faults import operator_faults

        k = self._places.get(str(func))
        if k is None:
            return func(*args, **(kwargs or {}))
        number = self._counts[str(func)]
        self._counts[str(func)] = number + 1
        before = operator_faults.calls()[k]
        result = func(*args, **(kwargs or {}))
        if operator_faults.calls()[k] == before + 1:
            self.calls[f"{func}/{number}"] = before
        return result
