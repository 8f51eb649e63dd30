"""The form of a model's output: logits, probabilities or labels, and the axis of its classes.

Determined here for all tasks, in this order: by a flag (``--output_kind``, ``--output_layout``), by the metadata
``outputs`` (a JSON object: ``{"NAME": {"kind": "probabilities", "layout": "channels_last"}}``), by the end of the graph
(:mod:`engine.onnx.tails`), by the output's dtype. The default is logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, ModelError, TensorSpec
from utils.stored import OUTPUT_KINDS, OUTPUT_LAYOUTS, ModelMetadata

if TYPE_CHECKING:
    from engine.onnx import Tail

LOGITS, PROBABILITIES, LOG_PROBABILITIES, LABELS = KINDS = OUTPUT_KINDS
"""Values before the softmax or sigmoid; values in 0..1; their natural logarithms; class numbers."""

CHANNELS_FIRST, CHANNELS_LAST = LAYOUTS = OUTPUT_LAYOUTS
"""Layouts of an output with further dimensions: N x C x ..., or N x ... x C."""

FLAG, METADATA, GRAPH, DTYPE, DEFAULT = ("flag", "metadata", "graph", "dtype", "default")
"""Sources of a form, in order of precedence."""


@dataclass(frozen=True, eq=False, repr=False)  # what is generated costs every start
class OutputForm:
    """The form of one output.

    Attributes:
        name: of the output.
        kind: one of :data:`KINDS`. source: of the kind: :data:`FLAG`, :data:`METADATA`, ...
        operator: of the graph, from which the kind follows (``Softmax``, ``Sigmoid``, ``ArgMax``, ...); or empty.
        layout: one of :data:`LAYOUTS`; ``None``: unknown, or the output has no further dimensions.
        classes: number of classes; ``None``: unknown.
        sorted: the values are sorted by ``TopK``, so that their positions are not class numbers.
        conflict: the contradiction between metadata and graph; empty: there is none.
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
        """Return the form as in ``teco info --json``."""
        found = {"name": self.name, "kind": self.kind, "decided_by": self.source, "operator": self.operator or None}
        return found | {"layout": self.layout, "classes": self.classes, "conflict": self.conflict or None}

    def __str__(self) -> str:
        by = f"{self.source}: {self.operator}" if self.operator and self.source == GRAPH else self.source
        what = "not known, scores are read as logits" if self.source == DEFAULT else f"{self.kind} ({by})"
        words = [what, *([self.layout] if self.layout else [])]
        words += [f"{self.classes} classes"] if self.classes else []
        return f"{self.name}: {', '.join(words)}" + (f"; {self.conflict}" if self.conflict else "")


class Forms:
    """The forms of a model's outputs without flags, determined on first use.

    Args:
        ckpt: the file. outputs: its outputs. stored: its metadata.

    Raises:
        ModelError: the metadata is invalid, or describes an unknown output.
    """

    def __init__(self, ckpt: Path, outputs: Sequence[TensorSpec], stored: ModelMetadata) -> None:
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
        """Return the form of the output at an index; the default form if the model declares no such output.

        Raises:
            ModelError: the metadata is invalid.
        """
        if place not in self._known:
            if place >= len(self._outputs):
                return OutputForm("output")
            spec = self._outputs[place]
            self._known[place] = _decided(spec, _tail(self._ckpt, spec.name), self._stored)
        return self._known[place]

    def all(self) -> list[OutputForm]:
        """Return the forms of all outputs."""
        return [self.of(place) for place in range(len(self._outputs))]


def _tail(ckpt: Path, name: str) -> Tail | None:
    """Return the end of the graph at an output; ``None``: unknown, or the file is missing."""
    try:
        state = ckpt.stat()
    except (OSError, ValueError):
        return None
    return _known_tail(ckpt, name, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=64)
def _known_tail(ckpt: Path, name: str, stamp: tuple[int, ...]) -> Tail | None:
    from engine.onnx import output_tails

    return output_tails(ckpt, {name}).get(name)


def _decided(spec: TensorSpec, tail: Tail | None, stored: ModelMetadata) -> OutputForm:
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
            conflict = f"the kind is {noted['kind']} by the metadata, and {found.kind} by the graph ({found.operator})"
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
    """Return whether two kinds are compatible: log probabilities are logits too."""
    return one == other or {one, other} == {LOGITS, LOG_PROBABILITIES}


def _layout(spec: TensorSpec, axis: int | None, labels: Sequence[str] | None) -> str | None:
    """Return the layout by the graph, else by the dimension of as many entries as labels; ``None``: unknown."""
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
    """Return a form with the flags applied.

    Raises:
        ModelError: metadata and graph contradict each other, and no flag sets the kind.
    """
    kind, layout = getattr(options, "output_kind", None), getattr(options, "output_layout", None)
    if kind is None and found.conflict:
        raise ModelError(
            f"{ckpt}: output {found.name!r}: {found.conflict}; correct the metadata 'outputs', or set the kind with "
            "--output_kind"
        )
    if kind is not None:
        found = replace(found, kind=kind, source=FLAG, sorted=False)
    return replace(found, layout=layout) if layout is not None else found


def refuse_labels(found: OutputForm, ckpt: object, needs: str, flag: str = "--output_kind") -> None:
    """Check that an output does not hold labels or sorted values.

    Args:
        found: the form. ckpt: the model. needs: the requirement, for the message. flag: that overrides it, or empty.

    Raises:
        ModelError: it holds labels or sorted values.
    """
    if found.kind == LABELS:
        by = f" (it ends in {found.operator})" if found.operator else ""
        raise ModelError(
            f"{ckpt}: output {found.name!r} holds labels{by}, and {needs}; export the model without that operator"
            + (f", or set its kind with {flag}" if flag else "")
        )
    if found.sorted:
        raise ModelError(
            f"{ckpt}: output {found.name!r} holds values sorted by TopK, whose positions are not classes; export it "
            "without TopK"
        )


def refuse_topk(topk: int, ckpt: object) -> None:
    """Check that one answer per sample is requested from a model of labels.

    Args:
        topk: number of answers. ckpt: the model.

    Raises:
        ConfigError: ``topk`` is above 1.
    """
    if topk > 1:
        raise ConfigError(
            f"--topk {topk}: {ckpt} gives the label of one class per sample and no scores; use --topk 1, or export it "
            "without its ArgMax"
        )
