"""Swing a two-link pendulum up, in several parallel episodes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.policy_rollout.task import PolicyRollout

if __name__ == "__main__":
    cli.multi(PolicyRollout, ckpt="ppo_acrobot_dyn.onnx", data_path="recorded.npz", batch_size=8, episodes=8)
