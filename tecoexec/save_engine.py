"""Save an engine for the simulated card: save_engine.py --onnx m.onnx --input_shapes 16*3*224*224 --fp16.

Passes and conversion are done here once; whatever opens m.tecoengine, or m.onnx beside it with the same options, then
only loads. Older scripts write save_engine.py -op m.onnx -pp PASS -sp FILE, which is float16 unless --onnx_dtype says
otherwise, or use SaveEngine. Exit codes: 0 saved; 2 not saved, and one line says why.
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
    # Run as a script, the modules beside it are not meant to be found by their short names. `from save_engine import
    # SaveEngine`, with this folder on the path, leaves the path and puts the root before it.
    sys.path[: int(__name__ == "__main__")] = [str(Path(__file__).resolve().parents[1])]

from engine import DTYPES, PASS_PATH, ConfigError, EngineSpec, add_version, find_pass
from engine.sdaa import SUFFIX, SdaaEngine, saved_path
from tecoexec.request import Request, call_shapes, read_signature, spa_count
from tecoexec.shapes import parse_shapes
from tecoinfer_modelzoo.text import shape_text
from utils.pipeline.cli import run
from utils.places import check_output


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options.

    Raises:
        ConfigError: the file cannot go where it should.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    add = parser.add_argument
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--onnx", type=Path, metavar="FILE", help="the model")
    model.add_argument("-op", "--onnx_path", type=Path, metavar="FILE", help="the same; then float16 is the default")
    add(
        "--input_shapes",
        default="",
        metavar="SHAPES",
        help="shapes of one call to the whole card, such as 16*3*224*224 (default: the model's own batch on every SPA)",
    )
    add("--fp16", action="store_true", help="run in float16 (default with --onnx: float32)")
    add("--onnx_dtype", choices=DTYPES, help="precision (default with -op: float16)")
    add("-pp", "--pass_path", default="none", metavar="FILE", help="optimisation passes: a file, or one of the zoo's")
    add("--out", type=Path, metavar="FILE", help=f"where to (default: beside the model, with the ending {SUFFIX})")
    add("-sp", "--save_path", type=Path, metavar="FILE", help="the same, by any name (default with -op: here)")
    args = parser.parse_args(argv)
    if args.fp16 and args.onnx_dtype == "float32":
        raise ConfigError("--fp16 and --onnx_dtype float32 say two precisions; give one")
    args.dtype = args.onnx_dtype or ("float16" if args.fp16 or args.onnx_path else "float32")
    if args.out and args.out.suffix != SUFFIX:
        raise ConfigError(
            f"--out {args.out} must end in {SUFFIX}, by which a saved engine is known; or use --save_path"
        )
    default = _default_path(args.onnx_path) if args.onnx_path else saved_path(args.onnx)
    args.onnx, args.out = args.onnx or args.onnx_path, args.save_path or args.out or default
    _check_place(args.out, args.onnx, "--save_path" if args.save_path else "--out")
    return args


def _default_path(onnx_path: Path) -> Path:
    """Return where older scripts expect the engine: in the working folder, ``m.onnx`` -> ``m.onnx.tecoengine``."""
    return Path(f"{onnx_path.name}{SUFFIX}")


def _check_place(path: Path, model: Path, what: str) -> None:
    """Refuse a place before building rather than after it.

    Raises:
        ConfigError: a folder, in none that exists or that can be written, or the model itself.
    """
    check_output(what, path)
    if path.suffix == ".onnx" or path.resolve() == model.resolve():
        raise ConfigError(f"{what} {path}: it would be taken for a model; name it {path.stem}{SUFFIX}")


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
        dtype=args.dtype,
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


class SaveEngine:
    """The historical face: ``SaveEngine("m.onnx", pass_path="resnet/resnet_pass.py").save()``.

    Args:
        onnx_path: the model.
        dtype: ``"float16"`` or ``"float32"``.
        pass_path: optimisation passes by any name :func:`engine.find_pass` takes; ``None`` takes ``default_pass.py``,
            as ``TecoInferEngine`` does, and ``"none"`` runs the model as it is.
        save_path: where to, by any name; ``None``: ``m.onnx.tecoengine`` in the working folder.
        topsort: accepted and ignored: the nodes are always put in order.
        input_shapes: one shape per input, *per SPA*, as lists or a text such as ``4*3*224*224``; ``None`` takes the
            model's own.

    Raises:
        TecoInferError: an argument cannot be used.
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
        """Build and save the engine; return the shapes that one SPA takes, one per input.

        Raises:
            TecoInferError: it cannot be built or saved.
        """
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
    """Read shapes as lists, one for each input; a bare shape is that of the only input.

    Raises:
        ConfigError: they are something else.
    """
    if shapes is None or len(shapes) == 0:
        return None
    if isinstance(shapes, str):
        return [list(shape) for _, shape in parse_shapes(shapes)]
    try:
        each = [shapes] if not hasattr(shapes[0], "__len__") else shapes
        found = [[int(size) for size in shape] for shape in each]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"input_shapes {shapes!r} must be one list of sizes per input, of one SPA") from error
    if any(size < 1 for shape in found for size in shape):
        raise ConfigError(f"input_shapes {shapes!r} must hold whole numbers of at least 1")
    return found


def __getattr__(name: str) -> Any:
    """Give ``from save_engine import onnx``, as older scripts do, the package; nothing here needs it at once."""
    if name != "onnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import onnx

    return onnx


if __name__ == "__main__":
    run(execute)
