"""Evaluate Silero's TorchScript file of the same wheel: the metric of the source framework.

The file's own code cuts the recording into chunks and carries context and state from one to the next.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, Engine
from tecoinfer_modelzoo.extra import needed
from utils.fetch import fetched
from utils.pipeline import cli
from utils.tasks.voice_activity.task import VoiceActivity

with needed(__file__):
    import torch

    from utils.export.torch_engine import pytorch_target

MEMBER = "silero_vad/data/silero_vad.jit"


@cache
def network() -> Any:
    """Return the TorchScript module, which has a network for each rate."""
    with warnings.catch_warnings():
        # the wheel has no file for torch.export, which this warning asks for
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", DeprecationWarning)
        return torch.jit.load(fetched("silero_vad") / MEMBER, map_location="cpu").eval()


class OwnChunks(VoiceActivity):
    """Voice activity by the module's own loop over the chunks of a recording."""

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Any]) -> Array:
        """Return the probability of speech in every chunk of each recording, float32 [N, T]."""
        found: Array = network().audio_forward(torch.from_numpy(arrays[0]), self.state.rate).numpy()
        return found


if __name__ == "__main__":
    cli.valid(
        OwnChunks, ckpt="silero_vad_dyn.onnx", data_path="data/val.jsonl", batch_size=32,
        target=pytorch_target(lambda: network()._model),
    )  # fmt: skip
