"""Opening an engine on ``sdaa`` compared with ONNX Runtime's loading of the same file, for models over 100 MB.

Host time in a process that has done its imports and opened each model once. The models have random weights: a
chain of dense layers, and ResNet50 if torch is installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from parts.bench import CLOCKS, ROOT, arguments, finish, median, take_turns

from engine import EngineSpec, open_engine

WORK = ROOT / "benchmarks/results/opening"
EXPORT = ROOT / "example/classification/resnet/export_onnx.py"
TARGET = 2.0
"""Largest ratio of opening on ``sdaa`` to ONNX Runtime's loading."""


def dense(path: Path, layers: int = 13, width: int = 1600) -> Path:
    """Write a chain of matrix products, 133 MB of float32 by default, unless the file exists."""
    if path.is_file():
        return path
    rng, nodes, weights = np.random.default_rng(0), [], []
    for i in range(layers):
        values = rng.standard_normal((width, width)) / np.sqrt(width)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"weight{i}"))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"weight{i}"], [f"product{i}"]))
        nodes.append(helper.make_node("Relu", [f"product{i}"], [f"x{i + 1}"]))
    ends = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, ["batch", width]) for i in (0, layers)]
    graph = helper.make_graph(nodes, "dense", ends[:1], ends[1:], weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def resnet50(folder: Path) -> Path | None:
    """Export ResNet50 with random weights, 102 MB, once; ``None`` without torch."""
    path = folder / "resnet50_dyn.onnx"
    if path.is_file():
        return path
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("torchvision")):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    export = [sys.executable, str(EXPORT), "--weights", "random", "--out", str(folder)]
    subprocess.run(export, check=True, capture_output=True)
    return path


def seconds(clock: Callable[[], float], start: Callable[[], object]) -> float:
    """Return the seconds until something is open; it is released afterwards."""
    begun = clock()
    opened = start()
    took = clock() - begun
    if hasattr(opened, "release"):
        opened.release()
    return took


def loaded(path: Path) -> object:
    """Open a file on ONNX Runtime, as a bare script does."""
    import onnxruntime as ort  # after the zoo, which turns its telemetry off

    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="openings per side")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of a machine that is not idle")
    args = parser.parse_args()
    clock = CLOCKS[args.clock]
    models = {"dense": dense(WORK / "small.onnx", 2, 64) if args.quick else dense(WORK / "dense.onnx")}
    if not args.quick and (exported := resnet50(WORK)) is not None:
        models["resnet50"] = exported
    rows = []
    for name, path in models.items():
        size = ((1, 3, 224, 224),) if name == "resnet50" else None
        specs = {
            ("sdaa", "float16"): EngineSpec(path, 4, size, dtype="float16"),
            ("sdaa", "float32"): EngineSpec(path, 4, size, dtype="float32"),
            ("onnx", "float32"): EngineSpec(path, 4),
        }
        peer = partial(seconds, clock, partial(loaded, path))
        for (target, dtype), spec in specs.items():
            ours = partial(seconds, clock, partial(open_engine, target, spec))
            take_turns(ours, peer, 1)
            turns = take_turns(ours, peer, 2 if args.quick else args.rounds)
            row = {"model": name, "megabytes": path.stat().st_size / 1e6, "target": target, "dtype": dtype}
            row["ratio"] = turns.ratio
            rows.append(row | {"ours_s": median(turns.ours), "peer_s": median(turns.peer)})
            print(
                f"{name:9} {row['megabytes']:5.0f} MB  {target:5} {dtype} {median(turns.ours) * 1e3:6.0f} ms, "
                f"ONNX Runtime {median(turns.peer) * 1e3:6.0f} ms, ratio {turns.ratio:.2f} (sdaa: at most {TARGET:g})"
            )
    finish("opening", {"clock": args.clock, "rows": rows}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
