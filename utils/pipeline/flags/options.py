"""The flags of the example scripts: the common ones and those of the task."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from engine import ALL_DTYPES, ConfigError, add_version
from tecoinfer_modelzoo.distribution import with_page_paths
from tecoinfer_modelzoo.flags import STDOUT
from tecoinfer_modelzoo.text import one_line, printable
from utils.pipeline.ahead import WORKER_MODES
from utils.pipeline.flags.frames import OF_FRAMES, check_frames, frame_range
from utils.pipeline.flags.named_values import located, models_of, named_paths
from utils.places import check_apart, check_folder, check_outputs, check_paths
from utils.shapes import parse_dims, parse_shapes
from utils.tasks.base import SCRIPTS, AnyTask, Flag, Task, str2bool, task_class
from utils.tasks.options import DATA as DATA, MODEL as MODEL, WRITTEN as WRITTEN, Options as Options

VALID, SHOWN = ("valid",), ("single", "multi")

GROUPS = ("model", "data", "engine", "output")
"""Groups of the common flags in ``--help``, in this order; the task's own flags follow."""


def _grouped(group: str, *flags: Flag) -> tuple[Flag, ...]:
    return tuple(replace(flag, group=group) for flag in flags)


COMMON = (
    *_grouped(
        "model",
        Flag("--input_name", "set the names of the model's inputs", [], nargs="+", metavar="NAME"),
        Flag("--input_shapes", "set the shapes of all inputs: N*3*224*224, or ids:N*128,mask:N*128", metavar="SHAPES"),
        Flag("--dim", "set the sizes of a symbolic dimension: seq=64,128", [], nargs="+", metavar="NAME=SIZE"),
    ),
    *_grouped(
        "data",
        Flag("--batch_size", "run this many samples per call to the whole card", 1, int),
        Flag("--workers", "preprocess in this many threads; 0: none (default: cores)", None, int),
        Flag("--worker_mode", "process: for code that holds the GIL", "thread", choices=WORKER_MODES),
        Flag(
            "--frames", "of a clip or camera: one N, or START:STOP:STEP", None, frame_range, None, None, "RANGE", SHOWN
        ),
    ),
    *_grouped(
        "engine",
        Flag("--target", "compute with onnx, sdaa, cuda, cpu, null or a registered engine", "sdaa", metavar="NAME"),
        Flag("--dtype", "compute in this precision (default: the target's)", choices=ALL_DTYPES),
        Flag("--pass_path", "apply the passes of a file or a name, or 'none'", "default_pass.py", metavar="FILE"),
        Flag("--shard_tables", "split the rows of embedding tables over the SPA", False, str2bool, nargs="?"),
        Flag("--streams", "compute this many calls in parallel (default: cores)", None, int, scripts=VALID),
        Flag("--calib", "calibrate --dtype int8 with this many samples", 128, int, scripts=VALID),
        Flag("--min_cosine", "require this cosine of int8 to float32 (default: 0.99; valid: 0)", None, float),
        Flag("--launcher", "run on a Ray cluster", "none", choices=("none", "ray"), scripts=VALID),
        Flag("--num_workers", "start this many workers with --launcher ray", 2, int, scripts=VALID),
    ),
    *_grouped(
        "output",
        Flag("--skip_postprocess", "print the raw outputs", False, str2bool, nargs="?", scripts=SHOWN),
        Flag("--verbose", "print the timings of every step", False, str2bool, nargs="?"),
        Flag("--json", "write the result as JSON to FILE or stdout", None, Path, nargs="?", metavar="FILE"),
        Flag("--show", "print the answers to these samples (from 0)", [], int, None, "+", "N", scripts=VALID),
        Flag("--save", "write every sample with its answer (valid: with --show)", None, Path, metavar="DIR"),
        Flag(
            "--save_frames", "also write the drawn frames of a clip as PNG", False, str2bool, nargs="?", scripts=SHOWN
        ),
        Flag("--resume", "store finished steps, and resume from them", None, Path, metavar="DIR", scripts=VALID),
        Flag("--max_drop", "allow a faster mode to worsen the metric by this share", 0.01, float, scripts=VALID),
    ),
)
"""The flags of every task, in addition to ``--ckpt`` and ``--data_path``."""

_AT_LEAST = {"batch_size": 1, "num_workers": 1, "calib": 1, "streams": 1, "workers": 0}
"""Smallest values of flags, if set."""


