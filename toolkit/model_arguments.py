"""Arguments shared by the commands that run a model: the model and its inputs."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import Array, ConfigError, InputError, TecoInferError, find_pass
from model_config.cases.config import ROOT
from toolkit.arguments import Parser
from toolkit.graph.inputs import draw, input_specs, load_inputs
from toolkit.graph.trace import Traced, fitted, traced
from utils.pipeline.flags.named_values import located
from utils.stored import ModelMetadata

if TYPE_CHECKING:
    from toolkit.fix.opening import SampleRequest
    from toolkit.own_samples import OwnSamples

RANDOM = "random"
"""Start of the description of inputs that are random."""

MODEL = "an ONNX file, fetch:NAME/PATH, or a model of the zoo (the file of its first case)"
DATA = (
    "input data: an .npz with the input names, an .npy or image per input, or a dump "
    "(default: the first samples of the case; for a file random values)"
)


class _Sizes(argparse.Action):
    """Sorts the values of ``--dim``: sizes of a symbol into ``dim``, the whole shape of an input into ``shape``."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Append the value; a shape has ``x`` or ``*`` between its sizes."""
        name, _, sizes = values.rpartition("=")
        if not name or re.search("[x*]", sizes) is None:
            namespace.dim = [*namespace.dim, values]
            return
        try:
            namespace.shape = [*namespace.shape, shape(values.replace("*", "x"))]
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None


def add_model_flags(parser: Parser, data: str = DATA) -> None:
    """Add MODEL and the flags of its inputs; ``data``: help of ``--data``."""
    add = parser.add_argument
    add("model", metavar="MODEL", help=MODEL)
    add("--data", type=Path, nargs="+", default=[], metavar="FILE", help=data)
    add("--seed", type=int, metavar="N", help="use random inputs with this seed (default without samples: seed 0)")
    add("--batch_size", type=positive, default=1, metavar="N", help="batch size of a dynamic batch axis (default: 1)")
    add_size_flags(parser)


def add_size_flags(parser: Parser) -> None:
    """Add the flag that sets dynamic dimensions, or the shape of a whole input: ``args.dim`` and ``args.shape``.

    ``--shape INPUT=N,N`` is the former flag of shapes, which the help does not list.
    """
    text = "sizes of dynamic dimensions by name, such as seq=128, or the shape of an input, such as x=1x3x224x224"
    parser.add_argument("--dim", action=_Sizes, default=[], metavar="NAME=N", help=text)
    parser.add_argument("--shape", type=shape, action="append", default=[], help=argparse.SUPPRESS)


def add_sample_flags(parser: Parser, data: str) -> None:
    """Add the flags that select samples: arrays, images, or samples of a task.

    Args:
        parser: of a command that takes the flags of the task after ``--`` (:func:`split_flags`).
        data: help of ``--data``, without the default.
    """
    add = parser.add_argument
    several = f"{data} (default: those of the case); with --task also several paths, each as NAME=PATH"
    add("--data", action="append", default=[], metavar="PATH", help=several)
    add("--task", metavar="NAME", help="read the samples with this task of utils/tasks or contrib; its flags follow --")
    add("--model_name", default="", metavar="NAME", help="name of MODEL in a task with several models")
    add("--ckpt", action="append", default=[], metavar="NAME=FILE", help="another model of a task with several models")
    add("--samples", type=positive, metavar="N", help="use the first N samples (default: all)")
    add_size_flags(parser)


