"""Export GCN to ONNX: <arch>.onnx, <arch>_dyn.onnx and, where the form has it, <arch>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.graph_models import DENSE, GraphSizes
    from utils.export.scripts.graph import export_graph_network

ARCHS = {
    "gcn_digits": GraphSizes("gcn", features=64, hidden=64, classes=10),
    "gcn_cora": GraphSizes("gcn", features=1433, hidden=16, classes=7),
    "gcn_citeseer": GraphSizes("gcn", features=3703, hidden=16, classes=6),
    "gcn_pubmed": GraphSizes("gcn", features=500, hidden=16, classes=3),
    "gcn_arxiv": GraphSizes("gcn", features=128, hidden=256, classes=40, layers=3, norms=True),
}

if __name__ == "__main__":
    cli.run(partial(export_graph_network, __doc__, HERE, ARCHS, DENSE))
