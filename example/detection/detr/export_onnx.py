"""Export a DETR-like network of transformers to ONNX: <name>.onnx, <name>_dyn.onnx and <name>_float16_dyn.onnx."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.random_weights import RANDOM
    from utils.export.networks.transformers_detectors import ARCHS, detector
    from utils.export.scripts.detector import add_common, sides, write


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    flags = argparse.ArgumentParser(description=__doc__)
    add_common(flags, HERE)
    flags.add_argument("--arch", choices=ARCHS, default="detr", help="architecture, without a folder of weights")
    flags.add_argument("--weights", required=True, help="folder that save_pretrained wrote, or random: a tiny network")
    flags.add_argument(
        "--input_size", type=int, nargs="+", metavar="N", help="height (and width) of the example, of 32"
    )
    return flags.parse_args()


def main() -> int:
    """Write the files and print the largest relative error of each."""
    args = arguments()
    given = args.input_size or ([96] if args.weights == RANDOM else None)
    found = detector(args.arch, args.weights, None if given is None else sides(given, (0, 0), 32))
    for line in write(found, args):
        print(line)
    return 0


if __name__ == "__main__":
    cli.run(main)
