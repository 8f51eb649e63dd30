"""Voice activity detection; the metric is the area under the ROC curve over frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError, Engine
from utils.datasets.audio.speech_spans import Spans, Spoken, load_spoken
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.postprocess.audio.speech_segments import Rules, speech_segments
from utils.preprocess.audio.reading import SLACK, Recording, read_sound
from utils.tasks import Flag, Prepared, Rendering, Task
from utils.tasks.common.prediction_files import RowsWriter
from utils.tasks.common.sound_figures import StreamNotes
from utils.tasks.prepared import Sequences
from utils.tasks.templates import sample_sounds
from utils.tasks.voice_activity.steps import CHUNK, CONTEXT, Layout, Segment, Voices

SHOWN = 6
"""Number of segments on the answer's line; the JSON has all."""


class Heard(NamedTuple):
    """Context of a recording."""

    samples: int  # number of samples at the model's rate
    seconds: float  # length of the recording
    truth: Array | None = None  # bool [T], whether the middle of each chunk is speech; None: unknown


class Voice(NamedTuple):
    """Speech in a recording."""

    scores: Array  # float32 [T], the probability of speech in each chunk
    frame: float  # seconds of a chunk
    said: Array  # bool [T], whether the middle of each chunk is in a segment
    segments: list[Segment]  # in seconds
    seconds: float  # length of the recording


class VoiceActivity(StreamNotes, Task):
    """Stateful models such as Silero VAD: one call per chunk for several parallel recordings."""

    name, domain = "voice_activity", "speech"
    template = sample_sounds.VOICE_ACTIVITY
    data_help = "a recording, a folder of them, a JSON list with segments, or audio=FOLDER rttm=FILE"
    writes = "the segments of speech as RTTM"
    flags = (
        Flag("--threshold", "probability from which a chunk is speech", 0.5, float),
        Flag("--low_threshold", "probability below which speech may end (default: --threshold less 0.15)", None, float),
        Flag("--min_speech", "milliseconds; segments that are not longer are dropped", 250.0, float),
        Flag("--min_silence", "milliseconds below --low_threshold that end speech", 100.0, float),
        Flag("--pad", "milliseconds added before and after speech", 30.0, float),
        Flag("--rate", "samples per second of a model that stores none", 16000, int, choices=tuple(CHUNK)),
        Flag("--other_rate", "treatment of recordings with another rate", "resample", choices=("resample", "refuse")),
        Flag("--metric", "metric of record", "auc", choices=("auc", "f1"), scripts=("valid",)),
        Flag("--units", "independent units, for the gate", "recording", choices=("recording", "speaker", "file"),
             scripts=("valid",)),
    )  # fmt: skip
    state: Layout  # input layout of the model

    def check(self) -> None:
        """Check the thresholds and durations."""
        self._rules(rate=1, chunk=1)

    def _rules(self, rate: int, chunk: int) -> Rules:
        """Return the rules for start and end of speech, by the flags."""
        opt = self.options
        return Rules(rate, chunk, opt.threshold, opt.low_threshold, opt.min_speech, opt.min_silence, opt.pad)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the recordings, in ``valid`` with their speech segments (:func:`.load_spoken`)."""
        found = load_spoken(paths, getattr(self.options, "units", "recording"))
        if self.options.script == "valid" or found.targets is None:
            return found
        from utils.datasets.audio.lists import Row
        from utils.datasets.audio.recordings import Sounds

        return Sounds([Row(_recording(one), {}) for one in found.samples], found.files[0], found.rejected)

    def open_sizes(self) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
        """Return the length of an open input: Silero's chunk and context."""
        rate = self.options.rate
        return {"model": {(0, 1): (CHUNK[rate] + CONTEXT[rate],)}}

    def prepare(self, samples: Sequence[Recording | Spoken]) -> Prepared:
        """Return recordings, mono and at the model's rate, padded to whole chunks, float32 [chunks * chunk], and a
        :class:`Heard` for each. Raises DataError if one cannot be read, or is shorter than its speech segments."""
        layout = Layout.of(self.model, self.options)
        arrays, contexts = list[Array](), list[Any]()
        for one in samples:
            sound = read_sound(_recording(one), layout.rate, exact=self.options.other_rate == "refuse")
            count = layout.chunks(len(sound.samples))
            arrays.append(np.pad(sound.samples, (0, count * layout.chunk - len(sound.samples))))
            truth = _truth(one, sound.seconds, layout, count) if isinstance(one, Spoken) else None
            contexts.append(Heard(len(sound.samples), sound.seconds, truth))
        return Prepared([arrays], contexts)

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Stack recordings, float32 [N, S], padded with zeros at the end."""
        rows = [row for part in parts for row in part.arrays[0]]
        found = np.zeros((len(rows), max(len(row) for row in rows)), np.float32)
        for place, row in zip(found, rows, strict=True):
            place[: len(row)] = row
        return [found]

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Layout:
        """Return the input layout of the model."""
        return Layout.of(self.model, self.options)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Heard]) -> Array:
        """Return the probability of speech in every chunk of each recording, float32 [N, T]; 0 after its end."""
        (engine,), (sound,), chunk = engines.values(), arrays, self.state.chunk
        lengths = np.array([self.state.chunks(heard.samples) for heard in contexts])
        found = np.zeros((len(sound), lengths.max()), np.float32)
        voices, going = Voices(engine, self.state, len(sound)), np.arange(len(sound))
        for place in range(lengths.max()):
            left = lengths[going] > place
            voices.keep(left)
            going = going[left]
            found[going, place] = voices.hear(sound[going, place * chunk : (place + 1) * chunk])
        return found

    def sequences(self, engines: Mapping[str, Engine]) -> Sequences:
        """Return what computes recordings that arrive in requests."""
        from utils.tasks.voice_activity.sequences import VoiceSequences

        (engine,), layout = engines.values(), Layout.of(self.model, self.options)
        return VoiceSequences(engine, layout, self._rules(layout.rate, layout.chunk))

    def decode(self, outputs: Array, contexts: Sequence[Heard]) -> list[Voice]:
        """Return the speech segments of each recording."""
        layout = Layout.of(self.model, self.options)
        rules, frame = self._rules(layout.rate, layout.chunk), layout.chunk / layout.rate
        answers = []
        for row, heard in zip(outputs, contexts, strict=True):
            scores = row[: layout.chunks(heard.samples)]
            found = speech_segments(scores.tolist(), rules, heard.samples)
            segments = [Segment(start / layout.rate, end / layout.rate) for start, end in found]
            answers.append(Voice(scores, frame, within(segments, len(scores), frame), segments, heard.seconds))
        return answers

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.frames import FrameScores

        return FrameScores(self.options.metric, self.options.threshold)

    def show(self, sample: Recording | Spoken, prediction: Voice) -> Rendering:
        """Return the segments in seconds; saving draws the waveform with them and the probabilities."""
        segments = [
            {"start": round(one.start, 3), "end": round(one.end, 3), "probability": round(_sure(one, prediction), 4)}
            for one in prediction.segments
        ]
        speech = _spoken(prediction)
        answer = {"seconds": round(prediction.seconds, 3), "speech_seconds": round(speech, 3), "segments": segments}
        text = f"no speech in {prediction.seconds:.2f} s"
        if segments:
            listed = ", ".join(f"{one.start:.2f}-{one.end:.2f}" for one in prediction.segments[:SHOWN])
            more = f" and {len(segments) - SHOWN} more" if len(segments) > SHOWN else ""
            text = f"speech in {speech:.2f} of {prediction.seconds:.2f} s: {listed}{more} s"
        limits = self.options.threshold, self._rules(rate=1, chunk=1).lower
        return Rendering(text, answer, partial(_save, _recording(sample), prediction, limits))

    def summary(self, predictions: Sequence[Voice]) -> str:
        """Return the seconds of speech in all recordings."""
        silent = sum(not voice.segments for voice in predictions)
        speech, whole = sum(map(_spoken, predictions)), sum(voice.seconds for voice in predictions)
        return f"speech in {speech:.1f} of {whole:.1f} s, {silent} of {len(predictions)} recordings without any"

    def prediction_writer(self, path: Path, dataset: Dataset) -> RowsWriter:
        """Return a writer of NIST's RTTM, a line per segment."""
        return RowsWriter(path, _rttm)


