"""Text generation: a prompt in, what follows it out, token by token; the metric is perplexity on texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, Engine, Timeline
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.postprocess.text.sampling import Chooser, Sampling, seed_of
from utils.preprocess.text.tokens import Tokens
from utils.tasks.base import Artifact, Flag, Options, Task, str2bool
from utils.tasks.generation_steps import FIRST, NEXT, Continuation, Decoder, Limits, Plans, generate
from utils.tasks.model import Model
from utils.tasks.templates.diets import TEMPLATE
from utils.tasks.text_generation_input import (
    Prompt,
    Text as Given,
    collate,
    load,
    notes,
    open_sizes,
    plans,
    prepare,
    typed,
)

SCORED = "scored tokens"
"""Stage in a timeline: texts that are scored; samples are their tokens."""

TAIL = 8
"""Tokens that are looked at for a string that ends a text, beside as many as the string has characters."""


class Answer(NamedTuple):
    """What follows a prompt.

    Attributes:
        prompt, text: the prompt, and what follows it, up to a string of ``--stop``.
        tokens: how many were made. why: it ended, as :class:`~utils.tasks.generation_steps.Continuation` has it.
        score: mean natural logarithm of the probability of a token.
    """

    prompt: str
    text: str
    tokens: int
    why: str
    score: float


class Writer(NamedTuple):
    """What continues or scores texts, set up once."""

    model: Model
    plans: Plans
    options: Options


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> Writer:
    """Return what is known of the model; a model that is no decoder is refused here."""
    (engine,) = engines.values()
    model = Model.of(engine)
    Decoder(engine, model, plans(options))
    return Writer(model, plans(options), options)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Given], state: Writer) -> list[Any]:
    """Score texts (``valid``), or continue prompts; each entry begins with a number, NaN where the model's is.

    With ``--skip_postprocess`` the raw output is the logits behind each prompt, N x V float32.
    """
    (engine,) = engines.values()
    decoder = Decoder(engine, state.model, state.plans)
    if getattr(state.options, "skip_postprocess", False):
        return [decoder([one.ids for one in contexts], None)[0]]
    if state.options.script == "valid":
        return _scored(decoder, contexts, state, engine.timeline)
    made = _continued(decoder, contexts, state, engine.timeline)
    return [(one.score, one) for one in made]


def _continued(decoder: Decoder, contexts: Sequence[Given], state: Writer, timeline: Timeline) -> list[Continuation]:
    options, stored = state.options, notes(state.model)
    stop = frozenset(() if stored.end is None or options.ignore_end else (stored.end,))
    how = Sampling(options.do_sample, options.temperature, options.top_k, options.top_p, options.repetition_penalty)
    seeds = [seed_of(options.seed, one.prompt.text, one.prompt.again) for one in contexts] if how.random else ()
    ended = partial(_says, Tokens.of(state.model, options), tuple(options.stop)) if options.stop else None
    limits = Limits(options.max_new_tokens, stop, ended)
    return generate(decoder, [one.ids for one in contexts], limits, Chooser(how, seeds), timeline)


def _says(tokens: Tokens, strings: Sequence[str], ids: Sequence[int]) -> bool:
    """Say whether the last tokens say one of some strings."""
    tail = tokens.decode(ids[-TAIL - max(map(len, strings)) :])
    return any(one in tail for one in strings)


def _scored(decoder: Decoder, contexts: Sequence[Given], state: Writer, timeline: Timeline) -> list[Any]:
    import time

    from utils.metrics.perplexity import Score
    from utils.tasks.text_scoring import costs

    size = _window(state)
    start = time.perf_counter()
    found = costs(decoder, [one.ids for one in contexts], size, _stride(size, state.options))
    timeline.add(SCORED, start, time.perf_counter(), sum(len(one.ids) - 1 for one in contexts))
    return [Score(cost, len(one.ids) - 1, one.size) for cost, one in zip(found, contexts, strict=True)]


def _window(state: Writer) -> int:
    """Return how many tokens a window has: what model and cache hold, or ``--window``."""
    from utils.tasks.text_generation_input import room

    most, what = room(state.model, state.options)
    asked: int = state.options.window or most
    if asked > most:
        raise ConfigError(f"--window {asked}: {what} {most} tokens; use at most {most}")
    return asked


def _stride(size: int, options: Options) -> int:
    found: int = options.stride or max(1, size // 2)
    if found >= size:
        raise ConfigError(
            f"--stride {found} leaves a window of {size} tokens nothing to look back at; use a smaller one"
        )
    return found


def decode(outputs: Sequence[Any], contexts: Sequence[Given], model: Model, options: Options) -> list[Any]:
    """Return the text that follows each prompt, or, of an evaluation, what each text costs."""
    if options.script == "valid":
        return list(outputs)
    tokens = Tokens.of(model, options)
    made = [one for _, one in outputs]
    return [_answer(tokens, given, one, options) for given, one in zip(contexts, made, strict=True)]


def _answer(tokens: Tokens, given: Given, made: Continuation, options: Options) -> Answer:
    """Return the text of some tokens: what they add to the prompt's, as some tokenizers write a first one apart."""
    before, whole = tokens.decode(given.ids), tokens.decode([*given.ids.tolist(), *made.ids])
    text = whole[len(before) :] if whole.startswith(before) else tokens.decode(made.ids)
    ends = [place for place in (text.find(one) for one in options.stop or ()) if place >= 0]
    text = text[: min(ends)] if ends else text
    return Answer(given.prompt.text, text, len(made.ids), made.why, made.score / max(made.counted, 1))


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return perplexity."""
    from utils.metrics.perplexity import Perplexity

    return Perplexity()


def show(sample: Prompt, prediction: Answer, model: Model, options: Options) -> Artifact:
    """Return the continuation as one line; saving writes prompt and continuation as a text file."""
    from utils.text import clean_line

    line = clean_line(prediction.text.replace("\n", " \u23ce ")) or "(nothing)"
    answer = {**prediction._asdict(), "score": round(prediction.score, 4)}
    return Artifact(f"-> {line}", answer, partial(_save, sample, prediction))


def _save(prompt: Prompt, one: Answer, folder: Path) -> Path:
    """Write a file that no other prompt of a run has, an equal one neither, and that the same run writes again."""
    from hashlib import sha256

    from engine import write_file

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


def summary(predictions: Sequence[Answer], model: Model, options: Options) -> str:
    """Say how many tokens there are, and how the texts ended."""
    from collections import Counter

    ends = Counter(one.why for one in predictions)
    listed = ", ".join(f"{count} {_WHY[why]}" for why, count in sorted(ends.items()))
    return f"{sum(one.tokens for one in predictions)} tokens; {listed}"


_WHY = {
    "stop": "ended by themselves",
    "ended": "at a string of --stop",
    "limit": "cut at --max_new_tokens",
    "nan": "NaN",
}


def figures(timeline: Timeline, samples: int) -> dict[str, float]:
    """Return tokens/s, and how long a batch waits for its first tokens: median and 99th percentile, in seconds.

    ``decode_tokens_per_s`` counts the tokens behind the first and the time of the steps that made them. Times are those
    of this host, also where a simulated card computes.
    """
    found = {}
    for name, stage in (("decode_tokens_per_s", NEXT), ("scored_tokens_per_s", SCORED)):
        if timeline.seconds(stage):
            found[name] = timeline.samples(stage) / timeline.seconds(stage)
    spans = [(one.end - one.start, one.samples) for one in list(timeline.spans) if one.stage == FIRST]
    if spans:
        import numpy as np

        waits = np.repeat([seconds for seconds, _ in spans], [count for _, count in spans])
        found["first_token_s_median"] = float(np.median(waits))
        found["first_token_s_p99"] = float(np.quantile(waits, 0.99))
    return found


def check(options: Options) -> None:
    """Refuse settings that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    for name in ("lengths", "chunks"):
        if any(one < 1 for one in getattr(options, name) or ()):
            raise ConfigError(f"--{name} {' '.join(map(str, getattr(options, name)))} must be at least 1 each")
    for name, least in (("max_new_tokens", 1), ("top_k", 0), ("window", 0), ("stride", 0), ("seed", 0)):
        if getattr(options, name) < least:
            raise ConfigError(f"--{name} {getattr(options, name)} must be at least {least}")
    if options.window == 1:
        raise ConfigError("--window 1 leaves nothing to predict from; use at least 2")
    for name, most in (("temperature", float("inf")), ("top_p", 1.0), ("repetition_penalty", float("inf"))):
        value = getattr(options, name)
        if not 0 < value <= most or value == float("inf"):  # NaN too
            hint = "; the best token each time: leave out --do_sample" if name == "temperature" and value == 0 else ""
            raise ConfigError(
                f"--{name} {value} must be a finite number above 0{'' if most > 1 else ' and at most 1'}{hint}"
            )
    if any(not one for one in options.stop or ()):
        raise ConfigError("--stop: an empty string is in every text; leave it out")


