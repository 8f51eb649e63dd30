"""Train a torchvision classifier on a folder of images: one CUDA card or many, with or without mixed precision.

DATA holds train/CLASS/*.png (or .jpg) and val/CLASS/*. One process drives one card: --multiprocessing-distributed
starts a process for each card of --device-list, and torchrun is supported too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch_sdaa
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.multiprocessing as mp
import torchvision.datasets as datasets
import torchvision.models as models
import torchvision.transforms as transforms
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

try:
    from apex import amp
except ImportError:  # --amp needs it, the rest does not
    amp = None

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", help="folder with train/ and val/")
    add("-a", "--arch", default="resnet18", help="a classifier of torchvision.models (default: resnet18)")
    add("-j", "--workers", type=int, default=4, help="processes that read images, over all cards (default: 4)")
    add("--epochs", type=int, default=90, help="default: 90")
    add("--start-epoch", type=int, default=0, help="first epoch, for a manual restart")
    add("-b", "--batch-size", type=int, default=256, help="over all cards (default: 256)")
    add("--image-size", type=int, default=224, help="size of the network's input (default: 224)")
    add("--lr", "--learning-rate", dest="lr", type=float, default=0.1, help="initial learning rate (default: 0.1)")
    add("--momentum", type=float, default=0.9, help="default: 0.9")
    add("--wd", "--weight-decay", dest="weight_decay", type=float, default=1e-4, help="default: 1e-4")
    add("--no-augment", action="store_true", help="train without data augmentation")
    add("-p", "--print-freq", type=int, default=10, help="steps between two lines (default: 10)")
    add("--resume", metavar="FILE", help="checkpoint to resume from, of any number of cards")
    add("--out", default=".", metavar="DIR", help="folder of the checkpoints (default: the current one)")
    add("-e", "--evaluate", action="store_true", help="only measure the accuracy on val/")
    add("--seed", type=int, help="seed of the random numbers, for repeatable runs")
    add("--losses", metavar="FILE", help="write the loss of every step as JSON lines")
    add("--device", default="sdaa", help="the card, one of several such as TYPE:1, or cpu (default: %(default)s)")
    add("--world-size", type=int, default=1, help="number of machines (default: 1)")
    add("--rank", type=int, default=0, help="rank of this machine (default: 0)")
    known = os.environ.get
    add("--addr", default=known("MASTER_ADDR", "127.0.0.1"), help="of the first machine (default: %(default)s)")
    add("--port", default=known("MASTER_PORT", "29688"), help="of the first machine (default: %(default)s)")
    add("--dist-url", default="env://", help="rendezvous URL of the processes; env:// uses --addr and --port")
    add("--dist-backend", default="tccl", help="default: %(default)s")
    add("--multiprocessing-distributed", action="store_true", help="a process for each card of --device-list")
    add("--device-list", default="0,1,2,3", help="cards of this machine (default: 0,1,2,3)")
    add("--sync-bn", action="store_true", help="synchronise batch normalisation over all cards")
    add("--amp", action="store_true", help="mixed precision with apex")
    add("--opt-level", default="O2", choices=("O0", "O1", "O2", "O3"), help="of apex (default: O2)")
    add("--loss-scale", type=float, default=1024.0, help="of apex; -1 is dynamic (default: 1024)")
    add("--native-amp", action="store_true", help="mixed precision with torch.amp")
    args = parser.parse_args()
    for wrong in refused(args):
        parser.error(wrong)
    return args


def refused(args: argparse.Namespace) -> Iterator[str]:
    """Yield the errors of the flags, before any process is started."""
    for name, least in (("batch_size", 1), ("image_size", 1), ("print_freq", 1), ("world_size", 1), ("epochs", 1)):
        if getattr(args, name) < least:
            yield f"--{name.replace('_', '-')} {getattr(args, name)} must be {least} or more"
    for name in ("workers", "start_epoch", "lr", "momentum", "weight_decay", "rank"):
        if not 0 <= getattr(args, name) < float("inf"):
            yield f"--{name.replace('_', '-')} {getattr(args, name)} must be 0 or more"
    if args.seed is not None and not 0 <= args.seed < 2**32:
        yield f"--seed {args.seed} must be from 0 to {2**32 - 1}"
    if args.arch not in models.list_models(module=models):
        yield f"--arch {args.arch} is not a classifier of torchvision.models"
    cards = args.device_list.split(",")
    if not all(card.isdecimal() for card in cards) or len({int(card) for card in cards}) < len(cards):
        yield f"--device-list {args.device_list!r} must be distinct card numbers, such as 0,1"
    if not (args.port.isdecimal() and 0 < int(args.port) < 2**16):
        yield f"--port {args.port!r} must be a number from 1 to 65535"
    if args.loss_scale != -1 and not 0 < args.loss_scale < float("inf"):
        yield f"--loss-scale {args.loss_scale} must be above 0, or -1 for dynamic scaling"
    if args.amp and amp is None:
        yield "--amp needs apex, which is not installed; use --native-amp"
    if args.amp and args.native_amp:
        yield "--amp and --native-amp exclude one another"
    if args.device == "cpu" and (args.amp or args.native_amp):
        yield "--amp and --native-amp need a card, and --device is cpu"
    for part in ("train", "val"):
        if not os.path.isdir(os.path.join(args.data, part)):
            yield f"DATA {args.data!r} has no folder {part}/ with a folder of images for each class"
    if args.resume and not os.path.isfile(args.resume):
        yield f"--resume: no checkpoint found at {args.resume!r}"


@contextmanager
def one_line(where: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn expected errors into one line instead of a traceback."""
    try:
        yield
    except kinds as error:
        lines = str(error).strip().splitlines()
        text = lines[-1] if "Traceback" in str(error) else " ".join(line.strip() for line in lines)
        sys.exit(f"{where}: {text or type(error).__name__}")


