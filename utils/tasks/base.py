"""The contract of a task: a domain's way from a data set to an answer and a metric.

A task is data and functions. A model that differs takes ``dataclasses.replace(TASK, decode=...)``. Functions stand at
the top level of a module or script, so that they travel to other processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from engine import Array, Engine, Timeline
from utils.datasets.base import Batch, Dataset
from utils.metrics.base import Metric
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared, Shards

SCRIPTS = ("valid", "single", "multi")
"""The scripts every model has: a data set, one sample, a folder."""

Options: TypeAlias = argparse.Namespace
"""The parsed flags: the common ones, the task's own, and ``script``, one of :data:`SCRIPTS`."""


Sizes: TypeAlias = "tuple[tuple[int | None, ...], ...]"
"""One shape per input of a model; ``None`` in it for what the model or the batch says."""


OpenSizes: TypeAlias = "Mapping[Any, tuple[int, ...]]"
"""Sizes of open dimensions, by place (input, dimension) or by symbol."""


def str2bool(text: str) -> bool:
    """Read a truth value as the historical scripts spell it."""
    values = {"yes": True, "true": True, "t": True, "y": True, "1": True}
    values |= {"no": False, "false": False, "f": False, "n": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not a truth value; use true or false")
    return values[text.lower()]


@dataclass(frozen=True)
class Flag:
    """A flag of a task's own.

    Attributes:
        name: with its dashes: ``--topk``.
        help: one line.
        default, type, choices, nargs, metavar: as argparse has them; a flag of type :func:`str2bool` may be given
            without a value. A script may give another default.
        scripts: which scripts have it.
        exact: the value at which it trades no exactness for speed; ``valid`` compares a run at any other with one at
            this. ``None``: it is no such flag.
        writes: its value names a file or a folder that a run writes; any other file that a flag names is one that the
            run reads, and its content is part of what ``--resume`` goes by.
    """

    name: str
    help: str
    default: Any = None
    type: Callable[[str], Any] | None = None
    choices: Sequence[Any] | None = None
    nargs: str | int | None = None
    metavar: str | None = None
    scripts: tuple[str, ...] = SCRIPTS
    exact: Any = None
    writes: bool = False

    @property
    def key(self) -> str:
        """The name of its value among the options: ``topk``."""
        return self.name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, eq=False, repr=False)  # what is generated costs every start
class Choice:
    """A flag whose right value the model's training decided, so that a wrong one goes unnoticed after an export.

    ``teco fix --golden`` tries the values, alone and together.

    Attributes:
        flag: name of one of the task's flags.
        values: what to try, the likeliest first; the one in use is left out.
        stage: ``prepare`` where another value needs the model to compute again, ``decode`` where its outputs stand.
        now: ``(model, options) -> value``: what is in use.
        fine: a wrong value costs a little, never all (a filter, a threshold): tried where the rest is right.
    """

    flag: str
    values: tuple[Any, ...]
    stage: str
    now: Callable[[Any, Options], Any]
    fine: bool = False

    @property
    def key(self) -> str:
        """The name of its value among the options."""
        return self.flag.lstrip("-").replace("-", "_")


class Hinter(Protocol):
    """Looks at what a run makes of samples whose answers are known, for what cannot be right in itself."""

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Take in a batch: raw outputs, what ``prepare`` kept of each sample, and what is right."""
        ...

    def hints(self) -> Sequence[str]:
        """Return what looks wrong, one line each with the flag to try; nothing where nothing does."""
        ...


class Saver(Protocol):
    """Writes the answers of an evaluation in a format that other programs read."""

    def see(self, batch: Batch, predictions: Any) -> None:
        """Take in a batch: samples, names and targets, and one prediction per sample."""
        ...

    def close(self) -> None:
        """Write what is not written yet.

        Raises:
            ConfigError: it cannot be written.
        """
        ...


@dataclass(frozen=True)
class Artifact:
    """What a person looks at.

    Attributes:
        text: the answer in a few words, behind the sample's name: ``7  0.898``.
        answer: the answer as plain data, for JSON.
        save: writes the sample with its answer (drawn, printed, played) into a folder and returns the file; ``None``
            where there is nothing to look at.
    """

    text: str
    answer: Any
    save: Callable[[Path], Path] | None = None


@dataclass(frozen=True)
class Template:
    """What ``teco new`` makes a model of.

    Attributes:
        folder: holds ``*.tmpl`` files (``string.Template``), ``case.yaml.tmpl`` among them.
        fill: writes sample data into the new model's folder and returns further words for the templates.
    """

    folder: Path
    fill: Callable[[Path], Mapping[str, str]]


def one_call(engines: Mapping[str, Engine], arrays: Any, contexts: Any, state: Any) -> Any:
    """Infer by one call of the only model."""
    (engine,) = engines.values()
    return engine.call_shards(arrays) if isinstance(arrays, Shards) else engine(arrays)


def _no_state(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> None:
    """Set nothing up."""


def _no_amounts(outputs: Any, contexts: Any) -> dict[str, float]:
    """Count nothing beside samples."""
    return {}


def _no_figures(timeline: Timeline, samples: int) -> dict[str, float]:
    """Add nothing to the common summary."""
    return {}


def _no_summary(predictions: Sequence[Any], model: Model, options: Options) -> str:
    """Say nothing of a folder's answers as a whole."""
    return ""


