"""Speech: from samples or spectrograms to features, scores or sound."""

from __future__ import annotations

import torch
from torch import nn

from sweep.row import BATCH, Row, floats
from sweep.text import Picked
from utils.export.networks.torchvision_models import import_torchvision

import_torchvision()  # transformers needs it whole


def _wav2vec2() -> nn.Module:
    import transformers

    config = transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        conv_dim=(16, 16, 16), conv_stride=(5, 4, 2), conv_kernel=(10, 8, 4), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    return Picked(transformers.Wav2Vec2ForCTC(config), ("input_values",), ("logits",))


def _whisper() -> nn.Module:
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(d_model=48, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=96,
                                        num_mel_bins=20, max_source_positions=25)  # fmt: skip
    return Picked(WhisperEncoder(config), ("input_features",), ("last_hidden_state",))


def _ast() -> nn.Module:
    import transformers

    config = transformers.ASTConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                                    num_mel_bins=32, max_length=64, num_labels=10)  # fmt: skip
    return Picked(transformers.ASTForAudioClassification(config), ("input_values",), ("logits",))


class Conformer(nn.Module):
    """One block of a conformer (Gulati et al., 2020): half feed-forwards, attention, a gated depthwise convolution."""

    def __init__(self, width: int = 32, bands: int = 20) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU())
        self.into = nn.Linear(4 * bands // 2, width)
        self.wide = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, width)) for _ in "ab"
        )
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.gate = nn.Sequential(nn.Conv1d(width, 2 * width, 1), nn.GLU(1))
        self.depth = nn.Sequential(nn.Conv1d(width, width, 5, padding=2, groups=width), nn.BatchNorm1d(width),
                                   nn.SiLU(), nn.Conv1d(width, width, 1))  # fmt: skip
        self.head = nn.Linear(width, 30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return log probabilities per frame from (batch, frames, bands)."""
        y = self.into(self.down(x[:, None]).transpose(1, 2).flatten(2))
        y = y + 0.5 * self.wide[0](y)
        z = self.norm(y)
        y = y + self.attention(z, z, z, need_weights=False)[0]
        y = y + self.depth(self.gate(y.transpose(1, 2))).transpose(1, 2)
        return self.head(y + 0.5 * self.wide[1](y)).log_softmax(-1)


class DeepSpeech(nn.Module):
    """Convolutions, a bidirectional GRU with the time first, and scores per frame (Amodei et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, (5, 5), (2, 2), 2), nn.BatchNorm2d(8), nn.Hardtanh(0, 20))
        self.core, self.head = nn.GRU(80, 24, 2, bidirectional=True), nn.Linear(48, 30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores (batch, frames, 30) from (batch, 1, bands, frames)."""
        y = self.conv(x).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.core(y)[0]).transpose(0, 1)


class XVector(nn.Module):
    """A speaker's vector (Snyder et al., 2018): dilated convolutions, then mean and deviation over time."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(20, 32, 5, 1), (32, 32, 3, 2), (32, 48, 3, 3)]
        self.frames = nn.Sequential(*(part for a, b, k, d in sizes for part in (
            nn.Conv1d(a, b, k, dilation=d), nn.ReLU(), nn.BatchNorm1d(b))))  # fmt: skip
        self.out = nn.Linear(96, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a vector of length 1."""
        y = self.frames(x)
        return nn.functional.normalize(self.out(torch.cat([y.mean(-1), y.std(-1)], 1)), dim=1)


class Vocoder(nn.Module):
    """HiFi-GAN-like (Kong et al., 2020): transposed convolutions and dilated residual blocks, from bands to sound."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Conv1d(20, 32, 7, padding=3)
        self.up = nn.ModuleList(nn.ConvTranspose1d(a, a // 2, 8, 4, 2) for a in (32, 16))
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(a, a, 3, padding=d, dilation=d) for d in (1, 3)) for a in (16, 8)
        )
        self.out = nn.Conv1d(8, 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return sound (batch, 1, samples)."""
        x = self.into(x)
        for up, block in zip(self.up, self.blocks, strict=True):
            x = up(nn.functional.leaky_relu(x, 0.1))
            for conv in block:
                x = x + conv(nn.functional.leaky_relu(x, 0.1))
        return torch.tanh(self.out(nn.functional.leaky_relu(x)))


ROWS = (
    Row("wav2vec 2 (ctc)", _wav2vec2, floats(800)),
    Row("whisper encoder", _whisper, floats(20, 50)),
    Row("audio spectrogram transformer", _ast, floats(64, 32)),
    Row("conformer", Conformer, floats(24, 20)),
    Row("deepspeech (bigru, time first)", DeepSpeech, floats(1, 20, 30)),
    Row("x-vector (dynamic frames)", XVector, floats(20, 40), axes={"x": {0: BATCH, 2: "frames"}}),
    Row("vocoder", Vocoder, floats(20, 12)),
)
