"""Arguments of the commands that run a model: which one, and what goes into it."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.base import Array
from toolkit.arguments import Parser
from toolkit.inputs import load_inputs
from toolkit.intermediates import Traced, random_inputs


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


def given_inputs(args: argparse.Namespace, path: Path, traced: Traced) -> tuple[list[Array], str]:
    """Return the inputs the command line asks for, and where they are from in words; a dump has its own."""
    from toolkit.dump.golden import Golden
    from toolkit.dump.store import open_dump

    if not args.data and isinstance(traced, Golden):
        return traced.given(), f"the inputs in dump {traced.target}"
    if not args.data:
        drawn = random_inputs(path, args.seed, args.batch_size, dict(args.shape))
        return drawn, f"random (standard normal, seed {args.seed})"
    names = ", ".join(str(file) for file in args.data)
    if len(args.data) == 1 and is_dump(args.data[0]):
        return open_dump(args.data[0]).inputs([spec.name for spec in traced.inputs]), f"the inputs in dump {names}"
    return load_inputs(args.data, traced.inputs), names


def is_dump(path: Path) -> bool:
    """Say whether a path is a dump, rather than a file with arrays."""
    return path.is_dir() or path.suffix in (".h5", ".hdf5")
