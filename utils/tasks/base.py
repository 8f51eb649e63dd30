"""The contract of a task: a domain's way from a data set to an answer and a metric.

A task is a class, and each run makes one object of it, bound to the run's options and, once the engines are open, to
the model. A model that differs subclasses its task and overrides methods. Tasks are sent to other processes as class,
options and model, so a class stands at the top level of a module or script.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from engine import Array, Engine, Timeline
from utils.datasets.base import Batch, Dataset
from utils.metrics.base import Metric
from utils.tasks.model import Model
from utils.tasks.options import Options as Options
from utils.tasks.prepared import Prepared, Shards

SCRIPTS = ("valid", "single", "multi")
"""The scripts every model has: a data set, one sample, a folder."""

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
class ExportSetting:
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


class Diagnostics(Protocol):
    """Looks at what a run makes of samples whose answers are known, for what cannot be right in itself."""

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Take in a batch: raw outputs, what ``prepare`` kept of each sample, and what is right."""
        ...

    def hints(self) -> Sequence[str]:
        """Return what looks wrong, one line each with the flag to try; nothing where nothing does."""
        ...


class PredictionWriter(Protocol):
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
class Rendering:
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


Choice: TypeAlias = ExportSetting
Hinter: TypeAlias = Diagnostics
Saver: TypeAlias = PredictionWriter
Artifact: TypeAlias = Rendering
"""Their names in tasks of the form before."""


def overrides(task: type, method: str) -> bool:
    """Return whether a class replaces a default method of :class:`Task`."""
    return getattr(task, method) is not getattr(Task, method)


class _Bound:
    """What the methods of a task work with.

    Attributes:
        options: the parsed flags of the run.
        model: the opened model (of several the first, with all of them in ``model.named``); set when the engines are
            open, so ``load``, ``check``, ``input_size``, ``open_sizes`` and ``inline_samples`` have none.
        state: what ``setup`` returned.
    """

    options: Options
    model: Model
    state: Any = None


class Calls(_Bound):
    """How a task calls its models. The default is one call of the only model for each batch.

    Attributes:
        models: names of the models where several make one answer; empty for one.
        optional_models: which of them a run may do without; where one is left, ``--ckpt FILE`` gives it.
        takes_nan: NaN in an input is a missing value, as in tables, and is not counted.
        image_inputs: shapes of ``input_size`` are N x C x H x W, whichever order the model has.
    """

    models: ClassVar[tuple[str, ...]] = ()
    optional_models: ClassVar[tuple[str, ...]] = ()
    takes_nan: ClassVar[bool] = False
    image_inputs: ClassVar[bool] = False

    def input_size(self) -> Sizes | Mapping[str, Sizes] | None:
        """Return one shape per input, per SPA; ``None`` for the model's own shapes.

        A ``None`` in a shape is what the model or the batch says. Of several models a mapping of such by name.
        """
        return None

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return which sizes a dimension that is open in the model may take, by model (``model`` for the only one).

        A dimension is named by its place (input, dimension) or its symbol, which a model may lack; a single size binds
        it. ``--dim`` and the model's own sizes go first.
        """
        return {}

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Any:
        """Prepare what all batches share, once per process: a corpus embedded, a vocabulary.

        Returns:
            what becomes :attr:`state`; batches run side by side, so ``infer`` must not change it.
        """
        return None

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Put prepared parts together as the arrays of a call.

        The default joins them along the batch axes and pads lists to a size the engine has a plan for
        (:func:`utils.tasks.collating.collate`). One that returns :class:`Shards` says what each SPA gets.
        """
        from utils.tasks.collating import collate

        return collate(parts, self.model)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Any) -> Any:
        """Return the outputs of a batch; streams, decoders, episodes and several models loop here.

        Outputs that are not arrays may have some as ``raw``, with a row per sample: ``--skip_postprocess`` shows them.

        Args:
            engines: by the names of :attr:`models`. arrays: what ``collate`` returned. contexts: of the samples.
        """
        (engine,) = engines.values()
        return engine.call_shards(arrays) if isinstance(arrays, Shards) else engine(arrays)

    @property
    def one_call(self) -> bool:
        """Whether a batch is one call of the only model."""
        return not overrides(type(self), "infer")


class Compare(_Bound):
    """What ``teco fix`` compares with the source framework.

    Attributes:
        export_settings: flags whose right values the training decided; ``teco fix --golden`` tries them.
        metadata_key: key of the metadata that an export stores such values under, as a JSON object by flag.
    """

    export_settings: ClassVar[tuple[ExportSetting, ...]] = ()
    metadata_key: ClassVar[str] = ""

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Any]:
        """Read the source framework's final answers, one per sample like a prediction, ``None`` where it has none."""
        raise NotImplementedError

    def agreement(self, prediction: Any, answer: Any) -> float:
        """Return 1 where both say the same, 0 where they share nothing."""
        raise NotImplementedError

    @classmethod
    def has_reference(cls) -> bool:
        """Say whether the task reads answers of a source framework."""
        return overrides(cls, "reference_answers") and overrides(cls, "agreement")

    def diagnostics(self) -> Diagnostics | None:
        """Return what looks for results that cannot be right, while a data set is evaluated."""
        return None


