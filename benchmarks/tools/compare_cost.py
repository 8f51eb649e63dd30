"""Cost of comparing every node of a model on two engines, relative to a plain run of both and to alternatives.

A plain run opens target ``onnx`` and target ``sdaa`` on one SPA and calls each once per sample. Ours is the work of
``teco compare`` without parsing and printing: both engines with every node marked, every node alone on the baseline's
values (unless left out), and the figures. Cold is a new process that has done its imports and then does the work once,
on one sample; warm is the same work again in that process, with models opened again. *data set* is warm with
``--samples`` samples, one per call, on both sides: opening is part of both. *calls only* is the same data set without
opening: both sides have run before and keep what they opened, except that the comparison cuts the model into single
nodes and opens that graph anew. All contestants of a model run alternately, in another order every round.

Peers, with one engine and thus half of the work: cutting out the part of the model before every node and running
it (``onnx.utils.Extractor``, then ONNX Runtime), timed whole, and Polygraphy's ``run --onnxrt --onnxrt --onnx-outputs
mark all`` compared with ``teco compare --a onnx --b onnx``, both as whole commands.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from parts.bench import ROOT, arguments, finish, median

TARGET_RATIO = 3.0
WORK = ROOT / "benchmarks/results/compare_cost"
MODELS = ("resnet50", "shufflenet_v2_x1_0", "transformer")
SHAPES = {"transformer": (1, 64, 128)}
IMAGE = (1, 3, 224, 224)
TECO = "from toolkit.cli import main; main()"
CLOCK = {"wall": time.perf_counter, "cpu": time.process_time}
"""Time by kind; CPU time is that of all threads, for a machine on which other programs run."""

KINDS = ("plain", "compare", "accumulated")
"""A plain run of both engines, ours, and ours without running nodes alone."""


def model_file(name: str) -> Path | None:
    """Return a model with random weights, created on first use; ``None`` if torch is needed and not installed."""
    if name == "transformer":
        return _encoder(WORK / "transformer.onnx")
    from parts.throughput_models import setup_of

    made = setup_of(name, WORK, Path(), None, True)
    return made and made.ckpt


def _encoder(path: Path) -> Path:
    """Write a transformer encoder of four layers, every zero weight of the cost model's graph replaced by noise."""
    if path.is_file():
        return path
    import onnx
    from onnx import numpy_helper
    from parts.networks import transformer

    rng = np.random.default_rng(0)
    model = transformer(layers=4, width=128, heads=4, tokens=64)
    graph = model.graph
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = sizes[node.input[0]]
            values = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


# --- what takes turns, in a process of its own


