"""Options and environment variables from guides for such cards, and their effect here.

:data:`TABLE` has all of them; ``docs/reference/training_options.md`` shows it. None is ignored silently: one without
effect on this device is reported once when it is set, one that would change results is an error, and for an unknown
name the nearest known one is reported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from torch_sdaa.loading.core import C
from torch_sdaa.loading.vendor import first_process
from torch_sdaa.reports import kernel_meta, launch_lines

OPTION, VARIABLE = "option", "variable"
ACTS, NO_EFFECT, REFUSED, ELSEWHERE = "acts", "accepted", "refused", "acts, elsewhere"

OPERATOR_TYPES = ("Pooling", "SoftmaxV2", "LRN", "ROIAlign")
"""Operator types whose implementation can be selected according to the guide."""

_PREFIXES = (
    *("TORCH_SDAA_", "ASCEND_", "ACL_", "HCCL_", "TASK_QUEUE", "DUMP_G", "PTCOPY", "COMBINED_", "DYNAMIC_OP"),
    *("SDAA_VIS", "MAX_ENGINE"),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One option or variable.

    Attributes:
        name: as in the guides. kind: an option of ``set_option``, or an environment variable.
        values: valid values; empty: any text, or as checked by ``act``.
        state: ``acts``; ``acts, elsewhere``: read by other code; ``accepted``: no effect; ``refused``.
        here: its effect here, or why it has none.
        quiet: values that equal the device's behaviour, for which nothing is reported.
        act: applies the setting; raises ``ConfigError`` for an invalid value.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    state: str
    here: str
    quiet: tuple[str, ...] = ()
    act: Callable[[str], None] | None = None


def _folder(name: str) -> Callable[[str], None]:
    """Return a check that an option is an existing folder, as the guide requires."""

    def check(value: str) -> None:
        if Path(value).exists() and not Path(value).is_dir():
            raise ConfigError(f"{name}={value!r} is a file: choose a folder")
        if not Path(value).is_dir():
            raise ConfigError(f"{name}={value!r} does not exist: create it first (mkdir -p {value})")

    return check


def _cache_folder(value: str) -> None:
    _folder("ACL_OP_COMPILER_CACHE_DIR")(value)
    os.environ["TECO_CACHE_DIR"] = str(Path(value).absolute())


def _cache_mode(value: str) -> None:
    if value == "disable":
        _before.setdefault("budget", os.environ.get(_BUDGET))
        os.environ[_BUDGET] = "0"
        return
    kept = _before.pop("budget", os.environ.get(_BUDGET))
    if kept is None:
        os.environ.pop(_BUDGET, None)
    else:
        os.environ[_BUDGET] = kept
    if value == "force":
        kernel_meta.forget_compiled()


_BUDGET = "TORCH_SDAA_COMPILE_CACHE_MB"
_before: dict[str, str | None] = {}
"""Value of a variable before an option changed it."""


def _debug_folder(value: str) -> None:
    _folder("ACL_DEBUG_DIR")(value)
    kernel_meta.set_folder(Path(value).absolute())


def _names(value: str) -> None:
    if not all(part.isidentifier() for part in value.split("#")):
        raise ConfigError(f"environment variable DYNAMIC_OP={value!r} must be operator names such as ADD#MUL")


def _visible(value: str) -> None:
    raise ConfigError(
        f"environment variable ASCEND_RT_VISIBLE_DEVICES={value!r} hides no device here; set "
        f"SDAA_VISIBLE_DEVICES={value}"
    )


_ONE = "each operator has one implementation, PyTorch's CPU kernel (high_precision)"
_COPIES = "a copy of a non-contiguous tensor is one launch, for any views"

TABLE: tuple[Setting, ...] = (
    Setting(
        "ACL_OP_SELECT_IMPL_MODE",
        OPTION,
        ("high_precision", "high_performance"),
        NO_EFFECT,
        f"{_ONE}; values and simulated time do not change",
        ("high_precision",),
    ),
    Setting(
        "ACL_OPTYPELIST_FOR_IMPLMODE", OPTION, OPERATOR_TYPES, NO_EFFECT, f"{_ONE}: no choice for an operator type"
    ),
    Setting(
        "ACL_OP_DEBUG_LEVEL",
        OPTION,
        ("0", "1", "2", "3", "4"),
        ACTS,
        "3 and 4 write a description of every distinct launch to `kernel_meta/` when the process ends, 4 also the "
        "components of its price; 1 and 2 request instructions, which a simulated card does not have: reported, and "
        "treated as 3",
        (),
        lambda value: kernel_meta.set_level(int(value)),
    ),
    Setting(
        "ACL_DEBUG_DIR",
        OPTION,
        (),
        ACTS,
        "the folder in which `kernel_meta/` is created; it must exist (default: the working folder)",
        (),
        _debug_folder,
    ),
    Setting(
        "ACL_OP_COMPILER_CACHE_MODE",
        OPTION,
        ("enable", "disable", "force"),
        ACTS,
        "for graphs compiled by `torch.compile`, as operators are not compiled: disable neither stores nor uses "
        "graphs, force deletes the stored ones",
        (),
        _cache_mode,
    ),
    Setting(
        "ACL_OP_COMPILER_CACHE_DIR",
        OPTION,
        (),
        ACTS,
        "the folder for graphs compiled from then on, like TECO_CACHE_DIR; it must exist",
        (),
        _cache_folder,
    ),
    Setting(
        "TASK_QUEUE_ENABLE",
        VARIABLE,
        ("0", "1"),
        ACTS,
        "1, the default: a launch returns immediately; 0: the host waits for every launch, so that nothing overlaps "
        "in simulated time",
        (),
        lambda value: C.set_blocking(value == "0"),
    ),
    Setting(
        "ASCEND_GLOBAL_LOG_LEVEL",
        VARIABLE,
        ("0", "1", "2", "3", "4"),
        ACTS,
        "debug, info, warning, error, off: the level of the logger `torch_sdaa`; info has a line for every distinct "
        "launch with shapes and price, debug also its operations and bytes",
        (),
        launch_lines.set_level,
    ),
    Setting(
        "ASCEND_SLOG_PRINT_TO_STDOUT",
        VARIABLE,
        ("0", "1"),
        ACTS,
        "1: the lines of the logger `torch_sdaa` go to stdout; 0: to the handlers configured by the script",
        (),
        launch_lines.set_stdout,
    ),
    Setting(
        "DYNAMIC_OP",
        VARIABLE,
        (),
        NO_EFFECT,
        "operators are not compiled for shapes, and never recompiled; for graphs use "
        "`torch.compile(..., dynamic=True)`",
        (),
        _names,
    ),
    Setting(
        "DUMP_GE_GRAPH",
        VARIABLE,
        ("0", "1", "2", "3"),
        NO_EFFECT,
        "eager training has no graph; `torch.compile` stores its artefacts with option `keep`",
        ("0",),
    ),
    Setting("DUMP_GRAPH_LEVEL", VARIABLE, ("0", "1", "2", "3", "4"), NO_EFFECT, "like DUMP_GE_GRAPH", ("0",)),
    Setting("ASCEND_GLOBAL_EVENT_ENABLE", VARIABLE, ("0", "1"), NO_EFFECT, "events have no separate log", ("0",)),
    Setting("PTCOPY_ENABLE", VARIABLE, ("0", "1"), NO_EFFECT, f"always on: {_COPIES}", ("1",)),
    Setting("COMBINED_ENABLE", VARIABLE, ("0", "1"), NO_EFFECT, f"always on: {_COPIES}", ("1",)),
    Setting(
        "HCCL_WHITELIST_DISABLE",
        VARIABLE,
        ("0", "1"),
        NO_EFFECT,
        "always off: ranks use the rendezvous of `torch.distributed`, without a list",
        ("1",),
    ),
    Setting("ACL_DUMP_DATA", VARIABLE, ("0", "1"), NO_EFFECT, "use `torch_sdaa.utils.dumper` in the script", ("0",)),
    Setting("ASCEND_AICPU_PATH", VARIABLE, (), NO_EFFECT, "no kernel files: the devices run PyTorch's kernels", ()),
    Setting(
        "ASCEND_RT_VISIBLE_DEVICES",
        VARIABLE,
        (),
        REFUSED,
        "for another card: it would not hide devices from the process; set SDAA_VISIBLE_DEVICES",
        (),
        _visible,
    ),
    Setting(
        "SDAA_VISIBLE_DEVICES",
        VARIABLE,
        (),
        ELSEWHERE,
        "devices of the host that a process sees, and their order ([training.md](../how-to/training.md), section 3)",
    ),
    Setting(
        "MAX_ENGINE_NUMS",
        VARIABLE,
        (),
        ELSEWHERE,
        "number of devices of a card: 4, or 3 ([t1_card.md](../explanation/t1_card.md))",
    ),
    Setting(
        "TORCH_SDAA_TRANSFER",
        VARIABLE,
        (),
        ELSEWHERE,
        "redirects CUDA's names, script unchanged ([redirection](../how-to/migrating.md#14-redirection-in-detail))",
    ),
)
"""Settings of the guides, in the order of the page."""

OURS = (
    *("TORCH_SDAA_BANNER", "TORCH_SDAA_STRICT", "TORCH_SDAA_RANDOM", "TORCH_SDAA_RUNNER", "TORCH_SDAA_OP_FAULTS"),
    _BUDGET,
)
"""This project's variables with the checked prefixes."""

