"""Whole steps captured as a CUDA graph, which sdaa does not do."""
import torch
from torch import nn

torch.manual_seed(0)
N, D_in, H, D_out = 32, 16, 32, 4
model = nn.Sequential(nn.Linear(D_in, H), nn.ReLU(), nn.Linear(H, D_out)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
static_input = torch.randn(N, D_in, device="cuda")
static_target = torch.randn(N, D_out, device="cuda")

s = torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    for i in range(3):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(static_input), static_target)
        loss.backward()
        optimizer.step()
        print("warm-up", i, "loss", repr(loss.item()))
torch.cuda.current_stream().wait_stream(s)

g = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(g):
    static_loss = nn.functional.mse_loss(model(static_input), static_target)
    static_loss.backward()
    optimizer.step()
for i in range(3):
    static_input.copy_(torch.randn(N, D_in))
    g.replay()
    print("replay", i, "loss", repr(static_loss.item()))
