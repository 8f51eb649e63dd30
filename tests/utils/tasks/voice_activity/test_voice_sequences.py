"""Voice activity of recordings that arrive in requests equals that of one stream."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings, strategies as st
from support import ROOT

from engine import Array, EngineSpec, open_engine
from utils.postprocess.audio.speech_segments import Rules
from utils.preprocess.audio.reading import read_sound
from utils.tasks.model import Model
from utils.tasks.prepared import SequenceState
from utils.tasks.voice_activity.sequences import VoiceSequences
from utils.tasks.voice_activity.steps import Layout, VoiceStream

FOLDER = ROOT / "example/speech/silero_vad"
SOUND = read_sound(FOLDER / "data/samples/two_phrases_it.wav").samples[20_000:80_000]


def sent(state: SequenceState) -> SequenceState:
    """Return a state after it went over the wire: values as JSON, arrays that cannot be written to."""
    arrays = [np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape) for array in state.arrays]
    return SequenceState(json.loads(json.dumps(state.values)), arrays)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(0, 20_000), max_size=6), st.booleans())
def test_requests_give_what_a_stream_gives(sizes: list[int], is_last_empty: bool) -> None:
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / "silero_vad_dyn.onnx", batch_size=1)) as engine:
        layout = Layout.of(Model.of(engine), SimpleNamespace(rate=16000))
        stream = VoiceStream(engine, layout, Rules())
        expected = [*stream.feed(SOUND)]
        scores = [*stream.probabilities]
        expected += stream.finish()
        scores += stream.probabilities

        sequences, state, cuts = VoiceSequences(engine, layout, Rules()), None, list(np.cumsum(sizes))
        parts: list[Array] = [*np.split(SOUND, cuts), *([SOUND[:0]] if is_last_empty else [])]
        found: list[tuple[float, ...]] = []
        probabilities: list[float] = []
        for place, part in enumerate(parts):
            (some, segments), after = sequences.step([part], state, place == len(parts) - 1)
            state = sent(after)
            found += [tuple(row) for row in segments.tolist()]
            probabilities += some.tolist()
        assert found == [tuple(one) for one in expected]
        assert np.array(probabilities, np.float32).tobytes() == np.array(scores, np.float32).tobytes()
