"""The Conformer of the zoo, against transformers' Parakeet and its own answers one by one."""

from __future__ import annotations

import importlib
import io
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine import ModelError

FOLDER = Path(__file__).parents[2] / "example/speech/conformer_ctc"


@pytest.fixture
def own(monkeypatch) -> dict[str, ModuleType]:
    """The folder's modules."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("model", "weights")
    for name in names:
        sys.modules.pop(name, None)
    found = {name: importlib.import_module(name) for name in names}
    for name in names:  # no monkeypatch: it would put them back
        del sys.modules[name]
    return found


def stirred(network: Any) -> Any:
    import torch

    torch.manual_seed(0)
    for value in network.parameters():
        torch.nn.init.normal_(value, 0, 0.1)
    return network.eval()


def nemo(path: Path, network: Any, config: str, extra: dict[str, Any] | None = None) -> Path:
    import torch

    weights = io.BytesIO()
    torch.save(network.state_dict() | {"preprocessor.featurizer.window": torch.zeros(3)} | (extra or {}), weights)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("model_config.yaml", config.encode()), ("./model_weights.ckpt", weights.getvalue())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


CONFIG = """
encoder: {feat_in: 40, n_layers: 2, d_model: 32, n_heads: 2, conv_kernel_size: 9, subsampling: striding,
  subsampling_factor: 4, subsampling_conv_channels: -1, ff_expansion_factor: 4, self_attention_model: rel_pos}
decoder: {vocabulary: [a, b, ▁c]}
"""


@pytest.mark.slow
@pytest.mark.long
def test_padded_batches_equal_single_recordings_and_archives_load(own, tmp_path):
    import torch

    size = own["model"].Size(32, 2, 2, kernel=9, bands=40, classes=4)
    network = stirred(own["model"].ConformerCTC(size))
    sound, lengths = torch.randn(3, 90, 40), torch.tensor([90, 55, 7])
    with torch.no_grad():
        together = network(sound, lengths)
        for row, steps in enumerate((23, 14, 2)):
            alone = network(sound[row : row + 1, : lengths[row]], lengths[row : row + 1])
            assert alone.shape[1] == steps
            torch.testing.assert_close(together[row, :steps], alone[0], rtol=0, atol=1e-5)
    loaded = own["weights"].load(nemo(tmp_path / "a.nemo", network, CONFIG))
    assert loaded.size == size
    assert loaded.tokens == ["a", "b", "▁c"]
    again = own["weights"].put_in(loaded, tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(sound, lengths), together)


@pytest.mark.slow
@pytest.mark.long
def test_other_weights_are_rejected_in_one_line(own, tmp_path):
    import torch

    load, size = own["weights"].load, own["model"].Size(32, 2, 2, kernel=9, bands=40, classes=4)
    network = own["model"].ConformerCTC(size)
    (tmp_path / "text.nemo").write_text("hello, this is no archive")
    with pytest.raises(ModelError, match="Conformer"):
        load(tmp_path / "text.nemo")
    causal = CONFIG.replace("self_attention_model", "conv_context_size: causal, self_attention_model")
    with pytest.raises(ModelError, match="its convolutions are causal"):
        load(nemo(tmp_path / "causal.nemo", network, causal))
    more = load(nemo(tmp_path / "more.nemo", network, CONFIG, {"encoder.extra": torch.zeros(1)}))
    with pytest.raises(ModelError, match=r"'encoder\.extra' is none of this network's"):
        own["weights"].put_in(more, tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_outputs_equal_transformers_parakeet(own, tmp_path):
    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()  # transformers imports it, and its compiled operators may be another torch's
    import torch

    parakeet = pytest.importorskip("transformers.models.parakeet.modeling_parakeet")
    from transformers import ParakeetCTCConfig, ParakeetEncoderConfig

    encoder = ParakeetEncoderConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        subsampling_conv_channels=8,
        num_mel_bins=40,
        subsampling_factor=8,
    )
    config = ParakeetCTCConfig(vocab_size=33, pad_token_id=32, encoder_config=encoder.to_dict())
    wanted = stirred(parakeet.ParakeetForCTC(config))
    wanted.save_pretrained(tmp_path)
    network = own["weights"].put_in(own["weights"].load(tmp_path), tmp_path).eval()
    lengths = torch.tensor([120, 77, 33])
    seen = own["model"].inside(lengths, 120)
    sound = torch.randn(3, 120, 40) * seen[..., None]
    with torch.no_grad():
        found, right = network(sound, lengths), wanted(input_features=sound, attention_mask=seen).logits
    for row, steps in enumerate((15, 10, 5)):
        torch.testing.assert_close(found[row, :steps], right[row, :steps], rtol=0, atol=1e-5)
