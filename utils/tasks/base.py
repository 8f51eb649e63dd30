"""The contract of a task: from a data set to answers and a metric.

A task is a class. Each run creates one object, bound to the run's options and, when the engines are open, to the model.
A model that differs from its task subclasses it and overrides methods. Tasks are pickled to other processes as class,
options and model, so the class must be defined at the top level of a module or script.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from engine import Array, Engine, Timeline
from utils.datasets.base import Batch, Dataset
from utils.metrics.base import Metric
from utils.tasks.model import Model
from utils.tasks.options import Options as Options
from utils.tasks.prepared import Prepared, Sequences, Shards, Streamed

SCRIPTS = ("valid", "single", "multi")
"""The scripts of every model: for a data set, one sample, a folder."""

Sizes: TypeAlias = "tuple[tuple[int | None, ...], ...]"
"""One shape per input of a model; ``None`` for a size given by the model or the batch."""

OpenSizes: TypeAlias = "Mapping[Any, tuple[int, ...]]"
"""Sizes of dynamic dimensions, by indices (input, dimension) or by symbol."""


def str2bool(text: str) -> bool:
    """Parse a truth value in the spellings of the historical scripts."""
    values = {"yes": True, "true": True, "t": True, "y": True, "1": True}
    values |= {"no": False, "false": False, "f": False, "n": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not a truth value; use true or false")
    return values[text.lower()]


@dataclass(frozen=True, eq=False, repr=False)  # generated methods cost start-up time
class Flag:
    """A flag of a script.

    Attributes:
        name: with dashes: ``--topk``.
        help: one line.
        default, type, choices, nargs, metavar: as in argparse; a flag of type :func:`str2bool` needs no value. A script
            may set another default.
        scripts: that have the flag.
        exact: the exact value of a flag that trades exactness for speed; ``valid`` compares a run with another value
            with an exact run. ``None``: not such a flag.
        writes: its value names an output file or folder; other files that flags name are inputs, whose contents are
            part of the identity of a run for ``--resume``.
        group: heading in ``--help``; empty: that of the task.
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
    group: str = ""

    @property
    def key(self) -> str:
        """The name of its value among the options: ``topk``."""
        return self.name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, eq=False, repr=False)
class ExportSetting:
    """A flag whose correct value depends on the model's training; a wrong one gives wrong answers without an error.

    ``teco fix --golden`` tries the values, separately and combined.

    Attributes:
        flag: name of one of the task's flags.
        values: to try, most likely first; the current value is skipped.
        stage: ``prepare`` if another value needs a new inference, ``decode`` if not.
        now: ``(model, options) -> value``: the current value.
        fine: a wrong value has a small effect (a filter, a threshold); tried after the other settings.
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
    """Looks for wrong settings while a data set with targets is evaluated."""

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Take in a batch: raw outputs, contexts of ``prepare``, and targets."""

    def hints(self) -> Sequence[str]:
        """Return one line per suspected wrong setting, with the flag to try."""


class PredictionWriter(Protocol):
    """Writes the answers of an evaluation in the format of another program."""

    def see(self, batch: Batch, predictions: Any) -> None:
        """Take in a batch: samples, names and targets, and one prediction per sample."""

    def close(self) -> None:
        """Write the rest. Raises ConfigError if a file cannot be written."""


@dataclass(frozen=True, eq=False, repr=False)
class Rendering:
    """An answer for people.

    ``save`` writes the sample with its answer (an image, text, sound) into a folder and returns the file.
    """

    text: str  # short text, printed after the sample's name: 7  0.898
    answer: Any  # plain data for JSON
    save: Callable[[Path], Path] | None = None  # None: not possible


@dataclass(frozen=True, eq=False, repr=False)
class Adoption:
    """Template of ``teco new --ckpt FILE``: a folder for a model file that the user has."""

    folder: Path  # as of a Template
    fill: Callable[[Path, str, Path, Sequence[Path]], Mapping[str, str]]
    """``(folder, model, ckpt, data)``: copies the file, and the data if there are any, into the model's folder; returns
    values for templates."""
    without_data: Mapping[str, Any] = field(default_factory=dict)  # defaults of flags where no data are given
    any_model: bool = False  # the task runs any model, so it is taken where no task is named


