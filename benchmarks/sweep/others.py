"""Other networks: tables, time series, image restoration, images with text, decisions."""

from __future__ import annotations

import torch
from torch import nn

from sweep.row import Row, floats, images, several, text
from sweep.text import SIZES, TOKENS, VOCABULARY, Picked
from utils.export.networks.torchvision_models import import_torchvision

import_torchvision()  # transformers needs it whole


class Tcn(nn.Module):
    """A temporal convolutional network (Bai et al., 2018): causal by padding on the left."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(a, 16, 3, dilation=d) for a, d in ((4, 1), (16, 2), (16, 4)))
        self.head = nn.Linear(16, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next six values from (batch, 4, steps)."""
        for layer in self.layers:
            x = torch.relu(layer(nn.functional.pad(x, (2 * layer.dilation[0], 0))))
        return self.head(x[..., -1])


class NBeats(nn.Module):
    """N-BEATS (Oreshkin et al., 2020): every block subtracts its part of the past and adds to the forecast."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 30)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next six values."""
        total = torch.zeros_like(x[:, :6])
        for block in self.blocks:
            back, ahead = block(x).split([24, 6], 1)
            x, total = x - back, total + ahead
        return total


class Espcn(nn.Module):
    """Super-resolution by pixel shuffle (Shi et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(3, 24, 5), (24, 16, 3), (16, 12, 3)]
        self.layers = nn.ModuleList(nn.Conv2d(a, b, k, padding=k // 2) for a, b, k in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return images of twice the size."""
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return nn.functional.pixel_shuffle(self.layers[-1](x), 2)


class Clip(nn.Module):
    """An image and a text tower; the cosine of each pair (CLIP in transformers compares all)."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        sizes = {key: SIZES[key] for key in SIZES if key not in ("vocab_size", "max_position_embeddings")}
        seen = transformers.CLIPVisionConfig(image_size=32, patch_size=8, projection_dim=24, **sizes)
        read = transformers.CLIPTextConfig(projection_dim=24, eos_token_id=VOCABULARY - 1, **SIZES)
        self.seen = Picked(transformers.CLIPVisionModelWithProjection(seen), ("pixel_values",), ("image_embeds",))
        self.read = Picked(transformers.CLIPTextModelWithProjection(read), TOKENS, ("text_embeds",))

    def forward(self, x: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return a cosine per pair."""
        return nn.functional.cosine_similarity(self.seen(x)[0], self.read(ids, mask)[0])


class Similarities(nn.Module):
    """Every sample compared with every other: a matrix of cosines, which cannot be computed from parts of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.core = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (batch, batch)."""
        y = nn.functional.normalize(self.core(x))
        return y @ y.T


class Dueling(nn.Module):
    """A policy's values of actions (Wang et al., 2016), and the best action."""

    def __init__(self) -> None:
        super().__init__()
        self.eyes = nn.Sequential(nn.Conv2d(4, 8, 4, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten())
        self.value, self.gain = nn.Linear(72, 1), nn.Linear(72, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a value per action."""
        y = self.eyes(x)
        gain = self.gain(y)
        return self.value(y) + gain - gain.mean(1, keepdim=True)


class Nerf(nn.Module):
    """Colour and density of a point (Mildenhall et al., 2020), its position as sines and cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rates", 2.0 ** torch.arange(4))
        self.core, self.out = (
            nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()),
            nn.Linear(32, 4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return three colours and a density."""
        angles = (x[..., None] * self.rates).flatten(1)
        y = self.out(self.core(torch.cat([angles.sin(), angles.cos()], 1)))
        return torch.cat([torch.sigmoid(y[:, :3]), nn.functional.softplus(y[:, 3:])], 1)


class FtTransformer(nn.Module):
    """A transformer over the columns of a table (Gorishniy et al., 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(7, 24)), nn.Parameter(torch.randn(7, 24))
        self.first = nn.Parameter(torch.randn(1, 1, 24))
        layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, norm_first=True)
        self.core, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(24, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        y = x[..., None] * self.scale + self.shift
        return self.head(self.core(torch.cat([self.first.expand(x.shape[0], -1, -1), y], 1))[:, 0])


ROWS = (
    Row("ft-transformer (table)", FtTransformer, floats(7)),
    Row("tcn", Tcn, floats(4, 20)),
    Row("n-beats", NBeats, floats(24)),
    Row("espcn (pixel shuffle)", Espcn, images(16)),
    Row("clip (pairs)", Clip, several(images(32), text(VOCABULARY)), ("x", "ids", "mask")),
    Row("cosines of all pairs", Similarities, floats(16), dependent=True),
    Row("dueling dqn", Dueling, images(16, 4)),
    Row("nerf", Nerf, floats(3)),
)