def _recording(sample: Recording | Spoken) -> Recording:
    return sample.recording if isinstance(sample, Spoken) else sample


def _spoken(voice: Voice) -> float:
    """Return the seconds of speech."""
    return sum(one.end - one.start for one in voice.segments)


def _truth(one: Spoken, seconds: float, layout: Layout, count: int) -> Array:
    if one.spans and max(end for _, end in one.spans) > seconds + SLACK:
        raise DataError(
            f"{one.recording}: its list has speech until {max(end for _, end in one.spans):g} s, and the recording is "
            f"{seconds:.2f} s long; correct the list"
        )
    return within(one.spans, count, layout.chunk / layout.rate)


def within(spans: Spans | Sequence[Segment], count: int, frame: float) -> Array:
    """Return whether the middle of each of ``count`` frames is in one of the spans, bool [count]; times in seconds."""
    middles = (np.arange(count) + 0.5) * frame
    found: Array = np.zeros(count, bool)
    for start, end in spans:
        found |= (middles >= start) & (middles < end)
    return found


def _sure(segment: Segment, voice: Voice) -> float:
    """Return the mean probability of the chunks in a segment."""
    inside = within([segment], len(voice.scores), voice.frame)
    return float(voice.scores[inside].mean()) if inside.any() else 0.0


def _save(recording: Recording, voice: Voice, limits: tuple[float, float], folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.audio.drawn_sound import draw_sound

    sound, own = read_sound(recording), recording.own_path
    image = draw_sound(sound.samples, sound.rate, voice.segments, voice.scores, voice.frame, limits)
    return save_drawn(own, [f"{own.name}: {len(voice.segments)} segments of speech"], folder, image)


def _rttm(name: str, target: Any, voice: Voice) -> list[str]:
    stem = Path(name).stem.replace(" ", "_")
    return [
        f"SPEAKER {stem} 1 {one.start:.3f} {one.end - one.start:.3f} <NA> <NA> speech <NA> <NA>\n"
        for one in voice.segments
    ]
