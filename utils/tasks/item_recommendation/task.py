"""Item recommendation: ranking of all or some items for a user, by the user's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from engine import Array, ConfigError, DataError, Engine, ModelError
from utils.datasets.base import Dataset
from utils.datasets.tabular.histories import CATALOGUE, TYPED, UNASKED, Catalogue, History
from utils.metrics.base import Metric
from utils.outputs import refuse_labels
from utils.preprocess.features import Features
from utils.tasks import Flag, Model, Options, Prepared, Rendering, at_least, str2bool
from utils.tasks.common.class_scores import JoinedRows
from utils.tasks.common.ranked import RANK_FLAGS, Answers, Found, RankingTask
from utils.tasks.item_recommendation.index import ITEM, QUERY, Index, index_of, known_items
from utils.tasks.templates import sample_tables

HISTORY, NOTE = "history", "recommendation"
"""Name of the input with a history, and metadata key, optional: an object with the ``split`` of the training (and its
``seed``)."""

PLACES = 50
"""Default number of last items of a history that are used."""

BEFORE = 8
"""Number of last items of a history that are drawn."""

NAMED = 80
"""Maximum number of letters of a user's name in a file name."""


class Asked(NamedTuple):
    """Context of a user."""

    id: str  # of the user
    seen: Sequence[str]  # names of items
    targets: Sequence[str]  # names of items, held out
    strange: int  # number of items of the history that the model lacks
    missed: int  # number of target items that the model lacks


class Recommended(Found):
    """Ranking of items; texts are the titles of the first items.

    Attributes:
        popular: the same candidates ranked by their counts in the training part. before: titles of the history's last
            items.
    """

    def __init__(self, found: Found, popular: Found, before: Sequence[str]) -> None:
        super().__init__(found.ids, found.scores, found.texts)
        self.popular, self.before = popular, before


class State(NamedTuple):
    """Index of items, titles of all items, and lines for the report."""

    items: Index
    titles: Mapping[str, str]
    said: Sequence[str]


