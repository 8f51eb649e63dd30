"""Save an engine for the simulated card: save_engine.py --onnx m.onnx --input_shapes 16*3*224*224 --fp16.

Passes and conversion are done once; opening m.tecoengine, or m.onnx next to it with the same options, only loads it.
Older scripts use save_engine.py -op m.onnx -pp PASS -sp FILE (float16 unless --onnx_dtype is given) or SaveEngine. Exit
codes: 0 saved; 2 error, with one line on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:
    # As a script: replace this folder on the path by the root, so that its modules are not found by their short names.
    # With `from save_engine import SaveEngine` and this folder on the path: insert the root before it.
    sys.path[: int(__name__ == "__main__")] = [str(Path(__file__).resolve().parents[1])]

from engine import DTYPES, PASS_PATH, ConfigError, EngineSpec, add_version, find_pass
from engine.sdaa import SUFFIX, SdaaEngine, saved_path
from tecoexec.request import Request, call_shapes, read_signature, spa_count
from tecoexec.shapes import parse_shapes
from tecoinfer_modelzoo.text import shape_text
from utils.pipeline.cli import run
from utils.places import check_output


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line; raise ConfigError if options conflict, or the output path is invalid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    add = parser.add_argument
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--onnx", type=Path, metavar="FILE", help="the model")
    model.add_argument("-op", "--onnx_path", type=Path, metavar="FILE", help="the same, with default float16")
    add(
        "--input_shapes",
        default="",
        metavar="SHAPES",
        help="shapes of one call to the whole card, e.g. 16*3*224*224 (default: the model's batch on every SPA)",
    )
    add("--fp16", action="store_true", help="run in float16 (default with --onnx: float32)")
    add("--onnx_dtype", choices=DTYPES, help="precision (default with -op: float16)")
    add("-pp", "--pass_path", default="none", metavar="FILE", help="pass file, or the name of a pass of the zoo")
    add("--out", type=Path, metavar="FILE", help=f"output file (default: next to the model, with extension {SUFFIX})")
    add("-sp", "--save_path", type=Path, metavar="FILE", help="the same, with any name (with -op: current folder)")
    args = parser.parse_args(argv)
    if args.fp16 and args.onnx_dtype == "float32":
        raise ConfigError("--fp16 and --onnx_dtype float32 conflict; give one")
    args.dtype = args.onnx_dtype or ("float16" if args.fp16 or args.onnx_path else "float32")
    if args.out and args.out.suffix != SUFFIX:
        raise ConfigError(f"--out {args.out} must end in {SUFFIX}, which marks saved engines; or use --save_path")
    default = _default_path(args.onnx_path) if args.onnx_path else saved_path(args.onnx)
    args.onnx, args.out = args.onnx or args.onnx_path, args.save_path or args.out or default
    _check_place(args.out, args.onnx, "--save_path" if args.save_path else "--out")
    return args


def _default_path(onnx_path: Path) -> Path:
    """Return the default path for older scripts: ``m.onnx`` -> ``m.onnx.tecoengine`` in the current folder."""
    return Path(f"{onnx_path.name}{SUFFIX}")


def _check_place(path: Path, model: Path, what: str) -> None:
    """Raise ConfigError, before building, if the output is a folder, the model, or in a missing or read-only folder."""
    check_output(what, path)
    if path.suffix == ".onnx" or path.resolve() == model.resolve():
        raise ConfigError(f"{what} {path}: this is the name of a model; use {path.stem}{SUFFIX}")


def spec_of(args: argparse.Namespace) -> EngineSpec:
    """Return the specification of the engine; raise TecoInferError if the model or an option is invalid."""
    given = tuple(parse_shapes(args.input_shapes)) if args.input_shapes else ()
    shapes = call_shapes(Request(model=args.onnx, shapes=given))
    return EngineSpec(
        ckpt=args.onnx,
        batch_size=shapes.batch,
        input_size=shapes.per_spa(spa_count("sdaa")),
        dtype=args.dtype,
        pass_path=find_pass(args.pass_path or "none"),
    )


def execute(argv: Sequence[str] | None = None) -> int:
    """Build and save the engine, print a summary, and return 0; raise TecoInferError on failure."""
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


class SaveEngine:
    """Historical API: ``SaveEngine("m.onnx", pass_path="resnet/resnet_pass.py").save()``.

    Args:
        pass_path: pass, by any name that :func:`engine.find_pass` accepts; ``None`` means ``default_pass.py``, as in
            ``TecoInferEngine``, and ``"none"`` no pass.
        save_path: output file with any name; ``None`` means ``m.onnx.tecoengine`` in the current folder.
        topsort: ignored; nodes are always sorted.
        input_shapes: one shape per input, *per SPA*, as lists or a text such as ``4*3*224*224``; ``None``: the model's.
    """

    def __init__(
        self,
        onnx_path: str | os.PathLike[str],
        dtype: str = "float16",
        pass_path: str | os.PathLike[str] | None = None,
        save_path: str | os.PathLike[str] | None = None,
        topsort: bool = True,
        input_shapes: Sequence[Any] | str | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"dtype {dtype!r} must be one of: {', '.join(DTYPES)}")
        self.onnx_path = os.fspath(onnx_path)
        self.dtype, self.topsort, self.pass_path = dtype, topsort, pass_path
        self.save_path = os.fspath(save_path) if save_path else f"./{_default_path(Path(onnx_path))}"
        self.input_shapes = _lists(input_shapes)

    def save(self) -> list[list[int]]:
        """Build and save the engine; return the shapes per SPA, one per input."""
        path, place = Path(self.onnx_path), Path(self.save_path)
        _check_place(place, path, "save_path")
        spas = spa_count("sdaa")
        sizes = self.input_shapes
        if sizes is None:
            sizes = [list(shape) for shape in call_shapes(Request(model=path)).per_spa(spas)]
        axes = read_signature(path).axes([tuple(shape) for shape in sizes]) if sizes else ()
        rows = [shape[axis] for shape, axis in zip(sizes, axes, strict=False) if axis is not None and axis < len(shape)]
        spec = EngineSpec(
            ckpt=path,
            batch_size=(rows[0] if rows else 1) * spas,
            input_size=tuple(tuple(shape) for shape in sizes),
            dtype=self.dtype,
            pass_path=find_pass(self.pass_path or PASS_PATH / "default_pass.py"),
        )
        with SdaaEngine(spec, save_to=place) as engine:
            return [[size for size in shape if size] for shape in engine.spec.input_size or ()]


def _lists(shapes: Sequence[Any] | str | None) -> list[list[int]] | None:
    """Return shapes as lists, one per input; a bare shape is that of a single input. Raise ConfigError if invalid."""
    if shapes is None or len(shapes) == 0:
        return None
    if isinstance(shapes, str):
        return [list(shape) for _, shape in parse_shapes(shapes)]
    try:
        each = [shapes] if not hasattr(shapes[0], "__len__") else shapes
        found = [[int(size) for size in shape] for shape in each]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"input_shapes {shapes!r} must be one list of sizes per input, for one SPA") from error
    if any(size < 1 for shape in found for size in shape):
        raise ConfigError(f"input_shapes {shapes!r} must contain integers of at least 1")
    return found


def __getattr__(name: str) -> Any:
    """Import ``onnx`` on demand, for older scripts with ``from save_engine import onnx``."""
    if name != "onnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import onnx

    return onnx


if __name__ == "__main__":
    run(execute)
