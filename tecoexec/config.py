"""Reader of ``tecoexec_config.yaml``: models of a sweep, their batch sizes and published results."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import DTYPES, ConfigError, PassError, engine_nums, find_pass
from tecoexec.point import KEYS as REFERENCE_KEYS, BadReference, Published, References, read_references
from tecoexec.request import Request
from tecoexec.shapes import INPUT_DTYPES, Shape, parse_shapes
from tecoinfer_modelzoo.files import check_regular
from tecoinfer_modelzoo.text import nearest, one_line, printable, shortened, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
"""Root of the repository, to which paths in a configuration are relative."""

CONFIG = HERE / "testcase_configs" / "tecoexec_config.yaml"

HISTORICAL_SPA, SHRUNK_SPA = 4, 3
"""Batch sizes are given for 4 SPA; on a card with 3 they are scaled by 3/4, which keeps the batch of a SPA."""

_LONGEST_NAME, _LONGEST_PATH = 100, 1000  # maximum length of a name, which is the prefix of file names, and of a path
_MOST = 2**31 - 1  # maximum of integers
_REQUIRED = ("case_name", "onnx_path", "input_shapes", "batch_size")
_OPTIONAL: dict[str, Any] = {
    "model_name": None,
    "pass_path": None,
    "onnx_dtype": "float16",
    "iterations": 100,
    "warm_up": 10,
    "run_sync": False,
    "batch_index": 0,
    "input_dtype": [],
    "benchmark": None,
    "desc": "",
    **dict.fromkeys(REFERENCE_KEYS),
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """A case of a configuration.

    Attributes:
        name: ``case_name``.
        model: ``model_name``, or the name of the file; cases of the same model share a plot.
        onnx: the model file.
        shapes: shapes of its inputs, with any batch.
        batch_index: per input 0 if its first dimension is the batch, ``None`` without a batch.
        batches: batch sizes of the whole card (scaled on a card with 3 SPA).
        dtype, pass_path, input_dtypes, iterations, warm_up, run_sync: as in :class:`tecoexec.request.Request`.
        published: published results by batch; empty for another number of SPA.
        references: results of earlier runs and other cards by batch, then by name; empty for another number of SPA.
    """

    name: str
    model: str
    onnx: Path
    shapes: tuple[Shape, ...]
    batch_index: tuple[int | None, ...]
    batches: tuple[int, ...]
    dtype: str
    pass_path: Path | None
    input_dtypes: tuple[str, ...]
    iterations: int
    warm_up: int
    run_sync: bool
    published: Mapping[int, Published]
    references: Mapping[int, References]
    desc: str

    def request(self, batch: int, target: str) -> Request:
        """Return the request of this case at a batch; on a simulated card no values are computed."""
        pairs = zip(self.shapes, self.batch_index, strict=True)
        whole = tuple(("", shape if index is None else (batch, *shape[1:])) for shape, index in pairs)
        return Request(
            model=self.onnx,
            target=target,
            shapes=whole,
            dtype=self.dtype,
            pass_path=self.pass_path,
            input_dtypes=self.input_dtypes,
            iterations=self.iterations,
            warm_up=self.warm_up,
            run_sync=self.run_sync,
            simulate_only=True,
        )

    @property
    def missing(self) -> str:
        """Why the case cannot be run, and how to fix it; empty if the model exists."""
        if os.path.isfile(self.onnx):
            return ""
        script = self.onnx.parent / "export_onnx.py"
        how = f"export it with: python {_shown(script)}" if os.path.isfile(script) else "export it first"
        return f"{self.name}: model {_shown(self.onnx)} does not exist; {how}"


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def scaled(batches: Sequence[int]) -> tuple[int, ...]:
    """Return the distinct batches for this card: with 3 SPA 3/4 of each, at least 1."""
    if engine_nums() == SHRUNK_SPA:
        batches = [max(1, batch * SHRUNK_SPA // HISTORICAL_SPA) for batch in batches]
    return tuple(dict.fromkeys(batches))


def load_cases(path: Path = CONFIG) -> list[Sweep]:
    """Read a configuration, which may be empty; raise ConfigError with file, case and key if it is invalid."""
    try:
        data = read_yaml(path)
    except (OSError, YamlError) as error:
        raise ConfigError(f"{path} cannot be read: {one_line(error)}") from error
    if data is None:
        return []
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise ConfigError(f"{path} must be a list of cases, each beginning with '- case_name: ...'")
    cases = [_Entry(path, entry).case() for entry in data]
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            raise ConfigError(f"{path}: case_name {name!r} is used twice; give each case a unique name")
    return cases


def select_cases(cases: Sequence[Sweep], word: str) -> list[Sweep]:
    """Return the cases whose name contains ``word``, like ``pytest -k``; raise ConfigError if there is none."""
    found = [case for case in cases if word.lower() in case.name.lower()]
    if not found:
        raise ConfigError(f"no case matches {word!r}; available: {', '.join(case.name for case in cases) or 'none'}")
    return found


def load_published(path: Path) -> dict[int, Published]:
    """Read a CSV file with columns ``batch``, ``latency_ms``, ``throughput``; raise ConfigError if it is invalid."""
    try:
        check_regular(path)
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return {int(r["batch"]): Published(_positive(r["latency_ms"]), _positive(r["throughput"])) for r in rows}
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        reason = f"cannot be read ({one_line(error)}); expected a CSV file with batch,latency_ms,throughput"
        raise ConfigError(f"benchmark results {path} {reason}") from error


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is not a positive number")
    return value


class _Entry:
    """Reader of one case; errors contain file, case and key."""

    def __init__(self, path: Path, data: Mapping[Any, Any]) -> None:
        self.path = path
        name = data.get("case_name", "(no case_name)")
        self.name = name if isinstance(name, str) and len(name) <= _LONGEST_NAME else shown_value(name)
        for key in data:
            if key not in (*_REQUIRED, *_OPTIONAL):
                near = nearest(str(key), (*_REQUIRED, *_OPTIONAL))
                shown = key if isinstance(key, str) and len(key) <= _LONGEST_NAME else shown_value(key)
                raise self._problem(shown, "is not a field" + (f"; did you mean {near}?" if near else ""))
        for key in _REQUIRED:
            if data.get(key) is None:
                raise self._problem(key, "is missing")
        left_out = [key for key, value in data.items() if value is None and key != "batch_index"]
        self.data = {**_OPTIONAL, **{key: value for key, value in data.items() if key not in left_out}}

    def _problem(self, key: str, text: str) -> ConfigError:
        return ConfigError(f"{self.path}: case {self.name}: {key} {text}")

    def case(self) -> Sweep:
        """Return the case."""
        shapes = self._shapes()
        benchmark = self.data["benchmark"]
        fits_card = engine_nums() == HISTORICAL_SPA
        batches = self._numbers("batch_size", self._list("batch_size"), 1)
        references = self._references(batches)
        onnx = self._path("onnx_path")
        return Sweep(
            name=self._name("case_name"),
            model=self._name("model_name") if self.data["model_name"] is not None else onnx.stem,
            onnx=onnx,
            shapes=shapes,
            batch_index=self._batch_index(shapes),
            batches=scaled(batches),
            dtype=self._one_of("onnx_dtype", self.data["onnx_dtype"], DTYPES),
            pass_path=self._pass() if self.data["pass_path"] else None,
            input_dtypes=tuple(self._one_of("input_dtype", d, INPUT_DTYPES) for d in self._words("input_dtype")),
            iterations=self._numbers("iterations", [self.data["iterations"]], 1)[0],
            warm_up=self._numbers("warm_up", [self.data["warm_up"]], 0)[0],
            run_sync=bool(self._one_of("run_sync", self.data["run_sync"], (True, False, 0, 1))),
            published=load_published(self._path("benchmark")) if benchmark and fits_card else {},
            references=references if fits_card else {},
            desc=self._described(self.data["desc"]),
        )

    def _name(self, key: str) -> str:
        """Return a name, which is used in names of logs and plots."""
        name = self._text(key)
        if len(name) > _LONGEST_NAME or not name.isprintable():
            raise self._problem(key, f"{shown_value(name)} must have at most {_LONGEST_NAME} characters, in one line")
        return name

    def _path(self, key: str) -> Path:
        """Return a path below the repository; absolute paths (a shared disk) are allowed."""
        text = self._text(key)
        if len(text) > _LONGEST_PATH or not text.isprintable():
            raise self._problem(key, f"{shown_value(text)} is not a path; write one relative to the repository's root")
        self._check_below(key, text, (ROOT,), allowed=os.path.isabs(text))
        return ROOT / text

    def _pass(self) -> Path | None:
        """Return the pass file, which must be in the repository, next to the configuration or in the current folder."""
        text = self._text("pass_path")
        if len(text) > _LONGEST_PATH or not text.isprintable():
            raise self._problem("pass_path", f"{shown_value(text)} is not a valid path; name a pass file")
        try:
            found = find_pass(text, self.path.parent)
        except PassError as error:
            raise self._problem("pass_path", str(error)) from error
        if found is not None:
            self._check_below("pass_path", str(found.absolute()), (ROOT, self.path.absolute().parent, Path.cwd()))
        return found

    def _check_below(self, key: str, text: str, places: Sequence[Path], *, allowed: bool = False) -> None:
        """Reject a path outside these folders, after resolving links."""
        reached = Path(os.path.realpath(ROOT / text))
        if not allowed and not any(reached.is_relative_to(os.path.realpath(place)) for place in places):
            raise self._problem(key, f"{shown_value(text)} leaves the repository; write a path inside it")

    def _shapes(self) -> tuple[Shape, ...]:
        """Return shapes from lists of sizes, or from a text such as ``4*3*224*224`` with commas between inputs."""
        given = self.data["input_shapes"]
        if isinstance(given, list) and given and all(isinstance(shape, str) for shape in given):
            given = ",".join(given)
        if not isinstance(given, str):
            return tuple(self._numbers("input_shapes", shape, 1) for shape in self._list("input_shapes"))
        try:
            shapes = parse_shapes(given)
        except ConfigError as error:
            raise self._problem("input_shapes", f"{shown_value(given)}: {error}") from error
        if any(name for name, _ in shapes) or any(0 in shape for _, shape in shapes):
            raise self._problem("input_shapes", f"{shown_value(given)} must contain only sizes, such as 4*3*224*224")
        return tuple(shape for _, shape in shapes)

    def _references(self, batches: Sequence[int]) -> dict[int, References]:
        try:
            return read_references(self.data, batches)
        except BadReference as error:
            raise self._problem(error.key, error.text) from error

    def _described(self, desc: Any) -> str:
        """Return a description in one line; mappings are listed."""
        if isinstance(desc, Mapping):
            desc = ", ".join(f"{key}: {value}" for key, value in desc.items())
        return "" if desc is None else shortened(printable(str(desc), keep=""))

    def _words(self, key: str) -> list[Any]:
        """Return a list, or the comma-separated words of a text."""
        value = self.data[key]
        return [word.strip() for word in value.split(",")] if isinstance(value, str) else self._list(key)

    def _text(self, key: str) -> str:
        value = self.data[key]
        if not isinstance(value, str) or not value:
            raise self._problem(key, f"{shown_value(value)} must be text")
        return value

    def _list(self, key: str) -> list[Any]:
        value = self.data[key]
        return value if isinstance(value, list) else [value]

    def _one_of(self, key: str, value: Any, valid: Sequence[Any]) -> Any:
        if not any(value is one or (isinstance(one, str) and value == one) for one in valid):
            raise self._problem(key, f"{shown_value(value)} must be one of: {', '.join(map(str, valid))}")
        return value

    def _numbers(self, key: str, values: Any, least: int) -> tuple[int, ...]:
        if not isinstance(values, list) or not values:
            raise self._problem(key, f"{shown_value(values)} must be a list, such as [[1, 3, 224, 224]]")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise self._problem(key, f"{shown_value(value)} must be an integer of at least {least}")
            if value > _MOST:
                raise self._problem(key, f"{value} must be an integer of at most {_MOST}")
        return tuple(values)

    def _batch_index(self, shapes: Sequence[Shape]) -> tuple[int | None, ...]:
        """Return one index per input; the card only splits the first dimension."""
        given = self._list("batch_index")
        indices = given * len(shapes) if len(given) == 1 else given
        if len(indices) != len(shapes) or any(index is not None and (index is True or index != 0) for index in indices):
            fix = "0 (the card splits the first dimension), or a list with 0 or null for each input"
            raise self._problem("batch_index", f"{shown_value(self.data['batch_index'])} must be {fix}")
        return tuple(indices)
