"""Common ``export_onnx.py`` of the networks over graphs: flags, network, files.

Usage: ``cli.run(partial(export_graph_network, __doc__, HERE, {"gcn_cora": GraphSizes("gcn", 1433, 16, 7)}))``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.files import text_of
from utils.export.forms import DYNAMIC, HALF, STATIC, add_common
from utils.export.networks.graph_models import (
    DENSE,
    FANOUT,
    FORMS,
    SCATTER,
    GraphNetwork,
    GraphSizes,
    InForm,
    with_names_of_geometric,
)
from utils.export.networks.random_weights import RANDOM
from utils.export.onnx_files import ExportResult
from utils.export.torch_export import export_onnx
from utils.export.weight_files import load_state, read_state

ADJACENCY = {"gcn": "symmetric", "graphsage": "mean", "gat": "attention"}
"""Edge weights by the kind of network."""

NODES, EDGES, NEAR, FAR = 24, 60, 10, 5
"""Sizes of the example and of the static file."""


def export_graph_network(
    description: str | None,
    folder: Path,
    archs: Mapping[str, GraphSizes],
    form: str = DENSE,
    *,
    features: str = "as_is",
    argv: Sequence[str] | None = None,
) -> int:
    """Run an export script: write the requested files, print the largest relative error of each, and return 0.

    ``folder``, ``form``, ``features`` (the scaling of node features, which is stored): defaults of the flags;
    ``archs``: sizes of networks by name, the default first.
    """
    args = _arguments(description, folder, archs, form, features, argv)
    sizes = _sizes(args, archs[args.arch])
    network = graph_network(sizes, args.weights)
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only")
    labels = None if args.labels is None else [line for line in _lines(args.labels) if line]
    if labels is not None and len(labels) != sizes.classes:
        fix = "write one per line"
        raise ConfigError(f"--labels {args.labels}: {len(labels)} names for {sizes.classes} classes; {fix}")
    stem = args.out / (args.arch if args.form == form else f"{args.arch}_{args.form}")
    provenance = {"source": f"utils/export/networks/graph_models.py, {sizes.kind}", "weights": str(args.weights)}
    stored: dict[str, Any] = {"notes": {"features": args.features}, "labels": labels, "provenance": provenance}
    for result in export_graph(network, stem, args.form, **stored, forms=args.forms, exporter=args.exporter):
        print(result)
    return 0


def graph_network(sizes: GraphSizes, weights: str | Path) -> GraphNetwork:
    """Return a network with the weights of a file, or with seeded random ones (``random``).

    A file is a state dict with PyTorch Geometric's names (``convs.0``), or with ``conv1``, ``conv2``. Raises ModelError
    if it cannot be read or does not match.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = GraphNetwork(sizes)
    if str(weights) != RANDOM:
        load_state(network, with_names_of_geometric(read_state(weights)), str(weights))
    network.eval()
    return network


def export_graph(
    network: GraphNetwork,
    stem: Path,
    form: str,
    *,
    notes: Mapping[str, Any] | None = None,
    labels: Sequence[str] | None = None,
    provenance: Mapping[str, str] | None = None,
    forms: Sequence[str] = (STATIC, DYNAMIC, HALF),
    exporter: str | None = None,
) -> list[ExportResult]:
    """Write the ONNX files of a network in one of its forms (:mod:`utils.export.networks.graph_models`).

    The form ``scatter`` has no float16 file, as ONNX Runtime's ScatterElements cannot add float16; the card converts
    the float32 file to float16. It is always exported by dynamo: torchscript does not support GAT, and its graphs of
    the other networks have data-dependent sizes.

    Args:
        form: one of :data:`utils.export.networks.graph_models.FORMS`.
        notes: metadata ``nodes`` in addition to ``adjacency`` and ``layers``.

    Other arguments and errors are those of :func:`~utils.export.torch_export.export_onnx`; ConfigError is raised if
    the network does not have the form, or no file is left to write.
    """
    model = InForm(network, form)
    wanted = tuple(one for one in forms if form != SCATTER or one != HALF)
    if not wanted:
        raise ConfigError(f"--forms {HALF}: form {SCATTER} has no such file; export {DYNAMIC}, which the card supports")
    inputs, axes = _example(network.sizes, form)
    kept = {"adjacency": ADJACENCY[network.sizes.kind], "layers": network.sizes.layers, **(notes or {})}
    return export_onnx(
        model,
        list(inputs.values()),
        stem,
        input_names=list(inputs),
        output_names=["logits"],
        dynamic=axes,
        labels=labels,
        provenance=provenance,
        notes={"nodes": kept},
        forms=wanted,
        exporter="dynamo" if form == SCATTER else exporter or "torchscript",
    )