@dataclass(frozen=True, eq=False, repr=False)
class PublishedTemplate:
    """Template of ``teco new --arch NAME``: a folder for a network of torchvision or timm."""

    folder: Path  # as of a Template
    words: Callable[[str], Mapping[str, str]]  # ``(name)``: values for templates; raises ConfigError for a wrong name


@dataclass(frozen=True, eq=False, repr=False)
class Template:
    """Template of ``teco new``."""

    folder: Path  # holds *.tmpl files (string.Template), case.yaml.tmpl among them
    fill: Callable[[Path], Mapping[str, str]]  # writes sample data into a model's folder; returns values for templates
    adoption: Adoption | None = None  # None: the task has no template for a user's file
    published: PublishedTemplate | None = None  # None: the task has no template for a published network


Choice: TypeAlias = ExportSetting
Hinter: TypeAlias = Diagnostics
Saver: TypeAlias = PredictionWriter
Artifact: TypeAlias = Rendering
"""Their names in tasks of the old form."""


def overrides(task: type, method: str) -> bool:
    """Return whether a class replaces a default method of :class:`Task`."""
    return getattr(task, method) is not getattr(Task, method)


class _Bound:
    """Attributes for the methods of a task.

    Attributes:
        options: the parsed flags of the run.
        model: the opened model (of several the first, with all of them in ``model.named``); set when the engines are
            open, so not available in ``load``, ``check``, ``input_size``, ``open_sizes`` and ``inline_samples``.
        state: return value of ``setup``.
    """

    options: Options
    model: Model
    state: Any = None


class Calls(_Bound):
    """Inference. The default is one call of the only model per batch."""

    models: ClassVar[tuple[str, ...]] = ()  # names of several models; empty for one model
    optional_models: ClassVar[tuple[str, ...]] = ()  # may be missing; if one model is left, --ckpt FILE sets it
    takes_nan: ClassVar[bool] = False  # NaN in an input is a missing value, as in tables, and not reported
    image_samples: ClassVar[bool] = False  # load takes the path of one image, so that frames of a video are samples too
    image_inputs: ClassVar[bool] = False  # shapes of input_size are N x C x H x W, for any layout of the model

    def input_size(self) -> Sizes | Mapping[str, Sizes] | None:
        """Return one shape per input, per SPA, for several models by name; ``None``: the model's shapes.
        ``None`` in a shape is a size given by the model or the batch."""
        return None

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the sizes of dynamic dimensions, by model (``model`` for the only one).

        A dimension is given by its indices (input, dimension) or its symbol, which the model may lack; a single size
        makes it static. ``--dim`` and sizes in the model take precedence.
        """
        return {}

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Any:
        """Compute the state shared by all batches, once per process: an embedded corpus, a vocabulary.

        Returns:
            The value of :attr:`state`; batches run in parallel, so ``infer`` must not change it.
        """
        return None

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Collate prepared parts to the arrays of a call.

        The default concatenates them along the batch axes and pads lists to a planned size
        (:func:`utils.tasks.collating.collate`). :class:`Shards` assign arrays to SPAs.
        """
        from utils.tasks.collating import collate

        return collate(parts, self.model)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Any) -> Any:
        """Return the outputs of a batch; override this for streams, decoders, episodes and several models.

        Outputs that are not arrays may have an attribute ``raw`` of arrays with a row per sample, for
        ``--skip_postprocess``.

        Args:
            engines: by the names of :attr:`models`. arrays: of ``collate``. contexts: of the samples.
        """
        (engine,) = engines.values()
        return engine.call_shards(arrays) if isinstance(arrays, Shards) else engine(arrays)

    def stream(self, engines: Mapping[str, Engine], text: str, emit: Callable[[str], bool]) -> Streamed:
        """Continue a text; a task that generates text overrides this.

        Args:
            engines: by the names of :attr:`models`. text: the prompt.
            emit: gets the continuation piece by piece as it arises; returns ``False`` to end it early.

        Raises DataError if the text cannot be continued, such as a too long one.
        """
        raise NotImplementedError

    def sequences(self, engines: Mapping[str, Engine]) -> Sequences:
        """Return what computes a stream of requests with a state; a task whose samples arrive in parts overrides this.

        Args:
            engines: by the names of :attr:`models`.
        """
        raise NotImplementedError

    @property
    def one_call(self) -> bool:
        """Whether a batch is one call of the only model."""
        return not overrides(type(self), "infer")


