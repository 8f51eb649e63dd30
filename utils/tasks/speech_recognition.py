"""Speech recognition: a recording in, its text out with the time of every word, read off CTC's outputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, Engine
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.outputs import refuse_labels
from utils.preprocess.audio.features import Settings, features, settings_of
from utils.preprocess.audio.reading import Recording, read_sound
from utils.tasks.base import Artifact, Flag, Hinter, Options, Saver, Task
from utils.tasks.model import Model
from utils.tasks.outputs import KIND_FLAG, are_logits
from utils.tasks.prepared import Prepared
from utils.tasks.sound_figures import sound_amounts, stream_figures
from utils.tasks.speech_recognition_input import (
    CHOICES,
    FLAGS,
    NOTE,
    Alphabet,
    alphabet_of,
    check,
    note,
    open_sizes,
)
from utils.tasks.speech_recognition_windows import Context, Windows, engine_of, packed, unpacked
from utils.tasks.templates.chords import TEMPLATE
from utils.tasks.text_recognition_input import lines_of

if TYPE_CHECKING:
    from utils.postprocess.text.language_model import LanguageModel
    from utils.postprocess.text.lexicon import Lexicon

DATA_HELP = "a recording, a folder, or a list with texts (JSON lines, Kaldi, LibriSpeech, AISHELL)"

METRICS = ("wer", "cer")
UNITS = ("recording", "speaker", "file")
FORMS = ("plain", "NFC", "NFKC", "none")


class Word(NamedTuple):
    """A word, and from when to when it is said, in seconds."""

    text: str
    start: float
    end: float


class Heard(NamedTuple):
    """What was recognised.

    Attributes:
        text: words with single blanks between them; empty where nothing is said.
        score: 0 to 1. Greedy: the mean probability of the steps that gave a token. Beam: the probability of the text,
            per token (its root of as many tokens as there are), so that long texts can be compared with short ones.
            0 of an empty text of greedy decoding; NaN: the model's outputs hold NaN.
        words: with their times, where they were asked for.
        seconds: how long the recording is.
    """

    text: str
    score: float
    words: tuple[Word, ...] = ()
    seconds: float = 0.0


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the recordings, for ``valid`` with their texts (:func:`~utils.datasets.audio.load_sounds`)."""
    from utils.datasets.audio import load_sounds

    if options.script != "valid":
        return load_sounds(paths, target=None)
    return load_sounds(paths, units=getattr(options, "units", UNITS[0]), split=getattr(options, "split", None))


def prepare(samples: Sequence[Recording], model: Model, options: Options) -> Prepared:
    """Read recordings and compute what the model hears.

    Args:
        samples: recordings; another rate is resampled, several channels are mixed down.
        model: stores how its features are made.
        options: not looked at.

    Returns:
        The features of all recordings, one behind the other, and a context per recording.

    Raises:
        DataError: a recording cannot be read. ModelError: what it hears is not known.
    """
    settings, way = heard_by(model)
    found, contexts = [], []
    for sample in samples:
        sound = read_sound(sample, settings.rate)
        own = np.ascontiguousarray(_normalised(features(sound.samples, settings), way), model.float_dtype)
        found.append(own)
        contexts.append(Context(len(own), sound.seconds))
    return Prepared([np.concatenate(found)], contexts)


def heard_by(model: Model) -> tuple[Settings, str]:
    """Return how a model's features are made, and what is done to them of a recording as a whole."""
    return settings_of(model.stored), note("normalize", model)


def _normalised(found: Array, way: str) -> Array:
    """Return features T x B, where it is asked for each band with mean 0 and deviation 1 (NeMo's: of a sample)."""
    if way != "bands" or len(found) < 2:
        return found
    deviation = found.std(axis=0, ddof=1, dtype=np.float64) + 1e-5
    normal: Array = ((found - found.mean(axis=0, dtype=np.float64)) / deviation).astype(np.float32)
    return normal


