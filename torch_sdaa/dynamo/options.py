"""Options of ``torch.compile(..., backend="sdaa", options={...})``."""

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
    """Options of the compilation.

    Attributes:
        cache: store compiled partitions on disk, and use stored ones.
        keep: a folder for each partition's ONNX model, and inputs and outputs of its first run (``.npz``); "": none.
        const_name: name these files by stage and index only, so that names are the same in every version.
        recompute: let the backward pass recompute cheap values to save memory; ``False`` keeps all.
    """

    cache: bool = True
    keep: str = ""
    const_name: bool = False
    recompute: bool = True


def read(given: Any, more: Mapping[str, Any] | None = None) -> Options:
    """Check options.

    Args:
        given: the options. more: further keyword arguments, which count as options.

    Raises:
        ConfigError: an option does not exist, or has a value of another type.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"options of backend 'sdaa' must be a dictionary such as {{'cache': False}}, got {given!r}")
    given = {**given, **(more or {})}
    known = {field.name: type(field.default) for field in fields(Options)}
    taken: dict[str, Any] = {}
    for name, value in given.items():
        if name == "mode":
            raise ConfigError(
                f"torch.compile(mode={value!r}) is for inductor; backend 'sdaa' has no modes: omit mode; "
                f"options={{...}} takes {', '.join(known)}"
            )
        if name not in known:
            raise ConfigError(
                f"backend 'sdaa' has no option {name!r};{did_you_mean(str(name), known)} there are: {', '.join(known)}"
            )
        if isinstance(value, os.PathLike) and known[name] is str:
            value = os.fspath(value)
        if not isinstance(value, known[name]):
            raise ConfigError(f"option {name} of backend 'sdaa' must be a {known[name].__name__}, got {value!r}")
        taken[name] = value
    options = Options(**taken)
    if "\0" in options.keep:
        raise ConfigError(
            f"option keep of backend 'sdaa' is {options.keep!r}, which is not a valid path; choose another"
        )
    if options.keep and Path(options.keep).exists() and not Path(options.keep).is_dir():
        raise ConfigError(f"option keep of backend 'sdaa': {options.keep} is not a folder; choose another")
    return options
