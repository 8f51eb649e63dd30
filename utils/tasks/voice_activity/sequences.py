"""Voice activity of recordings that arrive in requests, each with the state that the one before has left."""

from __future__ import annotations

import numpy as np

from engine import Array, Engine, TensorSpec
from utils.postprocess.audio.speech_segments import Rules
from utils.tasks.prepared import SequenceState
from utils.tasks.voice_activity.steps import Layout, VoiceStream


class VoiceSequences:
    """Computes the requests of streams; joined, the answers are those of :class:`.VoiceStream`.

    Attributes:
        inputs: ``samples``, float32 [S], mono, at the model's rate, any number.
        outputs: ``probabilities``, float32 [C], of each chunk that these samples complete; ``segments``, float64
            [K, 2], start and end in seconds of the speech that is final now.
    """

    inputs = (TensorSpec("samples", np.dtype(np.float32), (None,), None),)
    outputs = (
        TensorSpec("probabilities", np.dtype(np.float32), (None,), None),
        TensorSpec("segments", np.dtype(np.float64), (None, 2), None),
    )

    def __init__(self, engine: Engine, layout: Layout, rules: Rules) -> None:
        self._engine, self._layout, self._rules = engine, layout, rules

    def step(self, arrays: list[Array], state: SequenceState | None, last: bool) -> tuple[list[Array], SequenceState]:
        """Compute a request of a sequence.

        Args:
            arrays: of :attr:`inputs`. state: after the request before; ``None``: this is the first one.
            last: the recording ends with these samples.

        Returns arrays of :attr:`outputs`, and the state after this request.
        """
        stream = VoiceStream(self._engine, self._layout, self._rules)
        if state is not None:
            stream.restore(state)
        (samples,) = arrays
        segments = stream.feed(samples)
        probabilities = list(stream.probabilities)
        if last:
            segments += stream.finish()
            probabilities += stream.probabilities
        outputs: list[Array] = [np.array(probabilities, np.float32), np.array(segments, np.float64).reshape(-1, 2)]
        return outputs, stream.saved()