def collate(parts: Sequence[Prepared], model: Model) -> list[Array]:
    """Put the features of all parts one behind the other; ``infer`` cuts them into windows."""
    return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> Windows:
    """Return what runs the model over recordings of any length."""
    engine = engine_of(engines)
    model = Model.of(engine)
    refuse_labels(model.form(options), model.ckpt, "speech recognition needs the scores of every token")
    settings, _ = heard_by(model)
    return Windows(engine, options, settings.hop / settings.rate)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Context], state: Windows) -> Array:
    """Return the model's steps for each recording, N x T x C, zeros behind those of the shorter ones."""
    return packed(state.run(engine_of(engines), arrays[0], contexts))


def decode(outputs: Array, contexts: Sequence[Context], model: Model, options: Options) -> list[Heard]:
    """Return the text of every recording, and for single answers when each word was said.

    Args:
        outputs: N x T x C: probabilities, their logarithms or logits; only zeros are no step.
        contexts: one per recording.
        model: stores the tokens.
        options: ``--decoder`` says how.

    Raises:
        ConfigError: the tokens do not fit.
    """
    return [_heard(unpacked(steps), context, model, options) for steps, context in zip(outputs, contexts, strict=True)]


def _heard(steps: Array, context: Context, model: Model, options: Options) -> Heard:
    from utils.postprocess.text.ctc import greedy_classes, probabilities

    if not len(steps):
        return Heard("", 0.0, (), context.seconds)
    alphabet = alphabet_of(model, options, steps.shape[-1])
    likely = probabilities(steps, are_logits(model.form(options)))
    if options.decoder == "greedy":
        classes, score = greedy_classes(likely, alphabet.blank)
    else:
        classes, score = _searched(likely, alphabet, options)
    words: tuple[Word, ...] = ()
    if options.script != "valid" and classes:
        words = _timed(likely, classes, alphabet, context.seconds)
    return Heard(alphabet.text(classes), score, words, context.seconds)


def _searched(likely: Array, alphabet: Alphabet, options: Options) -> tuple[list[int], float]:
    from utils.postprocess.text.beam import beam_classes

    names = tuple(alphabet.of(place) for place in range(likely.shape[-1]))
    lexicon = None if options.lexicon is None else lexicon_of(Path(options.lexicon), names)
    language = None
    if options.language_model is not None:
        language = language_of(Path(options.language_model), options.lm_weight, options.word_bonus)
    ((classes, logarithm),) = beam_classes(
        likely[None],
        names,
        alphabet.blank,
        width=options.beam_width,
        lexicon=lexicon,
        language=language,
        logits=False,
    )
    return classes, float(np.exp(logarithm / max(1, len(classes))))


def _timed(likely: Array, classes: Sequence[int], alphabet: Alphabet, seconds: float) -> tuple[Word, ...]:
    """Return the words with their times: of the likeliest path that gives these classes."""
    from utils.postprocess.text.alignment import aligned

    with np.errstate(divide="ignore"):
        spans = aligned(np.log(likely.astype(np.float64)), classes, alphabet.blank)
    step = seconds / len(likely)
    words: list[Word] = []
    open_word = False
    for one, (first, last) in zip(classes, (spans * step).tolist(), strict=True):
        for character in alphabet.of(one):
            if character == " ":
                open_word = False
            elif open_word:
                words[-1] = Word(words[-1].text + character, words[-1].start, last)
            else:
                words.append(Word(character, first, last))
                open_word = True
    return tuple(words)


@lru_cache(maxsize=4)
def lexicon_of(file: Path, names: tuple[str, ...]) -> Lexicon:
    """Return the words of a file, one per line, as a tree over the classes; words that cannot be written warn once."""
    from utils.postprocess.text.lexicon import Lexicon

    found = Lexicon([word.strip() for word in lines_of(file, "--lexicon")], names)
    if found.unwritable:
        warnings.warn(
            f"--lexicon {file}: {len(found.unwritable)} of its words hold characters that the model has not, such as "
            f"{found.unwritable[0]!r}; they are never recognised",
            stacklevel=2,
        )
    return found


