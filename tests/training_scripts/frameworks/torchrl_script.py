"""Train a Q network with torchrl's loss and replay buffer: ``python torchrl_script.py [cpu]``; data are drawn."""

import sys

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate


def main():
    device = torch.device("cuda" if torch.cuda.is_available() and "cpu" not in sys.argv else "cpu")
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
    buffer.extend(data)
    optimizer = torch.optim.Adam(loss_module.parameters(), 0.01)
    for _ in range(6):
        loss = loss_module(buffer.sample().to(device))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updater.step()
        print("loss", loss.item(), device.type)


if __name__ == "__main__":
    main()
