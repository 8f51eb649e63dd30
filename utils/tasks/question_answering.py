"""Question answering: a question and a text in, the part of the text that answers it out; the metric is F1.

A text that is longer than the model takes is read in windows that overlap (Devlin et al., 2019): one sample is several
rows of a call, and the best answer over all its windows counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, ModelError, read_regular, shape_text, shortened, write_file
from utils.datasets.base import Batch, Dataset, ListDataset
from utils.datasets.questions import LANGUAGE, UNANSWERABLE, Question
from utils.metrics.base import Metric
from utils.postprocess.text.spans import Found, Span, Window, best_answer
from utils.tasks.base import Artifact, Flag, Options, Saver, Task
from utils.tasks.model import Model
from utils.tasks.outputs import KIND_FLAG, as_logarithms
from utils.tasks.prepared import Prepared
from utils.tasks.text_input import (
    LENGTH_FLAGS,
    TEXT_FLAGS,
    Encoded,
    Tokens,
    check_lengths,
    check_tokens,
    fed,
    longest,
    open_lengths,
    typed_texts,
)

LENGTHS = (64, 128, 256, 384)
"""Lengths there are plans for where nothing else is said; the last one is usual for SQuAD."""

NOTE = "question_answering"
"""Key of what an export may store: an object with ``no_answer``, whether the model was trained to say that."""

METRICS = ("f1", "exact_match")

SHOWN = 0.005
"""Other answers are on the line where their score is not 0.00."""


class Context(NamedTuple):
    """What is kept of a question.

    Attributes:
        question: it, with its text. windows: the tokens of each.
    """

    question: Question
    windows: tuple[Encoded, ...]


class Scores(NamedTuple):
    """What the model gave for a question.

    Attributes:
        starts, ends: W x L each, one row per window. silent: whether "no answer" may be the answer.
    """

    starts: Array
    ends: Array
    silent: bool


class Answer(NamedTuple):
    """What a text answers.

    Attributes:
        text: ``""``: no answer. score: share of it among all spans of the text, 0 to 1; NaN where the model gave NaN.
        begin, end: characters of the text. best: the surest spans, the answer among them.
        gap: how much surer "no answer" is than the best span, in logits; ``-inf`` where it cannot be the answer.
    """

    text: str
    score: float
    begin: int
    end: int
    best: tuple[Span, ...]
    gap: float


class State(NamedTuple):
    """What is settled once.

    Attributes:
        rows: windows per call at most. silent: whether "no answer" may be the answer.
        model, options: say what the outputs are.
    """

    rows: int
    silent: bool
    model: Model
    options: Options


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the questions, for ``valid`` with their answers (:func:`~utils.datasets.questions.load_questions`).

    The script for one sample takes the first questions of a file, a batch of them.
    """
    from utils.datasets.questions import load_questions

    found = load_questions(paths["data"], answers=options.script == "valid")
    if options.script != "single":
        return found
    return found.select(range(min(len(found), options.batch_size)))


def typed(options: Options) -> Dataset | None:
    """Return the questions that stand on the command line; ``None`` where none do.

    ``--text QUESTION --pair TEXT``, or ``--text QUESTION TEXT``: without ``--pair`` the last one is the text.

    Raises:
        ConfigError: there is no text, or one is empty.
    """
    texts: list[str] | None = getattr(options, "text", None)
    if texts is not None and getattr(options, "pair", None) is None:
        if len(texts) < 2:
            raise ConfigError("--text has a question and no text; give --text QUESTION --pair TEXT")
        options.text, options.pair = texts[:-1], texts[-1:]
    found = typed_texts(options)
    if found is None:
        return None
    batch = found.batch(range(len(found)))
    return ListDataset([Question(*pair) for pair in batch.samples], names=[shortened(one) for one, _ in batch.samples])


