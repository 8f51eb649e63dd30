"""Export the classifier of the digits' graph: digits_gcn.onnx, digits_gcn_dyn.onnx, digits_gcn_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_forms
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.graph_models import DENSE, SCATTER, GraphSizes
    from utils.export.scripts.graph import export_graph, graph_network

HERE = Path(__file__).resolve().parent
SIZES = GraphSizes("gcn", features=64, hidden=64, classes=10)
PROVENANCE = {
    "source": "utils/export/networks/graph_models.py, gcn",
    "weights": "digits_gcn.pth, trained by train.py on 100 labelled nodes of the digits' graph",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "digits_gcn.pth")
    parser.add_argument("--form", choices=(DENSE, SCATTER), default=DENSE, help="neighbours as a matrix, or as edges")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    stem = args.out / ("digits_gcn" if args.form == DENSE else f"digits_gcn_{args.form}")
    network, labels = graph_network(SIZES, args.weights), [str(digit) for digit in range(10)]
    for result in export_graph(network, stem, args.form, labels=labels, provenance=PROVENANCE, forms=args.forms):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
