"""Export the policy to ONNX: ppo_cartpole.onnx, ppo_cartpole_dyn.onnx, ppo_cartpole_float16_dyn.onnx."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from model import ENVIRONMENT, policy

    from utils.export.scripts.policy import export_policy


if __name__ == "__main__":
    cli.run(partial(export_policy, __doc__, HERE / "ppo_cartpole", policy(), ENVIRONMENT))