class Compare(_Bound):
    """Comparison with the source framework by ``teco fix``."""

    export_settings: ClassVar[tuple[ExportSetting, ...]] = ()  # flags that depend on the training; --golden tries them
    metadata_key: ClassVar[str] = ""  # of the metadata in which an export stores such values, a JSON object by flag

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Any]:
        """Read the source framework's answers, one per sample; ``None`` for a sample without one."""
        raise NotImplementedError

    def agreement(self, prediction: Any, answer: Any) -> float:
        """Return the agreement in 0..1; 1: equal."""
        raise NotImplementedError

    @classmethod
    def has_reference(cls) -> bool:
        """Return whether the task reads answers of a source framework."""
        return overrides(cls, "reference_answers") and overrides(cls, "agreement")

    def diagnostics(self) -> Diagnostics | None:
        """Return the diagnostics of an evaluation; ``None``: none."""
        return None


class Notes(_Bound):
    """Additions to the report.

    Attributes:
        advice: by the stage that bounds a run (``disk``, ``decode``, ``preprocess``, ``engine``, ``postprocess``), in
            place of the common advice.
    """

    advice: ClassVar[Mapping[str, str]] = {}

    def workload(self, outputs: Any, contexts: Any) -> Mapping[str, float]:
        """Return further amounts of work of a batch, such as seconds of sound.
        The sums over the timed steps are the timeline's ``amount(NAME)``."""
        return {}

    def extra_figures(self, timeline: Timeline, samples: int) -> Mapping[str, float]:
        """Return further figures for the summary, such as tokens/s.

        The timeline has a span ``inference`` per step and ``call NAME`` per call of an engine; the wall time is the sum
        of ``wait``, ``wait_engine`` and ``postprocess``.
        """
        return {}

    def warning_counts(self, contexts: Sequence[Any] | None) -> Mapping[str, int]:
        """Return counts of events in ``prepare`` that are reported, by name, such as truncated texts.
        Counts are summed over batches, processes and resumed runs."""
        return {}

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> Sequence[str]:
        """Return lines about the counts, printed at the end of a run."""
        return ()

    def summary(self, predictions: Sequence[Any]) -> str:
        """Return one line on all answers of a folder."""
        return ""