def main() -> None:
    """Start the processes, or run as one of them."""
    args = arguments()
    if args.seed is not None:
        cudnn.deterministic = True
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = args.addr, args.port
    cards = [int(card) for card in args.device_list.split(",")]
    if not args.evaluate:
        with one_line("--out", OSError):
            os.makedirs(args.out, exist_ok=True)
    if args.multiprocessing_distributed:
        args.world_size *= len(cards)
        args.rank *= len(cards)
        try:
            mp.spawn(worker, nprocs=len(cards), args=(cards, args))
        except mp.ProcessExitedException as error:  # the process has printed the reason, unless it was killed
            sys.exit(str(error) if error.signal_name else error.exit_code)
    elif "LOCAL_RANK" in os.environ:  # of torchrun, which counts the processes itself
        args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        args.distributed = True
        train_and_measure(int(os.environ["LOCAL_RANK"]), args)
    else:
        args.distributed = False
        train_and_measure(None, args)


def worker(process: int, cards: list[int], args: argparse.Namespace) -> None:
    """Run as one of the processes started here."""
    args.rank += process
    args.distributed = True
    train_and_measure(cards[process], args)


def train_and_measure(gpu: int | None, args: argparse.Namespace) -> None:
    """Train on one card for all epochs; an error is printed in one line."""
    with one_line(f"rank {args.rank}", OSError, RuntimeError, ValueError):
        device = start(gpu, args)
    with one_line(f"rank {args.rank}", OSError, ValueError, dist.DistError, torch.OutOfMemoryError):
        run(device, args)


def run(device: torch.device, args: argparse.Namespace) -> None:
    """Train for all epochs, with a checkpoint after each."""
    train_set, train_loader, val_loader = loaders(args)
    model, criterion, optimizer, schedule, scaler = parts(len(train_set.classes), device, args)
    best = resume(args, device, model, optimizer, schedule, scaler) if args.resume else 0.0
    if args.evaluate:
        validate(val_loader, model, criterion, device, args)
    else:
        with open(args.losses, "w", encoding="utf-8") if args.losses and args.rank == 0 else nullcontext() as losses:
            if losses is not None:
                losses.write(json.dumps({"device": str(next(model.parameters()).device), "seed": args.seed}) + "\n")
            for epoch in range(args.start_epoch, args.epochs):
                train_loader.sampler.set_epoch(epoch)
                train(train_loader, model, criterion, optimizer, scaler, epoch, device, losses, args)
                schedule.step()
                top1 = validate(val_loader, model, criterion, device, args)
                if args.rank == 0:
                    state = checkpoint(epoch + 1, max(top1, best), model, optimizer, schedule, scaler, args)
                    save(state, top1 > best, args.out)
                best = max(top1, best)
            if args.rank == 0:
                print(f"eval_metric {best / 100:.6f}")
    if args.distributed:
        dist.destroy_process_group()


