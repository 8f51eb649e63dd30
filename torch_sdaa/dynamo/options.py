"""What ``torch.compile(..., backend="sdaa", options={...})`` may say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean


@dataclass(frozen=True)
class Options:
    """How graphs are compiled.

    Attributes:
        cache: keep compiled partitions on the disk, and take those that are there.
        keep: a folder for each partition's ONNX model, and the inputs and outputs of its first run (``.npz``); "":
            nothing is kept.
        const_name: call these files by stage and place alone, so that they are called the same in every version.
        recompute: let the backward pass compute again what is cheap, which saves memory; ``False`` keeps all of it.
    """

    cache: bool = True
    keep: str = ""
    const_name: bool = False
    recompute: bool = True


def read(given: Any, more: Mapping[str, Any] | None = None) -> Options:
    """Check what was given.

    Args:
        given: the options. more: what stands beside them, which counts as options.

    Raises:
        ConfigError: an option does not exist, or has a value of another kind.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"options of backend 'sdaa' are {given!r}; give a dictionary, such as {{'cache': False}}")
    given = {**given, **(more or {})}
    known = {field.name: type(field.default) for field in fields(Options)}
    taken: dict[str, Any] = {}
    for name, value in given.items():
        if name == "mode":
            raise ConfigError(
                f"torch.compile(mode={value!r}) chooses among what inductor does; backend 'sdaa' has no modes: leave "
                f"mode out, options={{...}} takes {', '.join(known)}"
            )
        if name not in known:
            raise ConfigError(
                f"backend 'sdaa' has no option {name!r};{did_you_mean(str(name), known)} there are: {', '.join(known)}"
            )
        if isinstance(value, os.PathLike) and known[name] is str:
            value = os.fspath(value)
        if not isinstance(value, known[name]):
            raise ConfigError(f"option {name} of backend 'sdaa' is {value!r}; give a {known[name].__name__}")
        taken[name] = value
    options = Options(**taken)
    if "\0" in options.keep:
        raise ConfigError(f"option keep of backend 'sdaa' is {options.keep!r}, which no folder is called; name another")
    if options.keep and Path(options.keep).exists() and not Path(options.keep).is_dir():
        raise ConfigError(f"option keep of backend 'sdaa': {options.keep} is no folder; name another")
    return options
