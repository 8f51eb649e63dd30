"""One process, all cards: nn.DataParallel, which sdaa does not do."""
import os

import torch
import torch.nn as nn
from sklearn.datasets import load_digits

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1")
torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model, device_ids=list(range(torch.cuda.device_count())))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    picked = torch.randint(len(x), (128,))
    loss = nn.functional.cross_entropy(model(x[picked].to(device)), y[picked].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", repr(loss.item()))