def start(gpu: int | None, args: argparse.Namespace) -> torch.device:
    """Join the other processes; return the card of this one."""
    device = torch.device(args.device)
    if device.type != "cpu":
        if gpu is not None:
            device = torch.device(f"sdaa:{gpu}")
        torch.sdaa.set_device(device)
        print(f"rank {args.rank}: {torch.sdaa.get_device_name(device)}, number {torch.sdaa.current_device()}")
    if args.distributed:
        dist.init_process_group(args.dist_backend, args.dist_url, world_size=args.world_size, rank=args.rank)
        if args.batch_size < args.world_size:
            raise ValueError(f"--batch-size {args.batch_size} is too small for {args.world_size} cards")
        args.batch_size //= args.world_size
        args.workers = (args.workers + args.world_size - 1) // args.world_size
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        torch.sdaa.manual_seed_all(args.seed)
    else:
        cudnn.benchmark = True
    return device


def loaders(args: argparse.Namespace) -> tuple[datasets.ImageFolder, DataLoader, DataLoader]:
    """Return the training set, and the loaders of both sets."""
    side = args.image_size
    last = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    as_they_are = [transforms.Resize(side), transforms.CenterCrop(side), *last]
    augmented = [transforms.RandomResizedCrop(side, scale=(0.6, 1.0)), transforms.RandomHorizontalFlip(), *last]
    chosen = as_they_are if args.no_augment else augmented
    train_set = datasets.ImageFolder(os.path.join(args.data, "train"), transforms.Compose(chosen))
    val_set = datasets.ImageFolder(os.path.join(args.data, "val"), transforms.Compose(as_they_are))
    ways = {"num_replicas": args.world_size, "rank": args.rank} if args.distributed else {"num_replicas": 1, "rank": 0}
    if train_set.classes != val_set.classes:
        raise ValueError(f"{args.data}: train/ and val/ have different classes")
    if len(train_set) < args.batch_size * ways["num_replicas"]:
        raise ValueError(f"--batch-size: {len(train_set)} images in {args.data}/train are less than one batch")
    sampler = DistributedSampler(train_set, seed=args.seed or 0, drop_last=True, **ways)
    common = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": True}
    return (
        train_set,
        DataLoader(train_set, sampler=sampler, drop_last=True, **common),
        DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False, **ways), **common),
    )


def parts(classes: int, device: torch.device, args: argparse.Namespace) -> tuple:
    """Return the model on its card, the loss, the optimizer, the schedule and the gradient scaler."""
    model = models.__dict__[args.arch](num_classes=classes)
    if args.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model) if args.distributed else model
    if device.type != "cpu":
        model = model.sdaa(device)
        criterion = nn.CrossEntropyLoss().sdaa(device)
    else:
        criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    if args.amp:
        scale = "dynamic" if args.loss_scale < 0 else args.loss_scale
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level, loss_scale=scale, verbosity=0)
    if args.distributed:
        model = DistributedDataParallel(model, device_ids=[device.index] if device.type != "cpu" else None)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
    scaler = torch.amp.GradScaler("sdaa", enabled=args.native_amp)
    return model, criterion, optimizer, schedule, scaler


def train(loader, model, criterion, optimizer, scaler, epoch, device, losses, args) -> None:
    """Train for one epoch."""
    meters = [Meter("time", ":6.3f"), Meter("data", ":6.3f"), Meter("loss", ":.4e"), Meter("top1", ":6.2f")]
    batch_time, data_time, loss_meter, top1 = meters
    model.train()
    end = time.time()
    for step, (images, target) in enumerate(loader):
        data_time.update(time.time() - end)
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        with torch.autocast("sdaa", enabled=args.native_amp):
            output = model(images)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if args.amp:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        shown = averaged(loss.detach(), args)
        loss_meter.update(shown, len(images))
        top1.update(accuracy(output, target), len(images))
        if losses is not None:
            losses.write(json.dumps({"step": epoch * len(loader) + step, "loss": shown}) + "\n")
        batch_time.update(time.time() - end)
        end = time.time()
        if step % args.print_freq == 0 and args.rank == 0:
            print(f"Epoch: [{epoch}][{step}/{len(loader)}]", *meters, sep="\t", flush=True)
    if device.type != "cpu" and args.rank == 0:
        print(f"memory: {torch.sdaa.max_memory_allocated(device) / 2**20:.0f} MiB at most")


