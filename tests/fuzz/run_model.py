"""Open a model on a target and call it once: python run_model.py MODEL TARGET [--dtype D] [--out FILE.npz].

A short user script on the engine interface; exit codes are those of the zoo's scripts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from engine import EngineSpec, InputError, open_engine
from tests.fuzz.run_alone import ROWS, TooLargeError, made, save
from utils.pipeline.cli import run


def main() -> int:
    """Write the outputs of one call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("target")
    parser.add_argument("--dtype")
    parser.add_argument("--out", default="out.npz")
    args = parser.parse_args()
    spec = EngineSpec(ckpt=args.model, batch_size=ROWS, dtype=args.dtype, calibration=ROWS, min_cosine=0.0)
    with open_engine(args.target, spec) as engine:
        try:
            arrays = made([tensor.shape for tensor in engine.inputs], [tensor.dtype for tensor in engine.inputs])
        except (TooLargeError, ValueError) as error:
            raise InputError(f"{args.model}: {error}") from error
        if engine.calibration_samples:
            engine.calibrate([arrays])
        found = engine(arrays)
    save(args.out, found if isinstance(found, list) else [found])
    return 0


if __name__ == "__main__":
    run(main)
