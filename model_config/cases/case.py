"""Definition of a case: the steps of a model, their parameters, and the accuracy rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STEPS = {
    "export": "run_export",
    "valid": "run_example_valid",
    "single": "run_example_single",
    "multi": "run_example_multi",
}
"""Name of each step, in the order of execution, and its key in a case."""

MODEL, DATA = "model", "data"
"""Default names of a single model and data path, as in :mod:`utils.pipeline.flags.options`."""

GATES = ("specification", "strict")
"""Values of a case's ``accuracy.gate``."""

Scalar = str | int | float | bool
Paths = str | Mapping[str, str]
"""One path, or several by name."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a case.

    Attributes:
        name: a key of :data:`STEPS`.
        run_file: the script, relative to the case's ``run_dir``.
        params: command-line parameters in the order they are passed, including ``others``.
    """

    name: str
    run_file: str
    params: Mapping[str, Scalar | list[Scalar] | Mapping[str, str]]

    @property
    def arguments(self) -> list[str]:
        """The script's arguments: ``--key value``, ``--key value value`` for a list, ``--key name=path`` for paths."""
        words: list[str] = []
        for key, value in self.params.items():
            words += [f"--{key}", *_words(value)]
        return words

    @property
    def ckpts(self) -> dict[str, str]:
        """The model files by name, relative to ``run_dir``; a single one is named :data:`MODEL`."""
        return self._paths("ckpt", MODEL)

    @property
    def data_paths(self) -> dict[str, str]:
        """The data paths by name, relative to ``run_dir`` or absolute; a single one is named :data:`DATA`."""
        return self._paths("data_path", DATA)

    def _paths(self, key: str, only: str) -> dict[str, str]:
        value = self.params.get(key)
        if value is None:
            return {}
        return {name: str(path) for name, path in value.items()} if isinstance(value, Mapping) else {only: str(value)}


def _words(value: Scalar | Sequence[Scalar] | Mapping[str, str]) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{name}={path}" for name, path in value.items()]
    return [str(word) for word in (value if isinstance(value, list) else [value])]


@dataclass(frozen=True, slots=True)
class AccuracyRule:
    """References and tolerances for the metric of a case.

    Attributes:
        tolerance: maximum relative difference from the ``onnx`` target in float32.
        baseline_ckpt: ONNX file of the baseline, relative to ``run_dir``, or several by name; empty for the step's
            own.
        reference: metric of the source framework, if known.
        reference_source: source of ``reference``.
        reference_tolerance: maximum relative difference from ``reference``.
        run_reference: a script that evaluates the source framework's model on the same data, run like a valid step.
        secondary_metrics: names of secondary metrics of the report, judged with the same tolerance.
        gate: ``specification``, or ``strict``, which also requires a 95 % bound on other data within the tolerance.
    """

    tolerance: float = 0.001
    baseline_ckpt: Paths = ""
    reference: float | None = None
    reference_source: str = ""
    reference_tolerance: float = 0.01
    run_reference: Command | None = None
    secondary_metrics: tuple[str, ...] = ()
    gate: str = GATES[0]


@dataclass(frozen=True, slots=True)
class Case:
    """One model to check.

    Attributes:
        name: its ``case_name``.
        run_dir: the model's folder relative to the repository's root, with forward slashes.
        steps: steps to run; empty if the case has problems.
        source, line: file and line of the definition.
        accuracy: references and tolerances of its metric.
    """

    name: str
    run_dir: str
    steps: tuple[Command, ...]
    source: Path
    line: int = field(default=0, compare=False)
    accuracy: AccuracyRule = AccuracyRule()
