"""Stops after some epochs, starts again from a checkpoint, and must go on as if nothing had been.

--map str | device | dict | function: how the checkpoint is brought to the card
"""
import argparse
import os

import torch
from sklearn.datasets import load_digits
from torch import nn


def make(device):
    torch.manual_seed(31)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)


def rng_states():
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state("cuda:0")
        states["all"] = torch.cuda.get_rng_state_all()
    return states


def set_rng_states(states):
    torch.set_rng_state(states["cpu"].cpu())
    if torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu(), device="cuda:0")
        torch.cuda.set_rng_state_all([state.cpu() for state in states["all"]])


def run(first, last, device, path, map_location=None):
    model, optimizer, scheduler = make(device)
    if map_location is not None:
        checkpoint = torch.load(path, map_location=map_location, weights_only=False)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        set_rng_states(checkpoint["rng"])
        first = checkpoint["epoch"]
    digits = load_digits()
    x, y = torch.tensor(digits.data).float().div(16), torch.tensor(digits.target)
    losses = []
    for epoch in range(first, last):
        for part in torch.randperm(1280).split(160):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[part].to(device)), y[part].to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        torch.save({
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
            "epoch": epoch + 1, "rng": rng_states(), "device": device,
        }, path)
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--map", default="str", choices=["str", "device", "dict", "function"])
    parser.add_argument("--checkpoint", default="resume.pt")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda:0" if cuda else "cpu")
    maps = {
        "str": "cuda:0" if cuda else "cpu",
        "device": device,
        "dict": {"cuda:1": "cuda:0", "cuda:0": "cuda:0"} if cuda else {"cpu": "cpu"},
        "function": (lambda storage, loc: storage.cuda(0)) if cuda else (lambda storage, loc: storage),
    }
    straight = run(0, 3, device, args.checkpoint)
    halves = run(0, 2, device, args.checkpoint)
    halves += run(0, 3, device, args.checkpoint, maps[args.map])
    for step, (a, b) in enumerate(zip(straight, halves)):
        print(f"step {step} loss {a!r} {'same' if a == b else 'OTHER: ' + repr(b)}")
    assert straight == halves
    print(os.path.basename(args.checkpoint), "resumed by", args.map)


if __name__ == "__main__":
    main()
