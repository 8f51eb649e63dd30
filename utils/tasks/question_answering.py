"""Extractive question answering: the answer to a question is a span of a text; the metric is F1.

A text that is longer than the model's input is split into overlapping windows (Devlin et al., 2019): one sample is
several rows of a call, and the answer is the best one over all windows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, ModelError
from tecoinfer_modelzoo.files import read_regular, write_file
from tecoinfer_modelzoo.text import shape_text, shortened
from utils.datasets.base import Batch, Dataset, ListDataset
from utils.datasets.text.questions import LANGUAGE, UNANSWERABLE, Question
from utils.metrics.base import Metric
from utils.postprocess.text.spans import Span, Window, best_answer
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.tasks import Flag, Options, Prepared, Rendering, at_least
from utils.tasks.common.outputs import KIND_FLAG, as_logarithms
from utils.tasks.common.prediction_files import write_predictions
from utils.tasks.common.text_input import LENGTH_FLAGS, TEXT_FLAGS, TextTask, fed, inline_texts, longest

LENGTHS = (64, 128, 256, 384)
"""Default planned lengths; the last one is usual for SQuAD."""

NOTE = "question_answering"
"""Metadata key, optional: an object with ``no_answer``, whether the model was trained with unanswerable questions."""

METRICS = ("f1", "exact_match")

SHOWN = 0.005
"""Lowest score of other answers on the answer's line: it is not shown as 0.00."""


class Context(NamedTuple):
    """Context of a question: the question with its text, and the tokens of each window."""

    question: Question
    windows: tuple[Encoded, ...]


class Scores(NamedTuple):
    """Model outputs for a question."""

    starts: Array  # W x L logits, one row per window
    ends: Array  # W x L logits
    silent: bool  # whether "no answer" is allowed


class BatchScores(list[Scores]):
    """Model outputs for the questions of a batch."""

    @property
    def raw(self) -> list[Array]:
        """Start and end logits of the first window of each question, N x L each."""
        return [np.stack([scores.starts[0] for scores in self]), np.stack([scores.ends[0] for scores in self])]


class Answer(NamedTuple):
    """Answer to a question."""

    text: str  # "": no answer
    score: float  # probability among all spans of the text; NaN if the model outputs NaN
    begin: int  # first character in the text
    end: int  # end in the text, in characters
    best: tuple[Span, ...]  # the spans with the highest scores, the answer included
    gap: float  # score of "no answer" minus that of the best span, in logits; -inf if "no answer" is not allowed
    margin: float = math.nan  # distance of the logits from another answer, see utils.postprocess.text.spans.Found


