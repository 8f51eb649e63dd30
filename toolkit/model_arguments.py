"""Arguments of the commands that run a model: which one, and what goes into it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from engine.base import Array
from toolkit.arguments import Parser
from toolkit.inputs import draw, input_specs, load_inputs
from toolkit.intermediates import Traced, fitted, traced
from utils.stored import Stored


def add_model_flags(parser: Parser) -> None:
    """Add MODEL and what says which values go into it."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file, or a model of the zoo (its first case's file)")
    parser.add_argument("--data", type=Path, nargs="+", default=[], metavar="FILE", help=DATA)
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs taken without --data (default: 0)")
    parser.add_argument(
        "--batch_size", type=positive, default=1, help="where the model's batch is dynamic (default: 1)"
    )
    parser.add_argument(
        "--shape", type=shape, action="append", default=[], metavar="INPUT=N,N,..", help="for other dynamic dimensions"
    )


DATA = "an .npz with the inputs' names, an .npy or picture per input, or a dump; default: random values"


def positive(text: str) -> int:
    """Read a whole number from 1 up."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read ``name=1,3,224,224``."""
    name, equals, sizes = text.rpartition("=")
    parts = sizes.replace("x", ",").split(",")
    if not equals or not name or any(not p.isascii() or not p.isdigit() or int(p) < 1 for p in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write INPUT=1,3,224,224")
    return name, tuple(map(int, parts))


def given_inputs(args: argparse.Namespace, path: Path, golden: Traced | None = None) -> tuple[list[Array], str]:
    """Return the inputs the command line asks for, and where they are from in words.

    Args:
        args: with what :func:`add_model_flags` adds. path: the model.
        golden: a dump that stands for an engine has inputs of its own, which are taken without ``--data``.

    Raises:
        DataError, InputError: what is given cannot be read, or does not fit the model.
        ConfigError: shapes of random inputs are not known.
    """
    from engine.onnx_graph import metadata
    from toolkit.dump.golden import Golden
    from toolkit.dump.store import open_dump
    from toolkit.weights import source

    model = source(path).model
    specs = input_specs(model)
    names = [spec.name for spec in specs]
    if not args.data and isinstance(golden, Golden):
        return golden.given(), f"the inputs in dump {golden.target}"
    if not args.data:
        return draw(model, args.seed, args.batch_size, dict(args.shape)), f"random (standard normal, seed {args.seed})"
    files = ", ".join(str(file) for file in args.data)
    if len(args.data) == 1 and is_dump(args.data[0]):
        return open_dump(args.data[0]).inputs(names), f"the inputs in dump {files}"
    found = load_inputs(args.data, specs, args.batch_size, Stored(metadata(model), path))
    return [fitted(array, spec) for array, spec in zip(found, specs, strict=True)], files


def opened(args: argparse.Namespace, path: Path, target: str, dtype: str | None, inputs: Sequence[Array]) -> Traced:
    """Open the model on a target for these inputs: dynamic dimensions, the batch among them, get their sizes."""
    from toolkit.weights import source

    specs = input_specs(source(path).model)
    pairs = list(zip(specs, inputs, strict=True))
    batch = next((len(array) for spec, array in pairs if spec.batched and array.ndim), args.batch_size)
    shapes = {spec.name: array.shape for spec, array in pairs}
    return traced(path, target, dtype=dtype, pass_path=args.pass_path, batch=max(batch, 1), shapes=shapes)


def is_dump(path: Path) -> bool:
    """Say whether a path is a dump, rather than a file with arrays."""
    return path.is_dir() or path.suffix in (".h5", ".hdf5")