@lru_cache(maxsize=4)
def language_of(file: Path, weight: float, bonus: float) -> LanguageModel:
    """Return the n-gram model of an ARPA file; read once in a process."""
    from utils.postprocess.text.language_model import read_arpa

    return read_arpa(lines_of(file, "--language_model"), f"--language_model {file}", weight, bonus)


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the metric of record; the other one is beside it."""
    from utils.metrics.transcripts import METRICS as KINDS

    return KINDS[options.metric](options.normalize)


def show(sample: Recording, prediction: Heard, model: Model, options: Options) -> Artifact:
    """Return the text with its score; saving draws the recording's spectrogram with the words at their times."""
    from utils.text import clean_line

    text, score = clean_line(prediction.text), round(float(prediction.score), 4)
    shown = text or "(nothing recognised)"
    words = [{"word": one.text, "start": round(one.start, 3), "end": round(one.end, 3)} for one in prediction.words]
    answer = {"text": prediction.text, "score": score, "seconds": round(prediction.seconds, 3), "words": words}
    return Artifact(f"{shown}  {score:.2f}", answer, partial(_save, sample, prediction, heard_by(model)[0].rate))


def _save(sample: Recording, prediction: Heard, rate: int, folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.audio.drawn_words import draw_words

    image = draw_words(read_sound(sample, rate).samples, rate, prediction.words)
    part = f"_{sample.start:g}s" if sample.start else ""
    own = sample.path.with_name(f"{sample.path.stem}{part}{sample.path.suffix}")
    return save_drawn(own, [prediction.text or "(nothing recognised)"], folder, image)


def hinter(model: Model, options: Options) -> Hinter:
    """Return what looks for characters that the model has not, and for a wrong blank."""
    from utils.tasks.speech_recognition_results import SpeechHinter

    return SpeechHinter(model, options)


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes what was recognised, as JSON lines."""
    from utils.tasks.speech_recognition_results import Manifest

    return Manifest(path)


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> Sequence[Any]:
    """Read the source framework's texts (:func:`~utils.tasks.text_recognition_results.read_answers`)."""
    from utils.tasks.text_recognition_results import read_answers

    return read_answers(file, dataset)


def agreement(one: Any, other: Any) -> float:
    """Return 1 where two texts are the same, 0 where they share nothing: 1 - edits over the longer one's length."""
    from utils.metrics.text import edit_distance

    longest = max(len(one.text), len(other.text))
    return 1.0 if not longest else 1 - edit_distance(one.text, other.text) / longest


OWN_FLAGS = (
    *FLAGS,
    KIND_FLAG,
    Flag(
        "--metric",
        "the metric of record; the other one is shown beside it",
        METRICS[0],
        choices=METRICS,
        scripts=("valid",),
    ),
    Flag(
        "--normalize",
        "what texts are compared in; plain: without case and punctuation",
        FORMS[0],
        choices=FORMS,
        scripts=("valid",),
    ),
    Flag("--units", "what belongs together", UNITS[0], choices=UNITS, scripts=("valid",)),
    Flag("--split", "part of an AISHELL folder, such as test", None, scripts=("valid",)),
)

SPEECH_RECOGNITION = Task(
    name="speech_recognition",
    domain="speech",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=setup,
    collate=collate,
    infer=infer,
    figures=stream_figures,
    amounts=sound_amounts,
    open_sizes=open_sizes,
    check=check,
    flags=OWN_FLAGS,
    watched=False,
    template=TEMPLATE,
    first=True,
    data_help=DATA_HELP,
    choices=CHOICES,
    stored_under=NOTE,
    answers=answers,
    agreement=agreement,
    hinter=hinter,
    saver=saver,
    saves="what was recognised as JSON lines: audio_filepath, text, pred_text, score",
)
"""Recognisers with CTC: recordings x frames x bands in, a distribution over the tokens per step out."""
