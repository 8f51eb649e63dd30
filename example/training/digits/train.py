"""Train the zoo's digits network on a device: the same losses and weights on the CPU and on the simulated card.

Network, data and augmentation are those of example/classification/digits. Writes, below --out, checkpoint.pth after
every epoch (for --resume) and digits.pth at the end (weights only, for the zoo's export).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
ZOO = HERE.parents[2]
sys.path[:0] = [str(ZOO), str(ZOO / "example" / "classification" / "digits")]
from engine import ConfigError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.places import check_folder, check_outputs

with needed(__file__):
    import sklearn  # noqa: F401 -- the data set
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader, TensorDataset

from model import DigitsNet
from train import PEAK_RATE, load, shifted  # of the zoo's folder: it is first on the path

WRITTEN = "pass a checkpoint.pth of this script"


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    add = parser.add_argument
    add("--device", default="cpu", help="cpu, sdaa or sdaa:1 (default: cpu)")
    add("--epochs", type=int, default=6, help="default: 6; the zoo's own weights took 40")
    add("--batch_size", type=int, default=64, help="default: 64")
    add("--seed", type=int, default=0, help="of weights, order and shifts (default: 0)")
    add("--resume", type=Path, metavar="FILE", help="a checkpoint to go on from, of whichever device")
    add("--stop_after", type=int, metavar="EPOCH", help="stop early, as if interrupted after this epoch")
    add("--losses", type=Path, metavar="FILE", help="write the loss of every step, for teco train gate")
    add("--out", type=Path, default=HERE, metavar="DIR", help="folder of the files it writes (default: this one)")
    args = parser.parse_args()
    for name in ("epochs", "batch_size"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} {getattr(args, name)} must be at least 1")
    return args


def device_of(name: str) -> torch.device:
    """Return an initialised device."""
    try:
        if name.split(":")[0] == "sdaa":
            import torch_sdaa  # noqa: F401 -- makes sdaa a device
        return torch.empty(0, device=name).device
    except ImportError as error:  # such as a missing compiler
        raise ConfigError(str(error)) from error
    except (RuntimeError, AssertionError) as error:  # the latter: no CUDA in this torch
        raise ConfigError(f"--device {name}: {str(error).splitlines()[0]}; use cpu, sdaa or sdaa:1") from error


def write(what: dict[str, Any], path: Path) -> None:
    """Save a dictionary atomically: the previous checkpoint is replaced only by a complete one."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:  # with a path, torch would store the file name in the file
        torch.save(what, file)
    partial.replace(path)


def drawn(device: torch.device, state: torch.Tensor | None = None) -> torch.Tensor:
    """Return the state of a device's random generator, after setting it if one is given."""
    module, where = (torch, ()) if device.type == "cpu" else (torch.get_device_module(device), (device,))
    if state is not None:
        module.set_rng_state(state.cpu(), *where)
    return module.get_rng_state(*where)


