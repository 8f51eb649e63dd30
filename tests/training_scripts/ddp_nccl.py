"""Data parallel training under torchrun: nccl, a process per card, the first one prints.

torchrun --nproc_per_node=2 ddp_nccl.py [--amp] [--sync-bn]
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=64, help="of one process")
    p.add_argument("--amp", action="store_true")
    p.add_argument("--sync-bn", action="store_true")
    return p.parse_args()


def is_main():
    return dist.get_rank() == 0


def reduce_mean(value):
    value = value.detach().clone()
    dist.all_reduce(value, op=dist.ReduceOp.SUM)
    return value / dist.get_world_size()


def main():
    args = parse()
    local_rank = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl" if cuda else "gloo", init_method="env://")
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    torch.manual_seed(42)

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    dataset = TensorDataset(x[:1024], torch.tensor(digits.target[:1024]))
    sampler = DistributedSampler(dataset, shuffle=True, seed=3)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, pin_memory=cuda)

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    if args.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = model.to(device)
    model = DDP(model, device_ids=[local_rank] if cuda else None, output_device=local_rank if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp and cuda)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with torch.autocast(device.type, enabled=args.amp and cuda):
                loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            mean = reduce_mean(loss)
            if is_main():
                print(f"epoch {epoch} step {step} loss {mean.item()!r}", flush=True)
        if is_main():
            torch.save(model.module.state_dict(), "ddp_nccl.pt")
        dist.barrier()
    where = {"cuda:%d" % local_rank: "cpu"} if cuda else "cpu"
    state = torch.load("ddp_nccl.pt", map_location=where)
    mine = model.module.state_dict()
    same = all(torch.equal(state[name].cpu(), mine[name].cpu()) for name in state if "running" not in name)
    assert same or args.sync_bn is False, "ranks have parted"
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