def _count_nothing(contexts: Sequence[Any] | None) -> dict[str, int]:
    """Count nothing."""
    return {}


def _no_remarks(counts: Mapping[str, int], samples: int) -> Sequence[str]:
    """Remark nothing."""
    return ()


def _collate(parts: Sequence[Prepared], model: Model) -> list[Array] | Shards:
    if len(parts) == 1 and not any(isinstance(array, list) for array in parts[0].arrays):
        return [*parts[0].arrays]  # type: ignore[list-item]  # the usual batch, without an import
    from utils.tasks.collating import collate

    return collate(parts, model)


def _no_open_sizes(options: Options) -> dict[str, OpenSizes]:
    """Leave open what is open."""
    return {}


def _check_nothing(options: Options) -> None:
    """Take any options."""


def _nothing_typed(options: Options) -> None:
    """Take no samples from the command line itself."""


def _own_shapes(options: Options) -> None:
    """Let the model's own shapes stand."""


@dataclass(frozen=True)
class Task:
    """What a domain is. All functions but the first four have a default.

    Attributes:
        name, domain: such as ``text_classification`` and ``nlp``; ``teco new`` takes either.
        load: ``(paths, options) -> Dataset``. ``paths``: ``{"data": path}`` for ``--data_path PATH``, several named
            ones for ``--data_path queries=A corpus=B``, none where the data path is left out.
        typed: ``(options) -> Dataset`` of samples that stand on the command line itself, as ``--text`` has them: they
            take the place of ``--data_path``, and ``load`` is not called. ``None`` where none do.
        prepare: ``(samples, model, options) -> Prepared``. One that takes the keyword ``out`` writes its only array
            into the one it is given there, which is used again for later batches.
        decode: ``(outputs, contexts, model, options) -> predictions``, one per sample;
            :class:`~utils.tasks.prepared.NoAnswer` for one that turns out to be no sample.
        metric: ``(options, dataset, model) -> Metric``.
        show: ``(sample, prediction, model, options) -> Artifact``: what a person looks at.
        setup: ``(engines, dataset, options) -> state``: once per process; a corpus embedded, a vocabulary.
        collate: ``(parts, model) -> arrays``. The default puts parts together along the batch axes and pads lists to a
            size the engine has a plan for (:func:`utils.tasks.collating.collate`); one that returns :class:`Shards`
            says what each SPA gets.
        infer: ``(engines, arrays, contexts, state) -> outputs``. The default is one call of the only model. Streams,
            decoders, episodes and detect-then-read loop here; they must not change ``state``, as batches run side by
            side. ``engines`` are by the names of :attr:`models`. Outputs that are no arrays may have some as ``raw``,
            with a row per sample: ``--skip_postprocess`` shows them.
        figures: ``(timeline, samples) -> dict``: figures beside the common summary, such as tokens/s. The timeline has
            a span ``inference`` per step and ``call NAME`` per call of an engine; the wall time is that of ``wait``,
            ``wait_engine`` and ``postprocess`` together.
        amounts: ``(outputs, contexts) -> dict``: what a batch holds beside samples, such as seconds of sound; their
            sums over the timed steps are the timeline's ``amount(NAME)``.
        summary: ``(predictions, model, options) -> text``: one line on a folder's answers.
        counted: ``(contexts) -> counts``: what ``prepare`` did to a batch that a run must own up to, such as texts that
            were cut, by name. Counts are added up over batches, processes and resumed runs.
        remarks: ``(counts, samples) -> lines``: says it, once at the end.
        input_size: ``(options) -> shapes``: one shape per input, per SPA, ``None`` in it for what the model or the
            batch says; ``None`` for the model's own shapes. Of several models a mapping of such by name.
        open_sizes: ``(options) -> sizes``: by model, which sizes a dimension that is open in the model may take, by its
            place (input, dimension) or its symbol, which a model may lack; a single one binds it. ``--dim`` and the
            model's own sizes go first. A task of one model gives them for ``model``.
        check: raises ConfigError where options make no sense.
        flags: this domain's own.
        models: names of the models where several make one answer; empty for one.
        optional: which of them a run may do without; where one is left, ``--ckpt FILE`` gives it.
        watched: NaN is looked for in what every call of ``infer`` gives back; ``False`` where the rows of its calls are
            no samples, and each sample's entry of its outputs shows NaN.
        takes_nan: NaN in an input is a missing value, as in tables, and nothing to count.
        pictures: shapes of ``input_size`` are N x C x H x W, whichever order the model has.
        template: what ``teco new`` starts from.
        first: of several tasks of its domain, the one that the domain's name stands for, as in ``teco new DOMAIN``.
        sample_data: where runs without ``--data_path`` find data, unless the script says so.
        data_help: what ``--data_path`` takes, in a few words.
        advice: what would help, by the stage that bounds a run (``disk``, ``decode``, ``preprocess``, ``engine``,
            ``postprocess``), where the common words do not fit.
        choices: flags whose right values the training decided; ``teco fix --golden`` tries them.
        stored_under: key of the metadata that an export stores such values under, as a JSON object by flag.
        answers: ``(file, dataset, model, options) -> answers``: reads the source framework's final answers, one per
            sample like a prediction, ``None`` where it has none.
        agreement: ``(prediction, answer) -> float``: 1 where both say the same, 0 where they share nothing.
        hinter: ``(model, options) -> Hinter``: looks for what cannot be right, while a data set is evaluated.
        saver: ``(path, dataset, model, options) -> Saver``: writes an evaluation's answers; ``valid`` then has
            ``--save_predictions PATH``.
        saves: what that writes, in a few words. saves_folder: that is a folder of files, not a file.
    """

    name: str
    domain: str
    load: Callable[[Mapping[str, Path], Options], Dataset]
    prepare: Callable[..., Prepared]
    decode: Callable[[Any, Any, Model, Options], Sequence[Any] | Array]
    metric: Callable[[Options, Dataset, Model], Metric]
    show: Callable[[Any, Any, Model, Options], Artifact]
    typed: Callable[[Options], Dataset | None] = _nothing_typed
    setup: Callable[[Mapping[str, Engine], Dataset, Options], Any] = _no_state
    collate: Callable[[Sequence[Prepared], Model], list[Array] | Shards] = _collate
    infer: Callable[[Mapping[str, Engine], Any, Any, Any], Any] = one_call
    figures: Callable[[Timeline, int], Mapping[str, float]] = _no_figures
    amounts: Callable[[Any, Any], Mapping[str, float]] = _no_amounts
    summary: Callable[[Sequence[Any], Model, Options], str] = _no_summary
    counted: Callable[[Sequence[Any] | None], Mapping[str, int]] = _count_nothing
    remarks: Callable[[Mapping[str, int], int], Sequence[str]] = _no_remarks
    input_size: Callable[[Options], Sizes | Mapping[str, Sizes] | None] = _own_shapes
    open_sizes: Callable[[Options], Mapping[str, OpenSizes]] = _no_open_sizes
    check: Callable[[Options], None] = _check_nothing
    flags: tuple[Flag, ...] = ()
    models: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    watched: bool = True
    takes_nan: bool = False
    pictures: bool = False
    template: Template | None = None
    first: bool = False
    sample_data: Path | None = None
    data_help: str = "the data set"
    advice: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    stored_under: str = ""
    answers: Callable[[Path, Dataset, Model, Options], Sequence[Any]] | None = None
    agreement: Callable[[Any, Any], float] | None = None
    hinter: Callable[[Model, Options], Hinter] | None = None
    saver: Callable[[Path, Dataset, Model, Options], Saver] | None = None
    saves: str = "the answers"
    saves_folder: bool = False
