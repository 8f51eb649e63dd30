"""Train with accelerate, save the state, load it and continue: ``accelerate_script.py FOLDER [cpu]``, or by torchrun."""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(cpu="cpu" in sys.argv[2:])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, (x.sum(1) > 0).long())
    loader = DataLoader(data, batch_size=16 // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def epoch():
        found = []
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            found.append(accelerator.gather(loss.detach()).mean().item())
        return found

    losses = epoch()
    accelerator.save_state(sys.argv[1])
    losses += epoch()
    accelerator.load_state(sys.argv[1])
    again = epoch()
    if accelerator.is_main_process:
        print("device", accelerator.device.type)
        print("the same after loading", again == losses[-len(again) :])
        for loss in losses:
            print("loss", loss)


if __name__ == "__main__":
    main()
