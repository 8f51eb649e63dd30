"""Evaluate the policy on CartPole-v1: mean return, agreement of actions, and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.policy_rollout import POLICY_ROLLOUT

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "ppo_cartpole_dyn.onnx", HERE / "recorded.npz"
    cli.valid(__doc__, POLICY_ROLLOUT, ckpt=ckpt, data_path=data, batch_size=100)
