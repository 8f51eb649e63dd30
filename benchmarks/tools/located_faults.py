"""Rate of correctly located faults, injected into ten models, and of false reports for correct ones.

Weights swapped between two layers, a layer's weights scaled by 1.1 and another epsilon are found by comparison with the
correct file (``teco compare --a_model``), activations and attention scores beyond float16 in the faulty file alone
(``teco compare`` and ``teco overflow``), other channel orders and normalisations by comparison with a dump of the
correct model (``teco compare --a DUMP``) and with its outputs (``teco fix --golden``). Every fault changes the outputs.
MiniLM, PP-OCRv4's detector and the digits network are trained, seven models have random weights.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from parts.bench import arguments, finish
from parts.located_models import MEAN, MODELS, QUICK, STD, Located
from parts.planted_faults import PRECISION, Planter

from engine.backends import HostSession
from engine.onnx import save_model
from toolkit.cli import execute
from toolkit.graph.nodes import load_named
from utils.fetch import UnreachableError

KINDS = ("scaled", "swapped", "epsilon", "overflow", "attention")
INPUTS = ("bgr", "normalisation")
WANTED = 0.95
"""Required fraction of located faults; none may be reported for healthy models."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a tool.

    Attributes:
        kind: of the fault, ``healthy`` without one. tool: that was run. planted: faulty nodes, or the fault of the
            inputs. named: the first report of the tool, or "". found: whether it is the injected fault.
    """

    model: str
    kind: str
    seed: int
    tool: str
    planted: Sequence[str]
    named: str
    found: bool
    seconds: float


class Bench:
    """A correct model, its fault injector, and the tools."""

    def __init__(self, model: Located, folder: Path) -> None:
        self.model, self._folder = model, folder
        self._json = folder / "found.json"
        right = load_named(model.path)
        save_model(right, folder / "right.onnx")
        held = np.load(model.data)
        self.inputs = [held[info.name] for info in right.graph.input if info.name in held.files]
        self.names = [info.name for info in right.graph.input if info.name in held.files]
        self.planter = Planter(right, self.inputs)

    def healthy(self) -> Iterator[Row]:
        """Yield the tools' results for the correct model."""
        yield self._run("healthy", 0, "compare", [], self._compare(self.model.path))
        yield self._run("healthy", 0, "overflow", [], self._overflow(self.model.path))
        if self.model.images:
            yield self._run("healthy", 0, "fix", [], self._suspect(self.model.data))

    def planted(self, kind: str, seed: int) -> Iterator[Row]:
        """Inject a fault and yield the tools' results; nothing if no node supports it."""
        try:
            faulty, (fault,) = self.planter.plant(kind, 1, seed)
        except AssertionError:
            return
        path = self._folder / "faulty.onnx"
        save_model(faulty, path)
        nodes = list(fault.nodes)
        if kind in PRECISION:
            yield self._run(kind, seed, "compare", nodes, self._compare(path))
            yield self._run(kind, seed, "overflow", nodes, self._overflow(path))
            return
        beside = ["--a_model", str(self._folder / "right.onnx")]
        yield self._run(kind, seed, "compare", nodes, self._compare(path, *beside, wide=kind == "epsilon"))

    def wrong_inputs(self) -> Iterator[Row]:
        """Run with common errors in the preprocessing of images, and yield the tools' results."""
        assert self.model.images
        images, mean, std = self.model.images
        other = (np.full_like(MEAN, 0.5), np.full_like(STD, 0.5)) if np.array_equal(mean, MEAN) else (MEAN, STD)
        changed = [
            ("bgr", 0, "channel order", ((images - mean) / std)[:, ::-1]),
            ("normalisation", 0, "mean and std", (images - other[0]) / other[1]),
            ("normalisation", 1, "mean and std", images),
        ]
        data, dump = self._folder / "wrong.npz", self._folder / "right_dump"
        _quiet(["dump", "full", str(self.model.path), "--out", str(dump), "--data", str(self.model.data)])
        for kind, seed, what, arrays in changed:
            if _changes_nothing(self.model.path, self.inputs, arrays):
                continue
            np.savez(data, **{self.names[0]: np.ascontiguousarray(arrays)})
            given = ["--a", str(dump), "--b", "onnx"]
            yield self._run(kind, seed, "compare", [self.names[0]], self._compare(self.model.path, *given, data=data))
            yield self._run(kind, seed, "fix", [what], self._suspect(data))

    def _compare(self, path: Path, *words: str, data: Path | None = None, wide: bool = False) -> Callable[[], str]:
        given = [] if "--b" in words else ["--b_dtype", "float32" if wide else "float16"]
        line = ["compare", str(path), "--data", str(data or self.model.data), *words, *given]

        def named() -> str:
            bad = self._told(line)["first_bad"]
            return " ".join([bad["name"], *bad["fused"]]) if bad else ""

        return named

    def _overflow(self, path: Path) -> Callable[[], str]:
        def named() -> str:
            found = self._told(["overflow", str(path), "--data", str(self.model.data)])
            lead = found["lead"]
            return lead.partition("the first is ")[2].partition(" (")[0]

        return named

    def _suspect(self, data: Path) -> Callable[[], str]:
        golden = self._folder / "golden.npz"
        session = HostSession(onnx.load(self.model.path))
        np.savez(golden, **dict(zip((o.name for o in session.outputs), session.run(self.inputs), strict=True)))

        def named() -> str:
            words = ["--data", str(data), "--golden", str(golden), "--metric", "close", "--batch_size", "8"]
            found = self._told(["fix", str(self.model.path), *words])
            first = next((row for row in found["rows"] if row["cured"]), None)
            if first is None:
                return "nothing explains it"
            return "" if first["name"] == "nothing changed" else str(first["name"])

        return named

    def _told(self, words: Sequence[str]) -> dict[str, Any]:
        self._json.unlink(missing_ok=True)
        _quiet([*words, "--json", str(self._json)])
        found: dict[str, Any] = json.loads(self._json.read_text(encoding="utf-8"))
        return found

    def _run(self, kind: str, seed: int, tool: str, planted: Sequence[str], named: Callable[[], str]) -> Row:
        start = time.perf_counter()
        reported = named()
        seconds = time.perf_counter() - start
        found = planted[0] in reported.split(" ") if kind not in INPUTS and planted else reported == ""
        if kind in INPUTS:
            found = reported.startswith(planted[0])
        return Row(self.model.name, kind, seed, tool, planted, reported, found, seconds)


