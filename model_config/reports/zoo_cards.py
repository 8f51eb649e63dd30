"""Content of the page of the zoo: trained models by domain with their results, and the untrained architectures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_config.reports.answers import Answer, read_answer
from model_config.reports.described import unlinked
from model_config.reports.origins import Origin, origins
from model_config.reports.scored import Figures, ScoredMetric, ScoredModel
from model_config.reports.speed_chart import Measured, SpeedChart, speed_chart
from model_config.reports.zoo_tables import TARGETS, full_cases, measured, metric_text, rate_text, value_on
from tecoinfer_modelzoo.formatting import NO_VALUE

_ERROR_RATE = re.compile(r"(^|_)([cdew]er|error_rate)$")
"""Names of error rates, such as ``wer`` and ``page_cer``; other metrics to lower, such as ``rmse``, have units."""


@dataclass(frozen=True, slots=True)
class Result:
    """Results of a case.

    Attributes:
        metric: name. lower: whether a lower value is better. values: metric by target, as text.
        simulated, host: samples per second as text, of the card by its cost model and measured on the host that
            simulates it; "" without.
        batch: batch size of the simulated speed.
    """

    metric: str
    lower: bool
    values: Mapping[str, str]
    simulated: str
    host: str
    batch: int


@dataclass(frozen=True, slots=True)
class Card:
    """A trained model: its results, its example, and size and licence of its files."""

    model: ScoredModel
    does: str
    results: tuple[Result, ...]
    targets: tuple[str, ...]
    answer: Answer | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Domain:
    """The trained models of a domain, and their chart; ``left_out``: those that have no place in it, with reasons."""

    name: str
    cards: tuple[Card, ...]
    chart: SpeedChart | None
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Untrained:
    """Architectures without stored metrics that have the same texts."""

    models: tuple[ScoredModel, ...]
    domain: str
    does: str
    weights: str


def split(root: Path, models: Sequence[ScoredModel]) -> tuple[list[Domain], list[Untrained]]:
    """Return the trained models by domain, sorted, and the untrained architectures.

    A model is trained if it has a stored metric; of a model with a case over its full data set only that one counts.

    Raises:
        ConfigError: a stored answer or a table of licences is invalid.
    """
    full = full_cases(root)
    shown = {model.path: measured(model, full.get(model.path, ())) for model in models}
    trained = [model for model in models if shown[model.path]]
    files = origins(root, trained)
    cards: dict[str, list[Card]] = {}
    for model in trained:
        card = _card(root, model, shown[model.path], files[model.path])
        cards.setdefault(model.domain, []).append(card)
    domains = [_domain(name, cards[name], shown) for name in sorted(cards)]
    return domains, _untrained([model for model in models if not shown[model.path]])


def _card(root: Path, model: ScoredModel, by_case: Mapping[str, Mapping[str, ScoredMetric]], origin: Origin) -> Card:
    results = tuple(_result(model, case, found) for case, found in by_case.items())
    named = {target for one in results for target in one.values}
    targets = (*(name for name in TARGETS if name in named), *sorted(named - set(TARGETS)))
    does = unlinked(model.texts.does["en"]) if model.texts else model.title
    return Card(model, does, results, targets, read_answer(root / model.path), origin)


def _result(model: ScoredModel, case: str, found: Mapping[str, ScoredMetric]) -> Result:
    first = next(iter(found.values()))
    texts = {target: value_on(found, target) for target in dict.fromkeys((*found, *TARGETS))}
    values = {target: text for target, text in texts.items() if text != NO_VALUE}
    simulated = _figures(model, case, simulated=True)
    host = _figures(model, case, simulated=False)
    return Result(
        first.name,
        not first.higher_is_better,
        values,
        rate_text(simulated.simulated) if simulated and simulated.simulated else "",
        rate_text(host.host) if host and host.host else "",
        simulated.key.batch_size if simulated else 0,
    )


def _figures(model: ScoredModel, case: str, *, simulated: bool) -> Figures | None:
    """Return the first figures of a case with a simulated or a host time."""
    own = (one for one in model.figures if one.key.case == case)
    return next((one for one in own if _is_time(one.simulated if simulated else one.host)), None)


def _is_time(seconds: float | None) -> bool:
    """Return whether a value is a time with a rate; files that were edited may hold anything."""
    return seconds is not None and 0 < seconds < math.inf and 1 / seconds < math.inf


def _domain(name: str, cards: Sequence[Card], shown: Mapping[str, Mapping[str, Mapping[str, ScoredMetric]]]) -> Domain:
    points, left_out = [], []
    for card in cards:
        case, found = next(iter(shown[card.model.path].items()))
        entry, figures = found.get("sdaa") or next(iter(found.values())), _figures(card.model, case, simulated=True)
        if figures is None or not figures.simulated:
            left_out.append(f"{card.model.name} (no simulated speed)")
        elif not _is_share(entry):
            left_out.append(f"{card.model.name} ({entry.name} {metric_text(entry.value)} is not a share)")
        else:
            rate, lower = 1 / figures.simulated, not entry.higher_is_better
            points.append(Measured(card.model.name, card.model.path, entry.name, entry.value, lower, rate))
    return Domain(name, tuple(sorted(cards, key=_order)), speed_chart(name, points), tuple(left_out))


def _is_share(entry: ScoredMetric) -> bool:
    """Return whether a metric is between 0 and 1 by its definition; of those to lower only error rates are."""
    return 0 <= entry.value <= 1 and (entry.higher_is_better or bool(_ERROR_RATE.search(entry.name)))


def _order(card: Card) -> int:
    """Return 0 for a card with an image, 1 for one with a text, 2 for one without an example."""
    return 2 if card.answer is None else int(card.answer.image is None)


def _untrained(models: Sequence[ScoredModel]) -> list[Untrained]:
    """Return the models, those with the same texts together."""
    alike: dict[tuple[str, str, str], list[ScoredModel]] = {}
    for model in models:
        texts = model.texts
        does, weights = (texts.does["en"], texts.weights["en"]) if texts else (model.title, "")
        alike.setdefault((model.domain, unlinked(does), unlinked(weights)), []).append(model)
    return [Untrained(tuple(group), *texts) for texts, group in alike.items()]
