"""What a model's output is: logits, probabilities or labels, and along which axis its classes lie.

Decided in one place, for every task. A flag (``--output_kind``, ``--output_layout``) goes first, then what the export
stored under ``outputs`` (a JSON object: ``{"NAME": {"kind": "probabilities", "layout": "channels_last"}}``), then the
end of the graph (:mod:`engine.onnx.tails`), then the output's dtype. Where none of them says anything, an output is
logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, ModelError, TensorSpec
from utils.stored import OUTPUT_KINDS, OUTPUT_LAYOUTS, Stored

if TYPE_CHECKING:
    from engine.onnx import Tail

LOGITS, PROBABILITIES, LOG_PROBABILITIES, LABELS = KINDS = OUTPUT_KINDS
"""Numbers before the softmax or sigmoid; shares from 0 to 1; their natural logarithms; class numbers."""

CHANNELS_FIRST, CHANNELS_LAST = LAYOUTS = OUTPUT_LAYOUTS
"""Of an output with more dimensions than samples and classes: N x C x ..., or N x ... x C."""

FLAG, METADATA, GRAPH, DTYPE, DEFAULT = ("flag", "metadata", "graph", "dtype", "default")
"""What decided, by rank."""


@dataclass(frozen=True, eq=False, repr=False)  # what is generated costs every start
class OutputForm:
    """What one output of a model is.

    Attributes:
        name: of the output.
        kind: one of :data:`KINDS`. source: what decided that: :data:`FLAG`, :data:`METADATA`, ...
        operator: of the graph, that the kind was found by (``Softmax``, ``Sigmoid``, ``ArgMax``, ...); or empty.
        layout: one of :data:`LAYOUTS`; ``None``: not known, or the output has no further dimensions.
        classes: how many classes there are; ``None``: not known.
        sorted: the values are in falling order, as ``TopK`` gives them: their places say no class.
        conflict: in what the metadata and the graph contradict each other; empty where they do not.
    """

    name: str
    kind: str = LOGITS
    source: str = DEFAULT
    operator: str = ""
    layout: str | None = None
    classes: int | None = None
    sorted: bool = False
    conflict: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as ``teco info --json`` shows it."""
        found = {"name": self.name, "kind": self.kind, "decided_by": self.source, "operator": self.operator or None}
        return found | {"layout": self.layout, "classes": self.classes, "conflict": self.conflict or None}

    def __str__(self) -> str:
        by = f"{self.source}: {self.operator}" if self.operator and self.source == GRAPH else self.source
        what = "not known, scores are read as logits" if self.source == DEFAULT else f"{self.kind} ({by})"
        words = [what, *([self.layout] if self.layout else [])]
        words += [f"{self.classes} classes"] if self.classes else []
        return f"{self.name}: {', '.join(words)}" + (f"; {self.conflict}" if self.conflict else "")


class Forms:
    """The forms of a model's outputs without flags, each found when it is asked for.

    Args:
        ckpt: the file. outputs: its outputs. stored: what its export stored.

    Raises:
        ModelError: the metadata hold something else, or describe an output that the model has not.
    """

    def __init__(self, ckpt: Path, outputs: Sequence[TensorSpec], stored: Stored) -> None:
        self._ckpt, self._outputs, self._stored = ckpt, tuple(outputs), stored
        names = [spec.name for spec in self._outputs]
        unknown = [name for name in stored.outputs if names and name not in names]
        if unknown:
            raise ModelError(
                f"{ckpt}: metadata 'outputs' describe {unknown[0]!r}, and its outputs are {', '.join(names)}; correct "
                "the metadata"
            )
        self._known: dict[int, OutputForm] = {}

    def of(self, place: int) -> OutputForm:
        """Return the form of the output at a place; a model that declares none there says nothing.

        Raises:
            ModelError: the metadata hold something else.
        """
        if place not in self._known:
            if place >= len(self._outputs):
                return OutputForm("output")
            spec = self._outputs[place]
            self._known[place] = _decided(spec, _tail(self._ckpt, spec.name), self._stored)
        return self._known[place]

    def all(self) -> list[OutputForm]:
        """Return all of them."""
        return [self.of(place) for place in range(len(self._outputs))]


def _tail(ckpt: Path, name: str) -> Tail | None:
    """Return what the graph in a file says of an output; ``None``: nothing, or there is no such file."""
    try:
        state = ckpt.stat()
    except (OSError, ValueError):
        return None
    return _known_tail(ckpt, name, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=64)
