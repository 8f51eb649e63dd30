# Policy gradient in a corridor: an environment of tensors on the card, a generator of the card's, buffers from new_*.
import argparse

import torch
import torch.nn as nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--envs", type=int, default=32)
parser.add_argument("--length", type=int, default=9)
parser.add_argument("--updates", type=int, default=8)
parser.add_argument("--gamma", type=float, default=0.95)
parser.add_argument("--device", default=None)
args = parser.parse_args()
if args.device is None:
    args.device = "cuda:%d" % torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
dev = torch.device(args.device)


class Corridor:
    """Walk right to be paid; left is a step back; it may slip."""

    def __init__(self, count, length, device):
        self.count, self.length, self.device = count, length, device
        self.generator = torch.Generator(device=device).manual_seed(50)

    def reset(self):
        self.at = torch.zeros(self.count, dtype=torch.long, device=self.device)
        return self.observe()

    def observe(self):
        return torch.eye(self.length, device=self.device)[self.at]

    def step(self, action):
        slip = torch.rand(self.count, device=self.device, generator=self.generator) < 0.1
        move = torch.where(slip, torch.zeros_like(action), 2 * action - 1)
        self.at = (self.at + move).clamp(0, self.length - 1)
        reward = (self.at == self.length - 1).float() - 0.05
        return self.observe(), reward


torch.manual_seed(6)
policy = nn.Sequential(nn.Linear(args.length, 16), nn.Tanh(), nn.Linear(16, 2)).to(dev)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
env = Corridor(args.envs, args.length, dev)
for update in range(args.updates):
    state, logs, rewards = env.reset(), [], []
    for _ in range(12):
        chosen = Categorical(logits=policy(state))
        action = chosen.sample()
        logs.append(chosen.log_prob(action))
        state, reward = env.step(action)
        rewards.append(reward)
    returns = state.new_empty(len(rewards), args.envs)
    running = state.new_zeros(args.envs)
    for t in reversed(range(len(rewards))):
        running = rewards[t] + args.gamma * running
        returns[t] = running
    returns = (returns - returns.mean()) / (returns.std() + torch.finfo(torch.float32).eps)
    loss = -(torch.stack(logs) * returns).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"update {update} loss {loss.item()!r} reward {torch.stack(rewards).mean().item()!r}")
