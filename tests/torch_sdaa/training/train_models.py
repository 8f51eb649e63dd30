"""Complete models on every device: three training steps must give the results of the CPU, bit for bit.

``python -m tests.torch_sdaa.training.train_models [--more] [--only PART] [--json F]`` prints the table: losses,
weights, their gradients, buffers and what the optimizer keeps. Random weights, small inputs.
"""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

import torch_sdaa  # noqa: F401 - makes the device
from tests.torch_sdaa.training.more_models import MORE
from tests.torch_sdaa.training.trained_networks import Denoiser, Generator, Judge, TaggedWords
from utils.export.networks.torchvision_models import import_torchvision

SCHEMA_VERSION = 1
STEPS = 3
DEVICES = ("sdaa:0", "sdaa:1", "sdaa:2", "sdaa:3")

State = dict[str, Tensor]
"""Results of a training, on the CPU, by kind."""

Training = Callable[[str], tuple[list[float], State]]
"""Trains on a device; returns the losses of the steps, and the results."""


@dataclass(frozen=True)
class Row:
    """What one model did on one device.

    Attributes:
        compared: how many tensors were: weights, gradients, buffers and the optimizer's. different: those that differ.
        bytes_left: memory of the device afterwards.
    """

    model: str
    device: str
    losses: list[float]
    losses_equal: bool
    compared: int
    different: list[str]
    bytes_left: int

    @property
    def passed(self) -> bool:
        """Whether everything was equal and all memory was freed."""
        return self.losses_equal and not self.different and self.bytes_left == 0

    def line(self) -> str:
        """Return its line of the table."""
        state = f"{self.compared} tensors equal"
        if self.different:
            state = f"{len(self.different)} of {self.compared} tensors differ, first: {self.different[0]}"
        losses = "equal" if self.losses_equal else "DIFFER"
        return f"{self.model:29} {self.device:7} {self.losses[-1]:12.6f} {losses:6} {self.bytes_left:10}  {state}"


def trained(
    model: nn.Module, batches: Sequence[Sequence[Tensor]], loss_of: Callable[..., Tensor], device: str
) -> tuple[list[float], State]:
    """Move a model, train it one step per batch with SGD, and return its losses and its state, on the CPU."""
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    torch.manual_seed(1)  # of dropout: what made the weights has drawn from the CPU's generator only
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, *(t.to(device) for t in batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, state_of([model], [optimizer], device)


def state_of(models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], device: str) -> State:
    """Return the results of a training, on the CPU: weights, gradients, buffers (also those that are never saved),
    and what the optimizers keep."""
    found: State = {}
    for number, model in enumerate(models):
        for name, weight in model.named_parameters():
            found[f"{number}.{name}"] = weight
            if weight.grad is not None:
                found[f"gradient of {number}.{name}"] = weight.grad
        found |= {f"buffer {number}.{name}": value for name, value in model.named_buffers()}
    strays = [name for name, value in found.items() if value.device != torch.device(device)]
    assert not strays, f"not on {device}: {', '.join(strays)}"
    for number, optimizer in enumerate(optimizers):
        for index, kept in optimizer.state_dict()["state"].items():
            kinds = {key: value for key, value in kept.items() if isinstance(value, Tensor)}
            found |= {f"optimizer {number}: {key} of {index}": value for key, value in kinds.items()}
    return {name: value.detach().cpu() for name, value in found.items()}


def same(ours: Tensor, theirs: Tensor) -> bool:
    """Return whether two tensors of the CPU have the same bits."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (ours, theirs)))


def classified(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return a classifier's loss, with those of its second heads."""
    scores = model(images)
    if not isinstance(scores, tuple):
        return F.cross_entropy(scores, labels)
    return sum(
        (F.cross_entropy(head, labels) for head in scores if head is not None), torch.zeros_like(scores[0][0, 0])
    )


def torchvision_network(name: str, size: int) -> Training:
    """Return the training of a torchvision classifier of 10 classes on two images per step."""

    def work(device: str) -> tuple[list[float], State]:
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        if name.startswith(("vit", "maxvit")):
            options = {"image_size": size} if name.startswith("vit") else {"input_size": (size, size)}
        model = import_torchvision().models.get_model(name, weights=None, num_classes=10, **options)
        batches = [(torch.randn(2, 3, size, size), torch.randint(0, 10, (2,))) for _ in range(STEPS)]
        return trained(model, batches, classified, device)

    return work


def tied_bert(device: str) -> tuple[list[float], State]:
    """Train a small BERT whose output layer shares the embedding table."""
    import_torchvision()  # which transformers imports, and takes to be broken where its operators do not load
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = BertForMaskedLM(BertConfig(vocab_size=100, max_position_embeddings=32, **sizes)).train()
    batches = []
    for _ in range(STEPS):
        words, mask = torch.randint(0, 100, (2, 12)), torch.ones(2, 12, dtype=torch.long)
        mask[1, 8:] = 0
        batches.append((words, mask))

    def loss_of(model: nn.Module, words: Tensor, mask: Tensor) -> Tensor:
        loss: Tensor = model(input_ids=words, attention_mask=mask, labels=words).loss
        return loss

    found = trained(model, batches, loss_of, device)
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight, "no longer tied"
    return found


