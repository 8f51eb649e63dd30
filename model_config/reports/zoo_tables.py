"""Tables of the zoo in the README and the page of examples, generated from the stored figures of the models."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine import ConfigError
from model_config.cases.config import FULL, read_cases
from model_config.reports.scored import Figures, ScoredMetric, ScoredModel, find_models
from tecoinfer_modelzoo.files import text_of, write_file
from tecoinfer_modelzoo.formatting import NO_VALUE

BEGIN, END = "<!-- teco site: begin -->", "<!-- teco site: end -->"
"""Markers around the tables in a page."""

TARGETS = ("onnx", "sdaa", "cpu")
"""Targets with a metric column."""

_HEADS = {
    "en": (
        ("model", "domain", "what it does", "weights and data", "metric", *TARGETS, "simulated samples/s"),
        ("model", "domain", "what it does", "weights"),
    ),
    "zh": (
        ("模型", "领域", "做什么", "权重与数据", "指标", *TARGETS, "模拟的每秒样本数"),
        ("模型", "领域", "做什么", "权重"),
    ),
}
_LEADS = {
    "en": (
        "Measured here: `onnx` and `cpu` in float32, `sdaa` in the card's float16. The simulated samples per second are"
        " those of the whole card, at the batch in parentheses. {date}`teco check --update` stores the figures beside"
        " each model, `teco site --write_docs` writes these tables.",
        "Without stored figures: weights of yours, or by download, or random ones, which check function and speed:",
    ),
    "zh": (
        "在此测量：`onnx` 与 `cpu` 为 float32，`sdaa` 为加速卡的 float16。模拟的每秒样本数属于整张卡，括号中是批大小。"
        "{date}`teco check --update` 把数值存放在每个模型旁边，`teco site --write_docs` 写出这些表格。",
        "没有存放数值：权重由您提供，或可下载，或为随机权重，后者用来检查功能与速度：",
    ),
}
_DATE = {"en": "Last measured {date}. ", "zh": "最近一次测量：{date}。"}
_LOWER = {"en": "lower is better", "zh": "越低越好"}


@dataclass(frozen=True, slots=True)
class Page:
    """A page with the tables.

    Attributes:
        name: path from the repository's root. language: a key of the texts.
        places: places of its models, keys of :data:`model_config.reports.scored.PLACES`.
    """

    name: str
    language: str
    places: tuple[str, ...] = ("core", "contrib")


PAGES = (Page("README.md", "en"), Page("README.zh-CN.md", "zh"), Page("example/README.md", "en", ("core",)))


def write_tables(root: Path) -> list[Path]:
    """Write the tables into all pages and return their paths.

    Raises:
        ConfigError: a page cannot be read or written or lacks the markers; a scorecard or text cannot be read.
    """
    written = []
    for page in PAGES:
        path, text = root / page.name, with_tables(root, page)
        try:
            write_file(path, text.encode("utf-8", "backslashreplace"))  # a name may contain invalid UTF-8
        except OSError as error:
            raise ConfigError(f"{path} cannot be written ({error.strerror or error}); check its permissions") from error
        written.append(path)
    return written


def with_tables(root: Path, page: Page) -> str:
    """Return the text of a page with up-to-date tables.

    Raises:
        ConfigError: see :func:`write_tables`.
    """
    path = root / page.name
    try:
        text = text_of(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); is this a clone of the zoo?") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"{path}: lacks the marks {BEGIN} and {END}; add them where the tables belong")
    return f"{before}{BEGIN}\n{chr(10).join(tables(root, page))}\n{END}{after}"


def tables(root: Path, page: Page) -> Iterator[str]:
    """Yield the lines of both tables: models with figures, one per row; then the others, equal ones in one row."""
    full = _full_cases(root)
    models = [model for model in find_models(root) if model.place in page.places]
    shown = {model.path: _measured(model, full.get(model.path, ())) for model in models}
    language = page.language
    with_figures = [model for model in models if shown[model.path]]
    date = max((model.date[:10] for model in with_figures), default="")
    heads, leads = _HEADS[language], _LEADS[language]
    yield leads[0].format(date=_DATE[language].format(date=date) if date else "")
    yield ""
    yield from _head(heads[0], 4)
    for model in with_figures:
        figures = _figure_cells(model, shown[model.path], language)
        yield _row(_link(model, page), model.domain, *_texts(model, page), *figures)
    yield ""
    yield leads[1]
    yield ""
    yield from _head(heads[1], 0)
    alike: dict[tuple[str, ...], list[ScoredModel]] = {}
    for model in models:
        if not shown[model.path]:
            alike.setdefault((model.domain, *_texts(model, page)), []).append(model)
    for cells, group in alike.items():
        yield _row(", ".join(_link(model, page) for model in group), *cells)


def _full_cases(root: Path) -> dict[str, tuple[str, ...]]:
    """Return by folder the names of the cases that measure a whole model of which the check runs a part."""
    file = root / FULL
    cases, _ = read_cases([file], root) if file.is_file() else ([], [])
    found: dict[str, tuple[str, ...]] = {}
    for case in cases:
        found[case.run_dir] = (*found.get(case.run_dir, ()), case.name)
    return found


def _measured(model: ScoredModel, full: Sequence[str]) -> dict[str, dict[str, ScoredMetric]]:
    """Return the metrics by case and target; if a model has whole cases, only those."""
    found: dict[str, dict[str, ScoredMetric]] = {}
    for entry in model.metrics:
        if not full or entry.key.case in full:
            found.setdefault(entry.key.case, {}).setdefault(entry.key.target, entry)
    return found


def _figure_cells(model: ScoredModel, measured: Mapping[str, Mapping[str, ScoredMetric]], language: str) -> list[str]:
    """Return metric, its value on each target, and simulated speed; one line per case."""
    lines = []
    for case, by_target in measured.items():
        first = next(iter(by_target.values()))
        name = first.name if first.higher_is_better else f"{first.name} ({_LOWER[language]})"
        values = [_value(by_target, target) for target in TARGETS]
        speed = next((_speed(one) for one in model.figures if one.key.case == case and one.simulated), NO_VALUE)
        lines.append((name, *values, speed))
    return ["<br>".join(column) for column in zip(*lines, strict=True)]


def _value(by_target: Mapping[str, ScoredMetric], target: str) -> str:
    entry = by_target.get(target)
    if entry is not None:
        return _number(entry.value)
    compared = (
        one.reference for found in by_target.values() for one in found.against if one.against == f"{target} float32"
    )
    return next((_number(value) for value in compared if value is not None), NO_VALUE)


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"


def _speed(entry: Figures) -> str:
    rate = 1 / entry.simulated if entry.simulated else 0.0
    return f"{rate:,.0f} ({entry.key.batch_size})" if rate >= 10 else f"{rate:.2g} ({entry.key.batch_size})"


def _texts(model: ScoredModel, page: Page) -> tuple[str, str]:
    """Return the description of a model and the source of its weights; by default its title."""
    if model.texts is None:
        return model.title, NO_VALUE
    does, weights = model.texts.does[page.language], model.texts.weights[page.language]
    return _from(does, page), _from(weights, page)


def _from(text: str, page: Page) -> str:
    """Return a text with links relative to the root converted to links relative to a page's folder."""
    return re.sub(r"\]\((?!https?:|#)([^()]+)\)", lambda link: f"]({_relative(link[1], page)})", text)


def _link(model: ScoredModel, page: Page) -> str:
    return f"[{model.name}]({_relative(f'{model.path}/README.md', page)})"


def _relative(path: str, page: Page) -> str:
    return os.path.relpath(path, PurePosixPath(page.name).parent).replace(os.sep, "/")


def _head(names: Sequence[str], figures: int) -> Iterator[str]:
    yield _row(*names)
    yield f"|{'|'.join(['---'] * (len(names) - figures) + ['---:'] * figures)}|"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