class ItemRecommendation(JoinedRows, RankingTask):
    """Ranking of items that are not in the user's history, the most likely next ones first."""

    name, domain, template = "item_recommendation", "recommendation", sample_tables.ITEM_RECOMMENDATION
    models, optional_models = (QUERY, ITEM), (ITEM,)
    data_help = "ratings: a folder or file of MovieLens or RecBole, or fetch:ml_100k/..."
    flags = (
        Flag("--users", "names of users (default: single the first, multi all)", None, nargs="+", metavar="USER",
             scripts=("single", "multi")),
        Flag("--history", "items of a history, the oldest first, instead of a user of the data set", None,
             nargs="+", metavar="ITEM", scripts=("single", "multi")),
        Flag("--topk", "number of items shown", 5, int, scripts=("single", "multi")),
        Flag("--split", "division of the ratings into parts", "leave_one_out",
             choices=("leave_one_out", "temporal", "random"), scripts=("valid",)),
        Flag("--part", "evaluated part of the split", "test", choices=("valid", "test"), scripts=("valid",)),
        Flag("--seed", "of the random split, and of sampled negatives", 0, int, scripts=("valid",)),
        Flag("--negatives", "rank the targets among this number of random items (0: among all items)", 0, int,
             scripts=("valid",)),
        Flag("--keep_seen", "items of the history may be recommended again", False, str2bool, nargs="?"),
        Flag("--depth", "number of items ranked per user", 100, int),
        Flag("--places", "number of last items of a history that are used (default: the model's, or 50)", None, int),
        *RANK_FLAGS,
    )  # fmt: skip
    writes = "the recommendations as a TREC run"
    state: State

    def check(self) -> None:
        """Check ranks and counts, and that ``--users`` and ``--history`` are not both given."""
        options = self.options
        super().check()
        at_least(options, places=1, negatives=0, seed=0)
        if options.script != "valid" and {"users", "history"} <= options.given:
            raise ConfigError("--users and --history are both given; leave one of them out")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return users: in ``valid`` those with held-out items, else those of ``--users``, or ``--history``."""
        from utils.datasets.tabular.histories import held_out, typed, whole
        from utils.datasets.tabular.ratings import read_ratings

        options = self.options
        if "data" not in paths:
            raise ConfigError("--data_path: ratings are missing; pass a folder or a file of them")
        ratings = read_ratings(paths["data"])
        if options.script == "valid":
            return held_out(ratings, options.split, options.part, options.seed)
        if options.history is not None:
            return typed(ratings, options.history)
        users = options.users
        if users is not None and "users" not in options.given:  # the script's default; other data may lack these users
            known = set(ratings.user_names)
            users = [one for one in users if one in known] or None
        found = whole(ratings, users)
        one = options.script == "single" and options.users is None
        return found.select(range(1)) if one else found

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> State:
        """Return the index of items; the vectors of an item model are computed once, and cached with ``--resume``.

        Raises:
            ConfigError: The model was trained with another split. ModelError: It does not output scores or vectors.
        """
        model, options = self.model.named[QUERY], self.options
        refuse_labels(model.form(None), model.ckpt, "a ranking needs scores or vectors", "")
        if options.script == "valid":
            _check_split(model, options)
        catalogue: Catalogue = dataset.notes[CATALOGUE]
        index, said = index_of(engines, catalogue, dataset.fingerprint(), options)
        skipped = [f"{count} with {why}" for why, count in dataset.notes.get(UNASKED, {}).items() if count]
        if skipped:
            said = [*said, f"skipped users of the {options.part} part: {', '.join(skipped)}"]
        return State(index, dict(zip(catalogue.names, catalogue.titles, strict=True)), said)

    def prepare(self, samples: Sequence[History]) -> Prepared:
        """Return the numbers of the last items of histories, N x L int64, padded with zeros at the start.
        Raises DataError if the model lacks all items of a history. Raises ModelError if an input is unknown."""
        any_item, model = ITEM in self.model.named, self.model.named[QUERY]
        numbers = known_items(model)
        wanted = _places(model, self.options)
        rows = np.zeros((len(samples), wanted), np.int64)
        asked = []
        for row, sample in zip(rows, samples, strict=True):
            own = [numbers[name] for name in sample.items if name in numbers]
            if not own:
                raise DataError(
                    f"its history has {len(sample.items)} items, and the model lacks all of them; train it with these "
                    "items"
                )
            row[wanted - min(wanted, len(own)) :] = own[-wanted:]
            missed = 0 if any_item else sum(name not in numbers for name in sample.targets)
            asked.append(Asked(sample.id, sample.items, sample.targets, len(sample.items) - len(own), missed))
        arrays = {HISTORY: rows}
        others = tuple(spec for spec in model.inputs if spec.name != HISTORY)
        if others:
            arrays |= Features.of(replace(model, inputs=others)).encoded([sample.fields for sample in samples])
        return Prepared([arrays[spec.name].astype(spec.dtype, copy=False) for spec in model.inputs], list(asked))

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Asked]) -> Answers:
        """Rank the items for each user; return best score (NaN if outputs or item vectors have NaN) and ranking."""
        index, titles, said = self.state
        output = engines[QUERY](arrays)
        rows = np.asarray(output[0] if isinstance(output, (list, tuple)) else output)
        rows = index.checked(rows, len(contexts)).astype(np.float32)
        found = Answers()
        for row, asked in zip(rows, contexts, strict=True):
            ranked, popular = self._of_user(row, asked)
            unsure = np.isnan(row).any() or not index.sound
            score = float("nan") if unsure or not len(ranked.scores) else float(ranked.scores[0])
            before = [titles.get(name, name) for name in asked.seen[-BEFORE:]]
            found.append((score, Recommended(ranked, popular, before)))
        found.raw, found.said = [rows], said
        return found

    def _of_user(self, row: Array, asked: Asked) -> tuple[Found, Found]:
        """Return the ranking of one user's candidates by the model, and by popularity."""
        from utils.postprocess.items import best, drawn

        index, options = self.state.items, self.options
        seen = [] if options.keep_seen else [index.places[one] for one in asked.seen if one in index.places]
        depth = max(options.depth, options.topk)
        if options.script == "valid" and options.negatives:
            right = [index.places[one] for one in asked.targets if one in index.places]
            chance = options.seed, crc32(asked.id.encode())
            others = drawn(options.negatives, len(index.names), [*seen, *right], chance)
            some = np.concatenate([np.array(right, np.int64), others])
            rankings = [best(index.scores(row, some), depth), best(index.counts[some], depth)]
            places = [some[one.places] for one in rankings]
        else:
            rankings = [best(index.scores(row), depth, seen), best(index.counts, depth, seen)]
            places = [one.places for one in rankings]
        names = [[index.names[i] for i in some.tolist()] for some in places]
        titles = [self.state.titles.get(one, one) for one in names[0][: options.topk]]
        return Found(names[0], rankings[0].scores, titles), Found(names[1], rankings[1].scores, [])

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.recommendation import Recommendations

        return Recommendations(self.options.metric, self.options.cut)

    def show(self, sample: History, prediction: Recommended) -> Rendering:
        """Return the first recommended items with their scores, and the last ones of the history."""
        who = "history" if sample.id == TYPED else f"user {sample.id}"
        found = zip(prediction.ids, prediction.texts, prediction.scores, strict=False)
        items = [
            {"rank": rank, "id": name, "title": title, "score": round(float(score), 6)}
            for rank, (name, title, score) in enumerate(found, start=1)
        ]
        lines = [f"{one['rank']}. {one['score']:.3f} {one['title']}" for one in items]
        text = "\n  ".join([f"after {'; '.join(prediction.before[-3:])}", *lines])
        answer = {"user": sample.id, "before": list(prediction.before), "items": items}
        return Rendering(text, answer, partial(_save_drawn, who, answer))

    def warning_counts(self, contexts: Sequence[Asked] | None) -> dict[str, int]:
        """Count the items that the model lacks, in histories and among the targets."""
        asked = contexts or ()
        found = {
            "unknown items": sum(one.strange for one in asked),
            "histories with unknown items": sum(one.strange > 0 for one in asked),
            "unknown right items": sum(one.missed for one in asked),
        }
        return {key: count for key, count in found.items() if count}

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> list[str]:
        """Return lines about unknown items in histories and among the targets."""
        lost, users = counts.get("unknown items", 0), counts.get("histories with unknown items", 0)
        missed, said = counts.get("unknown right items", 0), list[str]()
        if lost:
            said.append(f"{lost} items in {users} of {samples} histories are not in the model and were left out")
        if missed:
            said.append(f"{missed} of the target items are not in the model: they count as missed")
        return said


