"""Swing a two-link pendulum up, once."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.policy_rollout.task import PolicyRollout

if __name__ == "__main__":
    cli.single(PolicyRollout, ckpt="ppo_acrobot_dyn.onnx", data_path="recorded.npz", episodes=1)