class Notes(_Bound):
    """What a report says beside the metric.

    Attributes:
        advice: what would help, by the stage that bounds a run (``disk``, ``decode``, ``preprocess``, ``engine``,
            ``postprocess``), where the common words do not fit.
    """

    advice: ClassVar[Mapping[str, str]] = {}

    def workload(self, outputs: Any, contexts: Any) -> Mapping[str, float]:
        """Return what a batch holds beside samples, such as seconds of sound.

        The sums over the timed steps are the timeline's ``amount(NAME)``.
        """
        return {}

    def extra_figures(self, timeline: Timeline, samples: int) -> Mapping[str, float]:
        """Return figures beside the common summary, such as tokens/s.

        The timeline has a span ``inference`` per step and ``call NAME`` per call of an engine; the wall time is that of
        ``wait``, ``wait_engine`` and ``postprocess`` together.
        """
        return {}

    def warning_counts(self, contexts: Sequence[Any] | None) -> Mapping[str, int]:
        """Return what ``prepare`` did to a batch that a report must mention, by name, such as texts that were cut.

        Counts are added up over batches, processes and resumed runs.
        """
        return {}

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> Sequence[str]:
        """Return the lines about these counts, printed once at the end."""
        return ()

    def summary(self, predictions: Sequence[Any]) -> str:
        """Return one line on a folder's answers as a whole."""
        return ""


class Writer(_Bound):
    """Predictions in a format that other programs read: ``--save_predictions PATH`` of ``valid``.

    Attributes:
        writes: what is written, in a few words; empty: nothing can be. writes_folder: a folder of files, not a file.
    """

    writes: ClassVar[str] = ""
    writes_folder: ClassVar[bool] = False

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return what writes the answers of an evaluation."""
        raise NotImplementedError


FORM_BEFORE: list[Callable[..., Any]] = []
"""What makes a task of the form before; set by :mod:`utils.tasks.legacy`."""


class Task(Calls, Compare, Notes, Writer, ABC):
    """A domain's way from a sample to an answer and a metric: five methods; everything else has a default.

    Attributes:
        name, domain: such as ``text_classification`` and ``nlp``; ``teco new`` takes either.
        flags: the task's own.
        template: what ``teco new`` starts from.
        domain_default: of several tasks of its domain, the one that the domain's name stands for, as in
            ``teco new DOMAIN``.
        sample_data: where runs without ``--data_path`` find data, unless the script says so.
        data_help: what ``--data_path`` takes, in a few words.
    """

    name: ClassVar[str]
    domain: ClassVar[str]
    flags: ClassVar[tuple[Flag, ...]] = ()
    template: ClassVar[Template | None] = None
    domain_default: ClassVar[bool] = False
    sample_data: ClassVar[Path | None] = None
    data_help: ClassVar[str] = "the data set"

    def __new__(cls, *given: Any, **old: Any) -> Any:
        """Make an object of a run; ``Task(name=..., load=...)`` is the form before (:mod:`utils.tasks.legacy`)."""
        if cls is Task:
            return FORM_BEFORE[0](*given, **old)
        return super().__new__(cls)

    def __init__(self, options: Options) -> None:
        self.options = options

    def bind(self, model: Model) -> Any:
        """Take the opened model, and return the task."""
        self.model = model
        return self

    @abstractmethod
    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the data set.

        Args:
            paths: ``{"data": path}`` for ``--data_path PATH``, several by name for ``--data_path queries=A corpus=B``,
                empty where the data path is left out.
        """

    @abstractmethod
    def prepare(self, samples: Sequence[Any]) -> Prepared:
        """Return the model's inputs for some samples.

        One that takes the keyword ``out`` writes its only array into the one it is given there, which is used again for
        later batches.
        """

    @abstractmethod
    def decode(self, outputs: Any, contexts: Any) -> Sequence[Any] | Array:
        """Return one prediction per sample; :class:`~utils.tasks.prepared.NoAnswer` for one without an answer."""

    @abstractmethod
    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record for a data set."""

    @abstractmethod
    def show(self, sample: Any, prediction: Any) -> Rendering:
        """Return what a person looks at."""

    def check(self) -> None:
        """Check the options.

        Raises:
            ConfigError: they make no sense.
        """

    def selected(self, found: Dataset) -> Dataset:
        """Return the samples that the script runs: ``single`` takes the first batch, the other scripts take all."""
        if self.options.script != "single":
            return found
        return found.select(range(min(len(found), self.options.batch_size)))

    def inline_samples(self) -> Dataset | None:
        """Return samples given on the command line itself, as by ``--text``, in place of ``--data_path``."""
        return None

    @classmethod
    def sources(cls) -> list[Any]:
        """Return the classes, or functions, whose code decides what a run computes."""
        return [one for one in cls.__mro__ if issubclass(one, Task) and one is not Task]

    def source(self, method: str) -> Callable[..., Any]:
        """Return the function that an error in a method's result names."""
        found: Callable[..., Any] = getattr(self, method)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the state, which holds engines, on the way to another process."""
        return {key: value for key, value in vars(self).items() if key != "state"}