def _places(model: Model, options: Options) -> int:
    """Return the number of items of a history that the model takes."""
    spec = next((one for one in model.inputs if one.name == HISTORY), None)
    if spec is None or len(spec.shape) != 2:
        shapes = ", ".join(f"{one.name} {list(one.shape)}" for one in model.inputs)
        raise ModelError(f"{model.ckpt}: its inputs are {shapes}; one must be {HISTORY!r}, N x L whole numbers")
    fixed = spec.shape[1]
    if fixed is not None and options.places not in (None, fixed):
        raise ConfigError(f"--places {options.places}: {model.ckpt} takes {fixed} items; leave the flag out")
    return int(fixed or options.places or PLACES)


def _check_split(model: Model, options: Options) -> None:
    """Raise ConfigError if the stored split of the training is not the evaluated one."""
    stored = model.stored.json(NOTE, {})
    trained = (stored.get("split"), stored.get("seed", 0)) if isinstance(stored, dict) else (None, 0)
    same = trained[0] == options.split and (trained[0] != "random" or trained[1] == options.seed)
    if trained[0] is None or same:
        return
    fix = f"--split {trained[0]}" + (f" --seed {trained[1]}" if trained[0] == "random" else "")
    raise ConfigError(
        f"{model.ckpt} was trained with the split {trained[0]}, so the held-out items of the split "
        f"{options.split} may be training data; pass {fix}"
    )


def _save_drawn(who: str, answer: Mapping[str, Any], folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.image.recommended import draw_recommended

    titles, scores = ([one[key] for one in answer["items"]] for key in ("title", "score"))
    return save_drawn(
        Path(f"{crc32(who.encode('utf-8', 'surrogatepass')):08x}", who.replace("/", "_")[:NAMED]),
        [f"{who}: {titles[0]}"] if titles else [who],
        folder,
        draw_recommended(who, answer["before"], titles, scores),
    )
