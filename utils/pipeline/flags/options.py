"""The flags of the example scripts: the common ones and those of the task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import (
    ALL_DTYPES,
    ConfigError,
    add_version,
)
from utils.pipeline.ahead import WORKER_MODES
from utils.pipeline.flags.flag_help import FlagHelp, OneLineParser
from utils.pipeline.flags.located import located
from utils.pipeline.flags.named_values import models_of, named_paths
from utils.places import check_apart, check_folder, check_given, check_outputs
from utils.shapes import parse_dims, parse_shapes
from utils.tasks.base import SCRIPTS, Flag, Task, str2bool
from utils.tasks.legacy import AnyTask, task_class
from utils.tasks.options import DATA as DATA, MODEL as MODEL, WRITTEN as WRITTEN, Options as Options

VALID, SHOWN = ("valid",), ("single", "multi")

COMMON = (
    Flag("--input_name", "name of the model's input, where it must be given", [], nargs="+"),
    Flag("--batch_size", "samples per call to the whole card", 1, int),
    Flag(
        "--input_shapes",
        "shapes of all inputs, for symbolic dimensions: N*3*224*224 or ids:N*128,mask:N*128; N is the batch",
        None,
        metavar="SHAPES",
    ),
    Flag(
        "--dim", "sizes a symbolic dimension may take: seq=128, or seq=64,128,256", [], nargs="+", metavar="NAME=SIZE"
    ),
    Flag("--target", "engine: onnx, sdaa, cuda, cpu, null, or a registered one", "sdaa"),
    Flag("--dtype", "precision; left out: the target's own", None, choices=ALL_DTYPES),
    Flag("--pass_path", "optimisation passes: a file, one of the zoo's own, or 'none'", "default_pass.py"),
    Flag("--shard_tables", "sdaa: split the rows of embedding tables over the SPA", False, str2bool, nargs="?"),
    Flag("--skip_postprocess", "show the raw outputs", False, str2bool, nargs="?", scripts=SHOWN),
    Flag("--verbose", "print the timings of every step", False, str2bool, nargs="?"),
    Flag("--json", "also write the result as JSON", None, Path, metavar="FILE"),
    Flag(
        "--save", "write every sample with its answer for people to look at", None, Path, metavar="DIR", scripts=SHOWN
    ),
    Flag("--workers", "preprocessing threads; left out: one per core; 0: none", None, int),
    Flag("--worker_mode", "process: for preprocessing code that holds the GIL", "thread", choices=WORKER_MODES),
    Flag("--streams", "calls computed side by side; left out: one per core", None, int, scripts=VALID),
    Flag("--resume", "keep finished steps there, and go on from those kept", None, Path, metavar="DIR", scripts=VALID),
    Flag(
        "--launcher", "ray: share an evaluation out over a Ray cluster", "none", choices=("none", "ray"), scripts=VALID
    ),
    Flag("--num_workers", "workers of --launcher ray", 2, int, scripts=VALID),
    Flag("--calib", "samples that --dtype int8 chooses its ranges by", 128, int, scripts=VALID),
    Flag("--min_cosine", "int8's least cosine to float32; left out: 0.99, or what the metric says", None, float),
    Flag("--max_drop", "largest relative worsening of the metric by a faster mode", 0.01, float, scripts=VALID),
)
"""The flags of every task, behind ``--ckpt`` and ``--data_path``."""

_AT_LEAST = {"batch_size": 1, "num_workers": 1, "calib": 1, "streams": 1, "workers": 0}
"""The smallest number that a flag takes, where it is given."""


def script_flags(task: AnyTask, script: str) -> list[Flag]:
    """Return the flags of a script of a task, ``--ckpt`` and ``--data_path`` first."""
    task = task_class(task)
    if task.models:
        names = ", ".join(task.models)
        ckpt = Flag("--ckpt", f"ONNX files by name ({names})", nargs="+", metavar="NAME=FILE")
    else:
        ckpt = Flag("--ckpt", "ONNX file", nargs="+", metavar="FILE")
    data = Flag("--data_path", f"{task.data_help}; or several by name: NAME=PATH", nargs="+", metavar="PATH")
    saving = Flag("--save_predictions", f"also write {task.writes}", None, Path, metavar="PATH")
    first = [ckpt, data, *([saving] if task.writes and script == "valid" else [])]
    own = {flag.key for flag in task.flags if script in flag.scripts}
    common = [flag for flag in COMMON if script in flag.scripts and flag.key not in own]
    return [*first, *common, *(flag for flag in task.flags if script in flag.scripts)]


def options(
    description: str | None, task: AnyTask, script: str, argv: Sequence[str] | None = None, **defaults: Any
) -> Options:
    """Parse the flags of an example script.

    Args:
        description: the script's docstring.
        task: whose flags the script has, in either form.
        script: ``valid``, ``single`` or ``multi``.
        argv: arguments; ``None`` takes the process's own.
        defaults: of the flags, by their names; ``ckpt`` and ``data_path`` are paths, or mappings of names to paths.

    Raises:
        ConfigError: a value cannot be used, or a default is of no flag.
    """
    if script not in SCRIPTS:
        raise ConfigError(f"unknown script {script!r}; use one of: {', '.join(SCRIPTS)}")
    task = task_class(task)
    flags = script_flags(task, script)
    everywhere = {flag.key for flag in (*COMMON, *task.flags)} | {"ckpt", "data_path"}
    _refuse_taken(task)
    unknown = sorted(set(defaults) - everywhere)
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no flag of task {task.name}; its flags: {', '.join(sorted(everywhere))}")
    if task.sample_data is not None:
        defaults.setdefault("data_path", task.sample_data)
    parser = OneLineParser(description=description, formatter_class=FlagHelp)
    add_version(parser)
    own = {flag.key: _argument(flag, defaults.get(flag.key, flag.default)) for flag in flags}
    for flag in flags:
        parser.add_argument(flag.name, **own[flag.key])
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
    """Refuse a task's flag whose name stands for something else among the options."""
    common = {flag.key for flag in COMMON}
    kept = {"help", "version", "ckpt", "data_path", *Options.__annotations__, *dir(Options)} - common
    taken = next((flag.name for flag in task.flags if flag.key in kept), None)
    bare = next((flag.name for flag in task.flags if not flag.name.startswith("--")), None)
    if bare is not None:
        raise ConfigError(f"task {task.name}: flag {bare!r} has no dashes; call it '--{bare.lstrip('-')}'")
    if taken is not None:
        raise ConfigError(f"task {task.name}: flag {taken} has a name that the options need; call it something else")