def prepare(samples: Sequence[Question], model: Model, options: Options) -> Prepared:
    """Number the tokens of questions and texts; a text that does not fit becomes windows, a row each.

    Windows share ``--stride`` tokens of the text with the one before.

    Raises:
        ModelError: the tokenizer is missing or another model's. DataError: a question leaves no room for its text.
        ConfigError: the windows could not move on.
    """
    tokens = Tokens.of(model, options)
    length = longest(model, options, tokens) or LENGTHS[-1]
    stride = length // 3 if options.stride is None else options.stride
    contexts = []
    for sample in samples:
        pair = (sample.question, sample.context)
        try:
            windows = tokens.encode([pair], length, "only_second", stride, overflow=True)
        except DataError as error:
            if options.stride is None:  # a long question: windows that overlap less
                windows = tokens.encode([pair], length, "only_second", 0, overflow=True)
            else:
                raise DataError(f"question {sample.key or sample.question[:40]!r}: {error}") from error
        contexts.append(Context(sample, tuple(windows)))
    arrays = fed([window for context in contexts for window in context.windows], model)
    return arrays._replace(contexts=contexts)


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> State:
    """Settle whether "no answer" may be one: ``--no_answer``, else what the export says, else what the data has."""
    check_tokens(engines, dataset, options)
    (engine,) = engines.values()
    model = Model.of(engine)
    if options.no_answer != "auto":
        return State(options.batch_size, options.no_answer == "yes", model, options)
    note = model.stored.json(NOTE, {})
    if not isinstance(note, dict) or not isinstance(note.get("no_answer", False), bool):
        raise ModelError(
            f"{engine.spec.ckpt}: metadata {NOTE!r}: {note!r} is no object with no_answer; export it again"
        )
    silent = note.get("no_answer", dataset.notes.get(UNANSWERABLE, False))
    return State(options.batch_size, bool(silent), model, options)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Context], state: State) -> list[Scores]:
    """Score the first and last tokens of all windows, in calls of at most a batch.

    Raises:
        ModelError: the outputs are not N x L each, nor one N x L x 2.
    """
    (engine,) = engines.values()
    rows = len(arrays[0])
    found = []
    for begin in range(0, rows, state.rows):
        outputs = engine([array[begin : begin + state.rows] for array in arrays])
        found.append(_logits(outputs if isinstance(outputs, list) else [outputs], engine, state))
    starts, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
    scores, row = [], 0
    for context in contexts:
        part = slice(row, row + len(context.windows))
        scores.append(Scores(starts[part], ends[part], state.silent))
        row = part.stop
    return scores


def _logits(outputs: Sequence[Array], engine: Engine, state: State) -> tuple[Array, Array]:
    """Return the logits of first and last tokens, N x L each; two outputs go by their names, else by their order.

    Of probabilities the logarithms are taken: a span's score is the sum of two.
    """
    outputs = [
        as_logarithms(output, state.model.form(state.options, place), state.model)
        for place, output in enumerate(outputs)
    ]
    if len(outputs) == 1 and outputs[0].ndim == 3 and outputs[0].shape[2] == 2:
        return outputs[0][..., 0], outputs[0][..., 1]
    flat = [place for place, output in enumerate(outputs) if output.ndim == 2]
    if len(flat) != 2:
        shapes = ", ".join(shape_text(output.shape) for output in outputs)
        raise ModelError(
            f"{engine.spec.ckpt}: its outputs are {shapes}; question answering reads start and end logits, N x L each, "
            "or one N x L x 2: export the model with its head"
        )
    names = [engine.outputs[place].name.lower() for place in flat]
    turned = "end" in names[0] and "start" in names[1]
    first, last = reversed(flat) if turned else flat
    return outputs[first], outputs[last]


def decode(outputs: Sequence[Scores], contexts: Sequence[Context], model: Model, options: Options) -> list[Answer]:
    """Return the best answer to each question over all its windows."""
    return [_answer(scores, context, options) for scores, context in zip(outputs, contexts, strict=True)]


