"""Autoregressive text generation; the metric is perplexity on texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, EngineError, Timeline
from utils.datasets.base import Dataset, ListDataset
from utils.metrics.base import Metric
from utils.postprocess.text.sampling import Chooser, Sampling, seed_of
from utils.preprocess.text.tokens import Tokens
from utils.tasks import Flag, Model, OpenSizes, Options, Prepared, Rendering, Task, at_least, str2bool
from utils.tasks.common import generation
from utils.tasks.common.class_scores import JoinedRows
from utils.tasks.prepared import Streamed
from utils.tasks.templates import sample_tables

if TYPE_CHECKING:
    from utils.metrics.text.perplexity import Score

STORED = "generation"
"""Metadata key: an object with ``positions`` (maximum tokens of a text), ``begin`` and ``end`` (start and end token, or
null), ``begins`` (whether texts of the training started with ``begin``)."""

SCORED = "scored tokens"
"""Stage in a timeline: scoring of texts; samples are tokens."""

TAIL = 8
"""Number of last tokens that are checked for a stop string, in addition to the string's number of characters."""

ENDS = {
    "stop": "ended by the end token",
    "ended": "at a string of --stop",
    "limit": "truncated at --max_new_tokens",
    "nan": "NaN",
}
"""Reasons of the end of a text (:class:`~utils.tasks.common.generation.Continuation`), in words."""

_PARTIAL = "\ufffd"
"""Replacement of bytes that are not a character."""

ANSWERS = ("single", "multi")
"""Scripts that continue prompts; ``valid`` scores texts."""


class Prompt(NamedTuple):
    """A text, and the number of equal texts before it in the data, which makes random draws differ."""

    text: str
    again: int = 0


class Text(NamedTuple):
    """Context of a text."""

    prompt: Prompt  # the text
    ids: Array  # its tokens, int64, with the start token if requested
    size: int  # UTF-8 bytes of the predicted characters: all except those of the first token


class Answer(NamedTuple):
    """Prediction for a prompt."""

    prompt: str
    text: str  # the continuation, up to a string of --stop
    tokens: int  # number of new tokens
    why: str  # see generation.Continuation
    score: float  # mean natural logarithm of the tokens' probabilities


class Notes(NamedTuple):
    """Metadata of the export (:data:`STORED`); ``None``: not stored."""

    positions: int | None = None
    begin: int | None = None
    end: int | None = None
    begins: bool = False

    @classmethod
    def of(cls, model: Model) -> Notes:
        """Read the metadata. Raises ModelError if it is invalid."""
        found = model.stored.json(STORED)
        if found is None:
            return cls()
        fields = {key: found.get(key) for key in ("positions", "begin", "end")} if isinstance(found, dict) else {}
        good = all(one is None or (isinstance(one, int) and not isinstance(one, bool)) for one in fields.values())
        if not fields or not good:
            raise model.unusable(STORED, f"{found!r} cannot be read")
        return cls(**fields, begins=bool(found.get("begins", False)))


def plans(options: Options) -> generation.Plans:
    """Return the planned sizes by the flags; they always include a chunk of one token."""
    slots, chunks = options.lengths or generation.SLOTS, options.chunks or generation.CHUNKS
    return generation.Plans(tuple(sorted(set(slots))), tuple(sorted({1, *chunks})))