def split_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first ``--`` (the command's own) and those after it (of its task or script)."""
    words = list(argv)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def sample_request(args: argparse.Namespace, flags: Sequence[str], root: Path) -> SampleRequest:
    """Return the samples that the flags select.

    Args:
        args: parsed flags of :func:`add_sample_flags`, and ``batch_size``. flags: words of the task's flags.
        root: the repository; tasks of its contrib are available too.

    Without ``--data``, ``--task`` and shapes, the samples of a model of the zoo are those of its case.
    Raise ConfigError if the task is unknown, or a flag is given that needs ``--task``.
    """
    from toolkit.fix.opening import SampleRequest
    from utils.shapes import parse_dims

    plain = SampleRequest(args.data, args.batch_size, args.samples, dict(args.shape), parse_dims(args.dim))
    if args.task is None:
        given = {"--model_name": args.model_name, "--ckpt": args.ckpt}
        flag = next((name for name, value in given.items() if value), None)
        own = None if flag or args.data or args.shape else _own(args.model, root, flags)
        if own is not None:
            return replace(plain, data=own.data, asked=own.request, own=own.case)
        flag = flag or ("--" if flags else None)
        if flag is not None:
            raise ConfigError(f"{flag} needs a task; add --task NAME")
        return plain
    from toolkit.fix.task_request import TaskRequest
    from utils.tasks.find import add_contrib, find_task

    add_contrib(root)
    others = dict(_file(word) for word in args.ckpt)
    asked = TaskRequest(find_task(args.task), tuple(flags), args.model_name, others)
    return replace(plain, asked=asked)


def _own(model: str, root: Path, flags: Sequence[str] = ()) -> OwnSamples | None:
    """Return the samples of the case that MODEL names; ``None`` for a file.

    Raise ConfigError if the model is unknown, or its script gives no task.
    """
    from toolkit.own_samples import own_case, own_samples
    from utils.tasks.find import add_contrib

    found = own_case(model, root)
    if found is None:
        return None
    add_contrib(root)
    return own_samples(*found, flags)


def _file(word: str) -> tuple[str, Path]:
    name, equals, path = word.partition("=")
    if not (name and equals and path):
        raise ConfigError(f"--ckpt {word!r}: write NAME=FILE: the model's name in the task and its ONNX file")
    return name, Path(path)


def positive(text: str) -> int:
    """Parse an integer of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def between(text: str, most: float = math.inf) -> float:
    """Parse a number above 0 and below ``most``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < most:
        limit = "" if most == math.inf else f" and below {most:g}"
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0{limit}")
    return value


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse ``name=1,3,224,224``."""
    name, equals, sizes = text.rpartition("=")
    parts = sizes.replace("x", ",").split(",")
    if not equals or not name or any(not p.isascii() or not p.isdigit() or int(p) < 1 for p in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write INPUT=1,3,224,224")
    return name, tuple(map(int, parts))


def given_inputs(
    args: argparse.Namespace, path: Path, golden: Traced | None = None, root: Path = ROOT
) -> tuple[list[Array], str]:
    """Return the inputs selected on the command line, and a description of their source.

    Without ``--data``, ``--seed`` and shapes these are the first samples of the case, for a model of the zoo, and
    random values for a file. If the samples of the case cannot be read, the values are random, and the description
    says why.

    Args:
        args: parsed flags of :func:`add_model_flags`. path: the model.
        golden: a dump used in place of an engine; its inputs are used if ``--data`` is not given.
        root: the repository.

    Raises:
        DataError, InputError: a file cannot be read or does not fit the model.
        ConfigError: the shape of a random input is unknown.
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
        why = ""
        if args.seed is None and not args.shape:
            found, why = own_inputs(args, path, root)
            if found is not None:
                return found, why
        seed = args.seed or 0
        drawn = draw(model, seed, args.batch_size, dict(args.shape), parse_dims(args.dim))
        return drawn, f"{RANDOM} (standard normal, seed {seed}){why}"
    files = ", ".join(str(file) for file in args.data)
    if len(args.data) == 1 and is_dump(args.data[0]):
        return open_dump(args.data[0]).inputs(names), f"the inputs in dump {files}"
    read = load_inputs(
        [located(file) for file in args.data], specs, args.batch_size, ModelMetadata(metadata(model), path)
    )
    return [fitted(array, spec) for array, spec in zip(read, specs, strict=True)], files


def own_inputs(args: argparse.Namespace, path: Path, root: Path) -> tuple[list[Array] | None, str]:
    """Return the first call over the samples of the case that MODEL names, and a description of the samples.

    ``None`` for a file, with an empty text, and if the samples cannot be read, with the reason.
    """
    from toolkit.fix.opening import SampleRequest, open_samples
    from toolkit.graph.weights import source
    from utils.shapes import parse_dims

    model = source(path).model
    try:
        own = _own(args.model, root)
        if own is None:
            return None, ""
        wanted = SampleRequest(own.data, args.batch_size, None, {}, parse_dims(args.dim), own.request, own.case)
        with open_samples(path, model, wanted) as samples:
            inputs, where = next(iter(samples.calls())).inputs, samples.where
        return [fitted(array, spec) for array, spec in zip(inputs, input_specs(model), strict=True)], (
            f"the first call over the data of case {own.case} ({where})"
        )
    except TecoInferError as error:
        return None, f"; the samples of the case cannot be used: {error}"


def given_calls(
    args: argparse.Namespace, path: Path, golden: Traced | None = None, root: Path = ROOT
) -> tuple[list[list[Array]], str]:
    """Return the inputs of each call, and a description of their source: several ``.npz`` files are one call each.

    Arguments and errors as of :func:`given_inputs`; raise InputError if the files have other shapes than the first one.
    """
    files: list[Path] = args.data
    if len(files) < 2 or any(file.suffix != ".npz" for file in files):
        inputs, origin = given_inputs(args, path, golden, root)
        return [inputs], origin
    if golden is not None:
        raise ConfigError(f"dump {golden.target} holds the values of one call, but --data has {len(files)}; pass one")
    calls = [given_inputs(argparse.Namespace(**{**vars(args), "data": [file]}), path)[0] for file in files]
    shapes = [[list(array.shape) for array in inputs] for inputs in calls]
    other = next((place for place, one in enumerate(shapes) if one != shapes[0]), None)
    if other is not None:
        raise InputError(
            f"{files[other]}: its inputs have shapes {shapes[other]}, those of {files[0]} {shapes[0]}; "
            "compare files of one shape"
        )
    return calls, f"{len(files)} calls, {files[0]} to {files[-1]}"


def opened(args: argparse.Namespace, path: Path, target: str, dtype: str | None, inputs: Sequence[Array]) -> Traced:
    """Open the model on a target; dynamic dimensions, including the batch, take the sizes of the inputs."""
    from toolkit.graph.weights import source

    specs = input_specs(source(path).model)
    pairs = list(zip(specs, inputs, strict=True))
    batch = next((array.shape[s.batch_axis] for s, array in pairs if s.batch_axis is not None), args.batch_size)
    shapes = {spec.name: array.shape for spec, array in pairs}
    return traced(path, target, dtype=dtype, pass_path=find_pass(args.pass_path), batch=max(batch, 1), shapes=shapes)


def is_dump(path: Path) -> bool:
    """Return whether a path is a dump: a folder or an HDF5 file."""
    return os.path.isdir(path) or path.suffix in (".h5", ".hdf5")
