"""DeepFM for click prediction, and the training of the zoo's models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from engine import Array, ConfigError
from utils.datasets.tabular.clicks import Click
from utils.export.networks.training import Plan, fit, repeatable
from utils.preprocess.features import Features, Field, Row

IDS, DENSE = "ids", "dense"
"""Names of the two inputs: row indices of one table, and floats."""

SIZE = 16
"""Embedding size of a value."""


class DeepFM(nn.Module):  # type: ignore[misc]
    """DeepFM (Guo et al., 2017, https://arxiv.org/abs/1703.04247): a factorization machine and a network.

    Both use the same embeddings, of :data:`SIZE`. The machine sums the inner products of all pairs of fields. The
    embedding of a float field is the sum of its columns' vectors times their values, for ``multi`` the mean.

    Args:
        rows: of the table. fields: number of id fields. widths: columns of each float field. hidden: layer sizes.
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

    def forward(self, ids: Tensor, dense: Tensor | None = None) -> Tensor:
        """Return the click probabilities, N, for ``ids`` N x F int64 and ``dense`` N x D."""
        parts = [] if dense is None else list(dense.split(self.widths, 1))
        described = [layer(part).unsqueeze(1) for layer, part in zip(self.dense, parts, strict=True)]
        first = self.first(ids).sum((1, 2))
        for layer, part in zip(self.dense_first, parts, strict=True):
            first = first + layer(part).squeeze(1)
        every = self.drop(torch.cat([self.table(ids), *described], 1))
        pairs = 0.5 * (every.sum(1) ** 2 - (every**2).sum(1)).sum(1)
        found: Tensor = torch.sigmoid(first + pairs + self.deep(every.flatten(1)).squeeze(1))
        return found


def network_of(features: Features) -> DeepFM:
    """Return an untrained network; raise ConfigError if the inputs are not :data:`IDS` and :data:`DENSE`."""
    if not {IDS} <= set(features.inputs) <= {IDS, DENSE}:
        raise ConfigError(f"the inputs are {', '.join(features.inputs)}; name them {IDS} and {DENSE}")
    fields = features.inputs[IDS]
    return DeepFM(
        max(one.offset + one.rows for one in fields), len(fields), [one.width for one in features.inputs.get(DENSE, ())]
    )


class Wish(NamedTuple):
    """A :class:`~utils.preprocess.features.Field` without its values."""

    name: str
    kind: str = "vocabulary"
    size: int = 0
    transform: str = ""
    step: float = 0.0
    letters: int = 0


def features_of(rows: Sequence[Row], wishes: Sequence[Wish], notes: Mapping[str, object]) -> Features:
    """Return features whose vocabularies are the sorted values of the training rows; id fields share one table, at
    consecutive offsets; float fields are columns of :data:`DENSE`.
    """
    fields, offset = list[Field](), 0
    for wish in wishes:
        options: dict[str, Any] = dict(zip(Wish._fields[3:], wish[3:], strict=True))
        if wish.kind in ("number", "multi"):
            made = Field(wish.name, DENSE, wish.kind, transform=wish.transform, values=_values(rows, wish, "|"))
        elif wish.kind == "hashed":
            made = Field(wish.name, IDS, wish.kind, size=wish.size, offset=offset, **options)
        else:
            made = Field(wish.name, IDS, wish.kind, values=_values(rows, wish, ""), offset=offset, **options)
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
    """Train a network, reproducibly; :data:`UNKNOWN` of the values are replaced, to train the unknown rows too."""
    repeatable()
    arrays = {name: torch.from_numpy(array) for name, array in features.encoded(rows).items()}
    clicked = torch.tensor([float(one.clicked) for one in targets])
    network = network_of(features)
    plan = Plan(steps, rate=0.004, warm=50, decay=0.02, average=0.99, every=steps)
    batches = _batches(features, arrays, clicked, batch)
    made = fit(network, partial(_loss, network), batches, plan, lambda *_: None)
    assert isinstance(made, DeepFM)  # noqa: S101 - for the type checker
    return made


_Batch = tuple[list[Tensor], Tensor]


def _loss(network: DeepFM, batch: _Batch) -> Tensor:
    return functional.binary_cross_entropy(network(*batch[0]), batch[1])


def _batches(features: Features, arrays: Mapping[str, Tensor], clicked: Tensor, size: int) -> Iterator[_Batch]:
    """Yield shuffled batches endlessly."""
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
"""Fraction of the values that training treats as unknown."""


def predictor(network: DeepFM, features: Features) -> Callable[[Sequence[Row]], Array]:
    """Return a function from rows to float64 probabilities, computed by PyTorch."""

    def predict(rows: Sequence[Row]) -> Array:
        arrays = features.encoded(rows)
        with torch.no_grad():
            found = network(*(torch.from_numpy(arrays[name]) for name in (IDS, DENSE) if name in arrays))
        scores: Array = found.numpy().astype(np.float64)
        return scores

    return predict
