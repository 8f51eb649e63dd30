"""Start, end and report of the redirection."""

from __future__ import annotations

import os
import sys

from engine import ConfigError
from torch_sdaa import sdaa
from torch_sdaa.loading.core import C
from torch_sdaa.loading.vendor import first_process
from torch_sdaa.transfer import compiled, cuda_names, functions, groups, scripted, torch_names, visible
from torch_sdaa.transfer.words import COUNTS, REFUSED, Changes

VARIABLE = "TORCH_SDAA_TRANSFER"
"""Environment variable: ``1`` starts the redirection when ``torch_sdaa`` is imported; ``0`` or unset does not."""

RUNNER = "TORCH_SDAA_RUNNER"
"""Environment variable with the prefix of the Python of the runner, for the processes that a script starts."""

_changes = Changes()
_on = False
_announced = False


def start(announced: bool = False) -> None:
    """Redirect CUDA's names to sdaa; a second call does nothing.

    ``announced``: whether another process has reported it; else the first one writes a line.
    """
    global _on, _announced
    _announced |= announced
    if _on:
        return
    _on = True
    COUNTS.clear()
    REFUSED.clear()
    visible.follow()
    functions.begin()
    torch_names.begin(_changes)
    cuda_names.begin(_changes)
    groups.begin(_changes)
    compiled.begin(_changes)
    scripted.begin(_changes)
    if not _announced and first_process() and sys.stderr is not None:
        count = sdaa.device_count()
        sys.stderr.write(
            f"torch_sdaa: CUDA is redirected to sdaa, {count} simulated device{'s' if count != 1 else ''}; "
            "transfer_to_sdaa.report() returns the counts\n"
        )
    _announced = True


def restore() -> None:
    """End the redirection; tensors stay in place. A second call does nothing."""
    global _on
    if _on:
        _on = False
        _changes.take_back()
        C.redirect_end()
        visible.forget()


def is_on() -> bool:
    """Return whether CUDA's names are redirected."""
    return _on


def start_where_asked() -> None:
    """Apply ``TORCH_SDAA_TRANSFER``; raise ConfigError if it is neither 0 nor 1."""
    text = os.environ.get(VARIABLE, "")
    if text not in ("", "0", "1"):
        raise ConfigError(f"environment variable {VARIABLE}={text!r} must be 1 (redirect CUDA's names to sdaa) or 0")
    if text == "1":
        start(announced=RUNNER in os.environ)


def report() -> dict[str, dict[str, int]]:
    """Return how often each name was redirected or refused, the most frequent first."""
    counts = COUNTS.copy()
    for name, count in C.redirect_counts().items():
        counts[name] += count
    return {"redirected": dict(counts.most_common()), "refused": dict(REFUSED.most_common())}


def table() -> str:
    """Return :func:`report` as lines to print."""
    found = report()
    width = max((len(name) for names in found.values() for name in names), default=0)
    lines = []
    for what, names in found.items():
        lines += [f"{what}:", *(f"  {name:<{width}} {count:>9}" for name, count in names.items() or {"-": 0}.items())]
    return "\n".join(lines)
