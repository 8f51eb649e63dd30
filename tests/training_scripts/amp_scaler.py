"""Mixed precision as it was first documented: torch.cuda.amp, with clipping between unscale_ and step."""
import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.cuda.amp import GradScaler, autocast


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--no-amp", dest="amp", action="store_false")
    p.add_argument("--init-scale", type=float, default=2.0 ** 16)
    p.add_argument("--growth-interval", type=int, default=4)
    return p.parse_args()


def main():
    args = get_args()
    torch.manual_seed(1234)
    use_cuda = torch.cuda.is_available()
    device = "cuda" if use_cuda else "cpu"
    args.amp = args.amp and use_cuda

    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32).div(16)
    y = torch.tensor(data.target)
    model = nn.Sequential(nn.Linear(64, 64), Block(64), Block(64), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = GradScaler(init_scale=args.init_scale, growth_interval=args.growth_interval, enabled=args.amp)

    for step in range(args.steps):
        picked = torch.randint(0, len(x), (64,))
        xb, yb = x[picked].to(device), y[picked].to(device)
        optimizer.zero_grad(set_to_none=True)
        with autocast(enabled=args.amp):
            logits = model(xb)
            loss = F.cross_entropy(logits, yb)
        if args.amp and step == 0:
            print("logits are", logits.dtype)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step} loss {loss.item()!r} norm {norm.item()!r} scale {scaler.get_scale()!r}")
    torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, "amp_scaler.pt")


if __name__ == "__main__":
    main()
