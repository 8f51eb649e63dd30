"""Export AST, CNN10 or CNN14 to ONNX: <name>.onnx, <name>_dyn.onnx and <name>_float16_dyn.onnx.

``--weights`` is a folder as transformers' ``save_pretrained`` writes it (AST), or a file of PANNs such as
``Cnn10_mAP=0.380.pth``; or ``random``, for functional and speed checks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_common
from utils.pipeline import cli
from utils.tasks import str2bool

with needed(__file__):
    from utils.export.networks.random_weights import RANDOM
    from utils.export.networks.sound.sound_models import ARCHS, export_sound_model, read_labels, sound_model

DATA = HERE.parent / "keypad_words" / "data"


def main() -> int:
    """Write the requested forms, and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser, HERE)
    parser.add_argument("--weights", required=True, help="folder of AST, file of PANNs, or random")
    parser.add_argument("--arch", choices=ARCHS, default=ARCHS[0], help="of random weights (default: %(default)s)")
    parser.add_argument("--labels", type=Path, help="class names: a line each, or AudioSet's class_labels_indices.csv")
    parser.add_argument("--seconds", type=float, help="window of PANNs, as in training (default: 10)")
    parser.add_argument("--rate", type=int, choices=(32000, 16000, 8000), help="in Hz, if the file does not tell")
    parser.add_argument("--multi_label", type=str2bool, help="a sound may have several classes (default: as AudioSet)")
    args = parser.parse_args()
    labels = None if args.labels is None else read_labels(args.labels)
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only")
        labels = labels or sorted(one.name for one in DATA.iterdir() if one.is_dir())
    flags = {"seconds": args.seconds, "rate": args.rate, "multi_label": args.multi_label}
    model = sound_model(args.weights, args.arch, labels=labels, **flags)
    how = {"batch": args.batch_size, "forms": args.forms, "exporter": args.exporter}
    for result in export_sound_model(model, args.out / model.name, **how):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