def _argument(flag: Flag, default: Any) -> dict[str, Any]:
    given = {"type": flag.type, "choices": flag.choices, "nargs": flag.nargs, "metavar": flag.metavar}
    found = {key: value for key, value in given.items() if value is not None}
    if flag.type is str2bool:
        found["const"] = True
    if flag.nargs in ("+", "*") and default is not None and not isinstance(default, (list, Path, Mapping)):
        default = [default]
    return {**found, "default": default, "help": flag.help}


def _hidden(task: type[Task], flags: Sequence[Flag], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of flags that this script does not have."""
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
        raise ConfigError("--save draws answers, and --skip_postprocess gives none; leave one of them out")
    parse_dims(parsed.dim)
    if parsed.input_shapes:
        parse_shapes(parsed.input_shapes, parsed.batch_size)


def _check_places(opt: Options, saves_folder: bool) -> None:
    """Refuse what cannot be read at all, and what could not be written at the end: better now than after the run.

    Args:
        saves_folder: ``--save_predictions`` names a folder.

    Raises:
        ConfigError: it names the flag and the path.
    """
    check_given("--ckpt", *opt.models.values())
    check_given("--data_path", *opt.paths.values())
    read = [*opt.models.values(), *opt.paths.values()]
    saved = opt.save_predictions
    into_folder = saves_folder and saved is not None and os.path.lexists(saved)
    check_folder("--save_predictions", saved if into_folder else None)
    outputs = {"--json": opt.json, "--save_predictions": None if into_folder else saved}
    folders = {"--resume": opt.resume, "--save": opt.save, "--save_predictions": saved if into_folder else None}
    if opt.json is not None and opt.script == "valid" and (opt.json.is_file() or not opt.json.exists()):
        from utils.pipeline.resume.records.names import companions, refuse_others

        refuse_others(opt.json, saved)
        outputs |= companions(opt.json)
    check_outputs(outputs, read)
    check_folder("--resume", opt.resume)
    check_folder("--save", opt.save)
    check_apart(outputs, folders)
    if opt.resume is not None and opt.json is not None:
        from utils.pipeline.resume.journal import refuse_own

        refuse_own(opt.resume, outputs)


def pace(parsed: Options) -> dict[str, Any]:
    """Return what both loops take of the flags: preprocessing workers and per-step lines."""
    on_step = print if parsed.verbose else None
    return {"workers": parsed.workers, "worker_mode": parsed.worker_mode, "on_step": on_step}


def limits(parsed: Options) -> dict[str, Any]:
    """Return :func:`pace` and the limits on steps of an evaluation, from the historical environment variables."""
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
