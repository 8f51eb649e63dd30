"""From ``--metric`` to the metrics of a model's outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import ConfigError, TensorSpec
from tecoinfer_modelzoo.text import did_you_mean
from utils.tasks.arrays.inputs import sample_shape
from utils.tasks.options import Options

KINDS = ("rmse", "mae", "abs_rel", "cosine", "psnr", "top1", "topk", "f1", "auc", "equal")
"""Metrics of ``--metric``; also ``top2``, ``top3``, ..."""

Forms = Mapping[str, tuple[tuple[int, ...], "np.dtype[Any]"]]
"""Per output with expected arrays, the shape of a sample's and its dtype."""


def check_kinds(words: Sequence[str]) -> None:
    """Raise ConfigError if a word of ``--metric`` has an unknown kind, or an output is given twice."""
    pairs = [_split(word) for word in words]
    for _, kind in pairs:
        if kind not in KINDS and not re.fullmatch(r"top[1-9]\d{0,5}", kind):
            raise ConfigError(
                f"--metric {kind}: unknown;{did_you_mean(kind, KINDS)} write one of {', '.join(KINDS)}, or OUTPUT=KIND"
            )
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        what = f"output {twice!r} is given twice" if twice else "two metrics have no output"
        raise ConfigError(f"--metric {' '.join(words)}: {what}; write OUTPUT=KIND, once for each output")


def _split(word: str) -> tuple[str, str]:
    """Return output (empty without one) and kind of a word; the output's name may contain ``=``."""
    name, _, kind = word.rpartition("=")
    return name, kind


def measures(options: Options, outputs: Sequence[TensorSpec], forms: Forms) -> list[dict[str, Any]]:
    """Return the arguments of :class:`~utils.metrics.arrays.outputs.OutputMetrics`: the metric of record first.

    Args:
        options: ``metric`` (words), ``topk``, ``peak``, ``tolerance`` and ``random`` (then the default is that all
            outputs are equal).
        outputs: of the model. forms: of the expected arrays.

    Raises:
        ConfigError: an output is unknown, has no expected arrays, or a metric needs the name of its output.
    """
    specs = {spec.name: spec for spec in outputs if spec.name in forms}
    chosen = dict(map(_split, options.metric))
    for name in chosen:
        if name and name not in specs:
            known = ", ".join(specs)
            raise ConfigError(
                f"--metric {name}={chosen[name]}: no expected arrays of an output {name!r};"
                f"{did_you_mean(name, list(specs))} outputs with expected arrays: {known}"
            )
    if not chosen and options.random:
        chosen = {"": "equal"}
    plain = chosen.pop("", None)
    found: list[dict[str, Any]] = []
    if plain == "equal":
        found.append(_measure(options, [name for name in specs if name not in chosen], "equal", specs, forms))
    elif plain is not None:
        rest = [name for name in specs if name not in chosen]
        if len(rest) != 1:
            listed = " or ".join(f"{name}={plain}" for name in rest) or "none, as all outputs have metrics"
            raise ConfigError(f"--metric {plain}: name one output: {listed}")
        chosen = {rest[0]: plain, **chosen}
    found += [_measure(options, [name], kind, specs, forms) for name, kind in chosen.items()]
    named = {name for one in found for name in one["outputs"]}
    rest = [name for name in specs if name not in named]
    return found + [_measure(options, [name], _default(specs[name], forms[name]), specs, forms) for name in rest]


def _measure(
    options: Options, names: list[str], kind: str, specs: Mapping[str, TensorSpec], forms: Forms
) -> dict[str, Any]:
    """Return the mapping of one metric."""
    if kind.startswith("top"):
        k = options.topk if kind == "topk" else int(kind.removeprefix("top"))
        return {"outputs": names, "kind": f"topk{_positions(forms[names[0]])}", "k": k}
    if kind == "f1":
        return {"outputs": names, "kind": f"f1{_positions(forms[names[0]])}"}
    if kind == "psnr":
        eight_bits = forms[names[0]][1] == np.uint8
        return {"outputs": names, "kind": kind, "peak": options.peak or (255.0 if eight_bits else 1.0)}
    if kind == "equal":
        return {"outputs": names, "kind": kind, "tolerance": options.tolerance}
    return {"outputs": names, "kind": kind}


def _positions(form: tuple[tuple[int, ...], Any]) -> str:
    """Return the suffix of a kind for a sample with several classes."""
    return "_of_positions" if any(size != 1 for size in form[0]) else ""


def _default(spec: TensorSpec, form: tuple[tuple[int, ...], Any]) -> str:
    """Return the metric of an output without one: that of classes, of equal integers, or of errors."""
    shape, dtype = form
    if dtype.kind not in "iub":
        return "rmse"
    if spec.dtype.kind != "f":
        return "equal"
    axes = sample_shape(spec)
    long = [size for size in shape if size != 1]
    are_classes = dtype.kind != "b" and len(long) == len(axes) - 1 and any(size != 1 for size in axes)
    return "top1" if are_classes else "rmse"