_settings: dict[str, str] = {}


def set_option(option: Mapping[str, object]) -> None:
    """Set options of the device: ``torch.sdaa.set_option({"ACL_OP_DEBUG_LEVEL": 3})``. On an error none is set.

    Raises:
        ConfigError: a name or value is unknown; the message has the nearest one.
    """
    if not isinstance(option, Mapping):
        raise ConfigError(f"set_option takes a dict of names and values, not {type(option).__name__}")
    known = {each.name: each for each in TABLE if each.kind == OPTION}
    checked = []
    for name, value in option.items():
        if name in _variables():
            raise ConfigError(f"set_option: {name} is an environment variable: set it before torch_sdaa is imported")
        if name not in known:
            near = did_you_mean(str(name).upper(), known)
            raise ConfigError(f"set_option has no option {name!r};{near or ' options: ' + ', '.join(known)}")
        checked.append((known[name], _text(known[name], value)))
    for setting, text in checked:
        if setting.act is not None and not setting.values:
            _folder(setting.name)(text)
    for setting, text in checked:
        _apply(setting, text)
        _settings[setting.name] = text


def options() -> dict[str, str]:
    """Return the options that were set, with their values."""
    return dict(_settings)


def start() -> None:
    """Apply environment variables, and report those without effect.

    Raises:
        ConfigError: the value of a variable is invalid, or the variable is refused.
    """
    known = {each.name: each for each in TABLE}
    for name, value in sorted(os.environ.items()):
        setting = known.get(name)
        if setting is not None and setting.kind == VARIABLE:
            if setting.state != ELSEWHERE and value:
                _apply(setting, _text(setting, value))
        elif setting is not None:
            say(
                f"{name} is an option, not an environment variable, and has no effect; call "
                f"torch.sdaa.set_option({{{name!r}: ...}})"
            )
        elif name.startswith(_PREFIXES) and name not in OURS:
            near = did_you_mean(name, _variables(), 0.8)
            if near or name.startswith("TORCH_SDAA_"):
                say(f"environment variable {name} is unknown and has no effect{near and f';{near}'}")
        elif name not in OURS and (near := did_you_mean(name, _variables(), 0.93)):
            say(f"environment variable {name} is unknown and has no effect;{near}")


def _variables() -> list[str]:
    return [*(each.name for each in TABLE if each.kind == VARIABLE), *OURS]


def say(text: str) -> None:
    """Write a line to stderr, in the first process of a run."""
    if sys.stderr is not None and first_process():
        sys.stderr.write(f"torch_sdaa: {text}\n")


def _text(setting: Setting, value: object) -> str:
    text = str(value)
    if setting.values and text not in setting.values:
        near = did_you_mean(text, setting.values)
        raise ConfigError(f"{setting.name}={text!r} must be one of {', '.join(setting.values)}{near and f';{near}'}")
    return text


def _apply(setting: Setting, text: str) -> None:
    if setting.act is not None:
        setting.act(text)
    if setting.state == NO_EFFECT and text not in setting.quiet:
        say(f"{setting.name}={text} has no effect: {setting.here}")
    if setting.name == "ACL_OP_DEBUG_LEVEL" and text in ("1", "2"):
        say(f"{setting.name}={text}: a simulated card has no instructions; launches are described as with 3")