def lstm(device: str) -> tuple[list[float], State]:
    """Train two bidirectional LSTM layers that tag words."""
    batches = [(torch.randint(0, 50, (3, 9)), torch.randint(0, 5, (3, 9))) for _ in range(STEPS)]

    def loss_of(model: nn.Module, words: Tensor, tags: Tensor) -> Tensor:
        return F.cross_entropy(model(words).flatten(0, 1), tags.flatten())

    return trained(TaggedWords(), batches, loss_of, device)


def gan(device: str) -> tuple[list[float], State]:
    """Train a generator and a discriminator alternately, each with its own Adam."""
    maker, judge = Generator(), Judge()
    drawn = [(torch.randn(4, 3, 16, 16), torch.randn(4, 8, 1, 1)) for _ in range(STEPS)]
    maker.to(device), judge.to(device)
    own, others = (torch.optim.Adam(m.parameters(), 2e-3, (0.5, 0.999)) for m in (maker, judge))
    yes, no = torch.ones(4, device=device), torch.zeros(4, device=device)
    torch.manual_seed(1)  # of the judge's dropout
    losses = []
    for real, noise in ((a.to(device), b.to(device)) for a, b in drawn):
        made = maker(noise)
        others.zero_grad()
        loss = F.binary_cross_entropy_with_logits(judge(real), yes)
        loss = loss + F.binary_cross_entropy_with_logits(judge(made.detach()), no)
        loss.backward()
        others.step()
        own.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(judge(made), yes)
        fooled.backward()
        own.step()
        losses += [loss.item(), fooled.item()]
    return losses, state_of([maker, judge], [own, others], device)


def diffusion(device: str) -> tuple[list[float], State]:
    """Train a U-Net with attention to predict the noise that was added to images."""
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)
    batches = [
        (torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16), torch.randint(0, 100, (2,))) for _ in range(STEPS)
    ]

    def loss_of(model: nn.Module, clean: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        share = kept.to(clean.device)[times][:, None, None, None]
        return F.mse_loss(model(share.sqrt() * clean + (1 - share).sqrt() * noise, times), noise)

    return trained(Denoiser(), batches, loss_of, device)


TORCHVISION = {
    "alexnet": 64,
    "convnext_tiny": 32,
    "densenet121": 32,
    "efficientnet_b0": 32,
    "googlenet": 32,
    "mobilenet_v3_small": 32,
    "regnet_y_400mf": 32,
    "resnet18": 32,
    "shufflenet_v2_x1_0": 32,
    "squeezenet1_1": 64,
    "swin_t": 32,
    "vit_b_16": 32,
}
"""Name and image size in pixels."""

MODELS: dict[str, Training] = {
    **{name: torchvision_network(name, size) for name, size in TORCHVISION.items()},
    "tied BERT": tied_bert,
    "LSTM": lstm,
    "GAN": gan,
    "diffusion U-Net": diffusion,
}


def further(name: str) -> Training:
    """Return the training of a model of ``more_models``."""

    def work(device: str) -> tuple[list[float], State]:
        return trained(*MORE[name](), device)

    return work


def compare(name: str, devices: Sequence[str] = DEVICES) -> list[Row]:
    """Train a model on the CPU and on each device, and return one row per device."""
    training = MODELS[name] if name in MODELS else further(name)
    torch.manual_seed(0)
    losses, weights = training("cpu")
    rows = []
    for device in devices:
        gc.collect()
        before = torch.sdaa.memory_allocated(device)
        torch.manual_seed(0)
        ours, held = training(device)
        gc.collect()
        names = [*weights, *(name for name in held if name not in weights)]
        different = [n for n in names if n not in held or n not in weights or not same(held[n], weights[n])]
        left = torch.sdaa.memory_allocated(device) - before
        rows.append(Row(name, device, ours, ours == losses, len(names), different, left))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a row is not equal."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch_sdaa.training.train_models", description=__doc__)
    parser.add_argument("--only", default="", metavar="PART", help="models whose name has this part")
    parser.add_argument("--json", type=Path, metavar="F", help="write the rows to this file")
    parser.add_argument("--more", action="store_true", help="also detection, segmentation, video and language models")
    args = parser.parse_args(argv)
    offered = [*MODELS, *(MORE if args.more else ())]
    names = [name for name in offered if args.only in name]
    if not names:
        parser.error(f"no model has {args.only!r} in its name; there are {', '.join(offered)}")
    rows: list[Row] = []
    print(f"{'model':29} {'device':7} {'last loss':>12} losses bytes left, state")
    for name in names:
        for row in compare(name):
            rows.append(row)
            print(row.line(), flush=True)
    print(f"{sum(row.passed for row in rows)} of {len(rows)} rows equal to the CPU, with no memory left")
    if args.json:
        record = [asdict(row) | {"passed": row.passed} for row in rows]
        args.json.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "steps": STEPS, "rows": record}, indent=1))
    return int(not all(row.passed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
