"""Export a dueling DQN to ONNX: dueling_dqn.onnx, dueling_dqn_dyn.onnx, dueling_dqn_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import ARCHS, network_for

    from utils.export.networks.policies import Acting
    from utils.export.networks.random_weights import RANDOM
    from utils.export.scripts.policy import write_policy
    from utils.export.torch_export import load_weights


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--arch", choices=tuple(ARCHS), default="vector", help="what it sees (default: vector)")
    parser.add_argument("--weights", default=RANDOM, help="a state dict, such as train.py's, or random (the default)")
    parser.add_argument("--env", help="environment; it determines the network's sizes")
    parser.add_argument("--width", type=int, help="of the hidden layers (default: vector 128, frames 512)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    torch.manual_seed(0)
    network, shape, env = network_for(args.arch, args.env, args.width)
    weights = RANDOM
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only")
    else:
        load_weights(network, args.weights)
        weights = Path(args.weights).name
    example = torch.randn(1, *shape) if len(shape) == 1 else torch.randint(0, 256, (1, *shape)).float()
    provenance = {"source": "example/reinforcement/dueling_dqn/model.py", "weights": weights}
    outputs = ["advantages", "values"]
    write_policy(args.out / "dueling_dqn", Acting(network), env, outputs, provenance, args.forms, example)
    return 0


if __name__ == "__main__":
    cli.run(main)
