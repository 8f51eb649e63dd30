"""Speech recognition: a recording in, its text out with the time of every word, read off CTC's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, ConfigError, Engine
from utils.datasets.base import Dataset
from utils.outputs import refuse_labels
from utils.preprocess.audio.features import features
from utils.preprocess.audio.reading import Recording, read_sound
from utils.tasks import Prepared, Rendering, at_least
from utils.tasks.common.outputs import KIND_FLAG, are_logits
from utils.tasks.common.recognised_text import TextDiagnostics, lexicon_of, lines_of
from utils.tasks.common.sound_figures import StreamNotes
from utils.tasks.common.transcription import METRICS, Heard, Transcription, Word, text_flags
from utils.tasks.speech_recognition.input import EXPORT_SETTINGS, FLAGS, NOTE, Alphabet, alphabet_of, feature_settings
from utils.tasks.speech_recognition.windows import Context, Windows, packed, unpacked
from utils.tasks.templates import sample_sounds

if TYPE_CHECKING:
    from utils.postprocess.text.language_model import LanguageModel


class SpeechRecognition(StreamNotes, Transcription):
    """CTC models: recordings x frames x bands in, a distribution over the tokens per step out."""

    name, domain_default = "speech_recognition", True
    template = sample_sounds.SPEECH_RECOGNITION
    flags = (*FLAGS, KIND_FLAG, *text_flags(METRICS[0]))
    export_settings, metadata_key = EXPORT_SETTINGS, NOTE
    state: Windows  # runner for recordings of any length

    def check(self) -> None:
        """Check the options."""
        options = self.options
        at_least(options, lengths=1, beam_width=1)
        for key in ("window", "overlap"):
            value = getattr(options, key)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"--{key} {value:g} must be a number of seconds above 0")
        for key in ("lexicon", "language_model"):
            if getattr(options, key) is not None and options.decoder != "beam":
                raise ConfigError(f"--{key} needs --decoder beam; add that, or leave it out")

    def open_sizes(self) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
        """Return the lengths of ``--lengths``, for an input of open length."""
        sizes = tuple(sorted(set(self.options.lengths or ())))
        return {"model": {(0, self.options.time_axis): sizes}} if sizes else {}

    def prepare(self, samples: Sequence[Recording]) -> Prepared:
        """Read recordings, resampled and mixed to mono; return their concatenated features, and a context for each.

        Raises:
            DataError: A recording cannot be read. ModelError: The export stores no feature settings.
        """
        settings, way = feature_settings(self.model)
        found, contexts = [], []
        for sample in samples:
            sound = read_sound(sample, settings.rate)
            own = _normalised(features(sound.samples, settings), way)
            found.append(np.ascontiguousarray(own, self.model.float_dtype))
            contexts.append(Context(len(own), sound.seconds))
        return Prepared([np.concatenate(found)], contexts)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Windows:
        """Return the runner for recordings of any length."""
        refuse_labels(self.model.form(self.options), self.model.ckpt, "speech recognition needs scores of every token")
        settings, _ = feature_settings(self.model)
        return Windows(self.model, self.options, settings.hop / settings.rate)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Context]) -> Array:
        """Return the model's steps for each recording, N x T x C, padded with zeros at the end."""
        (engine,) = engines.values()
        return packed(self.state.run(engine, arrays[0], contexts))

    def decode(self, outputs: Array, contexts: Sequence[Context]) -> list[Heard]:
        """Return the text of every recording, except in ``valid`` with the times of words.

        Args:
            outputs: N x T x C: probabilities, their logarithms or logits; rows of zeros are padding.
            contexts: one per recording.

        Raises:
            ConfigError: The number of tokens is not that of classes.
        """
        return [self._heard(unpacked(steps), context) for steps, context in zip(outputs, contexts, strict=True)]

    def _heard(self, steps: Array, context: Context) -> Heard:
        from utils.postprocess.text.ctc import greedy_classes, probabilities

        if not len(steps):
            return Heard("", 0.0, (), context.seconds)
        alphabet = alphabet_of(self.model, self.options, steps.shape[-1])
        likely = probabilities(steps, are_logits(self.model.form(self.options)))
        if self.options.decoder == "greedy":
            classes, score = greedy_classes(likely, alphabet.blank)
        else:
            classes, score = self._searched(likely, alphabet)
        words: tuple[Word, ...] = ()
        if self.options.script != "valid" and classes:
            words = _timed(likely, classes, alphabet, context.seconds)
        return Heard(alphabet.text(classes), score, words, context.seconds)

    def _searched(self, likely: Array, alphabet: Alphabet) -> tuple[list[int], float]:
        from utils.postprocess.text.beam import beam_classes

        options = self.options
        names = tuple(alphabet.of(place) for place in range(likely.shape[-1]))
        lexicon = None if options.lexicon is None else lexicon_of(Path(options.lexicon), names)
        language = None
        if options.language_model is not None:
            language = _language_of(Path(options.language_model), options.lm_weight, options.word_bonus)
        how: dict[str, Any] = {"width": options.beam_width, "lexicon": lexicon, "language": language}
        ((classes, logarithm),) = beam_classes(likely[None], names, alphabet.blank, logits=False, **how)
        return classes, float(np.exp(logarithm / max(1, len(classes))))

    def show(self, sample: Recording, prediction: Heard) -> Rendering:
        """Return the text with its score; the data includes the words with their times."""
        shown = super().show(sample, prediction)
        words = [{"word": one.text, "start": round(one.start, 3), "end": round(one.end, 3)} for one in prediction.words]
        return replace(shown, answer={**shown.answer, "words": words})

    def diagnostics(self) -> TextDiagnostics:
        """Return the check for characters that the model lacks, and for a wrong blank."""
        from utils.metrics.text.transcripts import normalised

        written = partial(normalised, form=self.options.normalize)
        return TextDiagnostics(self._counted, written, "write them with the model's characters, or check --alphabet")

    def _counted(self, outputs: Any, contexts: Sequence[Any]) -> tuple[Array, frozenset[str], int]:
        from utils.metrics.text.transcripts import normalised

        known = [steps for steps in map(unpacked, outputs) if len(steps)]
        classes = known[0].shape[-1]
        alphabet = alphabet_of(self.model, self.options, classes)
        every = "".join(alphabet.tokens)
        letters = frozenset(every + every.casefold() + normalised(every, self.options.normalize)) | {" "}
        counts = np.bincount(np.concatenate([steps.argmax(axis=-1) for steps in known]), minlength=classes)
        return counts, letters, alphabet.blank


def _normalised(found: Array, way: str) -> Array:
    """Return features T x B; for ``bands`` each band with mean 0 and sample deviation 1, as NeMo."""
    if way != "bands" or len(found) < 2:
        return found
    deviation = found.std(axis=0, ddof=1, dtype=np.float64) + 1e-5
    normal: Array = ((found - found.mean(axis=0, dtype=np.float64)) / deviation).astype(np.float32)
    return normal


def _timed(likely: Array, classes: Sequence[int], alphabet: Alphabet, seconds: float) -> tuple[Word, ...]:
    """Return the words with their times on the most likely path of these classes."""
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
def _language_of(file: Path, weight: float, bonus: float) -> LanguageModel:
    """Return the n-gram model of an ARPA file, cached."""
    from utils.postprocess.text.language_model import read_arpa

    return read_arpa(lines_of(file, "--language_model"), f"--language_model {file}", weight, bonus)
