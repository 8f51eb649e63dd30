"""Speaker verification: does one person speak in two recordings?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine
from tecoinfer_modelzoo.once import Recent
from utils.datasets.audio.trial_lists import LISTS, load_trials
from utils.datasets.audio.trials import Trial, Trials, Voices, drawn, paired, voices_by_name, voices_of
from utils.datasets.base import Dataset
from utils.datasets.image.face_pairs import RULES
from utils.metrics.base import Metric
from utils.preprocess.audio.reading import Recording, is_sound, read_sound
from utils.tasks.base import Flag, Options, Rendering, Task
from utils.tasks.common.checks import at_least
from utils.tasks.common.sound_figures import SOUND, SoundNotes
from utils.tasks.legacy import LegacyTask
from utils.tasks.prepared import Prepared
from utils.tasks.speaker_verification.embedding import GATES, Heard, Notes, VoiceDescriber, similarity
from utils.tasks.templates.hummers import TEMPLATE

KEPT = 1 << 27
"""Bytes of windows that are kept, as a recording comes in many trials."""

FARS, P_TARGETS = (0.01, 0.001), (0.01, 0.05)
"""Rates of false acceptance, and shares of trials that are of one speaker, that figures are told at."""

RESERVED = {"first", "second", "pairs", "audio", "utt2spk"}
"""Names of paths that are no speaker's."""


class Lengths(NamedTuple):
    """Seconds of speech in both recordings of a trial."""

    first: float
    second: float


class Both:
    """What was heard of both recordings; no tuple, as only the score of a trial is looked through for NaN.

    Args:
        lengths: seconds of speech. sound: seconds of those recordings that were described for this trial, pauses
            included: each of a data set counts once.
    """

    def __init__(self, lengths: Lengths, sound: float) -> None:
        self.lengths, self.sound = lengths, sound


class Comparison(NamedTuple):
    """The answer to a trial.

    Attributes:
        score: the cosine of both descriptions, higher is more alike.
        same: whether that is one speaker; ``None`` where no threshold is known. speech: what the answer is made of.
    """

    score: float
    same: bool | None
    speech: Lengths


