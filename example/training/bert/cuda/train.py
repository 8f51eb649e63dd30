"""Train a small BERT to guess masked words, on one CUDA card, in mixed precision with --amp.

DATA holds train.txt and val.txt, a text per line. Batches are copied to the card on a separate stream during the
previous step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator

import torch
from model import Bert
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

PAD, UNKNOWN, MASK = 0, 1, 2
OTHER = -100  # target of a position that is not masked, which the loss ignores


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", help="folder with train.txt and val.txt")
    add("--epochs", type=int, default=10, help="default: 10")
    add("--batch-size", type=int, default=32, help="default: 32")
    add("--accumulate", type=int, default=1, help="batches for each step of the optimizer (default: 1)")
    add("--length", type=int, default=48, help="length of a text in words (default: 48)")
    add("--vocabulary", type=int, default=1500, help="size of the vocabulary (default: 1500)")
    add("--lr", type=float, default=2e-3, help="peak learning rate (default: 0.002)")
    add("--warmup", type=int, default=20, help="warm-up steps of the learning rate (default: 20)")
    add("--amp", action="store_true", help="mixed precision")
    add("--seed", type=int, default=0, help="default: 0")
    add("--device", default="cuda", help="cuda, one of them such as cuda:1, or cpu (default: cuda)")
    add("--losses", metavar="FILE", help="write the loss of every step as JSON lines")
    add("--out", default=".", metavar="DIR", help="folder of bert.pt (default: the current one)")
    add("--resume", metavar="FILE", help="a bert.pt to resume from")
    return parser.parse_args()


def pieces(text: str) -> list[str]:
    """Return the words and punctuation marks of a text."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def numbered(file: str, known: dict[str, int], length: int) -> torch.Tensor:
    """Return the texts of a file as word ids, truncated and padded to one length."""
    rows = []
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            row = [known.get(word, UNKNOWN) for word in pieces(line)][:length]
            rows.append(row + [PAD] * (length - len(row)))
    return torch.tensor(rows)


def vocabulary(file: str, size: int) -> dict[str, int]:
    """Return the most frequent words of a file with their numbers."""
    with open(file, encoding="utf-8") as lines:
        counted = Counter(word for line in lines for word in pieces(line))
    return {word: number for number, (word, _) in enumerate(counted.most_common(size - 3), start=3)}


def masked(texts: torch.Tensor, words: int, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return texts with 15 % of the words masked, and the masked words."""
    chosen = (torch.rand(texts.shape, generator=random) < 0.15) & (texts > MASK)
    kind = torch.rand(texts.shape, generator=random)
    others = torch.randint(MASK + 1, words, texts.shape, generator=random)
    hidden = texts.masked_fill(chosen & (kind < 0.8), MASK)
    hidden = torch.where(chosen & (kind >= 0.9), others, hidden)
    return hidden, texts.masked_fill(~chosen, OTHER)


class Prefetcher:
    """Yields the batches of a loader, masked and on the device; the next one is copied during the computation."""

    def __init__(self, loader: DataLoader, words: int, random: torch.Generator, device: torch.device) -> None:
        self.loader, self.words, self.random, self.device = loader, words, random, device
        self.stream = torch.cuda.Stream(device) if device.type != "cpu" else None

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        batches = iter(self.loader)
        ready = self.copied(next(batches, None))
        while ready is not None:
            if self.stream is not None:
                torch.cuda.current_stream(self.device).wait_stream(self.stream)
                for tensor in ready:
                    tensor.record_stream(torch.cuda.current_stream(self.device))
            current, ready = ready, self.copied(next(batches, None))
            yield current

    def copied(self, batch: list[torch.Tensor] | None) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return a batch on the device."""
        if batch is None:
            return None
        pair = masked(batch[0], self.words, self.random)
        if self.stream is None:
            return pair
        with torch.cuda.stream(self.stream):
            first, second = (tensor.pin_memory().cuda(self.device, non_blocking=True) for tensor in pair)
        return first, second


class Clock:
    """The card's time and peak memory between two points; not measured on the CPU."""

    def __init__(self, device: torch.device) -> None:
        self.used = device.type != "cpu"
        if self.used:
            self.begin, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.begin.record()

    def __str__(self) -> str:
        if not self.used:
            return "on the CPU"
        self.end.record()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / 2**20
        return f"{self.begin.elapsed_time(self.end):.0f} ms, {peak:.0f} MiB at most"


def train(model, loader, optimizer, schedule, scaler, args, device) -> list[float]:
    """Train for one epoch; return the loss of every step."""
    model.train()
    losses = []
    for number, (texts, targets) in enumerate(loader):
        with torch.amp.autocast(device_type="cuda", dtype=torch.float16, enabled=args.amp):
            scores = model(texts)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=OTHER)
        scaler.scale(loss / args.accumulate).backward()
        losses.append(loss.item())
        if (number + 1) % args.accumulate == 0:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
    return losses


