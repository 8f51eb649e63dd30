"""Train the Q-network for vectors of numbers on CartPole, and write dueling_dqn.pth and recorded.npz.

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
    from model import network_for

    from utils.export.networks.policy_training import DqnPlan, double_dqn
    from utils.export.networks.training import repeatable
    from utils.export.scripts.policy import keep_policy

PLAN = DqnPlan(60_000, lanes=2, memory=60_000, rate=5e-4, discount=0.98, follow=0.002)


def main() -> int:
    """Train, write the files and print the mean return."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the files")
    out = parser.parse_args().out
    repeatable()
    network, _, env = network_for("vector", None, None)
    return keep_policy(double_dqn(env, network, PLAN), env, out / "dueling_dqn.pth", out / "recorded.npz")


if __name__ == "__main__":
    cli.run(main)
