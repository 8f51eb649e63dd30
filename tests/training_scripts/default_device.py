"""A physics-informed network: everything is made on the default device, gradients of gradients."""
import argparse
import math

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--how", choices=["device", "type", "context"], default="device")
parser.add_argument("--iterations", type=int, default=12)
args = parser.parse_args()

torch.manual_seed(13)
if torch.cuda.is_available():
    if args.how == "device":
        torch.set_default_device("cuda")
    elif args.how == "type":
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
    scope = torch.device("cuda:0")
else:
    scope = torch.device("cpu")


class PINN(nn.Module):
    """u(t) with u'' + u = 0, u(0) = 0, u'(0) = 1: the sine."""

    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, t):
        return t * (1 + t * self.net(t))


def derivative(y, t):
    return torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]


def residual(model, t):
    t.requires_grad_(True)
    u = model(t)
    return derivative(derivative(u, t), t) + u


def train():
    model = PINN()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    grid = torch.linspace(0, math.pi, 64).unsqueeze(1)
    weights = torch.ones(64, 1) / 64
    assert grid.is_cuda == torch.cuda.is_available() and next(model.parameters()).is_cuda == grid.is_cuda

    def closure():
        optimizer.zero_grad()
        loss = (weights * residual(model, grid.clone()).square()).sum()
        loss.backward()
        return loss

    for i in range(args.iterations):
        loss = optimizer.step(closure)
        print("iteration", i, "loss", repr(loss.item()))
    with torch.no_grad():
        error = (model(grid) - torch.sin(grid)).abs().max()
    print("largest error: loss", repr(error.item()))


if args.how == "context":
    with scope:
        train()
else:
    train()