def _answer(scores: Scores, context: Context, options: Options) -> Answer:
    windows = []
    for row, one in enumerate(context.windows):
        count = len(one.ids)
        starts, ends = scores.starts[row, :count], scores.ends[row, :count]
        inside = (one.part == 1) & (one.spans[:, 1] > one.spans[:, 0])
        free = int(np.argmax(one.part < 0))  # the first special token: [CLS], <s>
        windows.append(Window(starts, ends, one.spans, inside, (float(starts[free]), float(ends[free]))))
    found: Found = best_answer(
        windows,
        context.question.context,
        longest=options.max_answer_length,
        count=options.n_best,
        silent=scores.silent,
        threshold=options.null_threshold,
    )
    answer = found.answer
    return Answer(answer.text, answer.score, answer.begin, answer.end, found.best, found.gap)


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the metric of record; the other one is beside it."""
    from utils.metrics.answers import METRICS as KINDS

    language = dataset.notes.get(LANGUAGE, "en") if options.language == "auto" else options.language
    return KINDS[options.metric](language)


def show(sample: Question, prediction: Answer, model: Model, options: Options) -> Artifact:
    """Return the answer with its score; saving writes question and text, with the answer marked in it."""
    from utils.text import clean_line

    score = round(float(prediction.score), 4)
    said = shortened(clean_line(prediction.text), 400) or "(no answer)"
    best = [
        {"text": span.text, "score": round(span.score, 4), "begin": span.begin, "end": span.end}
        for span in prediction.best
    ]
    answer = {
        "question": sample.question,
        "answer": prediction.text,
        "score": score,
        "begin": prediction.begin,
        "end": prediction.end,
        "best": best,
    }
    others = [
        f"{shortened(clean_line(span.text), 200) or '(no answer)'} {span.score:.2f}"
        for span in prediction.best
        if span.text != prediction.text and span.score >= SHOWN
    ]
    more = f"  ({', '.join(others)})" if others else ""
    asked = f"{shortened(clean_line(sample.question), 400)} -> " if sample.key else ""  # else the name is the question
    return Artifact(f"{asked}{said}  {score:.2f}{more}", answer, partial(_save, sample, prediction))


def _save(sample: Question, prediction: Answer, folder: Path) -> Path:
    begin, end, text = prediction.begin, prediction.end, sample.context
    marked = f"{text[:begin]}>>>{text[begin:end]}<<<{text[end:]}" if prediction.text else text
    file = folder / f"{_file_name(sample)}.txt"
    said = prediction.text or "(no answer)"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(file, f"{sample.question}\n{said}  {prediction.score:.4f}\n\n{marked}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror or error})") from error
    return file


def _file_name(sample: Question) -> str:
    """Return the name of an answer's file: the question's id; where that is no name, what is left of it and a hash."""
    from hashlib import sha256

    name = "".join(letter if letter.isalnum() else "_" for letter in sample.key or sample.question)[:50]
    if name == sample.key:
        return name
    return f"{name}_{sha256(repr(sample).encode()).hexdigest()[:8]}"


class AnswerFile:
    """Writes answers as SQuAD's own evaluation reads them: an object, text by id; no answer is an empty text."""

    def __init__(self, path: Path) -> None:
        self._path, self._answers = path, dict[str, str]()

    def see(self, batch: Batch, predictions: Sequence[Answer]) -> None:
        """Take in a batch."""
        self._answers |= {name: one.text for name, one in zip(batch.names, predictions, strict=True)}

    def close(self) -> None:
        """Write the file."""
        try:
            text = json.dumps(self._answers, ensure_ascii=False, indent=1) + "\n"
            write_file(self._path, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise ConfigError(f"--save_predictions: {self._path} cannot be written ({error.strerror})") from error


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes an evaluation's answers."""
    return AnswerFile(path)


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> Sequence[str | None]:
    """Read the source framework's answers: an object, text by the question's id, as :class:`AnswerFile` writes it.

    Raises:
        DataError: the file is no such object, or has no question of the data set.
    """
    try:
        found = json.loads(read_regular(file).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as JSON ({error}); give an object, text by id") from error
    names = dataset.batch(range(len(dataset))).names
    if not isinstance(found, dict) or not any(name in found for name in names):
        raise DataError(f"{file} has no question of the data set; give an object, text by id")
    return [found.get(name) for name in names]


def agreement(prediction: Answer, answer: str) -> float:
    """Return the F1 of two answers."""
    from utils.metrics.answers import f1

    return f1(prediction.text, answer)


def summary(predictions: Sequence[Answer], model: Model, options: Options) -> str:
    """Say how many questions have an answer."""
    silent = sum(not one.text for one in predictions)
    asked = "1 question" if len(predictions) == 1 else f"{len(predictions)} questions"
    return f"{asked}, {silent} without an answer in the text"


def check(options: Options) -> None:
    """Refuse settings that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    check_lengths(options)
    if options.stride is not None and options.stride < 0:
        raise ConfigError(f"--stride {options.stride} must be at least 0 tokens")
    for name in ("max_answer_length", "n_best"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} {getattr(options, name)} must be at least 1")
    if options.null_threshold != options.null_threshold:
        raise ConfigError("--null_threshold nan is no number of logits; 0 is usual")


FLAGS = (
    *(
        Flag(
            one.name,
            one.help,
            list(LENGTHS) if one.key == "lengths" else one.default,
            one.type,
            nargs=one.nargs,
            metavar=one.metavar,
        )
        for one in LENGTH_FLAGS
    ),
    *TEXT_FLAGS,
    Flag("--stride", "tokens that windows of a long text share; left out: a third of a window", None, int),
    Flag("--max_answer_length", "tokens of an answer at most", 30, int),
    Flag("--n_best", "answers to show per question", 3, int),
    Flag(
        "--no_answer",
        "whether a text may not answer; auto: what the model stores, else whether the data has such questions",
        "auto",
        choices=("auto", "yes", "no"),
    ),
    KIND_FLAG,
    Flag("--null_threshold", "how much surer no answer must be than the best one, in logits", 0.0, float),
    Flag(
        "--metric",
        "the metric of record; the other one is shown beside it",
        METRICS[0],
        choices=METRICS,
        scripts=("valid",),
    ),
    Flag(
        "--language",
        "how answers are compared: words (en) or characters (zh); auto: as the questions are written",
        "auto",
        choices=("auto", "en", "zh"),
        scripts=("valid",),
    ),
)

QUESTION_ANSWERING = Task(
    name="question_answering",
    domain="nlp",
    load=load,
    typed=typed,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=setup,
    infer=infer,
    open_sizes=open_lengths,
    summary=summary,
    check=check,
    flags=FLAGS,
    watched=False,
    data_help="a .json or .jsonl file of questions: SQuAD, CMRC, or question, context and answers per line",
    answers=answers,
    agreement=agreement,
    saver=saver,
    saves="the answers as SQuAD's own evaluation reads them: text by id",
)
"""BERT-like models with a head of two numbers per token: the first and the last one of the answer."""
