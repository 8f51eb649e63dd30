"""Tables of models in the READMEs, docs/reference/zoo.md and example/README.md, generated from the stored results."""

from __future__ import annotations

import math
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
"""Marks before and after the generated part of a page."""

TARGETS = ("onnx", "sdaa", "cpu")
"""Targets with a metric column."""

SELECTED = (
    "example/classification/digits",
    "example/detection/digit_detector",
    "example/segmentation/digit_unet",
    "example/face/dlib_descriptor",
    "example/ocr/ppocr_v4",
    "example/nlp/minilm_sentiment",
    "example/nlp/bert_qa",
    "example/nlp/tiny_gpt",
    "example/speech/silero_vad",
    "example/recommendation/sasrec",
    "example/gnn/solubility_gcn",
    "example/reinforcement/ppo_cartpole",
)
"""Folders of the models in the table of the READMEs, in its order; models without stored results are left out."""

_HEADS = {
    "en": (
        ("model", "domain", "what it does", "weights and data", "metric", *TARGETS, "simulated samples/s"),
        ("model", "domain", "what it does", "weights"),
    ),
    "zh": (
        ("模型", "领域", "用途", "权重与数据", "指标", *TARGETS, "模拟吞吐量（样本/秒）"),
        ("模型", "领域", "用途", "权重"),
    ),
}
_SELECTED_HEADS = {
    "en": ("model", "domain", "what it does", "metric", *TARGETS, "simulated samples/s"),
    "zh": ("模型", "领域", "用途", "指标", *TARGETS, "模拟吞吐量（样本/秒）"),
}
_SELECTED_LEADS = {
    "en": "`onnx` and `cpu` compute in float32, `sdaa` in the card's float16. Simulated samples per second are those of"
    " the whole card, with the batch size in parentheses.{date}",
    "zh": "`onnx` 与 `cpu` 列用 float32 计算，`sdaa` 列用加速卡的 float16 计算。"
    "模拟吞吐量按整张加速卡计，括号内为批大小。{date}",
}
_LEADS = {
    "en": (
        "`onnx` and `cpu` compute in float32, `sdaa` in the card's float16. Simulated samples per second are those of"
        " the whole card, with the batch size in parentheses.{date} `teco check --update` stores the results in the"
        " folder of each model; `teco site --write_docs` generates these tables.",
        "Without stored results; their weights are your own, downloaded, or random (for tests of function and speed):",
    ),
    "zh": (
        "`onnx` 与 `cpu` 列用 float32 计算，`sdaa` 列用加速卡的 float16 计算。"
        "模拟吞吐量按整张加速卡计，括号内为批大小。{date}"
        "结果由 `teco check --update` 写入各模型目录，表格由 `teco site --write_docs` 生成。",
        "以下模型没有保存的结果；权重需自备或下载，也可用随机权重（只检查功能与速度）：",
    ),
}
_DATE = {"en": " Last measured {date}.", "zh": "最近测量日期：{date}。"}
_LOWER = {"en": "lower is better", "zh": "越低越好"}


@dataclass(frozen=True, slots=True)
class Page:
    """A page with generated tables.

    Attributes:
        name: path from the repository's root. language: ``en`` or ``zh``.
        places: places whose models are listed, keys of :data:`model_config.reports.scored.PLACES`.
        selected: whether the page has the short table, of :data:`SELECTED`, instead of those of all models.
    """

    name: str
    language: str
    places: tuple[str, ...] = ("core", "contrib")
    selected: bool = False


PAGES = (
    Page("README.md", "en", selected=True),
    Page("README.zh-CN.md", "zh", selected=True),
    Page("docs/reference/zoo.md", "en"),
    Page("docs/reference/zoo.zh-CN.md", "zh"),
    Page("example/README.md", "en", ("core",)),
)


def write_tables(root: Path) -> list[Path]:
    """Write the tables into all pages and return the paths of these.

    Raises:
        ConfigError: if a page cannot be read or written or lacks the marks, or a scorecard or zoo.yaml is invalid.
    """
    written = []
    for page in PAGES:
        path, text = root / page.name, with_tables(root, page)
        try:
            write_file(path, text.encode("utf-8", "backslashreplace"))  # a folder's name may be invalid UTF-8
        except OSError as error:
            raise ConfigError(f"{path} cannot be written ({error.strerror or error}); check its permissions") from error
        written.append(path)
    return written


