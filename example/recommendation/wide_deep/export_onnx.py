"""Export Wide & Deep on Criteo's logs to ONNX: wide_deep.onnx, wide_deep_dyn.onnx and wide_deep_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ModelError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_exporter, add_forms
from utils.export.networks.criteo_tables import CHALLENGE, capped, criteo_features, example_arrays, linear_sizes
from utils.pipeline import cli
from utils.preprocess.features import HASHES

with needed(__file__):
    import torch
    from model import Size, WideDeep

    from utils.export.torch_export import export_onnx
    from utils.export.weight_files import load_state, read_state

HERE = Path(__file__).resolve().parent

SIZES = {
    "tiny": Size(4, (100,) * 26, (32, 16), crosses=((0, 1), (4, 8)), cross_rows=1000),
    "paper": Size(32, CHALLENGE, (1024, 512, 256), crosses=((0, 1), (4, 8), (13, 16)), cross_rows=100_000),
}
"""``tiny`` is for tests. ``paper`` has the layers and the width of the paper, on Criteo's categories."""


def size_of(state: Mapping[str, Any], source: Path) -> Size:
    """Return the sizes of the network of a set of weights.

    Raises:
        ModelError: they are not weights of Wide & Deep.
    """
    tables = [
        state[key] for key in (f"embedding_dict.C{place}.weight" for place in range(1, len(state))) if key in state
    ]
    hidden = linear_sizes(state, "dnn.linears.")
    if not tables or not hidden:
        raise ModelError(f"{source}: no Wide & Deep: embedding_dict.C1.weight or dnn.linears.0.weight is missing")
    if any(key.startswith("crosses.") for key in state):
        raise ModelError(
            f"{source}: has tables of pairs, and nothing in it says of which; leave them out of the training"
        )
    return Size(int(tables[0].shape[1]), tuple(int(one.shape[0]) for one in tables), tuple(hidden))


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny", help="of a network with random weights")
    parser.add_argument("--max_rows", type=int, default=100_000, help="of a random table at most; 0: no limit")
    parser.add_argument(
        "--weights", type=Path, help="of DeepCTR-Torch's WDL on I1 to I13, C1 to C26; the sizes are read from it"
    )
    parser.add_argument("--hash", choices=HASHES, default="crc32", help="how the row of a category's value is computed")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.weights is None:
        size = replace(SIZES[args.size], rows=tuple(capped(SIZES[args.size].rows, args.max_rows)))
        network, source = WideDeep(size), "random"
        print(f"random weights of size {args.size}: their output is meaningless", flush=True)
    else:
        state = read_state(args.weights)
        size, source = size_of(state, args.weights), args.weights.name
        network = WideDeep(size)
        load_state(network, state, str(args.weights))
    features = criteo_features(size.rows, args.hash)
    results = export_onnx(
        network.eval(),
        example_arrays(features),
        args.out / "wide_deep",
        output_names=["probability"],
        provenance={"source": "example/recommendation/wide_deep/model.py", "weights": source},
        notes={"features": features.to_json()},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
