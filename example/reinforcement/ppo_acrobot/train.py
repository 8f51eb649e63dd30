"""Train the policy by PPO and write ppo_acrobot.pth, and its actions in 100 episodes, recorded.npz.

Seeded and one thread. Another processor or version of PyTorch may round differently and give other weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from model import ENVIRONMENT, critic, policy

    from utils.export.networks.policy_training import PpoPlan, ppo
    from utils.export.networks.training import repeatable
    from utils.export.scripts.policy import keep_policy

PLAN = PpoPlan(200_000, rate=1e-3)


def main() -> int:
    """Train, write the files and print the mean return."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the files")
    out = parser.parse_args().out
    repeatable()
    trained = ppo(ENVIRONMENT, policy(), critic(), PLAN)
    return keep_policy(trained, ENVIRONMENT, out / "ppo_acrobot.pth", out / "recorded.npz")


if __name__ == "__main__":
    cli.run(main)
