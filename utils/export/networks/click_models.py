"""DeepFM, which predicts clicks, and how the zoo's own are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from engine import Array, ConfigError
from utils.datasets.tabular.clicks import Click
from utils.export.networks.training import Plan, fit, repeatable
from utils.preprocess.features import Features, Field, Row

IDS, DENSE = "ids", "dense"
"""Names of the two inputs: numbers of rows of one table, and floats."""

SIZE = 16
"""Numbers that describe a value."""


class DeepFM(nn.Module):  # type: ignore[misc]
    """DeepFM (Guo et al., 2017, https://arxiv.org/abs/1703.04247): a factorization machine and a network beside it.

    Each value of a field is described by :data:`SIZE` numbers. The machine sums the inner products of all pairs of
    fields, the network sees all of them; both read one table. A field of floats is described by its columns' vectors,
    each times its column: for ``multi`` this is the mean of its values'.

    Args:
        rows: of the table of all fields of numbers. fields: how many there are of them.
        widths: columns of each field of floats, none where there is no such input.
        hidden: units of the network's layers.
    """

    def __init__(
        self, rows: int, fields: int, widths: Sequence[int] = (), hidden: Sequence[int] = (64, 32), drop: float = 0.3
    ) -> None:
        super().__init__()
        self.widths = list(widths)
        self.table, self.first = nn.Embedding(rows, SIZE), nn.Embedding(rows, 1)
        nn.init.normal_(self.table.weight, std=0.01)
        nn.init.zeros_(self.first.weight)
        self.dense = nn.ModuleList(nn.Linear(width, SIZE, bias=False) for width in widths)
        self.dense_first = nn.ModuleList(nn.Linear(width, 1, bias=False) for width in widths)
        sizes = [(fields + len(self.widths)) * SIZE, *hidden]
        layers: list[nn.Module] = []
        for before, behind in pairwise(sizes):
            layers += [nn.Linear(before, behind), nn.ReLU(), nn.Dropout(drop)]
        self.deep = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
        self.drop = nn.Dropout(0.2)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor | None = None) -> torch.Tensor:
        """Return the probability of a click, N.

        Args:
            ids: N x F int64. dense: N x D.
        """
        parts = [] if dense is None else list(dense.split(self.widths, 1))
        described = [layer(part).unsqueeze(1) for layer, part in zip(self.dense, parts, strict=True)]
        first = self.first(ids).sum((1, 2))
        for layer, part in zip(self.dense_first, parts, strict=True):
            first = first + layer(part).squeeze(1)
        every = self.drop(torch.cat([self.table(ids), *described], 1))
        pairs = 0.5 * (every.sum(1) ** 2 - (every**2).sum(1)).sum(1)
        found: torch.Tensor = torch.sigmoid(first + pairs + self.deep(every.flatten(1)).squeeze(1))
        return found


def network_of(features: Features) -> DeepFM:
    """Return an untrained network for some features, all of one table.

    Raises:
        ConfigError: the inputs are not :data:`IDS` and :data:`DENSE`.
    """
    if not {IDS} <= set(features.inputs) <= {IDS, DENSE}:
        raise ConfigError(f"the inputs are {', '.join(features.inputs)}; name them {IDS} and {DENSE}")
    fields = features.inputs[IDS]
    return DeepFM(
        max(one.offset + one.rows for one in fields), len(fields), [one.width for one in features.inputs.get(DENSE, ())]
    )


class Wish(NamedTuple):
    """A field before its values are known; the names are those of :class:`~utils.preprocess.features.Field`."""

    name: str
    kind: str = "vocabulary"
    size: int = 0
    transform: str = ""
    step: float = 0.0
    letters: int = 0


def features_of(rows: Sequence[Row], wishes: Sequence[Wish], notes: Mapping[str, object]) -> Features:
    """Return features whose vocabularies are the values of some rows, in the order of their text.

    Fields of row numbers get one table, one behind the other; those of floats are columns of :data:`DENSE`.

    Args:
        rows: those of the training: a value that they lack is unknown. wishes: the fields. notes: stored beside them.
    """
    fields, offset = list[Field](), 0
    for wish in wishes:
        told: dict[str, Any] = dict(zip(Wish._fields[3:], wish[3:], strict=True))
        if wish.kind in ("number", "multi"):
            made = Field(wish.name, DENSE, wish.kind, transform=wish.transform, values=_values(rows, wish, "|"))
        elif wish.kind == "hashed":
            made = Field(wish.name, IDS, wish.kind, size=wish.size, offset=offset, **told)
        else:
            made = Field(wish.name, IDS, wish.kind, values=_values(rows, wish, ""), offset=offset, **told)
        offset += made.rows
        fields.append(made)
    return Features(tuple(fields), dict(notes))


def _values(rows: Sequence[Row], wish: Wish, between: str) -> tuple[str, ...]:
    if wish.kind == "number":
        return ()
    cut = Field(wish.name, IDS, wish.kind, step=wish.step, letters=wish.letters)
    texts = {row.get(wish.name, "") for row in rows}
    if between:
        return tuple(sorted({one for text in texts for one in text.split(between)} - {""}))
    return tuple(sorted({cut.key(text) for text in texts if text}))


def trained(
    features: Features, rows: Sequence[Row], targets: Sequence[Click], *, steps: int, batch: int = 1024
) -> DeepFM:
    """Train a network; the same every time.

    One known value in twenty is taken for unknown, so that the rows of unknown values learn something too.

    Args:
        features: what the rows become. rows, targets: of the training. steps: batches of ``batch`` rows.
    """
    repeatable()
    arrays = {name: torch.from_numpy(array) for name, array in features.encoded(rows).items()}
    clicked = torch.tensor([float(one.clicked) for one in targets])
    network = network_of(features)
    plan = Plan(steps, rate=0.004, warm=50, decay=0.02, average=0.99, every=steps)
    batches = _batches(features, arrays, clicked, batch)
    made = fit(network, partial(_loss, network), batches, plan, lambda *_: None)
    assert isinstance(made, DeepFM)  # noqa: S101 - it is what was trained
    return made


_Batch = tuple[list[torch.Tensor], torch.Tensor]


def _loss(network: DeepFM, batch: _Batch) -> torch.Tensor:
    return functional.binary_cross_entropy(network(*batch[0]), batch[1])


def _batches(
    features: Features, arrays: Mapping[str, torch.Tensor], clicked: torch.Tensor, size: int
) -> Iterator[_Batch]:
    """Yield shuffled batches for ever."""
    chance = torch.Generator().manual_seed(0)
    hidden = torch.tensor([one.offset if one.kind == "vocabulary" else -1 for one in features.inputs[IDS]])
    names = [name for name in (IDS, DENSE) if name in arrays]
    while True:
        for rows in torch.randperm(len(clicked), generator=chance).split(size):
            found = [arrays[name][rows] for name in names]
            lost = (torch.rand(found[0].shape, generator=chance) < UNKNOWN) & (hidden >= 0)
            found[0] = torch.where(lost, hidden, found[0])
            yield found, clicked[rows]


UNKNOWN = 0.05
"""Share of the values that the training takes for unknown."""


def predictor(network: DeepFM, features: Features) -> Callable[[Sequence[Row]], Array]:
    """Return the function from rows to float64 probabilities, by PyTorch."""

    def predict(rows: Sequence[Row]) -> Array:
        arrays = features.encoded(rows)
        with torch.no_grad():
            found = network(*(torch.from_numpy(arrays[name]) for name in (IDS, DENSE) if name in arrays))
        scores: Array = found.numpy().astype(np.float64)
        return scores

    return predict
