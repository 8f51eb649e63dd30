"""Reproducible training of the zoo's policies: PPO on discrete actions, and double DQN.

`Proximal Policy Optimization <https://arxiv.org/abs/1707.06347>`_ with generalised advantages
(`Schulman et al., 2016 <https://arxiv.org/abs/1506.02438>`_), and
`Deep Reinforcement Learning with Double Q-learning <https://arxiv.org/abs/1509.06461>`_.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributions import Categorical
from torch.nn import functional

from engine import Array
from tecoinfer_modelzoo.progress import progress
from utils.environments import gymnasium


@dataclass(frozen=True)
class PpoPlan:
    """Hyperparameters of PPO.

    Attributes:
        steps: of all environments together. lanes: parallel environments. horizon: steps of each per round.
        rate: initial learning rate, decayed to 0. passes: epochs per round. batch: of a learning step.
        discount, smoothing: gamma and lambda of the advantages. clip: of the ratio.
        entropy, value: weights of these losses. norm: maximum gradient norm.
    """

    steps: int
    lanes: int = 16
    horizon: int = 128
    rate: float = 2.5e-3
    passes: int = 4
    batch: int = 512
    discount: float = 0.99
    smoothing: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    norm: float = 0.5


class _Round(NamedTuple):
    """Steps of a round; [T, E] each, observations [T + 1, E, ...]."""

    observations: torch.Tensor
    actions: torch.Tensor
    likely: torch.Tensor
    rewards: torch.Tensor
    terminated: torch.Tensor
    ended: torch.Tensor
    before: torch.Tensor


def ppo(environment: str, policy: torch.nn.Module, critic: torch.nn.Module, plan: PpoPlan) -> torch.nn.Module:
    """Train a policy (observations to logits) in place and return it in eval mode; ``critic``: to a value."""
    lanes = _Lanes(environment, plan.lanes)
    weights = [*policy.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(weights, plan.rate, eps=1e-5)
    rounds = plan.steps // (plan.lanes * plan.horizon)
    for number in progress(range(rounds), "round", "training"):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * (1 - number / rounds)
        seen = lanes.play(policy, plan.horizon)
        advantages, returns = _advantages(seen, critic, plan)
        # The step after the end of an episode is the reset, where the action has no effect.
        (usable,) = (~seen.before).flatten().nonzero(as_tuple=True)
        columns = (seen.observations[:-1], seen.actions, seen.likely, advantages, returns)
        rows = [column.flatten(0, 1)[usable] for column in columns]
        for _ in range(plan.passes):
            for chosen in torch.randperm(len(usable)).split(plan.batch):
                cost = _cost(policy, critic, [column[chosen] for column in rows], plan)
                optimizer.zero_grad()
                cost.backward()
                torch.nn.utils.clip_grad_norm_(weights, plan.norm)
                optimizer.step()
    return policy.eval()


def _cost(policy: torch.nn.Module, critic: torch.nn.Module, rows: list[torch.Tensor], plan: PpoPlan) -> torch.Tensor:
    observations, actions, likely, advantages, returns = rows
    now = Categorical(logits=policy(observations))
    ratio = (now.log_prob(actions) - likely).exp()
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = torch.minimum(ratio * scaled, ratio.clamp(1 - plan.clip, 1 + plan.clip) * scaled).mean()
    off = functional.mse_loss(critic(observations).squeeze(1), returns)
    return plan.value * off - gain - plan.entropy * now.entropy().mean()


@torch.no_grad()  # type: ignore[untyped-decorator]
def _advantages(seen: _Round, critic: torch.nn.Module, plan: PpoPlan) -> tuple[torch.Tensor, torch.Tensor]:
    """Return generalised advantages and the critic's targets, [T, E] each; truncated episodes are bootstrapped."""
    values = critic(seen.observations.flatten(0, 1)).view(seen.observations.shape[:2])
    found, last = torch.zeros_like(seen.rewards), torch.zeros_like(seen.rewards[0])
    for step in reversed(range(len(found))):
        behind = values[step + 1] * (~seen.terminated[step])
        surprise = seen.rewards[step] + plan.discount * behind - values[step]
        last = surprise + plan.discount * plan.smoothing * last * (~seen.ended[step])
        found[step] = last
    return found, found + values[:-1]


class _Lanes:
    """Parallel environments, which are reset at the step after the end of an episode."""

    def __init__(self, environment: str, count: int) -> None:
        gym = gymnasium()
        self._lanes = gym.make_vec(environment, num_envs=count, vectorization_mode="sync")
        self._seen: Array = self._lanes.reset(seed=1)[0]
        self._ended: Array = np.zeros(count, bool)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def play(self, policy: torch.nn.Module, horizon: int) -> _Round:
        """Run the policy for ``horizon`` steps with sampled actions."""
        columns: list[list[Any]] = [[] for _ in _Round._fields]
        for _ in range(horizon):
            x = torch.as_tensor(self._seen, dtype=torch.float32)
            draw = Categorical(logits=policy(x))
            action = draw.sample()
            before, (self._seen, reward, terminated, truncated, _) = self._ended, self._lanes.step(action.numpy())
            self._ended = terminated | truncated
            rewards = torch.as_tensor(reward, dtype=torch.float32)
            ends = torch.as_tensor(terminated), torch.as_tensor(self._ended), torch.as_tensor(before)
            for column, value in zip(columns, (x, action, draw.log_prob(action), rewards, *ends), strict=True):
                column.append(value)
        columns[0].append(torch.as_tensor(self._seen, dtype=torch.float32))
        return _Round(*(torch.stack(column) for column in columns))