class Work:
    """The three kinds of work on one model; each opens what it needs, and returns seconds."""

    def __init__(self, path: Path, shape: tuple[int, ...], samples: int, clock: Callable[[], float]) -> None:
        from engine import EngineSpec
        from toolkit.graph.inputs import draw
        from toolkit.graph.nodes import load_named

        model = load_named(path)
        self.path, self.shapes = path, {model.graph.input[0].name: shape}
        self.calls = [draw(model, seed, 1, self.shapes) for seed in range(samples)]
        self.samples = 1  # of them that are used
        self.clock = clock
        self.spec = EngineSpec(path, input_size=(shape,), divided=False)

    def plain(self) -> float:
        """Open both engines and call each once per sample."""
        from engine import open_engine

        start = self.clock()
        with open_engine("onnx", self.spec) as a, open_engine("sdaa", self.spec) as b:
            self._call(a, b)
            return self.clock() - start

    def _call(self, a: Any, b: Any) -> None:
        for inputs in self.calls[: self.samples]:
            a(inputs)
            b([array.astype(spec.dtype) for array, spec in zip(inputs, b.inputs, strict=True)])

    def compare(self, isolated: bool = True) -> float:
        """Compare every node, and make the report."""
        from toolkit.compare.nodes import compare_calls
        from toolkit.compare.report import report
        from toolkit.graph.trace import traced

        start = self.clock()
        options: dict[str, Any] = {"shapes": self.shapes}
        with traced(self.path, "onnx", **options) as a, traced(self.path, "sdaa", **options) as b:
            found = compare_calls(a, b, self.calls[: self.samples], isolated=isolated)
            made = report(found, "teco compare", self.path.name, {})
        seconds = self.clock() - start
        assert made.rows, "nothing was compared"
        return seconds

    def accumulated(self) -> float:
        """Compare without running nodes alone."""
        return self.compare(isolated=False)

    def data_set(self, rounds: int) -> dict[str, list[float]]:
        """Return seconds of each kind over all samples, in turn, with opening."""
        self.samples = len(self.calls)
        return in_turn({kind: getattr(self, kind) for kind in KINDS}, rounds, warm_up=True)

    def calls_only(self, rounds: int) -> dict[str, list[float]]:
        """Return seconds of each kind over all samples with everything open, in turn."""
        from engine import open_engine
        from toolkit.compare.nodes import compare_calls
        from toolkit.graph.trace import traced

        self.samples = len(self.calls)
        with (
            open_engine("onnx", self.spec) as a,
            open_engine("sdaa", self.spec) as b,
            traced(self.path, "onnx", shapes=self.shapes) as marked_a,
            traced(self.path, "sdaa", shapes=self.shapes) as marked_b,
        ):
            done: dict[str, Callable[[], Any]] = {
                "plain": lambda: self._call(a, b),
                "compare": lambda: compare_calls(marked_a, marked_b, self.calls),
                "accumulated": lambda: compare_calls(marked_a, marked_b, self.calls, isolated=False),
            }
            return in_turn({kind: _timed(work, self.clock) for kind, work in done.items()}, rounds, warm_up=True)

    def warm_up_imports(self) -> None:
        """Import the modules that any of them uses, which are not part of a cold run."""
        from engine import engine_class

        import_module("toolkit.compare.report")
        for target in ("onnx", "sdaa"):
            engine_class(target)


def _timed(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    def run() -> float:
        start = clock()
        work()
        return clock() - start

    return run


def in_turn(contestants: dict[str, Callable[[], float]], rounds: int, warm_up: bool = False) -> dict[str, list[float]]:
    """Return the seconds of each contestant; the order changes every round."""
    names = list(contestants)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-1 if warm_up else 0, rounds):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            seconds = contestants[name]()
            if turn >= 0:
                found[name].append(seconds)
    return found


def in_process(args: argparse.Namespace) -> dict[str, Any]:
    """Run the task of this child process."""
    work = Work(args.path, tuple(args.shape), args.samples, CLOCK[args.clock])
    work.warm_up_imports()
    if args.only != "warm":
        return {"seconds": getattr(work, args.only)()}
    warm = in_turn({kind: getattr(work, kind) for kind in KINDS}, args.rounds, warm_up=True)
    return {"warm": warm, "data_set": work.data_set(args.rounds), "calls_only": work.calls_only(args.rounds)}


def started(path: Path, shape: tuple[int, ...], only: str, args: argparse.Namespace, rounds: int = 1) -> dict[str, Any]:
    """Run this file in a new process; return its result."""
    words = ["--path", str(path), "--shape", *map(str, shape), "--only", only, "--clock", args.clock]
    words += ["--rounds", str(rounds), "--samples", str(args.samples)]
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- peers


def one_by_one(path: Path, shape: tuple[int, ...]) -> tuple[float, int]:
    """Cut out the part before every node and run it; return seconds and number of values."""
    import onnx
    from onnx.utils import Extractor

    from engine.backends import HostSession
    from engine.onnx import bind_shapes

    start = time.perf_counter()
    model = onnx.load(str(path))
    name = model.graph.input[0].name
    whole = onnx.shape_inference.infer_shapes(bind_shapes(model, {name: shape}))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    extractor, count = Extractor(whole), 0
    for output in [output for node in whole.graph.node for output in node.output if output]:
        count += len(HostSession(extractor.extract_model([name], [output])).run([x]))
    return time.perf_counter() - start, count


