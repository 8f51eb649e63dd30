"""Train a Q network with torchrl's loss and replay buffer: ``python torchrl_script.py [cpu]``, or by torchrun.

Data are drawn. Each rank samples from its own part of them, and gradients are averaged.
"""

import os
import sys

import torch
import torch.distributed as dist
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate


def main():
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if torch.cuda.is_available() and "cpu" not in sys.argv:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if size > 1:
        dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
    torch.manual_seed(0)
    actor = QValueActor(MLP(in_features=4, out_features=3, num_cells=[16]), in_keys=["observation"], spec=OneHot(3))
    actor = actor.to(device)
    loss_module = DQNLoss(actor, action_space="one-hot", delay_value=True)
    updater = SoftUpdate(loss_module, eps=0.9)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(128, device=device), batch_size=16)
    made = torch.Generator().manual_seed(1)
    actions = torch.nn.functional.one_hot(torch.randint(0, 3, (128,), generator=made), 3)
    data = TensorDict(
        {
            "observation": torch.randn(128, 4, generator=made),
            "action": actions,
            "next": {
                "observation": torch.randn(128, 4, generator=made),
                "reward": torch.randn(128, 1, generator=made),
                "done": torch.zeros(128, 1, dtype=torch.bool),
                "terminated": torch.zeros(128, 1, dtype=torch.bool),
            },
        },
        batch_size=[128],
    )
    buffer.extend(data[rank::size])
    optimizer = torch.optim.Adam(loss_module.parameters(), 0.01)
    for _ in range(6):
        loss = loss_module(buffer.sample().to(device))["loss"]
        optimizer.zero_grad()
        loss.backward()
        for weight in loss_module.parameters() if size > 1 else ():
            if weight.grad is not None:
                dist.all_reduce(weight.grad)
                weight.grad /= size
        optimizer.step()
        updater.step()
        if rank == 0:
            print("loss", loss.item(), device.type)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