class OneLineParser(argparse.ArgumentParser):
    """Reports invalid arguments in one line; its help names pages of the documentation that exist."""

    def format_help(self) -> str:
        """Return the help text."""
        return with_page_paths(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error in one line, and exit with code 2."""
        super().error(printable(one_line(message)))


class FlagHelp(argparse.HelpFormatter):
    """Shows default values; finds the terminal's width without ``shutil``, whose import for every flag takes 3 ms."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (OSError, ValueError):
            width = 80
        super().__init__(prog, width=width - 2)

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if default in (None, False, argparse.SUPPRESS) or default == [] or default == "":
            return text.replace("%", "%%")
        if isinstance(default, (Path, Mapping)):
            default = _relative(default)
        words = " ".join(map(str, default)) if isinstance(default, list) else default
        return f"{text} (default: {words})".replace("%", "%%")


def _relative(default: Path | Mapping[str, Path]) -> str:
    """Return paths relative to the current folder."""
    if isinstance(default, Mapping):
        return " ".join(f"{name}={_relative(path)}" for name, path in default.items())
    return os.path.relpath(default)


def script_flags(task: AnyTask, script: str) -> list[Flag]:
    """Return the flags of a task's script, starting with ``--ckpt`` and ``--data_path``."""
    task = task_class(task)
    if task.models:
        names = ", ".join(task.models)
        ckpt = Flag("--ckpt", f"load these ONNX files: {names}", nargs="+", metavar="NAME=FILE", group="model")
    else:
        ckpt = Flag("--ckpt", "load this ONNX file", nargs="+", metavar="FILE", group="model")
    data_help = f"read {task.data_help}; or several by name: NAME=PATH"
    data = Flag("--data_path", data_help, nargs="+", metavar="PATH", group="data")
    saving = Flag("--save_predictions", f"write {task.writes}", None, Path, metavar="PATH", group="output")
    first = [ckpt, data, *([saving] if task.writes and script == "valid" else [])]
    left_out = {flag.key for flag in task.flags if script in flag.scripts} | set(
        () if task.image_samples else OF_FRAMES
    )
    common = [flag for flag in COMMON if script in flag.scripts and flag.key not in left_out]
    return [*first, *common, *(flag for flag in task.flags if script in flag.scripts)]


def options(
    description: str | None, task: AnyTask, script: str, argv: Sequence[str] | None = None, **defaults: Any
) -> Options:
    """Parse the flags of an example script.

    Args:
        description: the script's docstring. task: a class, or a task in the old form.
        script: ``valid``, ``single`` or ``multi``. argv: arguments; ``None``: those of the process.
        defaults: default values of flags, by name; ``ckpt`` and ``data_path`` are paths, or mappings of names to paths.

    Raises ConfigError: a value is invalid, or a default has an unknown name.
    """
    if script not in SCRIPTS:
        raise ConfigError(f"unknown script {script!r}; use one of: {', '.join(SCRIPTS)}")
    task = task_class(task)
    flags = script_flags(task, script)
    everywhere = {flag.key for flag in (*COMMON, *task.flags)} | {"ckpt", "data_path"}
    _refuse_taken(task)
    unknown = sorted(set(defaults) - everywhere)
    if unknown:
        fix = f"its flags: {', '.join(sorted(everywhere))}"
        raise ConfigError(f"{unknown[0]!r} is not a flag of task {task.name}; {fix}")
    if task.sample_data is not None:
        defaults.setdefault("data_path", task.sample_data)
    parser = OneLineParser(description=description, formatter_class=FlagHelp, usage="%(prog)s [options]")
    add_version(parser)
    own = {flag.key: _argument(flag, defaults.get(flag.key, flag.default)) for flag in flags}
    for title in (*GROUPS, ""):
        group = parser.add_argument_group(title or f"task {task.name}")
        for flag in flags:
            if flag.group == title:
                group.add_argument(flag.name, **own[flag.key])
    parsed = parser.parse_args(argv, namespace=Options(**_hidden(task, flags, defaults)))
    parsed.script, parsed.task = script, task.name
    parsed.flags = tuple(flag.key for flag in task.flags)
    parsed.traded = tuple((flag.key, flag.exact) for flag in task.flags if flag.exact is not None)
    parsed.given = frozenset(key for key, argument in own.items() if getattr(parsed, key) is not argument["default"])
    parsed.default_ckpt = parsed.ckpt is defaults.get("ckpt")
    parsed.ckpt = models_of(parsed.ckpt, task)
    parsed.data_path = named_paths(parsed.data_path, "--data_path")
    _check(parsed, task)
    parsed.ckpt, parsed.data_path = located(parsed.ckpt), located(parsed.data_path)
    task(parsed).check()
    return parsed


def _refuse_taken(task: type[Task]) -> None:
    """Raise ConfigError for a flag of the task with a reserved name, or without dashes."""
    common = {flag.key for flag in COMMON}
    kept = {"help", "version", "ckpt", "data_path", *Options.__annotations__, *dir(Options)} - common
    taken = next((flag.name for flag in task.flags if flag.key in kept), None)
    bare = next((flag.name for flag in task.flags if not flag.name.startswith("--")), None)
    if bare is not None:
        raise ConfigError(f"task {task.name}: flag {bare!r} has no dashes; call it '--{bare.lstrip('-')}'")
    if taken is not None:
        raise ConfigError(f"task {task.name}: flag {taken} has a reserved name; rename it")


_METAVARS: dict[Any, str] = {int: "N", float: "X", str2bool: "BOOL"}


def _argument(flag: Flag, default: Any) -> dict[str, Any]:
    metavar = flag.metavar or (None if flag.choices else _METAVARS.get(flag.type))
    given = {"type": flag.type, "choices": flag.choices, "nargs": flag.nargs, "metavar": metavar}
    found: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if flag.type is str2bool:
        found["const"] = True
    elif flag.name == "--json":
        found["const"] = STDOUT
    if flag.nargs in ("+", "*") and default is not None and not isinstance(default, (list, Path, Mapping)):
        default = [default]
    return {**found, "default": default, "help": flag.help}


def _hidden(task: type[Task], flags: Sequence[Flag], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default values of flags that this script lacks."""
    shown = {flag.key for flag in flags}
    return {f.key: defaults.get(f.key, f.default) for f in (*COMMON, *task.flags) if f.key not in shown}


def _check(parsed: Options, task: type[Task]) -> None:
    for flag, least in _AT_LEAST.items():
        value = getattr(parsed, flag)
        if value is not None and value < least:
            raise ConfigError(f"--{flag} {value} must be at least {least}")
    if not parsed.max_drop >= 0:  # NaN too
        raise ConfigError(f"--max_drop {parsed.max_drop} must be at least 0; 0.01 allows a drop of 1 %")
    _check_places(parsed, task.writes_folder)
    if parsed.save is not None and parsed.skip_postprocess:
        raise ConfigError("--save needs answers, which --skip_postprocess does not compute; leave one of them out")
    _check_shown(parsed)
    check_frames(parsed, task)
    parse_dims(parsed.dim)
    if parsed.input_shapes:
        parse_shapes(parsed.input_shapes, parsed.batch_size)


def _check_shown(opt: Options) -> None:
    """Check ``--show``, and the flags that it needs or excludes."""
    if opt.script != "valid":
        return
    if opt.save is not None and not opt.show:
        raise ConfigError(f"--save {opt.save} needs --show in this script; add the numbers of the samples to write")
    if opt.show and min(opt.show) < 0:
        raise ConfigError(f"--show {min(opt.show)} must be at least 0, the first sample")
    other = next((name for name in ("resume", "save_predictions") if opt.show and getattr(opt, name) is not None), None)
    if other is not None:
        raise ConfigError(f"--{other} needs all samples and --show takes some; leave one of them out")


def _check_places(opt: Options, saves_folder: bool) -> None:
    """Check the paths of inputs and outputs; raise ConfigError with flag and path if one cannot be read or written.

    ``saves_folder``: ``--save_predictions`` is a folder.
    """
    check_paths("--ckpt", *opt.models.values())
    check_paths("--data_path", *opt.paths.values())
    read = [*opt.models.values(), *opt.paths.values()]
    saved = opt.save_predictions
    into_folder = saves_folder and saved is not None and os.path.lexists(saved)
    check_folder("--save_predictions", saved if into_folder else None)
    json = None if opt.json == STDOUT else opt.json
    outputs = {"--json": json, "--save_predictions": None if into_folder else saved}
    folders = {"--resume": opt.resume, "--save": opt.save, "--save_predictions": saved if into_folder else None}
    if json is not None and opt.script == "valid" and (json.is_file() or not json.exists()):
        from utils.pipeline.resume.records.names import companions, refuse_others

        refuse_others(json, saved)
        outputs |= companions(json)
    check_outputs(outputs, read)
    check_folder("--resume", opt.resume)
    check_folder("--save", opt.save)
    check_apart(outputs, folders)
    if opt.resume is not None and json is not None:
        from utils.pipeline.resume.journal import refuse_own

        refuse_own(opt.resume, outputs)


def pace(parsed: Options) -> dict[str, Any]:
    """Return the keywords of both loops: preprocessing workers and the function for lines per step."""
    on_step = print if parsed.verbose else None
    return {"workers": parsed.workers, "worker_mode": parsed.worker_mode, "on_step": on_step}


def limits(parsed: Options) -> dict[str, Any]:
    """Return :func:`pace`, and the step limits of an evaluation from the historical environment variables."""
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
