"""The command line every example script shares: the flags, the engine they ask for, and how a run ends.

Exit codes: 0 everything ran; 1 it ran, but some samples could not; 2 it could not do its work; 3 a faster
mode cost too much of the metric; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import PASS_PATH, ConfigError, Engine, EngineSpec, TecoInferError, engine_nums, open_engine
from engine.base import ALL_DTYPES
from engine.registry import provider
from utils.datasets.sharding import rank_and_size
from utils.pipeline.interrupt import INTERRUPTED, tell
from utils.pipeline.keeping import kept
from utils.pipeline.loops import Answer
from utils.pipeline.stages import WORKER_MODES, Failure
from utils.preprocess.modes import DECODES

if TYPE_CHECKING:
    from utils.pipeline.report import Report

Evaluation = Callable[["Options", Engine], "Report"]
"""What a valid script holds: it evaluates an opened engine as the flags say."""

SHOWN_FAILURES = 20
"""Bad samples listed one by one; beyond that their number is given."""


def str2bool(text: str) -> bool:
    """Read a truth value as the historical scripts spell it."""
    values = {"yes": True, "true": True, "t": True, "y": True, "1": True}
    values |= {"no": False, "false": False, "f": False, "n": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not a truth value; use true or false")
    return values[text.lower()]


class Options(argparse.Namespace):
    """The parsed flags of an example script."""

    ckpt: Path
    data_path: Path
    input_name: list[str]
    batch_size: int
    input_size: list[int]
    target: str
    dtype: str | None
    pass_path: str
    topk: int
    skip_postprocess: bool
    verbose: bool
    json: Path | None
    save: Path | None
    workers: int | None
    worker_mode: str
    streams: int | None
    decode: str
    resume: Path | None
    launcher: str
    num_workers: int
    calib: int
    max_drop: float

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the model's input in pixels."""
        return self.input_size[0], self.input_size[-1]

    def shapes(self, metadata: Mapping[str, str]) -> dict[str, tuple[int, int] | int]:
        """Return ``resize_shape`` and ``crop_shape``: what the model was exported with, scaled to ``--input_size``.

        Without such metadata the picture's short side is resized to 256/224 of the input, as is usual for ImageNet.
        """
        stored = _stored(metadata, "preprocess", self.ckpt)
        resize, crop = stored.get("resize_shape", 256), stored.get("crop_shape", 224)
        return {"resize_shape": round(max(self.size) * resize / crop), "crop_shape": self.size}

    def preprocess(self, metadata: Mapping[str, str]) -> dict[str, Any]:
        """Return :meth:`shapes` and ``decode``, what an evaluation's preprocessing takes of the flags."""
        return {**self.shapes(metadata), "decode": self.decode}

    @property
    def exact(self) -> bool:
        """Whether values are what the target itself computes: no mode that trades exactness for speed was asked for."""
        return self.decode == "exact" and self.dtype not in ("int8", "bfloat16")

    def open(self, streams: int = 1) -> Engine:
        """Open the engine these flags ask for, with an N x 3 x H x W input.

        Args:
            streams: calls to compute side by side, where ``--streams`` does not say.
        """
        height, width = self.size
        per_spa = -(-self.batch_size // engine_nums())
        spec = EngineSpec(
            ckpt=self.ckpt,
            batch_size=self.batch_size,
            input_size=((per_spa, 3, height, width),),
            input_name=tuple(self.input_name),
            dtype=self.dtype,
            pass_path=_pass_file(self.pass_path),
            rank=rank_and_size()[0],
            streams=self.streams or streams,
            calibration=self.calib,
        )
        engine = open_engine(self.target, spec)
        by = provider(self.target)
        served = "" if by == "built-in" else f" (served by {by}, not the zoo's own)"
        print(f"target {self.target}{served}: {engine.describe()}")
        if _stored(engine.metadata, "provenance", self.ckpt).get("weights") == "random":
            print(
                f"{self.ckpt.name} has random weights: for functional and speed checks only, its answers mean nothing"
            )
        return engine


def _stored(metadata: Mapping[str, str], key: str, ckpt: Path) -> dict[str, Any]:
    """Read a JSON object that the export stored in the model's metadata; empty where it stored none."""
    try:
        stored = json.loads(metadata.get(key, "{}"))
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise ConfigError(f"{ckpt}: metadata {key!r} is not a JSON object; export the model again")
    return stored


def _pass_file(text: str) -> Path | None:
    """Find a pass file by its path, or by its path under the zoo's own passes; ``none`` means no passes."""
    if text == "none":
        return None
    own = PASS_PATH / text
    return own if own.is_file() and not Path(text).is_file() else Path(text)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Knows how wide the terminal is without shutil: argparse loads that for every flag, 3 ms of every start."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (OSError, ValueError):
            width = 80
        super().__init__(prog, width=width - 2)


def options(
    description: str | None,
    argv: Sequence[str] | None = None,
    *,
    ckpt: Path,
    data_path: Path,
    batch_size: int,
    input_size: int,
    pass_path: str = "default_pass.py",  # noqa: S107 -- optimisation passes, not a password
) -> Options:
    """Parse the flags of an example script; the keyword arguments are the defaults of its model.

    Args:
        description: the script's docstring.
        argv: arguments; ``None`` takes the process's own.
        ckpt, data_path, batch_size, input_size, pass_path: defaults of the flags of the same names.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=_Help)
    add = parser.add_argument
    add("--ckpt", type=Path, default=ckpt, help="ONNX file")
    add("--data_path", type=Path, default=data_path, help="picture, folder, label file (val.txt) or .npz")
    add("--input_name", nargs="+", default=[], help="name of the model's input, where it must be given")
    add("--batch_size", type=int, default=batch_size, help="samples per call to the whole card")
    add("--input_size", type=int, nargs="+", default=[input_size], help="height (and width) of the input in pixels")
    add("--target", default="sdaa", help="engine: onnx, sdaa, cuda, cpu, null, or a registered one")
    add("--dtype", choices=ALL_DTYPES, default=None, help="precision (default: the target's own)")
    add("--pass_path", default=pass_path, help="optimisation passes: a file, one of the zoo's own, or 'none'")
    add("--topk", type=int, default=1, help="answers per sample; the metric is top-k accuracy")
    add("--skip_postprocess", type=str2bool, nargs="?", const=True, default=False, help="use the raw outputs")
    add("--verbose", type=str2bool, nargs="?", const=True, default=False, help="print the timings of every step")
    add("--json", type=Path, default=None, metavar="FILE", help="also write the result as JSON")
    add("--save", type=Path, default=None, metavar="DIR", help="write every picture with its answer drawn on it")
    add("--workers", type=int, default=None, help="preprocessing threads (default: one per core; 0: none)")
    add(
        "--worker_mode",
        choices=WORKER_MODES,
        default="thread",
        help="process: for preprocessing code that holds the GIL",
    )
    add("--streams", type=int, default=None, help="calls computed side by side (default: one per core to evaluate)")
    add("--decode", choices=DECODES, default="exact", help="exact, or a faster way that changes pixels a little")
    add("--resume", type=Path, metavar="DIR", help="keep finished steps there, and go on from those kept")
    add("--launcher", choices=("none", "ray"), default="none", help="ray: share an evaluation out over a Ray cluster")
    add("--num_workers", type=int, default=2, help="workers of --launcher ray")
    add("--calib", type=int, default=128, help="samples that --dtype int8 chooses its ranges by")
    add("--max_drop", type=float, default=0.01, help="largest relative drop of the metric by --dtype or --decode")
    parsed = parser.parse_args(argv, namespace=Options())
    _check(parsed)
    return parsed


def _check(parsed: Options) -> None:
    for flag in ("batch_size", "topk", "num_workers", "calib", "streams"):
        if getattr(parsed, flag) is not None and getattr(parsed, flag) < 1:
            raise ConfigError(f"--{flag} {getattr(parsed, flag)} must be at least 1")
    if len(parsed.input_size) > 2 or min(parsed.input_size) < 1:
        raise ConfigError(f"--input_size {parsed.input_size} must be one or two positive numbers: height and width")
    if parsed.workers is not None and parsed.workers < 0:
        raise ConfigError(f"--workers {parsed.workers} must be at least 0")
    if not parsed.max_drop >= 0:  # NaN too
        raise ConfigError(f"--max_drop {parsed.max_drop} must be at least 0; 0.01 allows a drop of 1 %")
    if parsed.json is not None and not parsed.json.parent.is_dir():  # better now than after the run
        raise ConfigError(f"--json {parsed.json}: folder {parsed.json.parent} does not exist; create it first")
    if parsed.save is not None and parsed.skip_postprocess:
        raise ConfigError("--save draws answers, and --skip_postprocess gives none; leave one of them out")


def pace(parsed: Options) -> dict[str, Any]:
    """Return what ``evaluate`` and ``predict`` take of the flags: preprocessing workers and per-step lines."""
    on_step = print if parsed.verbose else None
    return {"workers": parsed.workers, "worker_mode": parsed.worker_mode, "on_step": on_step}


def limits(parsed: Options) -> dict[str, Any]:
    """Return :func:`pace` and ``evaluate``'s limits on steps, from the historical environment variables."""
    return pace(parsed) | {
        "max_steps": _env_int("TECO_INFER_PIPELINES_MAX_STEPS", -1),
        "warmup": _env_int("TECO_INFER_PIPELINES_WARMUP_STEPS", 0),
    }


def _env_int(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"environment variable {name}={text!r} must be a whole number") from error


def finish(report: Report, parsed: Options) -> int:
    """Write the JSON, list what went wrong, print the two closing lines, and return the exit code."""
    write_result(report, parsed)
    if report.nan_inputs:
        warn(f"{len(report.nan_inputs)} samples had NaN in their input, the first: {report.nan_inputs[0]}")
    if not report.finished:
        print(f"stopped after {report.steps} steps (TECO_INFER_PIPELINES_MAX_STEPS): the metric covers those only")
    if report.device:
        print(_device_line(report.device))
    _list_failures(report.failures)
    if report.resumed_steps:
        print(f"{report.resumed_steps} of {report.steps} steps were taken from the journal; times are of the others")
    if report.busy:
        print(report.bottleneck())
    print("\n".join(report.closing_lines()))
    return 1 if report.failures else 0


def write_result(report: Report, parsed: Options, **extra: Any) -> None:
    """Write the JSON, where it is asked for; the keyword arguments are added to it."""
    if parsed.json is not None:
        from utils.pipeline.report import write_json

        where = {"target": parsed.target, "provider": provider(parsed.target), "model": str(parsed.ckpt)}
        write_json(report.to_dict(**where, data=str(parsed.data_path), **extra), parsed.json)


def _device_line(device: Mapping[str, Any]) -> str:
    return (
        f"simulated: {device['simulated_latency'] * 1e3:.2f} ms per batch, {device['simulated_sps']:.1f} samples/s, "
        f"{device['memory_per_spa'] / 2**20:.1f} MB on each of {device['healthy']} of {device['spas']} SPA"
    )


def show(answers: Iterable[Answer], parsed: Options, failures: list[Failure]) -> int:
    """Print every answer as it comes, draw and write what the flags ask for, and return the exit code."""
    shown: list[dict[str, Any]] = []
    try:
        for answer in answers:
            print(f"{answer.name}: {answer.answer}")
            shown.append({"name": answer.name, "answer": answer.answer})
            if parsed.save is not None:
                _draw(answer, parsed.save)
    finally:  # where the engine fails on the way, the answers so far are kept
        if parsed.json is not None:
            _write_answers(shown, failures, parsed, parsed.json)
    _list_failures(failures)
    if not shown and not failures:
        raise ConfigError(f"{parsed.data_path} holds nothing to run")
    if not shown:
        return 2
    return 1 if failures else 0


def _write_answers(shown: list[dict[str, Any]], failures: Sequence[Failure], parsed: Options, path: Path) -> None:
    from utils.pipeline.report import SCHEMA_VERSION, environment, write_json

    data = {"schema_version": SCHEMA_VERSION, "kind": "prediction", "target": parsed.target}
    data |= {"provider": provider(parsed.target), "model": str(parsed.ckpt), "answers": shown}
    data |= {"failures": [{"name": f.name, "reason": f.reason} for f in failures]}
    write_json({**data, **environment()}, path)


def _draw(answer: Answer, folder: Path) -> None:
    from utils.pipeline.draw import save_drawn

    lines = [f"{item['label']}  {item['score']:.3f}" for item in answer.answer]
    print(f"  drawn: {save_drawn(Path(answer.name), lines, folder)}")


def raw_answers(outputs: Any) -> list[dict[str, Any]]:
    """Describe raw outputs sample by sample: what ``--skip_postprocess`` shows instead of an answer."""
    arrays = outputs if isinstance(outputs, list) else [outputs]
    return [
        {"outputs": [{"shape": list(a[i].shape), "min": float(a[i].min()), "max": float(a[i].max())} for a in arrays]}
        for i in range(len(arrays[0]))
    ]


def _list_failures(failures: Sequence[Failure]) -> None:
    for failure in failures[:SHOWN_FAILURES]:
        warn(failure.reason if failure.name in failure.reason else f"{failure.name}: {failure.reason}")
    if failures:
        more = f" ({len(failures) - SHOWN_FAILURES} not listed)" if len(failures) > SHOWN_FAILURES else ""
        warn(f"{len(failures)} samples could not be run{more}")


def warn(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr)


def run(main: Callable[[], int]) -> None:
    """Run a script's ``main`` and exit: an error the zoo raises on purpose is one line on stderr, never a traceback."""
    warnings.showwarning = lambda message, *_: warn(f"warning: {message}")
    try:
        code = main()
        sys.stdout.flush()
    except TecoInferError as error:
        warn(f"error: {error}")
        code = 2
    except BrokenPipeError:  # the reader of our output went away, as in `| head`
        # The interpreter flushes stdout once more at exit, into nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt as interrupt:
        tell(str(interrupt))
        code = INTERRUPTED
    sys.exit(code)


def valid(description: str | None, evaluation: Evaluation, **defaults: Any) -> None:
    """Run a valid script and exit; see :func:`utils.pipeline.valid.main`."""
    from utils.pipeline.valid import main

    run(lambda: main(description, evaluation, **defaults))


__all__ = ["Options", "finish", "kept", "limits", "options", "pace", "raw_answers", "run", "show", "valid"]
