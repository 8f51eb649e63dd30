"""Train a small convolutional network on handwritten digits, on one CUDA card."""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=4, help="default: 4")
parser.add_argument("--batch-size", type=int, default=64, help="batch size per card (default: 64)")
parser.add_argument("--lr", type=float, default=0.003, help="learning rate (default: 0.003)")
parser.add_argument("--seed", type=int, default=0, help="default: 0")
parser.add_argument("--out", default="digits.pt", metavar="FILE", help="weights and losses (default: digits.pt)")


def data() -> tuple[TensorDataset, TensorDataset]:
    """Return the training set and the held-out set."""
    digits = load_digits()
    x = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(digits.target)
    return TensorDataset(x[:1408], y[:1408]), TensorDataset(x[1408:], y[1408:])


def network() -> nn.Module:
    """Return the network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def main() -> None:
    """Train for all epochs, save the weights, and print the held-out accuracy."""
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed(args.seed)
    train_set, test_set = data()
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)
    model = network().cuda()
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    losses = []
    for epoch in range(args.epochs):
        model.train()
        for images, labels in train_loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}")

    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in test_loader:
            right += (model(images.cuda()).argmax(1) == labels.cuda()).sum().item()
    torch.save({"weights": model.state_dict(), "losses": losses}, args.out)
    print(f"eval_metric {right / len(test_set):.6f}")


if __name__ == "__main__":
    main()
