"""Options and environment variables of the guides for such cards: what each does here, or that it does nothing.

:data:`TABLE` has all of them, and ``docs/training_options.md`` shows it. None is ignored: what has no meaning for this
device is said once where somebody sets it, what would change results is refused, and a name that nobody knows is told
the nearest one that is known.
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
ACTS, SAID, REFUSED, ELSEWHERE = "acts", "accepted", "refused", "acts, elsewhere"

OPERATOR_TYPES = ("Pooling", "SoftmaxV2", "LRN", "ROIAlign")
"""Those that the guide lets somebody choose the implementation of."""

_PREFIXES = (
    *("TORCH_SDAA_", "ASCEND_", "ACL_", "HCCL_", "TASK_QUEUE", "DUMP_G", "PTCOPY", "COMBINED_", "DYNAMIC_OP"),
    *("SDAA_VIS", "MAX_ENGINE"),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One option or variable.

    Attributes:
        name: as the guides spell it. kind: an option of ``set_option``, or an environment variable.
        values: those that it takes; empty: any text, or what ``act`` accepts.
        state: ``acts``; ``acts, elsewhere``: other code reads it; ``accepted``: it changes nothing; ``refused``.
        here: what it does here, or why it does nothing.
        quiet: the values that are what the device does anyway, so that there is nothing to say.
        act: does it; raises ``ConfigError`` for a value that it does not take.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    state: str
    here: str
    quiet: tuple[str, ...] = ()
    act: Callable[[str], None] | None = None


def _folder(name: str) -> Callable[[str], None]:
    """Return what checks that an option names a folder that is there, as the guide demands."""

    def check(value: str) -> None:
        if Path(value).exists() and not Path(value).is_dir():
            raise ConfigError(f"{name}={value!r} is a file: name a folder")
        if not Path(value).is_dir():
            raise ConfigError(f"{name}={value!r} is no folder: make it first (mkdir -p {value})")

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
"""What a variable held before an option changed it."""


def _debug_level(value: str) -> None:
    kernel_meta.set_level(int(value))


def _debug_folder(value: str) -> None:
    _folder("ACL_DEBUG_DIR")(value)
    kernel_meta.set_folder(Path(value).absolute())


def _task_queue(value: str) -> None:
    C.set_blocking(value == "0")


def _names(value: str) -> None:
    if not all(part.isidentifier() for part in value.split("#")):
        raise ConfigError(f"environment variable DYNAMIC_OP={value!r} must be names of operators, as in ADD#MUL")


def _visible(value: str) -> None:
    raise ConfigError(
        f"environment variable ASCEND_RT_VISIBLE_DEVICES={value!r} hides no device here; set "
        f"SDAA_VISIBLE_DEVICES={value}"
    )


_ONE = "one implementation of each operator, PyTorch's CPU kernel, which is its high_precision"
_COPIES = "a copy of what is not contiguous is one launch, whatever the views were"

TABLE: tuple[Setting, ...] = (
    Setting(
        "ACL_OP_SELECT_IMPL_MODE",
        OPTION,
        ("high_precision", "high_performance"),
        SAID,
        f"{_ONE}; neither values nor simulated time change",
        ("high_precision",),
    ),
    Setting(
        "ACL_OPTYPELIST_FOR_IMPLMODE",
        OPTION,
        OPERATOR_TYPES,
        SAID,
        f"{_ONE}: there is nothing to choose for an operator type",
    ),
    Setting(
        "ACL_OP_DEBUG_LEVEL",
        OPTION,
        ("0", "1", "2", "3", "4"),
        ACTS,
        "3 and 4 write a description of every distinct launch to `kernel_meta/` when the process ends, 4 also how its "
        "price came about; 1 and 2 ask for instructions, of which a simulated card has none: said, and as 3",
        (),
        _debug_level,
    ),
    Setting(
        "ACL_DEBUG_DIR",
        OPTION,
        (),
        ACTS,
        "the folder in which `kernel_meta/` is made; it must be there, else the working folder is taken",
        (),
        _debug_folder,
    ),
    Setting(
        "ACL_OP_COMPILER_CACHE_MODE",
        OPTION,
        ("enable", "disable", "force"),
        ACTS,
        "of graphs compiled by `torch.compile`, as operators are not compiled: disable keeps and takes none, force "
        "deletes those that are kept",
        (),
        _cache_mode,
    ),
    Setting(
        "ACL_OP_COMPILER_CACHE_DIR",
        OPTION,
        (),
        ACTS,
        "the folder of what is compiled from here on, as TECO_CACHE_DIR; it must be there",
        (),
        _cache_folder,
    ),
    Setting(
        "TASK_QUEUE_ENABLE",
        VARIABLE,
        ("0", "1"),
        ACTS,
        "1, the default: a launch returns at once; 0: the host waits for every launch, so that nothing overlaps in "
        "simulated time",
        (),
        _task_queue,
    ),
    Setting(
        "ASCEND_GLOBAL_LOG_LEVEL",
        VARIABLE,
        ("0", "1", "2", "3", "4"),
        ACTS,
        "debug, info, warning, error, nothing: the level of the logger `torch_sdaa`; info has a line for every "
        "distinct launch with shapes and price, debug its operations and bytes too",
        (),
        launch_lines.set_level,
    ),
    Setting(
        "ASCEND_SLOG_PRINT_TO_STDOUT",
        VARIABLE,
        ("0", "1"),
        ACTS,
        "1: the lines of the logger `torch_sdaa` go to stdout; 0: to whatever the script has set up for logging",
        (),
        launch_lines.set_stdout,
    ),
    Setting(
        "DYNAMIC_OP",
        VARIABLE,
        (),
        SAID,
        "operators are not compiled for shapes, so that none is compiled again; `torch.compile(..., dynamic=True)` is "
        "what graphs have",
        (),
        _names,
    ),
    Setting(
        "DUMP_GE_GRAPH",
        VARIABLE,
        ("0", "1", "2", "3"),
        SAID,
        "eager training has no graph; of `torch.compile` the artefacts are kept where its options say so",
        ("0",),
    ),
    Setting(
        "DUMP_GRAPH_LEVEL",
        VARIABLE,
        ("0", "1", "2", "3", "4"),
        SAID,
        "as DUMP_GE_GRAPH",
        ("0",),
    ),
    Setting(
        "ASCEND_GLOBAL_EVENT_ENABLE",
        VARIABLE,
        ("0", "1"),
        SAID,
        "there is no log of events apart from the others",
        ("0",),
    ),
    Setting("PTCOPY_ENABLE", VARIABLE, ("0", "1"), SAID, f"always on: {_COPIES}", ("1",)),
    Setting("COMBINED_ENABLE", VARIABLE, ("0", "1"), SAID, f"always on: {_COPIES}", ("1",)),
    Setting(
        "HCCL_WHITELIST_DISABLE",
        VARIABLE,
        ("0", "1"),
        SAID,
        "always off: ranks find one another by the rendezvous of `torch.distributed`, without a list",
        ("1",),
    ),
    Setting(
        "ACL_DUMP_DATA",
        VARIABLE,
        ("0", "1"),
        SAID,
        "values are dumped by `torch_sdaa.utils.dumper`, in the script",
        ("0",),
    ),
    Setting("ASCEND_AICPU_PATH", VARIABLE, (), SAID, "there are no kernels in files: the devices run PyTorch's", ()),
    Setting(
        "ASCEND_RT_VISIBLE_DEVICES",
        VARIABLE,
        (),
        REFUSED,
        "another card's: a process would see devices that it is meant not to; set SDAA_VISIBLE_DEVICES",
        (),
        _visible,
    ),
    Setting(
        "SDAA_VISIBLE_DEVICES",
        VARIABLE,
        (),
        ELSEWHERE,
        "which devices of the host a process sees, in which order ([training.md](training.md), section 3)",
    ),
    Setting(
        "MAX_ENGINE_NUMS",
        VARIABLE,
        (),
        ELSEWHERE,
        "how many devices a card has: 4, or 3 ([t1_card.md](t1_card.md))",
    ),
    Setting(
        "TORCH_SDAA_TRANSFER",
        VARIABLE,
        (),
        ELSEWHERE,
        "redirects CUDA's names without a change of the script ([redirecting_cuda.md](redirecting_cuda.md))",
    ),
)
"""Those of the guides, in the order of the page."""

OURS = (
    *("TORCH_SDAA_BANNER", "TORCH_SDAA_STRICT", "TORCH_SDAA_RANDOM", "TORCH_SDAA_SCRIPT", "TORCH_SDAA_OP_FAULTS"),
    _BUDGET,
)
"""Variables of the project's own that begin as those do which are looked at."""