class Writer(_Bound):
    """Predictions in the format of another program: ``--save_predictions PATH`` of ``valid``."""

    writes: ClassVar[str] = ""  # description of the files, for --help; empty: not supported
    writes_folder: ClassVar[bool] = False  # PATH is a folder

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return the writer for the answers of an evaluation."""
        raise NotImplementedError


_LEGACY = "utils.tasks.legacy"
"""The module of tasks in the old form, which imports this one; few scripts need it."""

_OLD_NAMES: dict[tuple[str, str], type[Task]] = {}
"""Tasks of the zoo, by module and name in the old form."""


def _in_old_form(module: str, name: str) -> Any:
    """Return a task in the old form; the ``__getattr__`` (PEP 562) of its module."""
    if (module, name) not in _OLD_NAMES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    found = importlib.import_module(_LEGACY).LegacyTask.view(_OLD_NAMES[module, name])
    setattr(sys.modules[module], name, found)  # one object, whose class is created once
    return found


class Task(Calls, Compare, Notes, Writer, ABC):
    """From samples to answers and a metric: five abstract methods; all others have a default."""

    name: ClassVar[str]  # such as text_classification; teco new accepts it, or the domain
    domain: ClassVar[str]  # such as nlp
    flags: ClassVar[tuple[Flag, ...]] = ()
    template: ClassVar[Template | None] = None  # of teco new
    domain_default: ClassVar[bool] = False  # the task that teco new DOMAIN selects, if its domain has several
    sample_data: ClassVar[Path | None] = None  # default of --data_path, unless the script sets one
    data_help: ClassVar[str] = "the data set"  # accepted values of --data_path, for --help

    def __init_subclass__(cls) -> None:
        """Add a task of the zoo in the old form to its module, for ``dataclasses.replace``: ``SEGMENTATION``."""
        super().__init_subclass__()
        if cls.__module__.startswith("utils.tasks.") and "name" in vars(cls) and "old" not in vars(cls):
            _OLD_NAMES[cls.__module__, cls.name.upper()] = cls
            vars(sys.modules[cls.__module__]).setdefault("__getattr__", partial(_in_old_form, cls.__module__))

    def __new__(cls, *given: Any, **old: Any) -> Any:
        """Create the task of a run; ``Task(name=..., load=...)`` is the old form (:mod:`utils.tasks.legacy`)."""
        if cls is Task:
            return importlib.import_module(_LEGACY).LegacyTask(*given, **old)
        return super().__new__(cls)

    def __init__(self, options: Options) -> None:
        self.options = options

    def bind(self, model: Model) -> Any:
        """Set the opened model, and return the task."""
        self.model = model
        return self

    @abstractmethod
    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the data set.

        Args:
            paths: ``{"data": path}`` for ``--data_path PATH``, several by name for ``--data_path queries=A corpus=B``,
                empty without ``--data_path``.
        """

    @abstractmethod
    def prepare(self, samples: Sequence[Any]) -> Prepared:
        """Return the model's inputs for some samples.
        With a keyword ``out``, the only array may be written into the given one, which is reused for later batches."""

    @abstractmethod
    def decode(self, outputs: Any, contexts: Any) -> Sequence[Any] | Array:
        """Return one prediction per sample; :class:`~utils.tasks.prepared.NoAnswer` for a sample without an answer."""

    @abstractmethod
    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record for a data set."""

    @abstractmethod
    def show(self, sample: Any, prediction: Any) -> Rendering:
        """Return an answer for people; of ``valid`` (``--show``) the predictions are those of its ``decode``."""

    def check(self) -> None:
        """Check the options. Raises ConfigError if an option is invalid."""

    def selected(self, found: Dataset) -> Dataset:
        """Return the samples that the script runs: ``single`` takes the first batch, the other scripts take all."""
        if self.options.script != "single":
            return found
        return found.select(range(min(len(found), self.options.batch_size)))

    def inline_samples(self) -> Dataset | None:
        """Return samples of the command line, as of ``--text``, in place of ``--data_path``."""
        return None

    @classmethod
    def sources(cls) -> list[Any]:
        """Return the classes or functions with the code of the task, for the identity of a run."""
        return [one for one in cls.__mro__ if issubclass(one, Task) and one is not Task]

    def source(self, method: str) -> Callable[..., Any]:
        """Return the function to name in an error about a method's return value."""
        found: Callable[..., Any] = getattr(self, method)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the state, which holds engines."""
        return {key: value for key, value in vars(self).items() if key != "state"}


class OldForm(Protocol):
    """A task in the old form: :class:`utils.tasks.legacy.LegacyTask`."""

    def as_class(self) -> type[Task]:
        """Return the class of this task."""
        ...


AnyTask: TypeAlias = "type[Task] | OldForm"
"""A task as a class or in the old form."""


def task_class(task: AnyTask) -> type[Task]:
    """Return the class of a task in any form."""
    return task if isinstance(task, type) else task.as_class()


def form_of(task: type[Task]) -> AnyTask:
    """Return the task to pickle for a class: in the old form if the class was created from it."""
    old: OldForm | None = vars(task).get("old")
    return task if old is None else old