def commands(path: Path, shape: tuple[int, ...], polygraphy: str, rounds: int) -> dict[str, list[float]] | None:
    """Return wall seconds of our command and Polygraphy's, ONNX Runtime on both sides; ``None`` without Polygraphy."""
    found = shutil.which(polygraphy)
    if found is None:
        print(f"polygraphy: skipped, {polygraphy!r} is not there; pip install polygraphy, or name it (--polygraphy)")
        return None
    import onnx

    name = onnx.load(str(path), load_external_data=False).graph.input[0].name
    sizes = ",".join(map(str, shape))
    ours = [sys.executable, "-c", TECO, "compare", str(path), "--b", "onnx", "--no_isolated"]
    theirs = [found, "run", str(path), "--onnxrt", "--onnxrt", "--onnx-outputs", "mark", "all"]
    lines = {
        "ours": [*ours, "--shape", f"{name}={sizes}"],
        "polygraphy": [*theirs, "--input-shapes", f"{name}:[{sizes}]"],
    }
    return in_turn({who: _timed(lambda line=line: _quietly(line)) for who, line in lines.items()}, rounds)


def _quietly(line: list[str]) -> None:
    with tempfile.TemporaryFile() as log:
        done = subprocess.run(line, stdout=log, stderr=log, check=False, cwd=ROOT)
        log.seek(0)
        assert done.returncode == 0, f"{' '.join(line)} failed: {log.read()[-2000:].decode(errors='replace')}"


# --- the whole


def measured(name: str, path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return and print the figures of a model."""
    shape, rounds = SHAPES.get(name, IMAGE), 1 if args.quick else args.rounds
    cold = in_turn({kind: lambda kind=kind: started(path, shape, kind, args)["seconds"] for kind in KINDS}, rounds)
    found = {"model": name, "shape": shape, "cold": cold, **started(path, shape, "warm", args, rounds)}
    ratios = {}
    for state in ("cold", "warm", "data_set", "calls_only"):
        for kind, seconds in found[state].items():
            ratio = median([a / b for a, b in zip(seconds, found[state]["plain"], strict=True)])
            ratios[f"{state} {kind}"] = ratio
            limit = f" (target: at most {TARGET_RATIO:.0f}; {_verdict(ratio)})" if kind != "plain" else ""
            print(f"{name:<19} {state:<11}{kind:<12}{median(seconds):7.3f} s  {ratio:5.2f} times plain{limit}")
    if args.no_peers:
        return {**found, "ratios": ratios}
    peer, count = one_by_one(path, shape)
    print(f"{name:<19} cutting out the model before each of {count} values: {peer:.1f} s, one engine, measured once")
    both = commands(path, shape, args.polygraphy, 1 if args.quick else 3)
    if both:
        figures = ", ".join(f"{who} {median(seconds):.2f} s" for who, seconds in both.items())
        print(f"{name:<19} commands, onnx against onnx: {figures}")
    return {**found, "ratios": ratios, "one_by_one": {"seconds": peer, "values": count}, "commands": both}


def _verdict(ratio: float) -> str:
    return "met" if ratio <= TARGET_RATIO else "MISSED"


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--samples", type=int, default=20, help="samples of the data set")
    parser.add_argument("--clock", choices=CLOCK, default="wall", help="time to measure (default: wall)")
    parser.add_argument("--no_peers", action="store_true", help="leave out the alternatives")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="which")
    parser.add_argument("--polygraphy", default="polygraphy", metavar="FILE", help="its command")
    for flag, options in (("path", {"type": Path}), ("shape", {"type": int, "nargs": "+"}), ("only", {})):
        parser.add_argument(f"--{flag}", help=argparse.SUPPRESS, **options)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(in_process(args)))
        return 0
    rows = []
    for name in args.models:
        path = model_file(name)
        if path is None:
            print(f'{name}: skipped; pip install ".[torch]"')
        else:
            rows.append(measured(name, path, args))
    finish("compare_cost", {"target_times_plain": TARGET_RATIO, "models": rows}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
