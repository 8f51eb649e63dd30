"""Benchmark a model at one shape: tecoexec --onnx=resnet50.onnx --input_shapes=16*3*224*224 --fp16.

With --scenario a load test by MLPerf's LoadGen; with --plan the number of cards for a rate of requests.

Exit codes: 0 success; 1 LoadGen calls the result invalid, or no number of cards reaches a rate; 2 error, with one line
on standard error; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from engine import ConfigError, add_version, find_pass
from tecoexec import report
from tecoexec.load import settings as load_flags
from tecoexec.measure import measure
from tecoexec.plan import settings as plan_flags
from tecoexec.request import ENGINE_SUFFIX, Request, is_saved, open_request, random_inputs
from tecoexec.shapes import parse_dtypes, parse_shapes, single_dims
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag, reserve_stdout
from utils.pipeline.cli import run
from utils.pipeline.launch.supervised import supervise_foreign
from utils.pipeline.report.report import write_json
from utils.pipeline.run.interrupt import ending_soon
from utils.places import check_outputs, check_paths


class _Parser(argparse.ArgumentParser):
    """Argument parser that raises ConfigError, so that errors are printed in one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")


def _boolean(word: str) -> bool:
    """Parse the value of a switch."""
    if word.lower() not in ("0", "1", "true", "false"):
        raise argparse.ArgumentTypeError(f"{word!r} must be 0 or 1")
    return word.lower() in ("1", "true")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    built = _Parser(
        prog="tecoexec", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    model = built.add_mutually_exclusive_group(required=True)
    model.add_argument("--onnx", type=Path, metavar="FILE", help="the model")
    model.add_argument("--loadEngine", type=Path, metavar="FILE", help="a saved engine (.tecoengine) instead")
    add_version(built)
    add = built.add_argument
    add(
        "--input_shapes",
        "--shapes",
        default="",
        metavar="SHAPES",
        help="shapes of one call to the whole card, e.g. 16*3*224*224 or input:16x3x224x224; separate inputs by commas",
    )
    add(
        "--dim",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=N",
        help="instead: sizes of the dynamic dimensions by name, such as batch=16 seq=128",
    )
    add("--input_dtype", default="", metavar="DTYPES", help="dtypes of the input arrays (default: the model's)")
    add("--target", default="sdaa", help="engine: onnx, sdaa, cuda, cpu, null, or a registered one (default: sdaa)")
    add("--fp16", action="store_true", help="run in float16 (default: float32; saved engines keep their dtype)")
    add("--pass_path", default="none", metavar="FILE", help="pass file, or the name of a pass of the zoo")
    add("--iterations", type=int, default=10, metavar="N", help="timed calls (default: 10)")
    add("--warmUp", "--warmup", type=int, default=5, metavar="N", help="calls before the timed ones (default: 5)")
    add(
        "--runSync",
        nargs="?",
        type=_boolean,
        const=True,
        default=False,
        metavar="0|1",
        help="wait for every call (default: calls are queued, and copies overlap)",
    )
    add("--streams", type=int, default=1, metavar="N", help="calls at the same time, on targets that support it")
    add("--paced", action="store_true", help="on the simulated card, calls take their simulated time on the wall clock")
    add("--simulateOnly", action="store_true", help="on the simulated card, compute only times, no values")
    add("--saveEngine", type=Path, metavar="FILE", help="also write the built engine (.tecoengine)")
    add_json_flag(built, "all results")
    add("--exportTimes", type=Path, metavar="FILE", help="write the times of every call as JSON")
    add("--exportProfile", type=Path, metavar="FILE", help="write the simulated times of every kernel as JSON")
    add("--trace", type=Path, metavar="FILE", help="write a Chrome trace, for Perfetto")
    add("--plot", type=Path, metavar="FILE", help="plot the times of every call, or a plan's latencies (PNG)")
    load_flags.add_flags(built)
    plan_flags.add_flags(built)
    return built


def request_of(args: argparse.Namespace) -> Request:
    """Return the request of the arguments; raise ConfigError if a value is invalid."""
    _check_engines(args.loadEngine, args.saveEngine)
    _check_mode(args)
    if args.dim and args.input_shapes:
        raise ConfigError("--dim and --input_shapes exclude each other; give the sizes in one of them")
    model = args.onnx or args.loadEngine
    check_paths("--onnx" if args.onnx else "--loadEngine", model)
    names = ("saveEngine", "json", "exportTimes", "exportProfile", "trace", "plot", "html")
    written = {f"--{name}": getattr(args, name) for name in names}
    check_outputs({flag: path for flag, path in written.items() if path != STDOUT}, [model])
    return Request(
        model=model,
        target=args.target,
        shapes=tuple(parse_shapes(args.input_shapes)) if args.input_shapes else (),
        dims=tuple(single_dims(args.dim).items()),
        dtype="float16" if args.fp16 else None if args.loadEngine else "float32",
        pass_path=find_pass(args.pass_path or "none"),
        input_dtypes=tuple(parse_dtypes(args.input_dtype)) if args.input_dtype else (),
        iterations=args.iterations,
        warm_up=args.warmUp,
        run_sync=args.runSync,
        simulate_only=args.simulateOnly,
        save_to=args.saveEngine,
        paced=args.paced,
        streams=args.streams,
    )


_MODES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(plan_flags.FLAGS, ("--plan",)),
    **dict.fromkeys(load_flags.FLAGS, ("--scenario",)),
    **dict.fromkeys(load_flags.SHARED, ("--scenario", "--plan")),
    **dict.fromkeys(("saveEngine", "exportTimes", "exportProfile", "trace", "runSync"), ("",)),
    "plot": ("", "--plan"),
}
"""Flags that only some modes have, and these: a load test, a plan, or a measurement (empty)."""


