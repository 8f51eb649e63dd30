"""Training: advantages by hand, the dueling head by its formula, and the same weights each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")
import torch

from utils.export.networks.policies import Acting, Dueling, Perceptron
from utils.export.networks.policy_training import DqnPlan, PpoPlan, _advantages, _Round, double_dqn, ppo
from utils.export.networks.training import repeatable

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Same(torch.nn.Module):  # type: ignore[misc]
    """A critic that expects an observation's own value."""

    def forward(self, x: Any) -> Any:
        return x


def seen(rewards: list[float], values: list[float], terminated: list[bool], ended: list[bool]) -> _Round:
    def column(found: Any) -> Any:
        return torch.tensor(found)[:, None]

    nothing = torch.zeros(len(rewards), 1)
    observations = torch.tensor(values)[:, None, None]
    return _Round(observations, nothing, nothing, column(rewards), column(terminated), column(ended), nothing.bool())


def test_advantages_by_hand() -> None:
    plan = PpoPlan(1, discount=0.5, smoothing=0.5)
    found, returns = _advantages(
        seen([1.0, 2.0, 3.0], [10.0, 20.0, 30.0, 40.0], [False, True, False], [False, True, True]), Same(), plan
    )
    # The last step was cut off: what the critic sees behind it counts. The second terminated: nothing does.
    last = 3 + 0.5 * 40 - 30
    second = 2 - 20
    first = 1 + 0.5 * 20 - 10 + 0.25 * second
    np.testing.assert_allclose(found[:, 0].numpy(), [first, second, last])
    np.testing.assert_allclose(returns[:, 0].numpy(), [first + 10, second + 20, last + 30])


@pytest.mark.parametrize("shape", [(5,), (2, 40, 44)])
def test_the_dueling_head(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = Dueling(shape, 3, 8)
    x = torch.rand(4, *shape) * (255 if len(shape) == 3 else 1)
    with torch.no_grad():
        features = network.body(x / 255 if len(shape) == 3 else x)
        value, advantage = network.value(features), network.advantage(features)
        torch.testing.assert_close(network(x).mean(dim=1, keepdim=True), value)
        torch.testing.assert_close(network(x) - value, advantage - advantage.mean(dim=1, keepdim=True))
        better, values = Acting(network)(x)
        torch.testing.assert_close(values, network(x))
        torch.testing.assert_close(better, advantage - advantage.mean(dim=1, keepdim=True))


@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_training_is_reproducible_and_learns(kind: str) -> None:
    def trained() -> dict[str, Any]:
        repeatable()
        if kind == "ppo":
            policy = Perceptron(4, 2, gain=0.01)
            return dict(ppo("CartPole-v1", policy, Perceptron(4, 1), PpoPlan(4096, lanes=8, horizon=64)).state_dict())
        return dict(double_dqn("CartPole-v1", Dueling((4,), 2, 16), DqnPlan(3000, first=500)).state_dict())

    torch.use_deterministic_algorithms(False)
    one, other = trained(), trained()
    torch.use_deterministic_algorithms(False)
    repeatable()
    begun = Perceptron(4, 2, gain=0.01) if kind == "ppo" else Dueling((4,), 2, 16)
    torch.use_deterministic_algorithms(False)
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert not all(torch.equal(one[key], value) for key, value in begun.state_dict().items())
