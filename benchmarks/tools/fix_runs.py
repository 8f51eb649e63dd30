"""Number of runs in which ``teco fix`` finds injected faults, compared with k * log2(n) for k faults among n nodes.

In a ResNet50, a transformer encoder and a detector head, all with random weights, k faults of a kind are injected at
random nodes, each of which changes the outputs by itself; an overflow (or underflow) has two nodes. A run is one over
the data set, judged by the gate; those before and after the search count too. The same search is replayed on the result
with other orders of the nodes: by isolated error alone, and in the order of the graph.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from parts.bench import arguments, finish
from parts.fix_models import MODELS, export
from parts.planted_faults import PRECISION, Planter

from engine.onnx import save_model
from toolkit.fix.fixing import Fix, fix
from toolkit.fix.guide import ranked
from toolkit.fix.search import smallest
from toolkit.graph.nodes import load_named

KINDS = ("overflow", "underflow", "weights", "attribute")
TOLERANCE = {True: 0.02, False: 1e-3}
"""Of the gate: for faults of precision, where all of float16 is there too, and for the others."""


@dataclass(frozen=True, slots=True)
class Row:
    """One search.

    Attributes:
        nodes: number of nodes of the model. planted: names. found: number of faults found with all their nodes.
        missed, extra: names of faulty nodes that were not found, and of other nodes that were reported.
        runs: over the data set. by_error, by_graph: runs of the same search with other orders, replayed.
        k_log2_n: of faults and nodes. bound: guaranteed maximum of runs for this number of nodes.
    """

    model: str
    nodes: int
    kind: str
    faults: int
    seed: int
    planted: Sequence[str]
    found: int
    missed: Sequence[str]
    extra: Sequence[str]
    verdict: str
    runs: int
    by_error: int
    by_graph: int
    k_log2_n: float
    bound: int
    seconds: float


class Network(NamedTuple):
    """A correct network: file, data set, and fault injector."""

    name: str
    path: Path
    data: Path
    planter: Planter


def searched(network: Network, kind: str, count: int, seed: int, folder: Path) -> Row:
    """Inject faults, search for them, and return the result."""
    planted, faults = network.planter.plant(kind, count, seed)
    wrong = folder / "wrong.onnx"
    save_model(planted, wrong)
    start = time.perf_counter()
    precision = kind in PRECISION
    baseline, tolerance = None if precision else network.path, TOLERANCE[precision]
    found = fix(wrong, network.data, "close", folder / "out", tolerance=tolerance, batch=8, baseline=baseline)
    seconds = time.perf_counter() - start
    names = [node for fault in faults for node in fault.nodes]
    n, culprits = len(found.nodes), set(found.culprits)
    return Row(
        network.name,
        n,
        kind,
        count,
        seed,
        names,
        sum(culprits.issuperset(fault.nodes) for fault in faults),
        [node for node in names if node not in culprits],
        [node for node in found.culprits if node not in names],
        found.verdict,
        len(found.trials),
        replayed(found, ranked(found.nodes, found.errors), 1),
        replayed(found, [node.name for node in found.nodes], 1),
        count * math.log2(n),
        math.ceil((len(culprits) + 2) * (math.log2(n) + 2)) + around(found),
        seconds,
    )


def around(found: Fix) -> int:
    """Return the runs that are not part of the search: two before it, and one per file written."""
    return 2 + (found.pass_file is not None) + (found.model_file is not None)


def replayed(found: Fix, order: Sequence[str], likely: int) -> int:
    """Return the number of runs of a search for the same nodes with another order."""
    asked: set[frozenset[str]] = set()
    whole = len(order) if found.verdict == "fixed" else len(order) + 1  # all float32 has run before the search

    def passes(names: frozenset[str]) -> bool:
        if 0 < len(names) < whole:
            asked.add(names)
        return names.issuperset(found.culprits)

    smallest(order, passes, likely)
    return len(asked) + around(found)


def cases(names: Iterable[str], quick: bool) -> Iterator[tuple[str, str, int, int]]:
    """Yield model, kind, faults and seed of every search; the largest model has one seed, and no underflow."""
    for name in names:
        for kind in (kind for kind in KINDS if quick or (name, kind) != ("resnet50", "underflow")):
            for count in (1, 2) if quick else (1, 2, 3, 4):
                for seed in range(1 if quick or name == "resnet50" else 3):
                    yield name, kind, count, seed


def measured(names: Sequence[str], quick: bool) -> Iterator[Row]:
    """Export the networks and search."""
    from tqdm import tqdm

    with tempfile.TemporaryDirectory(prefix="fix-runs-") as text:
        folder = Path(text)
        networks: dict[str, Network] = {}
        work = list(cases(names, quick))
        for name, kind, count, seed in tqdm(work, unit="search", leave=False, disable=None):
            if name not in networks:
                path, data = export(name, folder, 8, quick)
                networks[name] = Network(name, path, data, Planter(load_named(path), [np.load(data)["x"]]))
            yield searched(networks[name], kind, count, seed, folder)


HEAD = f"{'model':20} {'n':>4} {'kind':10} {'k':>2} {'found':>8} {'extra':>5} {'runs':>9} {'k log2 n':>8}"
HEAD += f" {'bound':>5} {'by error':>9} {'by graph':>9} {'s/search':>8}"


def show(rows: Sequence[Row]) -> None:
    """Print one line per model, kind and number of faults, with the range of runs over the seeds."""
    print(HEAD)
    for key in dict.fromkeys((row.model, row.nodes, row.kind, row.faults) for row in rows):
        some = [row for row in rows if (row.model, row.nodes, row.kind, row.faults) == key]
        name, n, kind, count = key
        hits = f"{sum(row.found for row in some)} of {count * len(some)}"
        runs, by_error, by_graph = (
            _span([getattr(row, field) for row in some]) for field in ("runs", "by_error", "by_graph")
        )
        extra, bound = sum(len(row.extra) for row in some), max(row.bound for row in some)
        print(f"{name:20} {n:4} {kind:10} {count:2} {hits:>8} {extra:5} {runs:>9}", end="")
        print(f" {some[0].k_log2_n:8.1f} {bound:5} {by_error:>9} {by_graph:>9}", end="")
        print(f" {sum(row.seconds for row in some) / len(some):8.2f}")


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def main() -> int:
    """Run all searches; the exit code is 1 if a fault was missed."""
    parser = arguments(__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="which networks")
    args = parser.parse_args()
    if not find_spec("torchvision"):
        print('the networks come from torch and torchvision; pip install ".[torch]"', file=sys.stderr)
        return 2
    rows = list(measured(args.models, args.quick))
    show(rows)
    missed = [row for row in rows if row.missed or row.extra]
    for row in missed:
        print(f"{row.model}, {row.kind}, seed {row.seed}: missed {list(row.missed)}, extra {list(row.extra)}")
    finish("fix_runs", {"tolerance": {"precision": TOLERANCE[True], "other": TOLERANCE[False]}, "samples": 8,
                        "weights": "random", "rows": [asdict(row) for row in rows]}, args)  # fmt: skip
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