class QuestionAnswering(TextTask):
    """BERT-like models with two logits per token: first and last token of the answer."""

    name = "question_answering"
    data_help = "a .json or .jsonl file of questions: SQuAD, CMRC, or question, context and answers per line"
    flags = (
        *(replace(one, default=list(LENGTHS)) if one.key == "lengths" else one for one in LENGTH_FLAGS),
        *TEXT_FLAGS,
        Flag("--stride", "tokens that windows of a long text share; left out: a third of a window", None, int),
        Flag("--max_answer_length", "tokens of an answer at most", 30, int),
        Flag("--n_best", "answers to show per question", 3, int),
        Flag("--no_answer", "allow no answer; auto: as the model stores, else whether the data has such questions",
             "auto", choices=("auto", "yes", "no")),
        KIND_FLAG,
        Flag("--null_threshold", "logits by which no answer must exceed the best answer", 0.0, float),
        Flag("--metric", "the metric of record; the other one is reported too", METRICS[0],
             choices=METRICS, scripts=("valid",)),
        Flag("--language", "units of comparison: words (en) or characters (zh); auto: by the script of the questions",
             "auto", choices=("auto", "en", "zh"), scripts=("valid",)),
    )  # fmt: skip
    writes = "the answers as SQuAD's own evaluation reads them: text by id"
    state: bool  # whether "no answer" is allowed

    def check(self) -> None:
        """Check lengths, ``--stride``, ``--max_answer_length``, ``--n_best`` and ``--null_threshold``."""
        super().check()
        at_least(self.options, stride=0, max_answer_length=1, n_best=1)
        if np.isnan(self.options.null_threshold):
            raise ConfigError("--null_threshold nan must be a number of logits; 0 is usual")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the questions, for ``valid`` with answers (:func:`~utils.datasets.text.questions.load_questions`)."""
        from utils.datasets.text.questions import load_questions

        return self.selected(load_questions(paths["data"], answers=self.options.script == "valid"))

    def inline_samples(self) -> Dataset | None:
        """Return the questions of ``--text QUESTION --pair TEXT`` or ``--text QUESTION TEXT``; ``None`` if not given.
        Raises ConfigError if the text is missing or empty."""
        options = self.options
        texts: list[str] | None = getattr(options, "text", None)
        if texts is not None and getattr(options, "pair", None) is None:
            if len(texts) < 2:
                raise ConfigError("--text has a question and no text; give --text QUESTION --pair TEXT")
            options = Options(**{**vars(options), "text": texts[:-1], "pair": texts[-1:]})
        found = inline_texts(options)
        if found is None:
            return None
        pairs = found.batch(range(len(found))).samples
        return ListDataset([Question(*pair) for pair in pairs], names=[shortened(question) for question, _ in pairs])

    def prepare(self, samples: Sequence[Question]) -> Prepared:
        """Tokenize questions and texts; a text that does not fit becomes several windows, one row each.

        Neighbouring windows share ``--stride`` tokens of the text.

        Raises:
            ModelError: The tokenizer is missing or does not fit the model.
            DataError: A question leaves no room for its text.
            ConfigError: ``--stride`` is as long as a window.
        """
        asked = self.options.stride
        tokens = Tokens.of(self.model, self.options)
        length = longest(self.model, self.options, tokens) or LENGTHS[-1]
        stride = length // 3 if asked is None else asked
        contexts = []
        for sample in samples:
            pair = (sample.question, sample.context)
            try:
                windows = tokens.encode([pair], length, "only_second", stride, overflow=True)
            except DataError as error:
                if asked is not None:
                    raise DataError(f"question {sample.key or sample.question[:40]!r}: {error}") from error
                windows = tokens.encode([pair], length, "only_second", 0, overflow=True)  # a long question
            contexts.append(Context(sample, tuple(windows)))
        arrays = fed([window for context in contexts for window in context.windows], self.model)
        return arrays._replace(contexts=contexts)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> bool:
        """Return whether "no answer" is allowed: by ``--no_answer``, else the export, else the data set."""
        Tokens.find(self.model, self.options)  # raises early if the tokenizer does not fit
        if self.options.no_answer != "auto":
            return bool(self.options.no_answer == "yes")
        note = self.model.stored.json(NOTE, {})
        if not isinstance(note, dict) or not isinstance(note.get("no_answer", False), bool):
            raise ModelError(
                f"{self.model.ckpt}: metadata {NOTE!r}: {note!r} must be an object with no_answer; export it again"
            )
        return bool(note.get("no_answer", dataset.notes.get(UNANSWERABLE, False)))

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Context]) -> BatchScores:
        """Return start and end logits of all windows, in calls of at most ``--batch_size`` rows.
        Raises ModelError if the outputs are not two of N x L, or one of N x L x 2."""
        (engine,) = engines.values()
        step, found = self.options.batch_size, []
        for begin in range(0, len(arrays[0]), step):
            outputs = engine([array[begin : begin + step] for array in arrays])
            found.append(self._logits(outputs if isinstance(outputs, list) else [outputs], engine))
        starts, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
        scores, row = BatchScores(), 0
        for context in contexts:
            part = slice(row, row + len(context.windows))
            scores.append(Scores(starts[part], ends[part], self.state))
            row = part.stop
        return scores

    def _logits(self, outputs: Sequence[Array], engine: Engine) -> tuple[Array, Array]:
        """Return start and end logits, N x L each; two outputs are distinguished by name, else by order.
        Of probabilities the logarithms are taken: a span's score is the sum of two."""
        outputs = [
            as_logarithms(output, self.model.form(self.options, place), self.model)
            for place, output in enumerate(outputs)
        ]
        if len(outputs) == 1 and outputs[0].ndim == 3 and outputs[0].shape[2] == 2:
            return outputs[0][..., 0], outputs[0][..., 1]
        flat = [place for place, output in enumerate(outputs) if output.ndim == 2]
        if len(flat) != 2:
            shapes = ", ".join(shape_text(output.shape) for output in outputs)
            raise ModelError(
                f"{engine.spec.ckpt}: its outputs are {shapes}; expected start and end logits, N x L each, or one "
                "N x L x 2: export the model with its head"
            )
        names = [engine.outputs[place].name.lower() for place in flat]
        first, last = reversed(flat) if "end" in names[0] and "start" in names[1] else flat
        return outputs[first], outputs[last]

    def decode(self, outputs: Sequence[Scores], contexts: Sequence[Context]) -> list[Answer]:
        """Return the best answer to each question over all its windows."""
        return [self._answer(scores, context) for scores, context in zip(outputs, contexts, strict=True)]

    def _answer(self, scores: Scores, context: Context) -> Answer:
        windows = []
        for row, one in enumerate(context.windows):
            count = len(one.ids)
            starts, ends = scores.starts[row, :count], scores.ends[row, :count]
            inside = (one.part == 1) & (one.spans[:, 1] > one.spans[:, 0])
            free = int(np.argmax(one.part < 0))  # the first special token: [CLS], <s>
            windows.append(Window(starts, ends, one.spans, inside, (float(starts[free]), float(ends[free]))))
        found = best_answer(
            windows,
            context.question.context,
            longest=self.options.max_answer_length,
            count=self.options.n_best,
            silent=scores.silent,
            threshold=self.options.null_threshold,
        )
        answer = found.answer
        return Answer(answer.text, answer.score, answer.begin, answer.end, found.best, found.gap, found.margin)

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.text.answers import METRICS as KINDS

        asked = self.options.language
        return KINDS[self.options.metric](dataset.notes.get(LANGUAGE, "en") if asked == "auto" else asked)

    def show(self, sample: Question, prediction: Answer) -> Rendering:
        """Return the answer with its score; saving writes the question and the text with the answer marked."""
        from tecoinfer_modelzoo.formatting import clean_line

        score = round(float(prediction.score), 4)
        said = shortened(clean_line(prediction.text), 400) or "(no answer)"
        best = [
            {"text": span.text, "score": round(span.score, 4), "begin": span.begin, "end": span.end}
            for span in prediction.best
        ]
        answer = {"question": sample.question, "answer": prediction.text, "score": score}
        answer |= {"begin": prediction.begin, "end": prediction.end, "best": best}
        others = [
            f"{shortened(clean_line(span.text), 200) or '(no answer)'} {span.score:.2f}"
            for span in prediction.best
            if span.text != prediction.text and span.score >= SHOWN
        ]
        more = f"  ({', '.join(others)})" if others else ""
        asked = f"{shortened(clean_line(sample.question), 400)} -> " if sample.key else ""  # else it is the name
        return Rendering(f"{asked}{said}  {score:.2f}{more}", answer, partial(_save, sample, prediction))

    def summary(self, predictions: Sequence[Answer]) -> str:
        """Return the numbers of questions and of questions without an answer."""
        silent = sum(not one.text for one in predictions)
        asked = "1 question" if len(predictions) == 1 else f"{len(predictions)} questions"
        return f"{asked}, {silent} without an answer in the text"

    def prediction_writer(self, path: Path, dataset: Dataset) -> AnswerFile:
        """Return a writer of SQuAD's prediction format."""
        return AnswerFile(path)

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[str | None]:
        """Read a JSON object of answers by question id, as :class:`AnswerFile` writes it.
        Raises DataError if the file is not such an object, or has no question of the data set."""
        try:
            found = json.loads(read_regular(file).decode("utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{file} cannot be read as JSON ({error}); write an object of answers by id") from error
        names = dataset.batch(range(len(dataset))).names
        if not isinstance(found, dict) or not any(name in found for name in names):
            raise DataError(f"{file} has no question of the data set; write an object of answers by id")
        return [found.get(name) for name in names]

    def agreement(self, prediction: Answer, answer: str) -> float:
        """Return the F1 of two answers."""
        from utils.metrics.text.answers import f1

        return f1(prediction.text, answer)


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
    """Return a file name: the question's id, or, if it has other characters, its letters and digits and a hash."""
    from hashlib import sha256

    name = "".join(letter if letter.isalnum() else "_" for letter in sample.key or sample.question)[:50]
    if name == sample.key:
        return name
    return f"{name}_{sha256(repr(sample).encode()).hexdigest()[:8]}"


class AnswerFile:
    """Writer of SQuAD's prediction format: an object of answers by id; no answer is an empty text."""

    def __init__(self, path: Path) -> None:
        self._path, self._answers = path, dict[str, str]()

    def see(self, batch: Batch, predictions: Sequence[Answer]) -> None:
        """Add a batch."""
        self._answers |= {name: one.text for name, one in zip(batch.names, predictions, strict=True)}

    def close(self) -> None:
        """Write the file."""
        write_predictions(self._path, json.dumps(self._answers, ensure_ascii=False, indent=1) + "\n")