def with_tables(root: Path, page: Page) -> str:
    """Return the text of a page with its tables regenerated.

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
    """Yield the lines of the tables of a page."""
    full = full_cases(root)
    models = [model for model in find_models(root) if model.place in page.places]
    shown = {model.path: measured(model, full.get(model.path, ())) for model in models}
    yield from (_selected_table if page.selected else _both_tables)(models, shown, page)


_Shown = Mapping[str, Mapping[str, Mapping[str, ScoredMetric]]]


def _selected_table(models: Sequence[ScoredModel], shown: _Shown, page: Page) -> Iterator[str]:
    """Yield the lines of the short table: the models of :data:`SELECTED` that have stored results."""
    by_path = {model.path: model for model in models if shown[model.path]}
    selected = [by_path[path] for path in SELECTED if path in by_path]
    yield _lead(_SELECTED_LEADS[page.language], selected, page)
    yield ""
    yield from _head(_SELECTED_HEADS[page.language], 4)
    for model in selected:
        figures = _figure_cells(model, shown[model.path], page.language)
        yield _row(_link(model, page), model.domain, _texts(model, page)[0], *figures)


def _lead(text: str, models: Sequence[ScoredModel], page: Page) -> str:
    """Return the paragraph above a table, with the last date of its models."""
    date = max((model.date[:10] for model in models), default="")
    return text.format(date=_DATE[page.language].format(date=date) if date else "")


def _both_tables(models: Sequence[ScoredModel], shown: _Shown, page: Page) -> Iterator[str]:
    """Yield the lines of both tables: models with stored results, one per row; then the others, grouped by text."""
    language = page.language
    with_figures = [model for model in models if shown[model.path]]
    heads, leads = _HEADS[language], _LEADS[language]
    yield _lead(leads[0], with_figures, page)
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


def full_cases(root: Path) -> dict[str, tuple[str, ...]]:
    """Return, by model folder, the names of the cases over the full data set of models that are checked on a subset."""
    file = root / FULL
    cases, _ = read_cases([file], root) if file.is_file() else ([], [])
    found: dict[str, tuple[str, ...]] = {}
    for case in cases:
        found[case.run_dir] = (*found.get(case.run_dir, ()), case.name)
    return found


def measured(model: ScoredModel, full: Sequence[str]) -> dict[str, dict[str, ScoredMetric]]:
    """Return the metrics by case and target; only those of full cases if the model has any."""
    found: dict[str, dict[str, ScoredMetric]] = {}
    for entry in model.metrics:
        if not full or entry.key.case in full:
            found.setdefault(entry.key.case, {}).setdefault(entry.key.target, entry)
    return found


def _figure_cells(model: ScoredModel, found: Mapping[str, Mapping[str, ScoredMetric]], language: str) -> list[str]:
    """Return the cells of metric, its value on each target, and simulated speed, with a line per case."""
    lines = []
    for case, by_target in found.items():
        first = next(iter(by_target.values()))
        name = first.name if first.higher_is_better else f"{first.name} ({_LOWER[language]})"
        values = [value_on(by_target, target) for target in TARGETS]
        speed = next((_speed(one) for one in model.figures if one.key.case == case and one.simulated), NO_VALUE)
        lines.append((name, *values, speed))
    return ["<br>".join(column) for column in zip(*lines, strict=True)]


def value_on(by_target: Mapping[str, ScoredMetric], target: str) -> str:
    """Return the metric on a target as text, else what another target was compared with; a dash without either."""
    entry = by_target.get(target)
    if entry is not None:
        return metric_text(entry.value)
    compared = (
        one.reference for found in by_target.values() for one in found.against if one.against == f"{target} float32"
    )
    return next((metric_text(value) for value in compared if value is not None), NO_VALUE)


def metric_text(value: float) -> str:
    """Return a metric with four digits after the point, or four in all."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"


def _speed(entry: Figures) -> str:
    return f"{rate_text(entry.simulated or math.inf)} ({entry.key.batch_size})"


def rate_text(seconds: float) -> str:
    """Return a time per sample as samples per second."""
    rate = 1 / seconds
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _texts(model: ScoredModel, page: Page) -> tuple[str, str]:
    """Return the texts of a model's zoo.yaml: what it does, and its weights; without the file, its title."""
    if model.texts is None:
        return model.title, NO_VALUE
    does, weights = model.texts.does[page.language], model.texts.weights[page.language]
    return _from(does, page), _from(weights, page)


def _from(text: str, page: Page) -> str:
    """Return a text with its links, relative to the root, made relative to the folder of a page."""
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
