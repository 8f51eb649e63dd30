"""Voice activity: sound in, where somebody speaks out; the metric is the frames' area under the ROC curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, write_file
from utils.datasets.base import Batch, Dataset
from utils.datasets.speech_spans import Spans, Spoken, load_spoken
from utils.metrics.base import Metric
from utils.postprocess.audio.speech_segments import Rules, speech_segments
from utils.preprocess.audio.reading import SLACK, Recording, read_sound
from utils.tasks.base import Artifact, Flag, Options, Saver, Task
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.sound_figures import sound_amounts, stream_figures
from utils.tasks.templates.tones import TEMPLATE
from utils.tasks.voice_activity_steps import CHUNK, CONTEXT, Layout, Segment, Voices

SHOWN = 6
"""Segments that the answer's line names; the JSON has all."""


class Heard(NamedTuple):
    """What is kept of a recording.

    Attributes:
        samples: how many it has at the model's rate. seconds: how long it is.
        truth: bool [T], for each chunk whether its middle lies where somebody speaks; ``None``: not known.
    """

    samples: int
    seconds: float
    truth: Array | None = None


class Voice(NamedTuple):
    """Where somebody speaks in a recording.

    Attributes:
        scores: float32 [T], the probability of speech in each chunk. frame: seconds of a chunk.
        said: bool [T], whether a chunk's middle lies in a segment.
        segments: in seconds. seconds: how long the recording is.
    """

    scores: Array
    frame: float
    said: Array
    segments: list[Segment]
    seconds: float


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the recordings, for ``valid`` with where somebody speaks (:func:`~utils.datasets.speech_spans`)."""
    found = load_spoken(paths, getattr(options, "units", "recording"))
    if options.script == "valid" or found.targets is None:
        return found
    recordings = [one.recording if isinstance(one, Spoken) else one for one in found.samples]
    from utils.datasets.audio import Sounds
    from utils.datasets.audio_lists import Row

    return Sounds([Row(one, {}) for one in recordings], found.files[0], found.rejected)


def prepare(samples: Sequence[Recording | Spoken], model: Model, options: Options) -> Prepared:
    """Read recordings, mono and at the model's rate, filled up to whole chunks.

    Returns:
        One array per recording, float32 [chunks * chunk], and a :class:`Heard` for each.

    Raises:
        DataError: a recording cannot be used, or ends before somebody speaks in it.
    """
    layout = Layout.of(model, options)
    arrays, contexts = list[Array](), list[Any]()
    for one in samples:
        recording = one.recording if isinstance(one, Spoken) else one
        sound = read_sound(recording, layout.rate, exact=options.other_rate == "refuse")
        count = layout.chunks(len(sound.samples))
        arrays.append(np.pad(sound.samples, (0, count * layout.chunk - len(sound.samples))))
        truth = _truth(one, sound.seconds, layout, count) if isinstance(one, Spoken) else None
        contexts.append(Heard(len(sound.samples), sound.seconds, truth))
    return Prepared([arrays], contexts)


def _truth(one: Spoken, seconds: float, layout: Layout, count: int) -> Array:
    if one.spans and max(end for _, end in one.spans) > seconds + SLACK:
        raise DataError(
            f"{one.recording}: somebody speaks until {max(end for _, end in one.spans):g} s of its list, and it is "
            f"{seconds:.2f} s long; correct the list"
        )
    return within(one.spans, count, layout.chunk / layout.rate)


def within(spans: Spans | Sequence[Segment], count: int, frame: float) -> Array:
    """Return for so many frames whether their middle lies in one of the spans, bool [count]; times in seconds."""
    middles = (np.arange(count) + 0.5) * frame
    found: Array = np.zeros(count, bool)
    for start, end in spans:
        found |= (middles >= start) & (middles < end)
    return found


def collate(parts: Sequence[Prepared], model: Model) -> list[Array]:
    """Lay recordings side by side, float32 [N, S], shorter ones filled up with silence."""
    rows = [row for part in parts for row in part.arrays[0]]
    found = np.zeros((len(rows), max(len(row) for row in rows)), np.float32)
    for place, row in zip(found, rows, strict=True):
        place[: len(row)] = row
    return [found]


def open_sizes(options: Options) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
    """Return the length of the model's input where it is open: a chunk of Silero's and what comes before it."""
    return {"model": {(0, 1): (CHUNK[options.rate] + CONTEXT[options.rate],)}}


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> Layout:
    """Return how the model takes sound."""
    (engine,) = engines.values()
    return Layout.of(Model.of(engine), options)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Any, state: Layout) -> Array:
    """Return the probability of speech in every chunk of each recording, float32 [N, T].

    They go through the model side by side, each with its own state, until it has ended; behind that the result is 0.
    """
    (engine,), (sound,) = engines.values(), arrays
    lengths = np.array([state.chunks(heard.samples) for heard in contexts])
    found = np.zeros((len(sound), lengths.max()), np.float32)
    voices, going = Voices(engine, state, len(sound)), np.arange(len(sound))
    for place in range(lengths.max()):
        left = lengths[going] > place
        voices.keep(left)
        going = going[left]
        found[going, place] = voices.hear(sound[going, place * state.chunk : (place + 1) * state.chunk])
    return found


def rules_of(options: Options, layout: Layout) -> Rules:
    """Return when speech begins and ends, by the flags."""
    return Rules(
        layout.rate,
        layout.chunk,
        options.threshold,
        options.low_threshold,
        options.min_speech,
        options.min_silence,
        options.pad,
    )


def decode(outputs: Array, contexts: Sequence[Heard], model: Model, options: Options) -> list[Voice]:
    """Return where somebody speaks in each recording."""
    layout = Layout.of(model, options)
    rules, frame = rules_of(options, layout), layout.chunk / layout.rate
    answers = []
    for row, heard in zip(outputs, contexts, strict=True):
        scores = row[: layout.chunks(heard.samples)]
        found = speech_segments(scores.tolist(), rules, heard.samples)
        segments = [Segment(start / layout.rate, end / layout.rate) for start, end in found]
        answers.append(Voice(scores, frame, within(segments, len(scores), frame), segments, heard.seconds))
    return answers


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the metric of frames."""
    from utils.metrics.frames import FrameScores

    return FrameScores(options.metric, options.threshold)


