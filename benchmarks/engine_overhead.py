"""Engine overhead: ``engine(x)`` on target ``onnx`` compared with a bare ``InferenceSession.run``, on a tiny model."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from parts.bench import Turns, arguments, finish, median, take_turns

from engine import EngineSpec, open_engine, usable_cores

if TYPE_CHECKING:
    import onnxruntime as ort

TARGET_US = 10.0
SHAPE = (1, 4)


def write_model(path: Path) -> None:
    """Write the tiny model: one Relu on ``SHAPE`` float32 numbers."""
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "tiny", tensors[:1], tensors[1:])
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def bare_session(path: Path) -> ort.InferenceSession:
    """Open the model with the options our engine uses, so that only the layers above ONNX Runtime differ."""
    import onnxruntime as ort  # after the zoo, which turns its telemetry off

    options = ort.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def block(call: Callable[[], Any], calls: int) -> Callable[[], float]:
    """Return a measurement: the mean microseconds of ``calls`` calls."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls * 1e6

    return measure


def measure(calls: int, rounds: int) -> Turns:
    """Measure both, in turn, in blocks; microseconds per call."""
    x = np.linspace(-1, 1, num=4, dtype=np.float32).reshape(SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.onnx"
        write_model(path)
        session = bare_session(path)
        with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
            assert np.array_equal(engine(x), session.run(["y"], {"x": x})[0])
            ours, bare = block(lambda: engine(x), calls), block(lambda: session.run(["y"], {"x": x}), calls)
            take_turns(ours, bare, 2)  # warm-up
            return take_turns(ours, bare, rounds)


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="calls per block")
    parser.add_argument("--rounds", type=int, default=50, help="blocks per side")
    args = parser.parse_args()
    turns = measure(50, 3) if args.quick else measure(args.calls, args.rounds)
    ours, bare, overhead = median(turns.ours), median(turns.peer), turns.difference
    print(f"engine(x), target onnx:  {ours:6.2f} us per call (median of {len(turns.ours)} blocks)")
    print(f"bare session.run:        {bare:6.2f} us per call (the limit)")
    print(f"overhead:                {overhead:6.2f} us (target: at most {TARGET_US:g}; ", end="")
    print("met)" if overhead <= TARGET_US else "MISSED)")
    result = {"engine_us": ours, "bare_us": bare, "overhead_us": overhead, "target_us": TARGET_US}
    finish("engine_overhead", {**result, "engine_blocks": turns.ours, "bare_blocks": turns.peer}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