def _example(sizes: GraphSizes, form: str) -> tuple[dict[str, torch.Tensor], dict[str, dict[int, str]]]:
    """Return inputs of seeded noise, and their dynamic axes."""
    random = torch.Generator().manual_seed(0)

    def rows(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, sizes.features, generator=random)

    if form == FANOUT:
        w1, w2 = torch.full((2, NEAR), 1 / NEAR), torch.full((2, NEAR, FAR), 1 / FAR)
        inputs = {"x0": rows(2), "x1": rows(2, NEAR), "x2": rows(2, NEAR, FAR), "w1": w1, "w2": w2}
        near, far = {0: "batch", 1: "near"}, {0: "batch", 1: "near", 2: "far"}
        return inputs, {"x0": {0: "batch"}, "x1": near, "x2": far, "w1": near, "w2": far}
    own = torch.arange(NODES)
    ends = torch.randint(0, NODES, (2, EDGES), generator=random)
    edges = torch.unique(torch.cat([ends, own.expand(2, -1)], dim=1), dim=1)
    weights = torch.full((edges.shape[1],), 0.25)
    if form == SCATTER:
        inputs = {"x": rows(NODES), "edges": edges, "weights": weights}
        return inputs, {"x": {0: "nodes"}, "edges": {1: "edges"}, "weights": {0: "edges"}}
    matrix = torch.zeros(1, NODES, NODES)
    matrix[0, edges[1], edges[0]] = weights
    axes = {"x": {0: "batch", 1: "nodes"}, "adjacency": {0: "batch", 1: "nodes", 2: "nodes"}}
    return {"x": rows(1, NODES), "adjacency": matrix}, axes


def _arguments(
    description: str | None,
    folder: Path,
    archs: Mapping[str, GraphSizes],
    form: str,
    features: str,
    argv: Sequence[str] | None,
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder, batch=False)
    names = list(archs)
    parser.add_argument("--arch", choices=names, default=names[0], help=f"network (default: {names[0]})")
    parser.add_argument("--weights", default=RANDOM, help="a .pth or .safetensors file, or random (default: random)")
    parser.add_argument("--form", choices=FORMS, default=form, help=f"format of the inputs (default: {form})")
    for name in ("features_in", "hidden", "classes", "layers", "heads"):
        what = {"features_in": "features of a node", "hidden": "hidden width, per head"}.get(name, name)
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{what} (default: the network's own)")
    parser.add_argument("--norms", action="store_true", help="batch norms after the layers, as in OGB's examples")
    parser.add_argument("--features", choices=("as_is", "rows"), default=features, help="rows: divided by their sum")
    parser.add_argument("--labels", type=Path, help="names of the classes, a text file with one per line")
    return parser.parse_args(argv)


def _sizes(args: argparse.Namespace, sizes: GraphSizes) -> GraphSizes:
    names = {"features_in": "features", "hidden": "hidden", "classes": "classes", "layers": "layers", "heads": "heads"}
    given: dict[str, Any] = {own: getattr(args, flag) for flag, own in names.items() if getattr(args, flag) is not None}
    return replace(sizes, **given, norms=args.norms or sizes.norms)


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in text_of(path).splitlines()]
    except (OSError, ValueError) as error:
        raise ModelError(f"--labels {path}: cannot be read as UTF-8 text; write one name per line") from error