def show(sample: Recording | Spoken, prediction: Voice, model: Model, options: Options) -> Artifact:
    """Return the segments in seconds; saving draws the waveform with them and the probabilities."""
    recording = sample.recording if isinstance(sample, Spoken) else sample
    segments = [
        {"start": round(one.start, 3), "end": round(one.end, 3), "probability": round(_sure(one, prediction), 4)}
        for one in prediction.segments
    ]
    speech = sum(one.end - one.start for one in prediction.segments)
    answer = {"seconds": round(prediction.seconds, 3), "speech_seconds": round(speech, 3), "segments": segments}
    if not segments:
        return Artifact(
            f"no speech in {prediction.seconds:.2f} s", answer, partial(_save, recording, prediction, options)
        )
    listed = ", ".join(f"{one.start:.2f}-{one.end:.2f}" for one in prediction.segments[:SHOWN])
    more = f" and {len(segments) - SHOWN} more" if len(segments) > SHOWN else ""
    text = f"speech in {speech:.2f} of {prediction.seconds:.2f} s: {listed}{more} s"
    return Artifact(text, answer, partial(_save, recording, prediction, options))


def _sure(segment: Segment, voice: Voice) -> float:
    """Return the mean probability of the chunks in a segment."""
    inside = within([segment], len(voice.scores), voice.frame)
    return float(voice.scores[inside].mean()) if inside.any() else 0.0


def _save(recording: Recording, voice: Voice, options: Options, folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.audio.drawn_sound import draw_sound

    sound = read_sound(recording)
    limits = (options.threshold, rules_of(options, Layout(1, 1, 0, (0, 0, 0))).lower)
    image = draw_sound(sound.samples, sound.rate, voice.segments, voice.scores, voice.frame, limits)
    part = f"_{recording.start:g}s" if recording.start else ""
    own = recording.path.with_name(f"{recording.path.stem}{part}{recording.path.suffix}")
    return save_drawn(own, [f"{own.name}: {len(voice.segments)} segments of speech"], folder, image)


class Rttm:
    """Writes where somebody speaks as NIST's RTTM: a line per segment."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, list[str]()

    def see(self, batch: Batch, predictions: Sequence[Voice]) -> None:
        """Take in a batch."""
        for name, voice in zip(batch.names, predictions, strict=True):
            stem = Path(name).stem.replace(" ", "_")
            self._rows += [
                f"SPEAKER {stem} 1 {one.start:.3f} {one.end - one.start:.3f} <NA> <NA> speech <NA> <NA>\n"
                for one in voice.segments
            ]

    def close(self) -> None:
        """Write the file."""
        try:
            write_file(self._path, "".join(self._rows).encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise ConfigError(
                f"--save_predictions: {self._path} cannot be written ({error.strerror or error})"
            ) from error


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes the segments."""
    return Rttm(path)


def summary(predictions: Sequence[Voice], model: Model, options: Options) -> str:
    """Say how much of all recordings is speech."""
    speech = sum(one.end - one.start for voice in predictions for one in voice.segments)
    silent = sum(not voice.segments for voice in predictions)
    whole = sum(voice.seconds for voice in predictions)
    return f"speech in {speech:.1f} of {whole:.1f} s, {silent} of {len(predictions)} recordings without any"


def check(options: Options) -> None:
    """Refuse thresholds and durations that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    rules_of(options, Layout(1, 1, 0, (0, 0, 0)))


FLAGS = (
    Flag("--threshold", "probability from which a chunk is speech", 0.5, float),
    Flag("--low_threshold", "probability below which speech may end (default: --threshold less 0.15)", None, float),
    Flag("--min_speech", "milliseconds; what is not longer is dropped", 250.0, float),
    Flag("--min_silence", "milliseconds below --low_threshold that end speech", 100.0, float),
    Flag("--pad", "milliseconds added before and behind speech", 30.0, float),
    Flag("--rate", "samples per second of a model that stores none", 16000, int, choices=tuple(CHUNK)),
    Flag("--other_rate", "what is done with a recording of another rate", "resample", choices=("resample", "refuse")),
    Flag("--metric", "metric of record", "auc", choices=("auc", "f1"), scripts=("valid",)),
    Flag(
        "--units",
        "what is independent of the rest: for the gate",
        "recording",
        choices=("recording", "speaker", "file"),
        scripts=("valid",),
    ),
)

VOICE_ACTIVITY = Task(
    name="voice_activity",
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
    watched=False,
    summary=summary,
    open_sizes=open_sizes,
    check=check,
    flags=FLAGS,
    template=TEMPLATE,
    data_help="a recording, a folder of them, a JSON list with segments, or audio=FOLDER rttm=FILE",
    saver=saver,
    saves="where somebody speaks as RTTM",
)
"""Silero's way: one call per chunk, with the state of the last one, for several recordings side by side."""