class TextGeneration(JoinedRows, Task):
    """Decoders with a key/value cache of planned sizes (:mod:`utils.tasks.common.generation`)."""

    name = "text_generation"
    domain = "nlp"
    template = sample_tables.TEXT_GENERATION
    data_help = "a .txt file with a text per line, or a .jsonl, .tsv or .csv file with a column text or prompt"
    flags = (
        Flag("--max_new_tokens", "maximum tokens of an answer", 40, int, scripts=ANSWERS),
        Flag("--stop", "strings that end an answer; it is cut before them", None, nargs="+", scripts=ANSWERS),
        Flag("--do_sample", "sample each token, else take the best", False, str2bool, nargs="?", scripts=ANSWERS),
        Flag("--temperature", "divisor of the logits before sampling", 1.0, float, scripts=ANSWERS),
        Flag("--top_k", "sample from this number of best tokens; 0: all", 50, int, scripts=ANSWERS),
        Flag("--top_p", "sample from the best tokens with this total probability; 1: all", 1.0, float, scripts=ANSWERS),
        Flag("--repetition_penalty", "above 1: lowers the probability of used tokens", 1.0, float, scripts=ANSWERS),
        Flag("--seed", "of sampling; the answer depends on the seed and the prompt", 0, int, scripts=ANSWERS),
        Flag("--ignore_end", "continue after the end token", False, str2bool, nargs="?", scripts=ANSWERS),
        Flag("--text", "prompts to continue instead of data", None, nargs="+", metavar="TEXT", scripts=ANSWERS),
        Flag("--begin", "prepend the start token (default: as stored)", None, str2bool, nargs="?"),
        Flag("--window", "tokens per window; 0: the model's maximum", 0, int, scripts=("valid",)),
        Flag("--stride", "tokens between starts of windows; 0: half a window", 0, int, scripts=("valid",)),
        Flag("--text_column", "column of a table with the texts", None, metavar="NAME"),
        Flag("--tokenizer", "tokenizer.json, or its folder, if the model stores none", None, metavar="FILE"),
        Flag("--lengths", "planned sizes of the key/value cache", [64, 128, 256, 512, 1024], int, nargs="+"),
        Flag("--chunks", "planned numbers of tokens per call, in addition to 1", [16, 64], int, nargs="+"),
    )  # fmt: skip
    state: generation.Decoder  # the decoder

    def check(self) -> None:
        """Check all numbers, and ``--stop``."""
        options = self.options
        at_least(options, lengths=1, chunks=1, max_new_tokens=1, top_k=0, window=0, stride=0, seed=0)
        if options.window == 1:
            raise ConfigError("--window 1 leaves no token to predict from; use at least 2")
        for name, most in (("temperature", float("inf")), ("top_p", 1.0), ("repetition_penalty", float("inf"))):
            value = getattr(options, name)
            if not 0 < value <= most or value == float("inf"):  # NaN too
                hint = "; for the best token, leave out --do_sample" if (name, value) == ("temperature", 0) else ""
                raise ConfigError(
                    f"--{name} {value} must be a finite number above 0{'' if most > 1 else ' and at most 1'}{hint}"
                )
        if any(not one for one in options.stop or ()):
            raise ConfigError("--stop: an empty string is part of every text; leave it out")

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the sizes of open dimensions: tokens (input 0, dimension 1) and slots of the mask (input 2)."""
        asked = plans(self.options)
        return {"model": {(0, 1): asked.chunks, (2, 1): asked.slots}}

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the texts of a file or folder (:func:`~utils.datasets.text.texts.load_texts`), as prompts.
        The target of a text is the text itself."""
        from utils.datasets.text.texts import Columns, load_texts

        return self.selected(_prompts(load_texts(paths["data"], Columns(text=self.options.text_column))))

    def inline_samples(self) -> Dataset | None:
        """Return the prompts of ``--text``; ``None`` if not given."""
        from utils.tasks.common.text_input import inline_texts

        found = inline_texts(self.options)
        return None if found is None else _prompts(found)

    def prepare(self, samples: Sequence[Prompt]) -> Prepared:
        """Return the number of tokens of each text, N int64; the tokens are in the contexts.

        Raises:
            DataError: A text is too short, or a prompt with its continuation is too long for the model.
            ConfigError: ``--begin`` is given, and the model stores no start token.
        """
        tokens, stored = Tokens.of(self.model, self.options), Notes.of(self.model)
        begins = stored.begins if self.options.begin is None else self.options.begin
        if begins and stored.begin is None:
            raise ConfigError(f"{self.model.ckpt}: has no stored start token; leave out --begin")
        before = np.array([stored.begin] if begins else [], np.int64)
        made = []
        for sample in samples:
            encoded = tokens.encode([sample.text], special=False)[0]
            after = 0 if begins else int(encoded.spans[0, 1])
            ids = np.concatenate([before, encoded.ids])
            made.append(Text(sample, ids, len(sample.text[after:].encode("utf-8", "surrogatepass"))))
        for one in made:
            self._refuse(len(one.ids))
        return Prepared([np.array([len(one.ids) for one in made], np.int64)], made)

    def _refuse(self, count: int) -> None:
        """Raise DataError if a text is too short for scoring or a prompt too long; the last new token is never fed."""
        if self.options.script == "valid":
            if count < 2:
                raise DataError("the text is a single token; at least two are needed")
            return
        (most, what), new = self._room(), self.options.max_new_tokens
        if count > most:
            raise DataError(f"the prompt has {count} tokens, {what} {most}; shorten it")
        if count + new - 1 > most:
            raise DataError(
                f"the prompt has {count} tokens, {what} {most}, so --max_new_tokens {new} must be at most "
                f"{most + 1 - count}; lower it, or shorten the prompt"
            )

    def _room(self) -> tuple[int, str]:
        """Return the maximum number of fed tokens, and a phrase about the limit."""
        cache = max(self._planned(), default=0)
        positions = Notes.of(self.model).positions
        if positions is not None and positions <= cache:
            return positions, "the model takes"
        return cache, "the largest planned cache (--lengths) holds"

    def _planned(self) -> tuple[int, ...]:
        """Return the sizes of a cache: the fixed one, those of ``--dim``, or ``--lengths``."""
        slots = plans(self.options).slots
        inputs = self.model.inputs
        place = next((i for i, one in enumerate(inputs) if "past" in one.name.lower() and len(one.shape) > 2), None)
        return slots if place is None else self.model.sizes(place, generation.cache_axes(inputs[place])[1]) or slots

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> generation.Decoder:
        """Return the decoder, and check the model's inputs and outputs."""
        (engine,) = engines.values()
        return generation.Decoder(engine, Model.of(engine), plans(self.options))

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Text]) -> list[Any]:
        """Score texts (``valid``), or continue prompts; entries start with a score, NaN if the model outputs NaN.
        With ``--skip_postprocess`` return the logits after each prompt, N x V float32."""
        (engine,) = engines.values()
        if getattr(self.options, "skip_postprocess", False):
            return [self.state([one.ids for one in contexts], None)[0]]
        if self.options.script == "valid":
            return self._scored(contexts, engine.timeline)
        return [(one.score, one) for one in self._continued(contexts, engine.timeline)]

    def stream(self, engines: Mapping[str, Engine], text: str, emit: Callable[[str], bool]) -> Streamed:
        """Continue a prompt, and pass on every piece of text as soon as later tokens cannot change it."""
        (engine,), prompt = engines.values(), Prompt(text)
        contexts: list[Text] = self.prepare([prompt]).contexts or []
        context = contexts[0]
        tokens, stop = Tokens.of(self.model, self.options), self.options.stop or ()
        pieces = Pieces(partial(_added, tokens, context), max(map(len, stop), default=1) - 1, emit)
        (made,) = self._continued(contexts, engine.timeline, pieces.see)
        found = _answer(tokens, context, made, stop)
        pieces.end(found.text)
        if made.why == "nan":
            raise EngineError(f"{self.model.ckpt}: its logits hold NaN; use --dtype float32")
        return Streamed(found.text, len(context.ids), found.tokens, made.why != "limit")

    def _continued(
        self, contexts: Sequence[Text], timeline: Timeline, seen: Callable[[Sequence[int]], bool] | None = None
    ) -> list[generation.Continuation]:
        """Continue prompts; ``seen`` gets the new tokens of a text after each, and returns whether to end it."""
        options, stored = self.options, Notes.of(self.model)
        stop = frozenset(() if stored.end is None or options.ignore_end else (stored.end,))
        how = Sampling(options.do_sample, options.temperature, options.top_k, options.top_p, options.repetition_penalty)
        seeds = [seed_of(options.seed, one.prompt.text, one.prompt.again) for one in contexts] if how.random else ()
        says = partial(_says, Tokens.of(self.model, options), tuple(options.stop)) if options.stop else None
        ended = says if seen is None else lambda ids: seen(ids) or (says is not None and says(ids))
        limits = generation.Limits(options.max_new_tokens, stop, ended)
        return generation.generate(self.state, [one.ids for one in contexts], limits, Chooser(how, seeds), timeline)

    def _scored(self, contexts: Sequence[Text], timeline: Timeline) -> list[Any]:
        import time

        from utils.metrics.text.perplexity import Score

        size = self._window()
        start = time.perf_counter()
        found = costs(self.state, [one.ids for one in contexts], size, self._stride(size))
        timeline.add(SCORED, start, time.perf_counter(), sum(len(one.ids) - 1 for one in contexts))
        return [Score(cost, len(one.ids) - 1, one.size) for cost, one in zip(found, contexts, strict=True)]

    def _window(self) -> int:
        """Return the tokens per window: ``--window``, or the maximum of model and cache."""
        most, what = self._room()
        asked: int = self.options.window or most
        if asked > most:
            raise ConfigError(f"--window {asked}: {what} {most} tokens; use at most {most}")
        return asked

    def _stride(self, size: int) -> int:
        found: int = self.options.stride or max(1, size // 2)
        if found >= size:
            raise ConfigError(f"--stride {found} must be less than the window of {size} tokens")
        return found

    def decode(self, outputs: Sequence[Any], contexts: Sequence[Text]) -> list[Any]:
        """Return the continuation of each prompt, or in ``valid`` the score of each text."""
        if self.options.script == "valid":
            return list(outputs)
        tokens, stop = Tokens.of(self.model, self.options), self.options.stop or ()
        return [_answer(tokens, given, made, stop) for given, (_, made) in zip(contexts, outputs, strict=True)]

    def metric(self, dataset: Dataset) -> Metric:
        """Return perplexity."""
        from utils.metrics.text.perplexity import Perplexity

        return Perplexity()

    def show(self, sample: Prompt, prediction: Answer | Score) -> Rendering:
        """Return the continuation, or the score of ``valid``, as one line; saving a continuation writes a text file."""
        from tecoinfer_modelzoo.formatting import clean_line

        if not isinstance(prediction, Answer):
            mean = prediction.cost / prediction.tokens
            return Rendering(f"{mean:.5f} nats per token, {prediction.tokens} tokens", prediction._asdict())
        line = clean_line(prediction.text.replace("\n", " \u23ce ")) or "(nothing)"
        answer = {**prediction._asdict(), "score": round(prediction.score, 4)}
        return Rendering(f"-> {line}", answer, partial(_save, sample, prediction))

    def summary(self, predictions: Sequence[Answer]) -> str:
        """Return the number of tokens, and the reasons of the texts' ends."""
        ends = Counter(one.why for one in predictions)
        listed = ", ".join(f"{count} {ENDS[why]}" for why, count in sorted(ends.items()))
        return f"{sum(one.tokens for one in predictions)} tokens; {listed}"

    def extra_figures(self, timeline: Timeline, samples: int) -> dict[str, float]:
        """Return tokens/s and times to the first token (:func:`~utils.tasks.common.generation.figures_of`), and
        ``scored_tokens_per_s``."""
        found = generation.figures_of(timeline)
        if timeline.seconds(SCORED):
            found["scored_tokens_per_s"] = timeline.samples(SCORED) / timeline.seconds(SCORED)
        return found


def _prompts(found: Any) -> ListDataset:
    """Return texts as prompts; of pairs the first text."""
    seen: Counter[str] = Counter()
    prompts = []
    for one in found.samples:
        text = one if isinstance(one, str) else one[0]
        prompts.append(Prompt(text, seen[text]))
        seen[text] += 1
    texts = [one.text for one in prompts]
    return ListDataset(prompts, texts, names=found.names, files=found.files, rejected=found.rejected)


def _says(tokens: Tokens, strings: Sequence[str], ids: Sequence[int]) -> bool:
    """Return whether the last tokens contain one of the strings."""
    tail = tokens.decode(ids[-TAIL - max(map(len, strings)) :])
    return any(one in tail for one in strings)


def _answer(tokens: Tokens, given: Text, made: generation.Continuation, stop: Sequence[str]) -> Answer:
    """Return the answer: the text of the new tokens up to a stop string."""
    text = _added(tokens, given, made.ids)
    ends = [place for place in (text.find(one) for one in stop) if place >= 0]
    text = text[: min(ends)] if ends else text
    return Answer(given.prompt.text, text, len(made.ids), made.why, made.score / max(made.counted, 1))


def _added(tokens: Tokens, given: Text, ids: Sequence[int]) -> str:
    """Return the text that new tokens add to the prompt: some tokenizers decode a first token differently."""
    before, whole = tokens.decode(given.ids), tokens.decode([*given.ids.tolist(), *ids])
    return whole[len(before) :] if whole.startswith(before) else tokens.decode(ids)


class Pieces:
    """Passes on a growing text piece by piece.

    Args:
        text_of: returns the text of the new tokens so far.
        held: characters at the end that wait, as they may begin a stop string.
        emit: takes a piece; returns ``False`` to end the text.
    """

    def __init__(self, text_of: Callable[[Sequence[int]], str], held: int, emit: Callable[[str], bool]) -> None:
        self._text_of, self._held, self._emit = text_of, held, emit
        self._shown = ""

    def see(self, ids: Sequence[int]) -> bool:
        """Take in the tokens so far; return whether the text is to end."""
        text = self._text_of(ids)
        if text.endswith(_PARTIAL):  # the bytes of a character are not complete yet
            return False
        return not self._pass_on(text[: len(text) - self._held] if self._held else text)

    def end(self, text: str) -> None:
        """Pass on the rest of the complete text."""
        self._pass_on(text)

    def _pass_on(self, text: str) -> bool:
        if len(text) <= len(self._shown) or not text.startswith(self._shown):
            return True
        piece, self._shown = text[len(self._shown) :], text
        return self._emit(piece)


def _save(prompt: Prompt, one: Answer, folder: Path) -> Path:
    """Write prompt and continuation; the file name is reproducible and unique per prompt, also for equal prompts."""
    from hashlib import sha256

    from tecoinfer_modelzoo.files import write_file

    text = one.prompt + one.text + "\n"
    words = "_".join("".join(c if c.isalnum() else " " for c in one.prompt).split()[:5])[:40]
    own = text + f"\0{prompt.again}" * (prompt.again > 0)
    path = folder / f"{words or 'prompt'}_{sha256(own.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"--save {folder}: {path.name} cannot be written ({error.strerror or error})") from error
    return path


class Window(NamedTuple):
    """Part of a text: the tokens from ``begin`` to ``end``; those from ``first`` on are predicted in this window."""

    begin: int
    end: int
    first: int


def windows(tokens: int, size: int, stride: int) -> list[Window]:
    """Return windows of at most ``size`` tokens, ``stride`` apart; every token except the first is predicted once, in
    the first window that contains it.
    """
    found = [Window(0, min(size, tokens), 1)]
    while found[-1].end < tokens:
        last = found[-1]
        begin = last.begin + stride
        found.append(Window(begin, min(begin + size, tokens), last.end))
    return found


def costs(decoder: generation.Decoder, texts: Sequence[Array], size: int, stride: int) -> list[float]:
    """Return the negative natural log-likelihood of each text, without its first token.

    Args:
        decoder: gets an empty cache for each round of windows. texts: int64, at least two tokens each.
        size: maximum tokens of a window. stride: tokens between starts of windows, at most ``size - 1``.
    """
    cut = [windows(len(text), size, stride) for text in texts]
    found = [0.0] * len(texts)
    for turn in range(max(map(len, cut), default=0)):
        rows = [row for row, parts in enumerate(cut) if turn < len(parts)]
        parts = [cut[row][turn] for row in rows]
        fed = [texts[row][part.begin : part.end - 1] for row, part in zip(rows, parts, strict=True)]
        for chunk in decoder.chunks(fed, decoder.empty(len(rows))):
            for place, (row, part) in enumerate(zip(rows, parts, strict=True)):
                first = max(int(chunk.first[place]), part.first - part.begin - 1)
                end = int(chunk.end[place])
                if first < end:
                    offset = int(chunk.first[place])
                    logits = chunk.logits[place, first - offset : end - offset].astype(np.float32)
                    wanted = texts[row][part.begin + first + 1 : part.begin + end + 1]
                    found[row] -= float(generation.log_probabilities(logits, wanted).sum())
    return found
