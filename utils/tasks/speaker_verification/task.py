"""Speaker verification: whether two recordings are of one speaker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, ModelError
from tecoinfer_modelzoo.json_values import is_number
from tecoinfer_modelzoo.once import Once, Recent
from utils.datasets.audio.trial_lists import LISTS, load_trials
from utils.datasets.audio.trials import Trial, Trials, Voices, drawn, paired, voices_by_name, voices_of
from utils.datasets.base import Dataset
from utils.datasets.image.face_pairs import RULES
from utils.metrics.base import Metric
from utils.preprocess.audio.features import settings_of
from utils.preprocess.audio.reading import Recording, is_sound, read_sound
from utils.preprocess.audio.speech import Windows
from utils.tasks import Flag, Model, Options, Prepared, Rendering, Task, at_least
from utils.tasks.common.outputs import outputs_of
from utils.tasks.common.sound_figures import SOUND, SoundNotes
from utils.tasks.templates import sample_sounds

NOTE = "verification"
"""Metadata key of the encoder, optional: an object with ``threshold`` (least similarity of one speaker), ``frames`` (of
a window, if the input's length is open), ``step`` (frames between windows) and ``level`` (dB of full scale, or
null)."""

GATES = ("energy", "none")
"""Methods that remove pauses."""


class Heard(NamedTuple):
    """A prepared recording: windows P x frames x bands, seconds of speech, and seconds in all."""

    recording: Recording
    windows: Array
    seconds: float
    sound: float = 0.0


@dataclass(frozen=True)
class Notes:
    """Settings of windows and comparison: the flags', else the stored ones."""

    windows: Windows  # division of a recording into windows
    threshold: float | None  # least similarity of one speaker; None: unknown

    @classmethod
    def of(cls, model: Model, options: Options) -> Notes:
        """Read the settings of an encoder. Raises ModelError if a stored value is invalid. Raises ConfigError if the
        model does not take features of that size, or the number of frames is unknown."""
        settings = settings_of(model.stored)
        stored = model.notes(NOTE)
        shape = model.inputs[0].shape if len(model.inputs) == 1 else ()
        if len(shape) != 3 or shape[2] not in (settings.bands, None):
            shapes = ", ".join(str(list(one.shape)) for one in model.inputs)
            raise ConfigError(f"{model.ckpt}: takes {shapes}; expected N x T x {settings.bands} (bands)")
        frames = shape[1] if shape[1] is not None else _number(model, stored, "frames", None)
        if frames is None:
            raise ConfigError(
                f"{model.ckpt}: its number of frames is open; export it with a fixed one, or store 'frames'"
            )
        step = _number(model, stored, "step", max(1, int(frames) // 2))
        level = _number(model, stored, "level", None)
        threshold = _number(model, stored, "threshold", None) if options.threshold is None else options.threshold
        gate = options.gate == "energy"
        windows = Windows(settings, int(frames), int(step or 1), level, gate, options.least_speech)
        return cls(windows, threshold)

    def same(self, score: float) -> bool | None:
        """Return whether a score means one speaker; ``None`` if the threshold is unknown or the score is NaN."""
        if self.threshold is None or score != score:  # NaN
            return None
        return score >= self.threshold


def _number(model: Model, stored: Mapping[str, Any], key: str, default: float | None) -> float | None:
    value: float | None = stored.get(key, default)
    if value is not None and not is_number(value):
        raise model.unusable(NOTE, f"{key} {value!r} must be a number")
    return value


def similarity(one: Array, other: Array) -> float:
    """Return the cosine of the angle between two descriptions; NaN if one of them is 0."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / size if size else float("nan")


class VoiceDescriber:
    """Description of recordings, each computed once, in the batch where it occurs first.

    Calls have a fixed size, so that the result of a recording does not depend on the other recordings.

    Args:
        engine: of the encoder. model: its tensors. rows: windows per call, if the model's batch is open.
    """

    def __init__(self, engine: Any, model: Model, rows: int) -> None:
        self._engine, self._model, self._rows = engine, model, model.batch or rows
        self._described: Once[Recording, Array] = Once()

    def of(self, heard: Sequence[Heard]) -> tuple[list[Array], dict[Recording, float]]:
        """Return a description of each recording, D float32, and the seconds of newly described recordings."""
        known = {one.recording: one for one in heard}
        fresh: dict[Recording, float] = {}

        def make(new: Sequence[Recording]) -> list[Array]:
            fresh.update((key, known[key].sound) for key in new)
            return self._made([known[key].windows for key in new])

        return self._described.of([one.recording for one in heard], make), fresh

    def _made(self, windows: Sequence[Array]) -> list[Array]:
        """Describe new recordings by the mean of their windows' descriptions, each scaled to length 1."""
        found = outputs_of(self._engine, np.concatenate(windows).astype(self._model.float_dtype), self._rows)[0]
        if found.ndim != 2 or found.dtype.kind != "f":
            raise ModelError(
                f"{self._model.ckpt}: its first output is {list(found.shape)} {found.dtype}; expected N x D floats"
            )
        rows = found.astype(np.float64)
        sizes = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(sizes == 0, 1, sizes)
        ends = np.cumsum([len(one) for one in windows])[:-1]
        return [part.mean(axis=0).astype(np.float32) for part in np.split(rows, ends)]


KEPT = 1 << 27
"""Bytes of the cache of windows: a recording is part of many trials."""

FARS, P_TARGETS = (0.01, 0.001), (0.01, 0.05)
"""False acceptance rates, and shares of target trials, at which figures are reported."""

RESERVED = {"first", "second", "pairs", "audio", "utt2spk"}
"""Names of paths that are not names of speakers."""


class Lengths(NamedTuple):
    """Seconds of speech in both recordings of a trial."""

    first: float
    second: float


class TrialRecordings:
    """Both recordings of a trial; not a tuple, so that only the score of a trial is checked for NaN.

    Args:
        lengths: seconds of speech. sound: seconds, pauses included, of recordings that were first described for this
            trial: each recording of a data set counts once.
    """

    def __init__(self, lengths: Lengths, sound: float) -> None:
        self.lengths, self.sound = lengths, sound


class Comparison(NamedTuple):
    """Prediction of a trial."""

    score: float  # cosine of both descriptions, higher is more alike
    same: bool | None  # whether it is one speaker; None without a threshold
    speech: Lengths  # seconds of speech


class SpeakerVerification(SoundNotes, Task):
    """Similarity of the voices of two recordings."""

    name, domain = "speaker_verification", "speech"
    template = sample_sounds.SPEAKER_VERIFICATION
    data_help = (
        "a list of trials, a folder of speakers' folders, NAME=FOLDER ..., recordings, or first=FILE second=FILE"
    )
    flags = (
        Flag("--gate", "method that removes pauses", GATES[0], choices=GATES),
        Flag("--least_speech", "minimum seconds of speech of a recording", 0.5, float),
        Flag("--threshold", "least similarity of one speaker (default: as stored)", None, float),
        Flag("--pairs", "pairing of the speakers' recordings", RULES[1], choices=RULES),
        Flag("--of_each", "recordings drawn of each speaker, or of each of a speaker's folders; 0: all", 70, int),
        Flag("--shortest", "minimum seconds of a drawn recording; 0: any", 0.0, float),
        Flag("--leave_out", "of NAME=FOLDER: patterns of paths without speech, such as beep*", [], nargs="*"),
        Flag("--seed", "of the drawn recordings and pairs", 0, int),
        Flag("--far", "false acceptance rates at which true acceptance is reported", list(FARS), float, nargs="+"),
        Flag("--p_target", "shares of target trials for the minimum detection cost", list(P_TARGETS), float, nargs="+"),
    )
    state: VoiceDescriber  # describer of recordings

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
        """Return trials: two recordings (``first=A second=B``), those of a list (``pairs=LIST [audio=FOLDER]
        [utt2spk=FILE]``, or the list alone), pairs by ``--pairs`` (``NAME=FOLDER ...``, or a folder of speakers), or
        all pairs of a folder's recordings.

        Raises:
            DataError: The path has none of these.
            ConfigError: The names of the paths do not fit together.
        """
        found = _trials(paths, self.options)
        return found.mixed() if self.options.script == "valid" else self.selected(found)

    def prepare(self, samples: Sequence[Trial]) -> Prepared:
        """Read both recordings of each trial.

        Returns:
            Seconds of speech in both, N x 2 float32; contexts are two
            :class:`Heard` per trial.

        Raises:
            DataError: A recording cannot be read, is silent, or has too little speech.
        """
        notes = Notes.of(self.model, self.options)
        contexts = [(_heard(trial.first, notes), _heard(trial.second, notes)) for trial in samples]
        seconds = [(first.seconds, second.seconds) for first, second in contexts]
        return Prepared([np.array(seconds, np.float32).reshape(-1, 2)], contexts)

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Concatenate the lengths; the windows are in the contexts."""
        return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> VoiceDescriber:
        """Return the describer of recordings."""
        (engine,) = engines.values()
        Notes.of(self.model, self.options)
        return VoiceDescriber(engine, self.model, self.options.batch_size)

    def infer(
        self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[tuple[Heard, Heard]]
    ) -> list[tuple[float, TrialRecordings]]:
        """Describe the new recordings of a batch, and return the score of each trial."""
        found, fresh = self.state.of([one for pair in contexts for one in pair])
        described = iter(found)
        both = [
            TrialRecordings(
                Lengths(first.seconds, second.seconds), sum(fresh.pop(one.recording, 0.0) for one in (first, second))
            )
            for first, second in contexts
        ]
        pairs = zip(described, described, both, strict=True)
        return [(similarity(first, second), heard) for first, second, heard in pairs]

    def workload(self, outputs: Sequence[tuple[float, TrialRecordings]], contexts: Any) -> Mapping[str, float]:
        """Return the seconds of audio that were described in this batch."""
        return {SOUND: sum(both.sound for _, both in outputs)}

    def decode(self, outputs: Sequence[tuple[float, TrialRecordings]], contexts: Any) -> list[Comparison]:
        """Return a comparison per trial."""
        notes = Notes.of(self.model, self.options)
        return [Comparison(score, notes.same(score), both.lengths) for score, both in outputs]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.speakers import SpeakerVerification as Scores

        return Scores([float(far) for far in self.options.far], [float(share) for share in self.options.p_target])

    def show(self, sample: Trial, prediction: Comparison) -> Rendering:
        """Return the answer as text and as data; saving draws both recordings and the score."""
        threshold = Notes.of(self.model, self.options).threshold
        said = {True: "same speaker", False: "different speakers", None: "similarity"}[prediction.same]
        limit = "--threshold is not set" if threshold is None else f"at least {threshold:g} is one speaker"
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
            raise ConfigError("pass two recordings as --data_path first=FILE second=FILE")
        return _of_two(paths["first"], paths["second"])
    if "pairs" in given:
        if not given <= {"pairs", "audio", "utt2spk"}:
            raise ConfigError("pass a list of trials as --data_path pairs=FILE [audio=FOLDER] [utt2spk=FILE]")
        return load_trials(paths["pairs"], paths.get("audio"), paths.get("utt2spk"))
    if given != {"data"}:
        wrong = next((name for name in paths if name in RESERVED), None)
        if wrong is not None:
            raise ConfigError(f"--data_path {wrong}=... needs pairs=FILE; give speakers other names")
        return _paired(voices_by_name(paths, options.leave_out), options)
    return _of_path(paths["data"], options)


def _of_path(path: Path, options: Options) -> Trials:
    if not path.exists():
        raise DataError(f"data path {path} does not exist; check the path")
    if path.is_file() and is_sound(path.name):
        raise DataError(f"{path}: a trial needs two recordings; pass --data_path first={path} second=FILE")
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
    """Key of a prepared recording: file, bytes, modification time in ns, and settings."""

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
    """Return a recording's windows, from the cache if it has not changed."""
    try:
        state = recording.path.stat()
    except OSError as error:
        raise DataError(f"{recording}: cannot be read ({error.strerror or error}); check the path") from error
    return _read_last.of(_File(recording, state.st_size, state.st_mtime_ns, notes))


def _save(trial: Trial, prediction: Comparison, threshold: float | None, words: str, folder: Path) -> Path:
    """Draw both recordings with the score, into a file with both names."""
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_voices import draw_voices

    sounds = [read_sound(one) for one in trial]
    drawing = draw_voices([(sound.samples, sound.rate) for sound in sounds], prediction.score, threshold)
    names = [f"{one.path.parent.name}_{Path(str(one)).stem}" for one in trial]
    # both folders are part of the path, which distinguishes files of the same name
    own = Path(f"{trial.first.path.resolve().parent}{trial.second.path.resolve().parent}", f"{names[0]}-{names[1]}.png")
    return save_drawn(own, [words], folder, drawing)