@torch.no_grad()
def guessed(model, texts: torch.Tensor, words: int, device: torch.device, amp: bool) -> tuple[float, float]:
    """Return the loss and the accuracy on masked words."""
    model.eval()
    hidden, targets = (tensor.to(device) for tensor in masked(texts, words, torch.Generator().manual_seed(1)))
    with torch.amp.autocast(device_type="cuda", dtype=torch.float16, enabled=amp):
        scores = model(hidden)
    asked = targets != OTHER
    loss = nn.functional.cross_entropy(scores[asked].float(), targets[asked])
    return loss.item(), (scores[asked].argmax(1) == targets[asked]).float().mean().item()


def main() -> None:
    """Train, and print the accuracy on masked words of held-out texts."""
    args = arguments()
    device = torch.device(args.device)
    if device.type != "cpu":
        torch.cuda.set_device(device)
        print(f"{torch.cuda.get_device_name(device)}, one of {torch.cuda.device_count()}")
    torch.manual_seed(args.seed)
    known = vocabulary(os.path.join(args.data, "train.txt"), args.vocabulary)
    words = len(known) + MASK + 1
    texts, others = (numbered(os.path.join(args.data, f"{name}.txt"), known, args.length) for name in ("train", "val"))
    model = Bert(words, args.length)
    if device.type != "cpu":
        model.cuda(device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, weight_decay=0.01)
    loader = DataLoader(TensorDataset(texts), args.batch_size, shuffle=True, drop_last=True)
    if args.accumulate < 1 or len(loader) < args.accumulate:
        sys.exit(f"--accumulate {args.accumulate} must be from 1 to the {len(loader)} batches of an epoch")
    steps = args.epochs * (len(loader) // args.accumulate)

    def rate(step: int) -> float:
        rest = max(0.0, (steps - step) / max(1, steps - args.warmup))
        return min((step + 1) / (args.warmup + 1), rest)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, enabled=args.amp)
    begun, losses = 0, []
    if args.resume:
        kept = torch.load(args.resume, map_location=device, weights_only=True)
        begun, losses = kept["epoch"], kept["losses"]
        for name, part in (("model", model), ("optimizer", optimizer), ("schedule", schedule), ("scaler", scaler)):
            part.load_state_dict(kept[name])
    for epoch in range(begun, args.epochs):
        random = torch.Generator().manual_seed(args.seed + epoch)
        torch.manual_seed(args.seed + epoch)  # the order of the texts is the same in a resumed run
        clock = Clock(device)
        found = train(model, Prefetcher(loader, words, random, device), optimizer, schedule, scaler, args, device)
        losses += found
        print(f"epoch {epoch + 1}: loss {sum(found) / len(found):.4f}, {clock}", flush=True)
        state = {"epoch": epoch + 1, "losses": losses, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"schedule": schedule.state_dict(), "scaler": scaler.state_dict()}
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "bert.pt"))
    if args.losses:
        with open(args.losses, "w", encoding="utf-8") as file:
            print(json.dumps({"device": str(model.decoder.weight.device), "seed": args.seed}), file=file)
            for step, loss in enumerate(losses):
                print(json.dumps({"step": step, "loss": loss}), file=file)
    loss, share = guessed(model, others, words, device, args.amp)
    tied = model.decoder.weight is model.words.weight
    print(f"held out: loss {loss:.4f}, perplexity {math.exp(loss):.1f}; the tables are {'one' if tied else 'two'}")
    print(f"eval_metric {share:.6f}")


if __name__ == "__main__":
    main()