_settings: dict[str, str] = {}


def set_option(option: Mapping[str, object]) -> None:
    """Set options of the device: ``torch.sdaa.set_option({"ACL_OP_DEBUG_LEVEL": 3})``. All are set, or none.

    Raises:
        ConfigError: a name or value that is unknown; the line says which one may be meant.
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
            raise ConfigError(f"set_option knows no {name!r};{near or ' it knows ' + ', '.join(known)}")
        checked.append((known[name], _text(known[name], value)))
    for setting, text in checked:
        if setting.act is not None and not setting.values:
            _folder(setting.name)(text)
    for setting, text in checked:
        _apply(setting, text)
        _settings[setting.name] = text


def options() -> dict[str, str]:
    """Return the options that were set, and what to."""
    return dict(_settings)


def start() -> None:
    """Do what environment variables ask for, and say what they cannot do.

    Raises:
        ConfigError: a variable has a value that it does not take, or is refused.
    """
    known = {each.name: each for each in TABLE}
    for name, value in sorted(os.environ.items()):
        setting = known.get(name)
        if setting is not None and setting.kind == VARIABLE:
            if setting.state != ELSEWHERE and value:
                _apply(setting, _text(setting, value))
        elif setting is not None:
            say(f"{name} is no environment variable, and does nothing; call torch.sdaa.set_option({{{name!r}: ...}})")
        elif name.startswith(_PREFIXES) and name not in OURS:
            near = did_you_mean(name, _variables(), 0.8)
            if near or name.startswith("TORCH_SDAA_"):
                say(f"environment variable {name} is unknown, and does nothing{near and f';{near}'}")
        elif name not in OURS and (near := did_you_mean(name, _variables(), 0.93)):
            say(f"environment variable {name} is unknown, and does nothing;{near}")


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
    if setting.state == SAID and text not in setting.quiet:
        say(f"{setting.name}={text} changes nothing: {setting.here}")
    if setting.name == "ACL_OP_DEBUG_LEVEL" and text in ("1", "2"):
        say(f"{setting.name}={text}: a simulated card has no instructions; launches are described, as with 3")
