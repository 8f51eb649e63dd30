"""Target tvm beside ONNX Runtime: CPU time of a call on one core, and the time to open a model with and without a plan.

Calls of both alternate; the figures are medians of their CPU time (``time.process_time``), which other programs of the
machine disturb less than the wall time. A plan is compiled in an empty cache, and opened again from it. With ``--tune``
a second plan has tiles of which so many were measured for each kernel (``TECO_TVM_TUNE``), and takes its turns, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import ROOT

SAMPLES = 8
MODELS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "classification/digits/digits_dyn.onnx": {},
    "detection/digit_detector/digit_detector_dyn.onnx": {},
    "segmentation/digit_unet/digit_unet_dyn.onnx": {},
    "nlp/language_id/language_id_dyn.onnx": {"seq": (64,)},
    "nlp/bert_qa/small_bert_qa_dyn.onnx": {"length": (64,)},
    "ocr/digit_crnn/digit_crnn_dyn.onnx": {"width": (96,)},
    "recommendation/deepfm_synthetic/deepfm_synthetic_dyn.onnx": {},
}
"""Model -> sizes of its dimensions."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print a table in Markdown; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="alternating calls of each")
    parser.add_argument("--tune", type=int, default=0, metavar="TILES", help="also measure a tuned plan")
    parser.add_argument("--only", nargs="+", default=list(MODELS), metavar="NAME", help="run these models only")
    args = parser.parse_args(argv)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before a library counts the cores
    tuned = " tuned, CPU ms | ratio | opened and tuned, s |" if args.tune else ""
    print(f"| model | ONNX Runtime, CPU ms | tvm, CPU ms | ratio | opened and compiled, s | from the cache, s |{tuned}")
    print("|---|---:|---:|---:|---:|---:|" + "---:|---:|---:|" * bool(args.tune))
    for name in args.only:
        with tempfile.TemporaryDirectory(prefix="tvm-speed-") as folder:
            os.environ["TECO_CACHE_DIR"] = folder
            print(_line(name, MODELS[name], args.rounds, args.tune), flush=True)
    return 0


def _line(name: str, dims: Mapping[str, tuple[int, ...]], rounds: int, tune: int) -> str:
    import numpy as np

    from engine import EngineSpec, open_engine

    spec = EngineSpec(ROOT / "example" / name, batch_size=SAMPLES, dims=dims)
    start = time.perf_counter()
    open_engine("tvm", spec).release()
    compiled, start = time.perf_counter() - start, time.perf_counter()
    with ExitStack() as stack:
        ours = stack.enter_context(open_engine("tvm", spec))
        opened, start = time.perf_counter() - start, time.perf_counter()
        engines = {"theirs": stack.enter_context(open_engine("onnx", EngineSpec(spec.ckpt))), "ours": ours}
        if tune:
            with patch.dict(os.environ, {"TECO_TVM_TUNE": str(tune)}):
                engines["tuned"] = stack.enter_context(open_engine("tvm", spec))
        tuning = time.perf_counter() - start
        rng = np.random.default_rng(0)
        arrays = []
        for tensor in ours.inputs:
            axes = enumerate(zip(tensor.shape, tensor.symbols, strict=True))
            shape = [SAMPLES if i == tensor.batch_axis else d or dims[s or ""][0] for i, (d, s) in axes]
            drawn = rng.standard_normal(shape) if tensor.dtype.kind == "f" else rng.integers(0, 2, shape)
            arrays.append(np.asarray(drawn).astype(tensor.dtype))
        seconds: dict[str, list[float]] = {who: [] for who in engines}
        for turn in range(rounds + 2):
            for who, engine in engines.items():
                before = time.process_time()
                engine(arrays)
                if turn >= 2:  # the first ones warm up
                    seconds[who].append(time.process_time() - before)
    a, b, *c = (1e3 * statistics.median(each) for each in seconds.values())
    line = f"| {Path(name).stem} | {a:.2f} | {b:.2f} | {b / a:.2f} | {compiled:.1f} | {opened:.2f} |"
    return line + "".join(f" {each:.2f} | {each / a:.2f} | {tuning:.1f} |" for each in c)


if __name__ == "__main__":
    sys.exit(main())
