"""Card descriptions: data files with every figure, its source, and whether it was published or fitted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.base import ConfigError, engine_nums
from engine.sdaa.status import CARDS_VARIABLE, card_count
from engine.spec import CardOptions
from tecoinfer_modelzoo.text import one_line, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml

CARDS = Path(__file__).resolve().parent  # folder of the zoo's card descriptions

CARD_VARIABLE = "TECO_SIM_CARD"
"""Environment variable for another description: a path, or the stem of a file in :data:`CARDS`."""

VISIBLE_VARIABLE = "SDAA_VISIBLE_DEVICES"
_DIGITS = 9  # largest number of digits of a device index
MARKS = ("published", "fitted", "assumed")

_FIGURES = (
    *("memory_mb", "host_to_device_gb_s", "device_to_host_gb_s", "copy_launch_us", "heartbeat_ms", "float32_rate"),
)
_COSTS = frozenset(("copy_launch_us", "launch_us", "heartbeat_ms"))
"""Figures that may be 0: times that are added. The others are divisors, or meaningless at 0."""

_LEAST, _MOST = 1e-9, 1e12  # limits of a card's figures, in the units of the file
_LONGEST_NAME = 100  # length limit of a card's or a layout's name
_LAYOUT_FIGURES = ("compute_tflop_s", "memory_gb_s", "launch_us")


@dataclass(frozen=True, slots=True)
class Layout:
    """Speed of a SPA for one data layout; a pass chooses the layout."""

    compute_tflop_s: float  # 10**12 floating-point operations per second (a multiply-add counts two)
    memory_gb_s: float  # 10**9 bytes per second between device memory and the compute array
    launch_us: float  # additional microseconds of every kernel


@dataclass(frozen=True, slots=True)
class CardDescription:
    """One card; figures are per SPA. ``marks``: origin of each (:data:`MARKS`) by key (``layouts.plain.launch_us``)."""

    name: str  # as ``teco-smi`` shows it
    memory_mb: float  # device memory in MB of 2**20 bytes
    host_to_device_gb_s: float  # copy bandwidths in 10**9 bytes per second
    device_to_host_gb_s: float  # copy bandwidths in 10**9 bytes per second
    copy_launch_us: float  # additional microseconds of every copy
    heartbeat_ms: float  # milliseconds after which a SPA that does not answer is considered lost
    float32_rate: float  # speed of float32 arithmetic relative to float16
    layouts: Mapping[str, Layout]  # by name
    source: Path  # the file
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """Device memory of one SPA in bytes."""
        return int(self.memory_mb * 2**20)

    def layout(self, name: str) -> Layout:
        """Return a layout; raise ConfigError if the card does not have it."""
        if name not in self.layouts:
            raise ConfigError(
                f"{self.source}: card {self.name} has no layout {name!r}; use one of: {', '.join(self.layouts)}"
            )
        return self.layouts[name]


def load_card(path: Path | None = None) -> CardDescription:
    """Read a card description (``None``: ``TECO_SIM_CARD``, else the T1); raise ConfigError with key and fix."""
    return _load(path if path is not None else _named(os.environ.get(CARD_VARIABLE, "t1")))


def visible_devices(rank: int) -> list[int]:
    """Return the SPA of card ``rank``, as device indices of this host.

    A host has ``TECO_SIM_CARDS`` (1) cards of ``MAX_ENGINE_NUMS`` (4) SPA. ``SDAA_VISIBLE_DEVICES`` (``"0,1,3"``)
    selects devices and their order; cards are formed from the selected ones.
    Raise ConfigError if a variable is invalid, or the card does not exist.
    """
    count, devices = engine_nums(), all_visible_devices()
    mine = devices[rank * count : (rank + 1) * count]
    if not mine:
        needed = f"set {CARDS_VARIABLE} to the number of processes, {rank + 1} or more, or "
        more = needed if rank >= card_count() else ""  # each process of a run uses one card
        raise ConfigError(
            f"card {rank} does not exist: {len(devices)} devices are visible, {count} to a card; "
            f"{more}check {VISIBLE_VARIABLE} and the rank"
        )
    return mine


def all_visible_devices() -> list[int]:
    """Return the device indices of all SPA in ``SDAA_VISIBLE_DEVICES``, in its order; raise ConfigError if invalid."""
    devices = list(range(card_count() * engine_nums()))
    text = os.environ.get(VISIBLE_VARIABLE)
    return devices if text is None else _selected(text, devices)


def spa_count(options: CardOptions) -> int:
    """Return the number of SPA over which the simulated card splits a call: the visible ones, or 1 if not ``divided``.

    The batch of a SPA is the call's divided by it, rounded up. Raise ConfigError for invalid variables or no such card.
    """
    return len(visible_devices(options.rank)) if options.divided else 1


def _selected(text: str, devices: list[int]) -> list[int]:
    entries = [entry.strip() for entry in text.split(",")]
    numbers = [int(entry) for entry in entries if entry.isascii() and entry.isdigit() and len(entry) <= _DIGITS]
    if len(numbers) != len(entries) or len(set(numbers)) != len(numbers) or not set(numbers) <= set(devices):
        raise ConfigError(
            f"environment variable {VISIBLE_VARIABLE}={text!r} must list devices from 0 to {devices[-1]}, each once, "
            "separated by commas"
        )
    return numbers


def _named(text: str) -> Path:
    own = CARDS / f"{text}.yaml"
    for path in (own, Path(text)):
        with contextlib.suppress(OSError, ValueError):  # too long for a path
            if path.is_file():
                return path
    known = ", ".join(sorted(path.stem for path in CARDS.glob("*.yaml")))
    raise ConfigError(f"{CARD_VARIABLE}={text!r} is neither a card description file nor one of: {known}")


@lru_cache(maxsize=8)
def _load(path: Path) -> CardDescription:
    try:
        data = read_yaml(path)
    except (OSError, YamlError) as error:
        raise ConfigError(f"card description {path} cannot be read: {one_line(error)}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"card description {path} is not a mapping; see {CARDS / 't1.yaml'}")
    _refuse_keys(data, {"schema_version", "name", "layouts", *_FIGURES}, path, "")
    if data.get("schema_version") != 1:
        raise ConfigError(
            f"{path}: schema_version {shown_value(data.get('schema_version'))} is not 1, the version this zoo reads"
        )
    layouts = data.get("layouts")
    if not isinstance(layouts, dict) or not layouts:
        raise ConfigError(f"{path}: layouts must map layout names to figures")
    return CardDescription(
        name=_name(data.get("name", path.stem), path),
        **{key: _figure(data, key, path, key) for key in _FIGURES},
        layouts={str(name): _layout(figures, path, f"layouts.{_word(name)}") for name, figures in layouts.items()},
        source=path,
        marks=_marks(data, layouts),
    )


def _marks(data: Mapping[str, Any], layouts: Mapping[str, Any]) -> dict[str, str]:
    marks = {key: str(data[key]["mark"]) for key in _FIGURES}
    for name, figures in layouts.items():
        marks |= {f"layouts.{name}.{key}": str(figures[key]["mark"]) for key in _LAYOUT_FIGURES}
    return marks


def _layout(data: Any, path: Path, where: str) -> Layout:
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: {where} must map {', '.join(_LAYOUT_FIGURES)} to figures")
    _refuse_keys(data, set(_LAYOUT_FIGURES), path, f"{where}.")
    return Layout(**{key: _figure(data, key, path, f"{where}.{key}") for key in _LAYOUT_FIGURES})


def _refuse_keys(data: Mapping[str, Any], known: set[str], path: Path, where: str) -> None:
    for key in data:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {where}{_word(key)}; known: {', '.join(sorted(known))}")


def _name(given: object, path: Path) -> str:
    name = str(given) if isinstance(given, (str, int, float)) else ""
    if not name.isprintable() or not 0 < len(name.strip()) <= _LONGEST_NAME:
        raise ConfigError(f"{path}: name {shown_value(given)} must be a text of 1 to {_LONGEST_NAME} characters")
    return name


def _word(key: object) -> str:
    """Return a key as a message shows it; words are not quoted."""
    return key if isinstance(key, str) and len(key) <= _LONGEST_NAME else shown_value(key)


def _figure(data: Mapping[str, Any], key: str, path: Path, where: str) -> float:
    """Read ``{value, mark, source}``: a number, its mark, and its source."""
    entry = data.get(key)
    if not isinstance(entry, dict) or set(entry) != {"value", "mark", "source"}:
        raise ConfigError(f"{path}: {where} must be {{value: ..., mark: ..., source: ...}}, it is {shown_value(entry)}")
    value = entry["value"]
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MOST
    if not number or (value < _LEAST and (value != 0 or key not in _COSTS)):
        at_least = "of at least 0" if key in _COSTS else "above 0"
        raise ConfigError(
            f"{path}: {where}.value {shown_value(value)} must be a number {at_least} (from {_LEAST:g} to {_MOST:g})"
        )
    if not isinstance(entry["mark"], str) or entry["mark"] not in MARKS:
        raise ConfigError(f"{path}: {where}.mark {shown_value(entry['mark'])} must be one of: {', '.join(MARKS)}")
    return float(value)
