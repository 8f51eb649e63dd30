"""Write the trained network as ONNX, solubility_gcn*.onnx; train it first if weights are missing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.graphs.molecules import Molecules, graph_of, read_sdf
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli
from utils.preprocess.graphs.messages import messages
from utils.preprocess.graphs.sparse import Limits, Part, block_diagonal

with needed(__file__):
    import torch
    from model import FEATURES, PackedGCN, SolubilityGCN
    from train import PROPERTY, STEPS, WEIGHTS, get_data, tensors, train

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PROVENANCE = {"source": "example/gnn/solubility_gcn/model.py", "weights": "train.py, on RDKit's solubility data"}
NOTES = {
    "graph": {
        "messages": "symmetric",
        "loops": True,
        "kind": "regression",
        "targets": ["logS"],
        "atoms": FEATURES.stored(),
    }
}
DENSE = {"x": {0: "batch", 1: "nodes"}, "adjacency": {0: "batch", 1: "nodes", 2: "nodes"}}
DENSE |= {"mask": {0: "batch", 1: "nodes"}}
PACKED = {"x": {0: "all_nodes"}, "edges": {1: "all_edges"}, "weights": {0: "all_edges"}}
PACKED |= {"member": {0: "all_nodes"}, "share": {0: "all_nodes"}, "sizes": {0: "graphs"}}
LAYOUTS = ("dense", "packed")


def packed(found: Molecules) -> list[torch.Tensor]:
    """Return molecules packed into one graph."""
    parts = []
    for molecule in found.found:
        graph = graph_of(molecule, FEATURES)
        parts.append(Part(graph.nodes, messages(len(graph.nodes), graph.edges, "symmetric", loops=True)))
    return [torch.from_numpy(array) for array in block_diagonal(parts, Limits())]


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"of the training, if weights are missing (default: {STEPS})"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS, help="of the inputs (default: both)")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    if not args.weights.is_file():
        train(args.steps, args.weights)
    _, test = get_data()
    network = load_weights(SolubilityGCN(), args.weights)
    some = read_sdf(test, (PROPERTY,))
    few = some._replace(found=some.found[:3], targets=None if some.targets is None else some.targets[:3])
    made = {"provenance": PROVENANCE, "notes": NOTES, "output_names": ["logS"], "exporter": args.exporter}
    results = []
    if "dense" in args.layouts:
        x, adjacency, mask, _ = (tensor[:1] for tensor in tensors(few))
        results += export_onnx(
            network, (x, adjacency, mask), args.out / "solubility_gcn", dynamic=DENSE, forms=args.forms, **made
        )
    if "packed" in args.layouts:
        forms = ["dyn"]  # of fixed sizes it would be of little use, and ONNX Runtime adds up no float16 by places
        results += export_onnx(
            PackedGCN(network), packed(few), args.out / "solubility_gcn_packed", dynamic=PACKED, forms=forms, **made
        )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
