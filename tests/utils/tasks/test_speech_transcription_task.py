"""Whisper's two models against transformers': features, and the tokens that greedy decoding gives."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from constructed_models import options
from support import ROOT

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.pipeline.session import described
from utils.preprocess.audio.features import WHISPER, features
from utils.tasks.model import Model
from utils.tasks.speech_transcription import Notes, SpeechTranscription, Spoken, SuppressedChooser, prompt

pytestmark = pytest.mark.torch

FOLDER = ROOT / "example" / "speech" / "whisper"
FRAMES = 60


NOTES = Notes(3, 2, {"en": 4, "de": 5}, {"transcribe": 6, "translate": 7}, 8, (9, 10), (11,), 32)


def test_a_prompt_contains_language_and_task() -> None:
    assert prompt(NOTES, 5, "transcribe").tolist() == [3, 5, 6, 8]
    assert prompt(NOTES, 4, "translate").tolist() == [3, 4, 7, 8]
    alone = NOTES._replace(languages={}, tasks={})
    assert prompt(alone, None, "transcribe").tolist() == [3, 8]


def test_suppressed_tokens_are_not_chosen() -> None:
    from utils.postprocess.text.sampling import Chooser, Sampling

    choose = SuppressedChooser(Chooser(Sampling()), NOTES._replace(no_timestamps=12), [4, 4])
    logits = np.zeros((2, 16), np.float32)
    logits[:, [9, 10, 11, 13]] = [4, 3, 2, 5]
    logits[:, 1] = 1
    assert choose(logits, [0, 1], [[3, 4, 6, 8], [3, 4, 6, 8, 0]]).tolist() == [1, 11]


def test_invalid_metadata() -> None:
    with pytest.raises(ModelError, match="metadata 'transcription' cannot be used"):
        Notes.of(Model(Path("x.onnx")))
    with pytest.raises(ConfigError, match=r"--lengths 4 .*5"):
        SpeechTranscription(options(SpeechTranscription, lengths=[4])).check()


@pytest.mark.slow
def test_features_are_those_of_transformers() -> None:
    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()
    from transformers import WhisperFeatureExtractor

    for bands in (80, 128):
        sound = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
        own = WhisperFeatureExtractor(feature_size=bands, chunk_length=4)
        wanted = own(sound, sampling_rate=16000, return_tensors="np")["input_features"][0]
        found = features(np.pad(sound, (0, 48000)), replace(WHISPER, bands=bands))
        np.testing.assert_allclose(found.T, wanted, atol=2e-5)


@pytest.mark.long
@pytest.mark.slow
def test_greedy_texts_are_those_of_transformers(tmp_path: Path) -> None:
    """A folder as transformers writes it, of a small random model, exported and run; windows in batches of 2."""
    whole = _folder(tmp_path / "small")
    words = ("--weights", tmp_path / "small", "--out", tmp_path, "--forms", "dyn", "--exporter", "torchscript")
    command = [sys.executable, "export_onnx.py", *map(str, words)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    heard = torch.randn((3, 80, 2 * FRAMES), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = whole.generate(
            heard, language="de", task="transcribe", do_sample=False, num_beams=1, max_new_tokens=20
        )
    how = options(SpeechTranscription, language="de", max_new_tokens=20, lengths=[8, 32], batch_size=2)
    engines = {
        part: open_engine("onnx", EngineSpec(ckpt=tmp_path / f"small_{part}_dyn.onnx", batch_size=2))
        for part in ("encoder", "decoder")
    }
    contexts = [Spoken(1, 1.0), Spoken(2, 2.0)]
    task = SpeechTranscription(how).bind(described(engines))
    task.state = task.setup(engines, None)
    found = task.infer(engines, [heard.numpy()], contexts)
    texts = [one.ids for _, parts in found for one in parts]
    assert [len(parts) for _, parts in found] == [1, 2]
    for own, theirs in zip(texts, wanted.tolist(), strict=True):
        rest = theirs[4:] if theirs[:1] == [203] else theirs
        stop = rest.index(202) if 202 in rest else len(rest)
        assert own == rest[:stop]
    assert len({tuple(one) for one in texts}) == 3
    assert max(map(len, texts)) > 9  # the cache moved into the next size
    other = SpeechTranscription(options(SpeechTranscription, language="xx")).bind(task.model)
    with pytest.raises(ConfigError, match="--language xx"):
        other.setup(engines, None)


def _folder(folder: Path) -> Any:
    """Write a random model, whose texts differ, with a tokenizer; return it."""
    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()  # transformers imports it, and a CPU's torch lacks its operators
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 48}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
    ends = {"pad_token_id": 202, "bos_token_id": 202, "eos_token_id": 202, "decoder_start_token_id": 203}
    config = WhisperConfig(
        vocab_size=220, max_source_positions=FRAMES, max_target_positions=32, init_std=0.6, **sizes, **heads, **ends
    )
    config.suppress_tokens = config.begin_suppress_tokens = None
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(
        **ends,
        is_multilingual=True,
        lang_to_id={"<|en|>": 204, "<|de|>": 205},
        task_to_id={"transcribe": 206, "translate": 207},
        no_timestamps_token_id=208,
        suppress_tokens=[5, 17, *range(203, 220)],
        begin_suppress_tokens=[11, 202],
        max_length=32,
        return_timestamps=False,
    )
    model.save_pretrained(folder)
    letters = {f"t{i}": i for i in range(220)}
    tokenizer = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": letters, "unk_token": "t0"},
        "added_tokens": [],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model
