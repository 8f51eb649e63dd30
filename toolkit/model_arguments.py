"""Arguments of the commands that run a model: which one, and what goes into it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine import Array, ConfigError, find_pass
from toolkit.arguments import Parser
from toolkit.graph.inputs import draw, input_specs, load_inputs
from toolkit.graph.trace import Traced, fitted, traced

if TYPE_CHECKING:
    from toolkit.fix.opening import Wanted
from utils.stored import Stored


def add_model_flags(parser: Parser) -> None:
    """Add MODEL and what says which values go into it."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file, or a model of the zoo (its first case's file)")
    parser.add_argument("--data", type=Path, nargs="+", default=[], metavar="FILE", help=DATA)
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs taken without --data (default: 0)")
    parser.add_argument(
        "--batch_size", type=positive, default=1, help="where the model's batch is dynamic (default: 1)"
    )
    add_size_flags(parser)


def add_size_flags(parser: Parser) -> None:
    """Add what says the sizes of dynamic dimensions other than the batch."""
    add = parser.add_argument
    add("--shape", type=shape, action="append", default=[], metavar="INPUT=N,N,..", help="for other dynamic dimensions")
    add("--dim", action="append", default=[], metavar="NAME=N[,N..]", help="the same by the dimension's name: seq=128")


def add_sample_flags(parser: Parser, data: str) -> None:
    """Add what says which samples go into a model: as arrays, as pictures, or through a task.

    Args:
        parser: of a command whose flags of the task stand behind ``--`` (:func:`split_flags`).
        data: help of ``--data``.
    """
    add = parser.add_argument
    several = f"{data}; of a task also several: NAME=PATH"
    add("--data", action="append", default=[], metavar="PATH", help=several)
    add("--task", metavar="NAME", help="samples through this task of utils/tasks, contrib's too; its flags behind --")
    add("--model_name", default="", metavar="NAME", help="of a task with several models: which one MODEL is")
    add("--ckpt", action="append", default=[], metavar="NAME=FILE", help="of a task with several models: another one")
    add("--samples", type=positive, metavar="N", help="take the first N samples only")
    add_size_flags(parser)


def split_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first ``--``, and those behind it: a command's own, and the flags of its task."""
    words = list(argv)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def wanted_samples(args: argparse.Namespace, flags: Sequence[str], root: Path) -> Wanted:
    """Return what the flags say of the samples.

    Args:
        args: with what :func:`add_sample_flags` adds, and ``batch_size``. flags: those of the task, as words.
        root: the repository, whose contrib holds tasks too.

    Raises:
        ConfigError: there is no such task, or a flag needs one.
    """
    from toolkit.fix.opening import Wanted
    from utils.shapes import parse_dims

    asked, others = None, dict(_file(word) for word in args.ckpt)
    if args.task is not None:
        from toolkit.fix.asked import Asked
        from utils.tasks.find import add_contrib, find_task

        add_contrib(root)
        asked = Asked(find_task(args.task), tuple(flags), args.model_name, others)
    else:
        given = {"--model_name": args.model_name, "--ckpt": args.ckpt, "--": flags}
        flag = next((name for name, value in given.items() if value), None)
        if flag is not None:
            raise ConfigError(f"{flag} is for a task; name it too: --task NAME")
    return Wanted(args.data, args.batch_size, args.samples, dict(args.shape), parse_dims(args.dim), asked)


def _file(word: str) -> tuple[str, Path]:
    name, equals, path = word.partition("=")
    if not (name and equals and path):
        raise ConfigError(f"--ckpt {word!r}: write NAME=FILE, the model's name among the task's and its ONNX file")
    return name, Path(path)


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
    from engine.onnx import metadata
    from toolkit.dump.golden import Golden
    from toolkit.dump.store import open_dump
    from toolkit.graph.weights import source
    from utils.shapes import parse_dims

    model = source(path).model
    specs = input_specs(model)
    names = [spec.name for spec in specs]
    if not args.data and isinstance(golden, Golden):
        return golden.given(), f"the inputs in dump {golden.target}"
    if not args.data:
        drawn = draw(model, args.seed, args.batch_size, dict(args.shape), parse_dims(args.dim))
        return drawn, f"random (standard normal, seed {args.seed})"
    files = ", ".join(str(file) for file in args.data)
    if len(args.data) == 1 and is_dump(args.data[0]):
        return open_dump(args.data[0]).inputs(names), f"the inputs in dump {files}"
    found = load_inputs(args.data, specs, args.batch_size, Stored(metadata(model), path))
    return [fitted(array, spec) for array, spec in zip(found, specs, strict=True)], files


def opened(args: argparse.Namespace, path: Path, target: str, dtype: str | None, inputs: Sequence[Array]) -> Traced:
    """Open the model on a target for these inputs: dynamic dimensions, the batch among them, get their sizes."""
    from toolkit.graph.weights import source

    specs = input_specs(source(path).model)
    pairs = list(zip(specs, inputs, strict=True))
    batch = next((array.shape[s.batch_axis] for s, array in pairs if s.batch_axis is not None), args.batch_size)
    shapes = {spec.name: array.shape for spec, array in pairs}
    return traced(path, target, dtype=dtype, pass_path=find_pass(args.pass_path), batch=max(batch, 1), shapes=shapes)


def is_dump(path: Path) -> bool:
    """Say whether a path is a dump, rather than a file with arrays."""
    return os.path.isdir(path) or path.suffix in (".h5", ".hdf5")