def _known_tail(ckpt: Path, name: str, stamp: tuple[int, ...]) -> Tail | None:
    from engine.onnx import output_tails

    return output_tails(ckpt, {name}).get(name)


def _decided(spec: TensorSpec, tail: Tail | None, stored: Stored) -> OutputForm:
    noted: Mapping[str, str] = stored.outputs.get(spec.name, {})
    found = OutputForm(spec.name)
    if spec.dtype.kind in "iub":
        found = replace(found, kind=LABELS, source=DTYPE)
    classes = None if tail is None else tail.classes
    if tail is not None and tail.kind is not None:
        found = replace(found, kind=tail.kind, source=GRAPH, operator=tail.operator, sorted=tail.sorted)
    if "kind" in noted:
        conflict = ""
        if found.source == GRAPH and not _agree(noted["kind"], found.kind):
            conflict = f"the metadata say {noted['kind']}, and the graph ends in {found.operator}: {found.kind}"
        found = replace(found, kind=noted["kind"], source=METADATA, conflict=conflict)
    labels = stored.labels
    layout = noted.get("layout") or _layout(spec, None if tail is None else tail.axis, labels)
    if classes is None and layout is not None:
        classes = spec.shape[-1 if layout == CHANNELS_LAST else 1]
    if classes is None and len(spec.shape) == 2 and found.kind != LABELS:
        classes = spec.shape[1]
    if classes is None and found.kind == LABELS and labels is not None:
        classes = len(labels)
    return replace(found, layout=layout if len(spec.shape) > 2 else None, classes=classes)


def _agree(one: str, other: str) -> bool:
    """Say whether two kinds are read alike: logarithms of probabilities are logits too."""
    return one == other or {one, other} == {LOGITS, LOG_PROBABILITIES}


def _layout(spec: TensorSpec, axis: int | None, labels: Sequence[str] | None) -> str | None:
    """Return where the classes lie: where the graph says, else where the shape has as many as there are labels."""
    rank = len(spec.shape)
    if rank < 3:
        return None
    if axis in (1, rank - 1):
        return CHANNELS_FIRST if axis == 1 else CHANNELS_LAST
    if labels is None or rank < 4:
        return None
    first, last = (spec.shape[place] == len(labels) for place in (1, -1))
    return None if first == last else CHANNELS_FIRST if first else CHANNELS_LAST


def with_flags(found: OutputForm, options: Any, ckpt: object) -> OutputForm:
    """Return a form as the flags have it.

    Raises:
        ModelError: no flag says the kind, and metadata and graph contradict each other.
    """
    kind, layout = getattr(options, "output_kind", None), getattr(options, "output_layout", None)
    if kind is None and found.conflict:
        raise ModelError(
            f"{ckpt}: output {found.name!r}: {found.conflict}; correct the metadata 'outputs', or say which it is with "
            "--output_kind"
        )
    if kind is not None:
        found = replace(found, kind=kind, source=FLAG, sorted=False)
    return replace(found, layout=layout) if layout is not None else found


def refuse_labels(found: OutputForm, ckpt: object, needs: str, flag: str = "--output_kind") -> None:
    """Raise where an output holds labels, and something else is needed.

    Args:
        found: what the output is. ckpt: the model. needs: what is needed. flag: that says otherwise; empty: none does.

    Raises:
        ModelError: it does.
    """
    if found.kind == LABELS:
        by = f" (it ends in {found.operator})" if found.operator else ""
        raise ModelError(
            f"{ckpt}: output {found.name!r} holds labels{by}, and {needs}; export the model without that operator"
            + (f", or say what the output is with {flag}" if flag else "")
        )
    if found.sorted:
        raise ModelError(
            f"{ckpt}: output {found.name!r} holds values that TopK sorted, so their places say no class; export the "
            "model without it"
        )


def refuse_topk(topk: int, ckpt: object) -> None:
    """Raise where more answers per sample are asked for than a label says.

    Args:
        topk: how many are asked for. ckpt: the model, which gives labels.

    Raises:
        ConfigError: more than one.
    """
    if topk > 1:
        raise ConfigError(
            f"--topk {topk}: {ckpt} gives the label of one class per sample and no scores; use --topk 1, or export it "
            "without its ArgMax"
        )
