"""Save an engine for the simulated card: save_engine.py --onnx m.onnx --input_shapes 16*3*224*224 --fp16.

Passes and conversion are done here once; whatever opens m.tecoengine, or m.onnx beside it with the same options, then
only loads. Exit codes: 0 saved; 2 not saved, and one line says why.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a script: the modules beside it are not meant to be found by their short names
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from engine import ConfigError, EngineSpec, add_version, find_pass, shape_text
from engine.sdaa import SUFFIX, SdaaEngine, saved_path
from tecoexec.request import Request, call_shapes, spa_count
from tecoexec.shapes import parse_shapes
from utils.pipeline.cli import run


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options.

    Raises:
        ConfigError: the file cannot go where it should.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    add = parser.add_argument
    add("--onnx", type=Path, required=True, metavar="FILE", help="the model")
    add(
        "--input_shapes",
        default="",
        metavar="SHAPES",
        help="shapes of one call to the whole card, such as 16*3*224*224 (default: the model's own batch on every SPA)",
    )
    add("--fp16", action="store_true", help="run in float16 (default: float32)")
    add("--pass_path", default="none", metavar="FILE", help="optimisation passes: a file, or one of the zoo's own")
    add("--out", type=Path, metavar="FILE", help=f"where to (default: beside the model, with the ending {SUFFIX})")
    args = parser.parse_args(argv)
    args.out = args.out or saved_path(args.onnx)
    if args.out.suffix != SUFFIX:
        raise ConfigError(f"--out {args.out} must end in {SUFFIX}, by which a saved engine is known")
    if args.out.is_dir() or not args.out.parent.is_dir():  # better now than after building
        raise ConfigError(f"--out {args.out}: name a file in a folder that exists")
    return args


def spec_of(args: argparse.Namespace) -> EngineSpec:
    """Return what is to be built.

    Raises:
        TecoInferError: the model or an option cannot be used.
    """
    given = tuple(parse_shapes(args.input_shapes)) if args.input_shapes else ()
    shapes = call_shapes(Request(model=args.onnx, shapes=given))
    return EngineSpec(
        ckpt=args.onnx,
        batch_size=shapes.batch,
        input_size=shapes.per_spa(spa_count("sdaa")),
        dtype="float16" if args.fp16 else "float32",
        pass_path=find_pass(args.pass_path or "none"),
    )


def execute(argv: Sequence[str] | None = None) -> int:
    """Build, save, and say what was saved; return the exit code 0.

    Raises:
        TecoInferError: it cannot be built or saved.
    """
    args = arguments(argv)
    spec = spec_of(args)
    start = time.perf_counter()
    with SdaaEngine(spec, save_to=args.out) as engine:
        seconds = time.perf_counter() - start
        shapes = ", ".join(
            f"{tensor.name} {shape_text(shape)}"
            for tensor, shape in zip(engine.inputs, spec.input_size or (), strict=True)
        )
    passes = spec.pass_path.name if spec.pass_path else "none"
    sys.stdout.write(
        f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, built in {seconds:.1f} s (host)\n"
        f"one SPA takes {shapes}; {engine.dtype}, passes: {passes}\n"
    )
    return 0


if __name__ == "__main__":
    run(execute)