def _quiet(words: Sequence[str]) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return execute(list(words))


def _changes_nothing(path: Path, inputs: Sequence[np.ndarray], arrays: np.ndarray) -> bool:
    """Return whether a model has nearly the same outputs for other images."""
    session = HostSession(onnx.load(path))
    right, wrong = (session.run([given])[0] for given in (inputs[0], np.ascontiguousarray(arrays)))
    return bool(np.linalg.norm(right - wrong) < 0.05 * np.linalg.norm(right))


def measured(names: Sequence[str], seeds: int) -> Iterator[Row]:
    """Export the models, inject faults and run the tools."""
    from tqdm import tqdm

    for name in tqdm(names, unit="model", leave=False, disable=None):
        with tempfile.TemporaryDirectory(prefix="located-") as text:
            folder = Path(text)
            bench = Bench(MODELS[name](folder), folder)
            yield from bench.healthy()
            for kind in KINDS:
                for seed in range(seeds):
                    yield from bench.planted(kind, seed)
            if bench.model.images:
                yield from bench.wrong_inputs()


def show(rows: Sequence[Row]) -> None:
    """Print the number of faults found, by model and kind, and every miss."""
    kinds = ["healthy", *KINDS, *INPUTS]
    print(f"{'model':20}" + "".join(f"{kind:>15}" for kind in kinds))
    for model in dict.fromkeys(row.model for row in rows):
        print(f"{model:20}" + "".join(f"{_share(rows, model, kind):>15}" for kind in kinds))
    for row in rows:
        if not row.found:
            named = row.named or "nothing"
            print(f"{row.model}, {row.kind} {row.seed}, teco {row.tool}: named {named}, planted {list(row.planted)}")


def _share(rows: Sequence[Row], model: str, kind: str) -> str:
    some = [row for row in rows if (row.model, row.kind) == (model, kind)]
    return f"{sum(row.found for row in some)} of {len(some)}" if some else "-"


def main() -> int:
    """Run all; the exit code is 1 if too few faults were found, or on a false positive."""
    parser = arguments(__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="names of models (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="faults of each kind and model")
    args = parser.parse_args()
    if not (find_spec("torchvision") and find_spec("transformers")):
        print('the models come from torch, torchvision and transformers; pip install ".[torch]"', file=sys.stderr)
        return 2
    try:
        rows = list(measured(args.models or (QUICK if args.quick else list(MODELS)), 1 if args.quick else args.seeds))
    except UnreachableError as error:
        print(error, file=sys.stderr)
        return 2
    show(rows)
    planted = [row for row in rows if row.kind != "healthy"]
    alarms = sum(not row.found for row in rows if row.kind == "healthy")
    found = sum(row.found for row in planted)
    share = found / len(planted)
    print(f"named {found} of {len(planted)} ({share:.1%}); in healthy models {alarms} false alarms")
    result = {"share": share, "false_alarms": alarms, "wanted": WANTED, "rows": [asdict(row) for row in rows]}
    finish("located_faults", result, args)
    return 1 if alarms or share < WANTED else 0


if __name__ == "__main__":
    sys.exit(main())