@torch.no_grad()
def validate(loader, model, criterion, device, args) -> float:
    """Return the top-1 accuracy in percent."""
    model.eval()
    sums = torch.zeros(3, device=device)
    for images, target in loader:
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        with torch.autocast("sdaa", enabled=args.native_amp):
            output = model(images)
            loss = criterion(output, target)
        right = (output.argmax(1) == target).sum()
        sums += torch.stack([right, loss.detach() * len(images), torch.tensor(len(images), device=device)])
    if args.distributed:
        dist.all_reduce(sums)
    right, loss, total = sums.tolist()
    if args.rank == 0:
        print(f" * Acc@1 {100 * right / total:.3f} loss {loss / total:.4f}", flush=True)
    return 100 * right / total


def averaged(loss: torch.Tensor, args: argparse.Namespace) -> float:
    """Return a loss, averaged over the processes."""
    if args.distributed:
        loss = loss.clone()
        dist.all_reduce(loss)
        loss /= args.world_size
    return loss.item()


def accuracy(output: torch.Tensor, target: torch.Tensor) -> float:
    """Return the accuracy of a batch in percent."""
    return (output.argmax(1) == target).float().mean().item() * 100


def checkpoint(epoch, best, model, optimizer, schedule, scaler, args) -> dict:
    """Return the checkpoint; its weights have no wrapper prefix, so that it loads on any number of cards."""
    plain = model.module if args.distributed else model
    state = {
        "epoch": epoch,
        "arch": args.arch,
        "best": best,
        "state_dict": plain.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "scaler": scaler.state_dict(),
    }
    if args.amp:
        state["amp"] = amp.state_dict()
    return state


def save(state: dict, is_best: bool, folder: str) -> None:
    """Write a checkpoint, and keep the best one."""
    torch.save(state, os.path.join(folder, "checkpoint.pth.tar"))
    if is_best:
        shutil.copyfile(os.path.join(folder, "checkpoint.pth.tar"), os.path.join(folder, "model_best.pth.tar"))


def resume(args, device, model, optimizer, schedule, scaler) -> float:
    """Resume from a checkpoint; return its best accuracy."""
    with one_line(f"rank {args.rank}: {args.resume!r} is not a readable checkpoint", Exception):
        kept = torch.load(args.resume, map_location=device, weights_only=True)
        if kept["arch"] != args.arch:
            sys.exit(f"=> '{args.resume}' holds {kept['arch']}, and --arch is {args.arch}")
    plain = model.module if args.distributed else model
    with one_line(f"rank {args.rank}: {args.resume!r} does not fit", KeyError, RuntimeError, TypeError, ValueError):
        plain.load_state_dict(kept["state_dict"])
        optimizer.load_state_dict(kept["optimizer"])
        schedule.load_state_dict(kept["schedule"])
        if args.native_amp and kept["scaler"]:
            scaler.load_state_dict(kept["scaler"])
        if args.amp and "amp" in kept:
            amp.load_state_dict(kept["amp"])
        args.start_epoch = kept["epoch"]
    if args.rank == 0:
        print(f"=> loaded checkpoint '{args.resume}' (epoch {kept['epoch']})")
    return kept["best"]


class Meter:
    """Running mean of a value."""

    def __init__(self, name: str, form: str) -> None:
        self.name, self.form = name, form
        self.value = self.total = 0.0
        self.count = 0

    def update(self, value: float, count: int = 1) -> None:
        """Add a value that is the mean of ``count`` samples."""
        self.value = value
        self.total += value * count
        self.count += count

    def __str__(self) -> str:
        return ("{} {" + self.form + "} ({" + self.form + "})").format(self.name, self.value, self.total / self.count)


if __name__ == "__main__":
    main()