class Training:
    """State of a training: network, optimizer, learning rate, random generators and progress.

    Order and shifts are drawn on the CPU and dropout on the device, from separate generators, so that they are the same
    on any device.
    """

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.device, self.epoch = device, 0
        x, y, *held_out = load()
        self.held_out = [tensor.to(device) for tensor in held_out]
        torch.manual_seed(args.seed)
        self.model = DigitsNet().to(device)
        torch.manual_seed(args.seed)  # the CPU's, which made the weights; dropout begins alike on all devices
        self.order = torch.Generator().manual_seed(args.seed)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.05)
        self.batches = DataLoader(TensorDataset(x, y), args.batch_size, shuffle=True, generator=self.order)
        self.rate = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, PEAK_RATE, epochs=args.epochs, steps_per_epoch=len(self.batches)
        )

    def run_epoch(self) -> Iterator[torch.Tensor]:
        """Train for one epoch; yield the loss of every step, still on the device."""
        self.model.train()
        for x, y in self.batches:
            x, y = shifted(x, self.order).to(self.device), y.to(self.device)
            loss = cross_entropy(self.model(x), y, label_smoothing=0.1)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.rate.step()
            yield loss.detach()
        self.epoch += 1

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the accuracy on the held-out images."""
        x, y = self.held_out
        return (self.model.eval()(x).argmax(1) == y).float().mean().item()

    def save(self, file: Path) -> None:
        """Write a checkpoint."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        write(parts | self._numbers(), file)

    def resume(self, file: Path) -> None:
        """Resume from a checkpoint.

        Raises:
            ConfigError: it cannot be read, or belongs to another training.
        """
        try:
            kept = torch.load(file, map_location=self.device, weights_only=True)
            whole, missing = kept["rate"]["total_steps"], {*self._parts(), *self._numbers()} - kept.keys()
        except OSError as error:
            raise ConfigError(f"--resume {file}: {error.strerror}; {WRITTEN}") from error
        except Exception as error:  # other files make torch's unpickler raise anything
            raise ConfigError(f"--resume {file} is not a checkpoint; {WRITTEN}") from error
        if missing:
            raise ConfigError(f"--resume {file} has no {', '.join(sorted(missing))}; name a whole checkpoint.pth")
        if whole != self.rate.total_steps:
            here = f"{self.rate.total_steps} steps, the checkpoint's {whole}"
            raise ConfigError(f"--resume {file}: this training has {here}; give the same --epochs and --batch_size")
        for name, part in self._parts().items():
            part.load_state_dict(kept[name])
        self.epoch = kept["epoch"]
        self.order.set_state(kept["order"].cpu())
        drawn(self.device, kept["random"])

    def _numbers(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "order": self.order.get_state(), "random": drawn(self.device)}

    def _parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "rate": self.rate}


class Clock:
    """The simulated time of a device since construction; not used on the CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.simulated = device, device.type == "sdaa"
        if self.simulated:
            self.begin, self.before = self._now()

    def __str__(self) -> str:
        end, after = self._now()
        torch.sdaa.synchronize(self.device)
        spent = after.compute + after.copies - self.before.compute - self.before.copies
        assumed = (after.assumed - self.before.assumed) / spent if spent else 0.0
        share = f"{assumed:.1%} of its compute and copies rests on assumed figures"
        return f"{self.begin.elapsed_time(end):.1f} ms on {self.device}; {share}"

    def _now(self) -> tuple[torch.Event, Any]:
        from torch_sdaa.reports.summaries import device_times

        event = torch.sdaa.Event(enable_timing=True)
        event.record(torch.sdaa.current_stream(self.device))
        return event, device_times(self.device.index)


def train(training: Training, epochs: int, out: Path, losses: TextIO | None) -> None:
    """Train up to an epoch, with a checkpoint after each."""
    while training.epoch < epochs:
        start, clock = time.perf_counter(), Clock(training.device)
        values = torch.stack(list(training.run_epoch())).tolist()
        seconds = time.perf_counter() - start
        print(
            f"epoch {training.epoch}: loss {sum(values) / len(values):.4f}, {seconds:.2f} s on this machine", flush=True
        )
        if clock.simulated:
            print(f"  simulated: {clock}", flush=True)
        if losses is not None:
            first = (training.epoch - 1) * len(values)
            losses.writelines(json.dumps({"step": first + i, "loss": loss}) + "\n" for i, loss in enumerate(values))
        training.save(out / "checkpoint.pth")


def main() -> int:
    """Train, and print the accuracy on the held-out images."""
    args = arguments()
    device = device_of(args.device)
    check_folder("--out", args.out)
    check_outputs({"--losses": args.losses})
    args.out.mkdir(parents=True, exist_ok=True)
    training = Training(args, device)
    if args.resume is not None:
        training.resume(args.resume)
    with args.losses.open("w", encoding="utf-8") if args.losses else nullcontext() as losses:
        if losses is not None:
            where = str(next(training.model.parameters()).device)
            losses.write(json.dumps({"device": where, "seed": args.seed}) + "\n")
        train(training, min(args.epochs, args.stop_after or args.epochs), args.out, losses)
    write({name: tensor.cpu() for name, tensor in training.model.state_dict().items()}, args.out / "digits.pth")
    print(f"{args.out / 'digits.pth'}: trained on {device}")
    print(f"eval_metric {training.accuracy():.6f}")
    return 0


if __name__ == "__main__":
    cli.run(main)
