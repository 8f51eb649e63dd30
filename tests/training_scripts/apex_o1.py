"""Mixed precision by apex, which many scripts of 2019 to 2021 use."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_wine

try:
    from apex import amp
except ImportError:
    raise ImportError("Please install apex from https://www.github.com/nvidia/apex to run this example.")

parser = argparse.ArgumentParser()
parser.add_argument("--opt-level", type=str, default="O1")
parser.add_argument("--loss-scale", type=str, default=None)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
print("opt_level = {}, loss_scale = {}".format(args.opt_level, args.loss_scale))

torch.backends.cudnn.benchmark = True
torch.manual_seed(3)
torch.cuda.set_device(0)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(13, 64)
        self.bn = nn.BatchNorm1d(64)
        self.fc2 = nn.Linear(64, 3)

    def forward(self, x):
        return self.fc2(F.relu(self.bn(self.fc1(x))))


wine = load_wine()
inputs = torch.tensor(wine.data, dtype=torch.float32)
inputs = ((inputs - inputs.mean(0)) / inputs.std(0)).cuda()
targets = torch.tensor(wine.target).cuda()

model = Mlp().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_scale = args.loss_scale if args.loss_scale in (None, "dynamic") else float(args.loss_scale)
model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level, loss_scale=loss_scale, verbosity=0)

for step in range(args.steps):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs).float(), targets)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 5.0)
    optimizer.step()
    print("step {} loss {!r}".format(step, loss.item()))

checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "amp": amp.state_dict()}
torch.save(checkpoint, "apex_o1.pt")
if args.resume:
    checkpoint = torch.load("apex_o1.pt", map_location=lambda storage, loc: storage.cuda(0))
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    amp.load_state_dict(checkpoint["amp"])
    with torch.no_grad():
        print("resumed loss {!r}".format(F.cross_entropy(model(inputs).float(), targets).item()))