ANSWERS = ("single", "multi")

FLAGS = (
    Flag("--max_new_tokens", "most tokens of an answer", 40, int, scripts=ANSWERS),
    Flag("--stop", "strings that end an answer, which is cut before them", None, nargs="+", scripts=ANSWERS),
    Flag("--do_sample", "draw each token at random, else take the best", False, str2bool, nargs="?", scripts=ANSWERS),
    Flag("--temperature", "what logits are divided by before drawing", 1.0, float, scripts=ANSWERS),
    Flag("--top_k", "draw from so many of the best tokens; 0: all", 50, int, scripts=ANSWERS),
    Flag("--top_p", "draw from the best tokens with this probability together; 1: all", 1.0, float, scripts=ANSWERS),
    Flag(
        "--repetition_penalty",
        "makes tokens that the text has less likely where above 1",
        1.0,
        float,
        scripts=ANSWERS,
    ),
    Flag("--seed", "of what is drawn; the answer to a prompt depends on this and the prompt", 0, int, scripts=ANSWERS),
    Flag("--ignore_end", "go on behind the token that ends a text", False, str2bool, nargs="?", scripts=ANSWERS),
    Flag("--text", "prompts to continue instead of data", None, nargs="+", metavar="TEXT", scripts=ANSWERS),
    Flag("--begin", "put the token that begins a text before it (default: what is stored)", None, str2bool, nargs="?"),
    Flag(
        "--window", "tokens of a text that are seen at once; 0: as many as the model takes", 0, int, scripts=("valid",)
    ),
    Flag("--stride", "how far the next window begins; 0: half a window", 0, int, scripts=("valid",)),
    Flag("--text_column", "column of a table that holds the texts", None, metavar="NAME"),
    Flag("--tokenizer", "tokenizer.json, or its folder, where the model stores none", None, metavar="FILE"),
    Flag("--lengths", "planned sizes of the key/value cache", [64, 128, 256, 512, 1024], int, nargs="+"),
    Flag("--chunks", "planned numbers of tokens that are fed at once, beside 1", [16, 64], int, nargs="+"),
)

TEXT_GENERATION = Task(
    name="text_generation",
    domain="nlp",
    load=load,
    typed=typed,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=setup,
    collate=collate,
    infer=infer,
    figures=figures,
    summary=summary,
    open_sizes=open_sizes,
    check=check,
    flags=FLAGS,
    watched=False,
    template=TEMPLATE,
    data_help="a .txt file with a text per line, or a .jsonl, .tsv or .csv file with a column text or prompt",
)
"""A decoder with a key/value cache of planned sizes (:mod:`utils.tasks.generation_steps`)."""
