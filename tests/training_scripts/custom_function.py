"""An autograd Function of one's own, with custom_fwd and custom_bwd, checked against PyTorch's gradients."""
import argparse

import torch
from torch import nn
from torch.autograd import Function, gradcheck
from torch.cuda.amp import custom_bwd, custom_fwd


class ScaledTanh(Function):
    """y = scale * tanh(x), with a mask made by hand in backward."""

    @staticmethod
    @custom_fwd
    def forward(ctx, x, scale):
        y = torch.tanh(x)
        ctx.save_for_backward(y, scale)
        return y * scale

    @staticmethod
    @custom_bwd
    def backward(ctx, grad_output):
        y, scale = ctx.saved_tensors
        grad_x = grad_output * scale * (1 - y * y)
        grad_scale = (grad_output * y).sum().reshape(scale.shape)
        mask = torch.ones(grad_x.shape, dtype=grad_x.dtype, device=grad_x.device)
        mask[grad_x.abs() > 1e3] = 0
        return grad_x * mask, grad_scale


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        zeros = x.new(x.size()).zero_()
        if x.is_cuda:
            zeros = zeros.cuda(x.get_device())
        return torch.where(x > 0, torch.ones_like(x), zeros)

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        x = ScaledTanh.apply(self.a(x), self.scale)
        gate = StraightThrough.apply(x)
        return self.b(x * gate)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", type=int, default=15)
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.manual_seed(9)
    device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
    if args.check:
        sample = torch.randn(3, 4, dtype=torch.double, requires_grad=True, device=device)
        scale = torch.tensor([1.5], dtype=torch.double, requires_grad=True, device=device)
        print("gradcheck", gradcheck(ScaledTanh.apply, (sample, scale)))
    x = torch.randn(256, 8).to(device)
    y = (x.pow(2).sum(1, keepdim=True) - 8) / 4
    net = Net().to(device)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01)
    for i in range(args.iterations):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        print("iteration", i, "loss", repr(loss.item()))
    if net.scale.grad.is_cuda:
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
