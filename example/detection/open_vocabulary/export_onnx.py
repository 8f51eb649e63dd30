"""Export OWL-ViT or OWLv2 to ONNX: <name>.onnx, <name>_dyn.onnx and <name>_float16_dyn.onnx."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.owl_detectors import KINDS, detector
    from utils.export.scripts.detector import add_common, write


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    flags = argparse.ArgumentParser(description=__doc__)
    add_common(flags, HERE)
    flags.add_argument("--arch", choices=KINDS, default="owlv2", help="architecture, without a folder of weights")
    flags.add_argument("--weights", required=True, help="folder that save_pretrained wrote, or random: a tiny network")
    flags.add_argument("--tokenizer", help="its tokenizer.json (default: the one in the folder)")
    return flags.parse_args()


def main() -> int:
    """Write the files and print the largest relative error of each."""
    args = arguments()
    for line in write(detector(args.arch, args.weights, args.tokenizer), args):
        print(line)
    return 0


if __name__ == "__main__":
    cli.run(main)
