"""Runner of a CTC model over recordings of any length, in windows of planned lengths.

If the model stores the ``reach`` of a step, windows have this number of additional frames on each side, so that the
kept steps equal those of the whole recording. Without it (attention over the whole recording) steps near the ends of
windows may differ.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, Engine, InputError, ModelError
from utils.tasks import Model, Options
from utils.tasks.speech_recognition.input import Timing, timing_of

LEAST = 16
"""Minimum frames of an input of any length."""


class Context(NamedTuple):
    """Context of a recording: its numbers of frames and seconds."""

    frames: int
    seconds: float


class Window(NamedTuple):
    """Part of a recording that is one row of a call."""

    owner: int  # position of the recording in the batch
    start: int  # first frame of the window; frames outside of the recording are padding
    stop: int  # end of the window, in frames
    skip: int  # steps at the start that belong to the previous window
    keep: int | None  # steps after these that are kept; None: all

    @property
    def length(self) -> int:
        """Number of frames."""
        return self.stop - self.start


class Windows:
    """Runner of a recogniser over recordings; immutable after construction.

    Args:
        model: its tensors and metadata. options: the flags. seconds: of a frame.

    Raises:
        ModelError: The inputs are not features and lengths, or the planned lengths are too short for a step.
    """

    def __init__(self, model: Model, options: Options, seconds: float) -> None:
        self._model, self.axis = model, options.time_axis
        self.timing = timing_of(model, seconds)
        _refuse_inputs(model, options)
        self._rows = max(1, options.batch_size)
        self._sizes = model.sizes(0, options.time_axis)  # of an input; empty: any
        self._overlap = max(1, round(options.overlap / seconds))
        wanted = None if options.window is None else max(1, round(options.window / seconds))
        self.most = self._most(wanted)
        self._warned = False

    def _most(self, wanted: int | None) -> int | None:
        """Return the maximum frames of an input, margins included; ``None``: any number."""
        margin, largest = self.timing.margin, self._sizes[-1] if self._sizes else None
        if wanted is None:
            return largest
        room = wanted + 2 * (margin if self.timing.reach is not None else 0)
        return room if largest is None else min(room, largest)

    def run(self, engine: Engine, features: Array, contexts: Sequence[Context]) -> list[Array]:
        """Return the model's steps for each recording, T x C float32, of their concatenated features, [frames, ...]."""
        parts = np.split(features, np.cumsum([context.frames for context in contexts])[:-1])
        windows = [window for owner, part in enumerate(parts) for window in self.cut(owner, len(part))]
        steps: list[Array | None] = [None] * len(windows)
        for places in self._batches(windows):
            group = [windows[place] for place in places]
            for place, found in zip(places, self._called(engine, group, parts), strict=True):
                steps[place] = found
        whole = []
        for owner in range(len(parts)):
            own = [one for one, window in zip(steps, windows, strict=True) if window.owner == owner and one is not None]
            whole.append(np.concatenate(own) if own else np.zeros((0, self._classes()), np.float32))
        return whole

    def cut(self, owner: int, frames: int) -> list[Window]:
        """Return the windows of a recording; an empty list for 0 frames."""
        if not frames:
            return []
        timing = self.timing
        stride = max(1, timing.stride)
        whole = -(-frames // stride) * stride if timing.margin else frames
        if self.most is None or whole + 2 * timing.margin <= self.most:
            steps = -(-frames // stride) if timing.stride else None
            return [Window(owner, -timing.margin, whole + timing.margin, 0, steps)]
        beside = self.beside
        core = (self.most - 2 * beside) // stride * stride
        if core < stride:
            raise ModelError(
                f"{self._model.ckpt}: windows of {self.most} frames are too short for a step with {beside} frames of "
                f"context on each side; use --lengths {4 * beside} or more, or a longer --window"
            )
        self._warn(timing, core)
        return [
            self._window(owner, first, min(first + core, frames), frames, beside) for first in range(0, frames, core)
        ]

    @property
    def beside(self) -> int:
        """Number of context frames on each side of a window."""
        timing, stride = self.timing, max(1, self.timing.stride)
        wanted = self._overlap if timing.reach is None else timing.reach
        return timing.margin + -(-(wanted - timing.margin) // stride) * stride

    def steps(self, engine: Engine, features: Array, first: int, last: int) -> Array:
        """Return the model's steps for frames ``first`` to ``last``, T x C float32.
        Features are of the recording, or of a part with :attr:`beside` frames on each side, as far as they exist."""
        window = self._window(0, first, last, len(features), self.beside)
        return self._called(engine, [window], [features])[0]

    def _window(self, owner: int, first: int, last: int, frames: int, beside: int) -> Window:
        """Return the window of the steps of frames ``first`` to ``last``."""
        timing = self.timing
        stride = max(1, timing.stride)
        start, stop = first - beside, -(-last // stride) * stride + beside
        if not timing.margin:  # without padding at the ends of the recording
            start, stop = max(0, start), min(frames, stop)
        skip = (first - start - timing.margin) // stride
        return Window(owner, start, stop, skip, -(-(last - first) // stride))

    def _warn(self, timing: Timing, core: int) -> None:
        if timing.reach is None and not self._warned:
            self._warned = True
            warnings.warn(
                f"recordings longer than {core * timing.seconds:.1f} s are recognised in overlapping windows, as "
                "longer inputs have no plan; the text at their ends may differ from that of the whole recording",
                stacklevel=2,
            )

    def _batches(self, windows: Sequence[Window]) -> list[list[int]]:
        """Group the places of windows into calls of at most a batch."""
        groups: dict[int, list[int]] = {}
        masked = self.timing.margin > 0 or len(self._model.inputs) > 1
        for place, window in enumerate(windows):
            room = self._room(window.length)
            groups.setdefault(0 if masked and not self._sizes else room, []).append(place)
        ordered = [places for _, places in sorted(groups.items())]
        if not self._sizes:  # a call is padded to its longest window
            ordered = [sorted(places, key=lambda place: windows[place].length) for places in ordered]
        return [places[start : start + self._rows] for places in ordered for start in range(0, len(places), self._rows)]

    def _room(self, length: int) -> int:
        """Return the input length for a number of frames."""
        if not self._sizes:
            return max(length, LEAST)
        return self._sizes[bisect_left(self._sizes, length)]

    def _called(self, engine: Engine, windows: Sequence[Window], parts: Sequence[Array]) -> list[Array]:
        """Return the kept steps of some windows, by one call."""
        room = max(self._room(window.length) for window in windows)
        first = parts[0]
        batch = np.full((len(windows), room, *first.shape[1:]), self.timing.padding, first.dtype)
        for row, window in zip(batch, windows, strict=True):
            part = parts[window.owner]
            start, stop = max(0, window.start), min(len(part), window.stop)
            row[start - window.start : stop - window.start] = part[start:stop]
        arrays = [np.ascontiguousarray(batch.swapaxes(1, 2)) if self.axis == 2 else batch]
        lengths = [window.length for window in windows]
        if len(self._model.inputs) > 1:
            arrays.append(np.array(lengths, self._model.inputs[1].dtype))
        outputs = engine(arrays)
        found = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        steps = _steps(np.asarray(found[0]), len(windows), self._model)
        counts = self._counts(found, steps, lengths, room)
        kept = zip(windows, steps, counts, strict=True)
        return [self._kept(window, one[:count]) for window, one, count in kept]

    def _counts(self, found: Sequence[Any], steps: Array, lengths: Sequence[int], room: int) -> list[int]:
        """Return the number of steps of each row without those of padding."""
        if len(found) > 1 and np.size(found[1]) == len(lengths) and np.asarray(found[1]).dtype.kind in "iu":
            return [int(count) for count in np.asarray(found[1]).ravel()]
        margin, total = 2 * self.timing.margin, steps.shape[1]
        stride = self.timing.stride or (room - margin) / max(1, total)
        return [min(total, int(np.ceil((length - margin) / stride))) for length in lengths]

    def _kept(self, window: Window, steps: Array) -> Array:
        stop = None if window.keep is None else window.skip + window.keep
        return steps[window.skip : stop].astype(np.float32)

    def _classes(self) -> int:
        """Return the number of classes by the graph, else 1."""
        shape = self._model.outputs[0].shape if self._model.outputs else ()
        return shape[-1] or 1 if shape else 1


def _steps(steps: Array, count: int, model: Model) -> Array:
    """Return the first output as N x T x C."""
    if steps.ndim == 3 and steps.dtype.kind == "f":
        if steps.shape[0] == count:
            return steps
        if steps.shape[1] == count:
            return steps.swapaxes(0, 1)
    raise InputError(
        f"{model.ckpt}: its first output has shape {steps.shape} and dtype {steps.dtype} for {count} recordings; "
        "expected recordings x steps x classes"
    )


def _refuse_inputs(model: Model, options: Options) -> None:
    """Raise ModelError if the inputs are not features and, optionally, their lengths."""
    shape = model.inputs[0].shape
    second = model.inputs[1] if len(model.inputs) > 1 else None
    lengths = second is None or (second.dtype.kind in "iu" and len(second.shape) == 1)
    if len(model.inputs) > 2 or len(shape) not in (2, 3) or options.time_axis >= len(shape) or not lengths:
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(f'{one.name} {list(one.shape)}' for one in model.inputs)}; "
            "expected recordings x frames x bands (--time_axis 2: bands x frames), and optionally the number of frames "
            "of each recording"
        )


def packed(steps: Sequence[Array]) -> Array:
    """Return steps of recordings, T x C each, as one array, N x T x C, padded with zeros at the end."""
    found = np.zeros((len(steps), max(map(len, steps)), max(one.shape[1] for one in steps)), np.float32)
    for row, one in zip(found, steps, strict=True):
        row[: len(one), : one.shape[1]] = one
    return found


def unpacked(steps: Array) -> Array:
    """Return the steps of one recording, T x C, without trailing rows of zeros, which are padding."""
    real = np.flatnonzero(steps.any(axis=-1))
    return steps[: int(real[-1]) + 1 if len(real) else 0]