def _check_mode(args: argparse.Namespace) -> None:
    """Reject flags of another mode than the one that is asked for."""
    if args.plan and args.scenario:
        raise ConfigError("--plan and --scenario exclude each other; run them one after the other")
    mode = "--scenario" if args.scenario else "--plan" if args.plan else ""
    for name, modes in _MODES.items():
        given = getattr(args, name)
        if given is None or given is False or mode in modes:
            continue
        if mode:
            raise ConfigError(f"--{name} does not belong to {mode}; leave one of them out")
        raise ConfigError(f"--{name} needs {' or '.join(modes)}; add it")


def _check_engines(load: Path | None, save: Path | None) -> None:
    """Reject files that are not saved engines, and saving a loaded engine."""
    if load is not None and load.is_file() and not is_saved(load):
        raise ConfigError(f"--loadEngine {load} is not a {ENGINE_SUFFIX} file; use --onnx for a model")
    if save is not None and (load is not None or save.suffix != ENGINE_SUFFIX):
        raise ConfigError(f"--saveEngine {save} requires --onnx and a {ENGINE_SUFFIX} file")


def execute(argv: Sequence[str] | None = None) -> int:
    """Run the request, print the summary, write the files, and return 0; raise TecoInferError on failure."""
    args = parser().parse_args(argv)
    request = request_of(args)
    reserve_stdout(args.json)
    if args.plot is not None:
        from tecoexec.plot import require_matplotlib

        require_matplotlib()  # fail before the run
    supervise_foreign(request.target, [request.model])
    with ending_soon():
        return _runner(args)(args, request)


def _runner(args: argparse.Namespace) -> Callable[[argparse.Namespace, Request], int]:
    """Return what carries out the mode that is asked for."""
    if args.scenario:
        from tecoexec.load.run import run as run_load

        return run_load
    if args.plan:
        from tecoexec.plan.run import run as run_plan

        return run_plan
    return _executed


def _executed(args: argparse.Namespace, request: Request) -> int:
    """Open the engine, measure, print, and write the files."""
    engine, shapes = open_request(request)
    with engine:
        if args.exportProfile is not None:
            report.require_profile(engine, request.target)
        inputs = random_inputs(request, engine, shapes)
        limits = {"iterations": request.iterations, "warm_up": request.warm_up}
        measured = measure(engine, inputs, shapes.batch, run_sync=request.run_sync, **limits)
        sys.stdout.write("\n".join(report.lines(request, engine, shapes, measured)) + "\n")
        if args.json is not None:
            write_json(report.to_dict(request, engine, shapes, measured), args.json)
        if args.exportTimes is not None:
            report.write_times(args.exportTimes, measured)
        if args.exportProfile is not None:
            report.write_profile(args.exportProfile, engine)
        if args.trace is not None:
            report.write_trace(args.trace, engine)
        if args.plot is not None:
            from tecoexec.plot import plot_run

            plot_run(args.plot, measured, f"{request.model.name}, batch {shapes.batch}, target {request.target}")
    return 0


def main() -> None:
    """Run the command line and exit."""
    run(execute)


if __name__ == "__main__":
    main()