class SpeakerVerification(SoundNotes, Task):
    """Recordings in pairs, how alike their voices are out.

    Attributes:
        state: describes recordings, each once.
    """

    name, domain = "speaker_verification", "speech"
    template = TEMPLATE
    data_help = (
        "a list of trials, a folder of speakers' folders, NAME=FOLDER ..., recordings, or first=FILE second=FILE"
    )
    flags = (
        Flag("--gate", "what leaves pauses out", GATES[0], choices=GATES),
        Flag("--least_speech", "seconds of speech that a recording must have", 0.5, float),
        Flag("--threshold", "least similarity of one speaker (default: as stored)", None, float),
        Flag("--pairs", "how speakers' recordings become pairs", RULES[1], choices=RULES),
        Flag("--of_each", "recordings drawn of each speaker, or of each of a speaker's folders; 0: all", 70, int),
        Flag("--shortest", "seconds that a recording that is drawn must have; 0: any", 0.0, float),
        Flag("--leave_out", "of NAME=FOLDER: patterns of paths that are no speech, such as beep*", [], nargs="*"),
        Flag("--seed", "of what is drawn", 0, int),
        Flag("--far", "rates of false acceptance at which the true acceptance is told", list(FARS), float, nargs="+"),
        Flag("--p_target", "shares of trials of one speaker for the least cost", list(P_TARGETS), float, nargs="+"),
    )
    state: VoiceDescriber

    def check(self) -> None:
        """Check counts, durations, the threshold and the rates."""
        options = self.options
        at_least(options, of_each=0, seed=0)
        for name in ("shortest", "least_speech"):
            if not 0 <= getattr(options, name) < np.inf:
                raise ConfigError(f"--{name} {getattr(options, name)} must be a number of seconds, at least 0")
        if options.threshold is not None and not -1 <= options.threshold <= 1:
            raise ConfigError(f"--threshold {options.threshold} must be a cosine, -1 to 1")
        for name in ("far", "p_target"):
            wrong = next((share for share in getattr(options, name) if not 0 < share < 1), None)
            if wrong is not None:
                raise ConfigError(f"--{name} {wrong} must be above 0 and below 1, such as 0.01")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return trials.

        ``first=A second=B`` are two recordings; ``pairs=LIST [audio=FOLDER] [utt2spk=FILE]``, or a list alone, are its
        trials; ``NAME=FOLDER NAME=FOLDER`` and a folder of speakers are paired by ``--pairs``; of recordings that
        nobody named each is compared with each.

        Raises:
            DataError: nothing of that is there.
            ConfigError: the paths' names do not go together.
        """
        found = _trials(paths, self.options)
        return found.mixed() if self.options.script == "valid" else self.selected(found)

    def prepare(self, samples: Sequence[Trial]) -> Prepared:
        """Read both recordings of each trial.

        Returns:
            As the only array seconds of speech in both, N x 2 float32; as contexts two
            :class:`~utils.tasks.speaker_verification.embedding.Heard` for each trial.

        Raises:
            DataError: a recording cannot be read, is silence, or has too little speech.
        """
        notes = Notes.of(self.model, self.options)
        contexts = [(_heard(trial.first, notes), _heard(trial.second, notes)) for trial in samples]
        seconds = [(first.seconds, second.seconds) for first, second in contexts]
        return Prepared([np.array(seconds, np.float32).reshape(-1, 2)], contexts)

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Put the lengths of parts together; the windows travel as contexts."""
        return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> VoiceDescriber:
        """Return what describes recordings, each once."""
        (engine,) = engines.values()
        Notes.of(self.model, self.options)
        return VoiceDescriber(engine, self.model, self.options.batch_size)

    def infer(
        self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[tuple[Heard, Heard]]
    ) -> list[tuple[float, Both]]:
        """Describe the recordings of a batch that were not described before, and compare those of each trial."""
        found, fresh = self.state.of([one for pair in contexts for one in pair])
        described = iter(found)
        both = [
            Both(Lengths(first.seconds, second.seconds), sum(fresh.pop(one.recording, 0.0) for one in (first, second)))
            for first, second in contexts
        ]
        pairs = zip(described, described, both, strict=True)
        return [(similarity(first, second), heard) for first, second, heard in pairs]

    def workload(self, outputs: Sequence[tuple[float, Both]], contexts: Any) -> Mapping[str, float]:
        """Return the seconds of sound of the recordings that a batch was the first to have."""
        return {SOUND: sum(both.sound for _, both in outputs)}

    def decode(self, outputs: Sequence[tuple[float, Both]], contexts: Any) -> list[Comparison]:
        """Return the answer to each trial."""
        notes = Notes.of(self.model, self.options)
        return [Comparison(score, notes.same(score), both.lengths) for score, both in outputs]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of speaker verification."""
        from utils.metrics.speakers import SpeakerVerification as Scores

        return Scores([float(far) for far in self.options.far], [float(share) for share in self.options.p_target])

    def show(self, sample: Trial, prediction: Comparison) -> Rendering:
        """Return the answer in words and as data; saving draws both recordings and the score between none and one."""
        threshold = Notes.of(self.model, self.options).threshold
        said = {True: "same speaker", False: "different speakers", None: "similarity"}[prediction.same]
        limit = "no --threshold is known" if threshold is None else f"at least {threshold:g} is one speaker"
        words = f"{said}  {prediction.score:.2f} ({limit})"
        answer = {
            "similarity": round(prediction.score, 6),
            "threshold": threshold,
            "same": prediction.same,
            "first": {"recording": str(sample.first), "speech_seconds": round(prediction.speech.first, 3)},
            "second": {"recording": str(sample.second), "speech_seconds": round(prediction.speech.second, 3)},
        }
        return Rendering(words, answer, partial(_save, sample, prediction, threshold, words))


def _trials(paths: Mapping[str, Path], options: Options) -> Trials:
    given = set(paths)
    if given & {"first", "second"}:
        if given != {"first", "second"}:
            raise ConfigError("two recordings are given by --data_path first=FILE second=FILE")
        return _of_two(paths["first"], paths["second"])
    if "pairs" in given:
        if not given <= {"pairs", "audio", "utt2spk"}:
            raise ConfigError("a list of trials is given by --data_path pairs=FILE [audio=FOLDER] [utt2spk=FILE]")
        return load_trials(paths["pairs"], paths.get("audio"), paths.get("utt2spk"))
    if given != {"data"}:
        wrong = next((name for name in paths if name in RESERVED), None)
        if wrong is not None:
            raise ConfigError(f"--data_path {wrong}=... goes with pairs=FILE; give speakers other names")
        return _paired(voices_by_name(paths, options.leave_out), options)
    return _of_path(paths["data"], options)


def _of_path(path: Path, options: Options) -> Trials:
    if not path.exists():
        raise DataError(f"data path {path} does not exist; check the path")
    if path.is_file() and is_sound(path.name):
        raise DataError(f"{path}: one recording makes no pair; pass --data_path first={path} second=FILE")
    if path.is_file() and not path.name.endswith((".scp", ".json", ".jsonl")):
        return load_trials(path)
    listed = next((path / name for name in LISTS if (path / name).is_file()), None) if path.is_dir() else None
    return _paired(voices_of(path), options) if listed is None else load_trials(listed)


def _paired(voices: Voices, options: Options) -> Trials:
    return paired(drawn(voices, options.of_each, options.shortest, options.seed), options.pairs, options.seed)


def _of_two(first: Path, second: Path) -> Trials:
    for path in (first, second):
        if not path.exists():
            raise DataError(f"data path {path} does not exist; check the path")
    root = Path(os.path.commonpath([path.absolute().parent for path in (first, second)]))
    two = [Recording(first.absolute()), Recording(second.absolute())]
    return Trials(Voices(two, None, [], np.zeros(2, np.int32), [], root), np.array([[0, 1]], np.int32))


class _File(NamedTuple):
    """A recording as it was when it was read."""

    recording: Recording
    size: int
    time: int
    notes: Notes


def _read(file: _File) -> Heard:
    windows = file.notes.windows
    sound = read_sound(file.recording, windows.settings.rate)
    try:
        found = windows.of(sound.samples)
    except DataError as error:
        raise DataError(f"{file.recording}: {error}") from error
    return Heard(file.recording, found.windows, found.seconds, sound.seconds)


_read_last: Recent[_File, Heard] = Recent(_read, lambda heard: int(heard.windows.nbytes), KEPT)


def _heard(recording: Recording, notes: Notes) -> Heard:
    """Return a recording's windows, from those made last where it has not changed since."""
    try:
        state = recording.path.stat()
    except OSError as error:
        raise DataError(f"{recording}: cannot be read ({error.strerror or error}); check the path") from error
    return _read_last.of(_File(recording, state.st_size, state.st_mtime_ns, notes))


def _save(trial: Trial, prediction: Comparison, threshold: float | None, words: str, folder: Path) -> Path:
    """Draw both recordings with the score; the file has the names of both."""
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_voices import draw_voices

    sounds = [read_sound(one) for one in trial]
    drawing = draw_voices([(sound.samples, sound.rate) for sound in sounds], prediction.score, threshold)
    names = [f"{one.path.parent.name}_{Path(str(one)).stem}" for one in trial]
    # a file is told from others of its name by this path, in which both folders are
    own = Path(f"{trial.first.path.resolve().parent}{trial.second.path.resolve().parent}", f"{names[0]}-{names[1]}.png")
    return save_drawn(own, [words], folder, drawing)


SPEAKER_VERIFICATION = LegacyTask.view(SpeakerVerification)  # for scripts that call dataclasses.replace
