"""Train with DeepSpeed: ``torchrun --nproc_per_node N deepspeed_script.py STAGE``, the stage of ZeRO."""

import sys

import deepspeed
import torch
from torch import nn


def main():
    stage = int(sys.argv[1])
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    data = torch.Generator().manual_seed(1)
    for _ in range(5):
        x = torch.randn(8 * size, 8, generator=data)
        y = (x.sum(1) > 0).long()
        mine = slice(8 * rank, 8 * rank + 8)
        loss = nn.functional.cross_entropy(engine(x[mine].to(engine.device)), y[mine].to(engine.device))
        engine.backward(loss)
        engine.step()
        every = loss.detach().clone()
        deepspeed.comm.all_reduce(every)
        if rank == 0:
            print("loss", every.item() / size, engine.device.type, flush=True)


if __name__ == "__main__":
    main()
