"""Export DLRM on Criteo's click logs to ONNX: dlrm.onnx, dlrm_dyn.onnx and dlrm_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ConfigError, ModelError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_exporter, add_forms
from utils.export.networks.criteo_tables import (
    CHALLENGE,
    TERABYTE,
    capped,
    criteo_features,
    example_arrays,
    linear_sizes,
)
from utils.pipeline import cli
from utils.preprocess.features import HASHES

with needed(__file__):
    import torch
    from model import DLRM, Size

    from utils.export.torch_export import export_onnx
    from utils.export.weight_files import load_state, read_state

HERE = Path(__file__).resolve().parent

SIZES = {
    "tiny": Size(8, (100,) * 26, (32, 8), (32, 16)),
    "challenge": Size(16, CHALLENGE, (512, 256, 64, 16), (512, 256)),
    "terabyte": Size(128, TERABYTE, (512, 256, 128), (1024, 1024, 512, 256)),
}
"""``tiny`` is for tests. The others are those of the authors' scripts for the Challenge and for MLPerf."""


def size_of(state: Mapping[str, Any], source: Path) -> Size:
    """Return the sizes of the network of a set of weights.

    Raises:
        ModelError: they are not weights of DLRM.
    """
    tables = [state[key] for key in (f"emb_l.{place}.weight" for place in range(len(state))) if key in state]
    bottom, top = linear_sizes(state, "bot_l."), linear_sizes(state, "top_l.")
    if not tables or not bottom or not top:
        raise ModelError(f"{source}: no DLRM: emb_l.0.weight, bot_l.0.weight or top_l.0.weight is missing")
    width = int(tables[0].shape[1])
    return Size(width, tuple(int(one.shape[0]) for one in tables), tuple(bottom), tuple(top[:-1]))


def refuse_larger_than_memory(size: Size, name: str) -> None:
    """Refuse tables of which this machine cannot hold two: the network's, and those that are written.

    Raises:
        ConfigError: they are larger.
    """
    needed, there = 2 * 4 * size.width * sum(size.rows), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise ConfigError(
            f"--size {name}: its tables take {needed / 2e9:.1f} GB, and twice that for the export; this machine has "
            f"{there / 1e9:.1f} GB: give --max_rows, or another --size"
        )


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny", help="of a network with random weights")
    parser.add_argument("--max_rows", type=int, default=100_000, help="of a random table at most; 0: no limit")
    parser.add_argument("--weights", type=Path, help="checkpoint of the authors' program; the sizes are read from it")
    parser.add_argument("--hash", choices=HASHES, default="crc32", help="how the row of a category's value is computed")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.weights is None:
        size = replace(SIZES[args.size], rows=tuple(capped(SIZES[args.size].rows, args.max_rows)))
        refuse_larger_than_memory(size, args.size)
        network, source = DLRM(size), "random"
        print(f"random weights of size {args.size}: their output is meaningless", flush=True)
    else:
        state = read_state(args.weights)
        size, source = size_of(state, args.weights), args.weights.name
        network = DLRM(size)
        load_state(network, state, str(args.weights))
    features = criteo_features(size.rows, args.hash)
    results = export_onnx(
        network.eval(),
        example_arrays(features),
        args.out / "dlrm",
        output_names=["probability"],
        provenance={"source": "example/recommendation/dlrm/model.py", "weights": source},
        notes={"features": features.to_json()},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