class Played(NamedTuple):
    """An episode: its return, observations [T, ...] and actions, int64 [T]."""

    total: float
    observations: Array
    actions: Array


@torch.no_grad()  # type: ignore[untyped-decorator]
def played(network: torch.nn.Module, environment: str, seed: int) -> Played:
    """Run one episode with the action of the largest output."""
    lane = gymnasium().make(environment)
    seen, _ = lane.reset(seed=seed)
    total, over = 0.0, False
    observations, actions = list[Array](), list[int]()
    while not over:
        x = torch.as_tensor(np.asarray(seen), dtype=torch.float32)[None]
        action = int(network(x).argmax())
        observations.append(np.array(seen))  # a copy, as the environment may reuse the array
        actions.append(action)
        seen, reward, terminated, truncated, _ = lane.step(action)
        total += float(reward)
        over = terminated or truncated
    lane.close()
    return Played(total, np.stack(observations), np.array(actions, np.int64))


@dataclass(frozen=True)
class DqnPlan:
    """Hyperparameters of double DQN.

    Attributes:
        steps: of all environments together. lanes: parallel environments.
        memory: replay memory, in steps. first: steps before learning starts. batch: of a learning step.
        rate: initial learning rate, decayed to 0. discount: gamma.
        explore: final fraction of random actions, reached from 1 over ``fall`` of the steps.
        follow: update fraction of the target network per learning step. norm: maximum gradient norm.
    """

    steps: int
    lanes: int = 8
    memory: int = 20_000
    first: int = 1_000
    batch: int = 128
    rate: float = 1e-3
    discount: float = 0.99
    explore: float = 0.04
    fall: float = 0.3
    follow: float = 0.01
    norm: float = 10.0


def double_dqn(environment: str, network: torch.nn.Module, plan: DqnPlan) -> torch.nn.Module:
    """Train a Q-network; return the target network (a moving average) in eval mode."""
    gym = gymnasium()
    lanes = gym.make_vec(environment, num_envs=plan.lanes, vectorization_mode="sync")
    chance = np.random.default_rng(0)
    seen, ended = lanes.reset(seed=1)[0], np.zeros(plan.lanes, bool)
    memory, behind = _Memory(plan.memory, seen.shape[1:]), copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), plan.rate)
    rounds = plan.steps // plan.lanes
    for number in progress(range(rounds), "step", "training"):
        share = max(plan.explore, 1 - number / (plan.fall * rounds) * (1 - plan.explore))
        with torch.no_grad():
            best = network(torch.as_tensor(seen, dtype=torch.float32)).argmax(dim=1).numpy()
        drawn = chance.integers(0, int(lanes.single_action_space.n), plan.lanes)
        action = np.where(chance.random(plan.lanes) < share, drawn, best)
        after, reward, terminated, truncated, _ = lanes.step(action)
        memory.add(seen[~ended], action[~ended], reward[~ended], after[~ended], terminated[~ended])
        seen, ended = after, terminated | truncated
        if memory.count < plan.first:
            continue
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * (1 - number / rounds)
        cost = _surprise(network, behind, memory.drawn(plan.batch, chance), plan.discount)
        optimizer.zero_grad()
        cost.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), plan.norm)
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(behind.parameters(), network.parameters(), strict=True):
                old.lerp_(new, plan.follow)
    return behind.eval()


def _surprise(
    network: torch.nn.Module, behind: torch.nn.Module, rows: list[torch.Tensor], discount: float
) -> torch.Tensor:
    """Return the double DQN loss; ``behind``: target network."""
    seen, action, reward, after, terminated = rows
    with torch.no_grad():
        best = network(after).argmax(dim=1, keepdim=True)
        wanted = reward + discount * behind(after).gather(1, best).squeeze(1) * (1 - terminated)
    values = network(seen).gather(1, action.long()[:, None]).squeeze(1)
    return functional.smooth_l1_loss(values, wanted)


class _Memory:
    """Replay memory of the newest steps."""

    def __init__(self, most: int, shape: tuple[int, ...]) -> None:
        self.count = 0
        self._next, self._most = 0, most
        sizes: tuple[tuple[int, ...], ...] = (shape, (), (), shape, ())
        self._columns = [np.zeros((most, *size), np.float32) for size in sizes]

    def add(self, *columns: Array) -> None:
        """Store steps in place of the oldest."""
        places = (self._next + np.arange(len(columns[0]))) % self._most
        for held, column in zip(self._columns, columns, strict=True):
            held[places] = column
        self._next = (self._next + len(places)) % self._most
        self.count = min(self._most, self.count + len(places))

    def drawn(self, count: int, chance: np.random.Generator) -> list[torch.Tensor]:
        """Return ``count`` steps, sampled with replacement."""
        places = chance.integers(0, self.count, count)
        return [torch.from_numpy(column[places]) for column in self._columns]
