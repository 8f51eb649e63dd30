"""JinaBERT v2 against a NumPy implementation of its paper, by text, head and token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine import ModelError
from utils.export.networks.bert_encoder import Sizes

SIZES = Sizes("bert", vocabulary=40, width=24, layers=2, heads=6, inner=32, places=8192)
CONFIG = {
    "model_type": "bert",
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 32,
    "max_position_embeddings": 8192,
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
}


def _norm(x: Any, w: Any, name: str) -> Any:
    x = x - x.mean()
    return x / math.sqrt(float((x**2).mean()) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]


def _gelu(x: Any) -> Any:
    return x * np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.ravel()]).reshape(x.shape)


def _line(x: Any, w: Any, name: str) -> Any:
    return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0)


def _reference(ids: list[int], w: dict[str, Any], heads: int, layers: int) -> Any:
    """Return the normalized mean vector of one text without padding."""
    # six heads: those of four, then the first and the third of eight
    steep = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    e = "embeddings."
    x = [
        _norm(w[f"{e}word_embeddings.weight"][i] + w[f"{e}token_type_embeddings.weight"][0], w, f"{e}LayerNorm")
        for i in ids
    ]
    for layer in range(layers):
        p = f"encoder.layer.{layer}."
        q, k, v = (
            [_line(t, w, f"{p}attention.self.{n}").reshape(heads, -1) for t in x] for n in ("query", "key", "value")
        )
        new = []
        for i in range(len(ids)):
            seen = []
            for h in range(heads):
                scores = [
                    float(q[i][h] @ k[j][h]) / math.sqrt(q[i].shape[1]) - steep[h] * abs(i - j) for j in range(len(ids))
                ]
                shares = np.exp(np.array(scores) - max(scores))
                seen.append(sum(s * v[j][h] for j, s in enumerate(shares / shares.sum())))
            y = _norm(
                _line(np.concatenate(seen), w, f"{p}attention.output.dense") + x[i], w, f"{p}attention.output.LayerNorm"
            )
            wide = _line(y, w, f"{p}mlp.gated_layers")
            half = len(wide) // 2
            new.append(_norm(_line(_gelu(wide[:half]) * wide[half:], w, f"{p}mlp.wo") + y, w, f"{p}mlp.layernorm"))
        x = new
    mean = np.mean(x, axis=0)
    return mean / np.linalg.norm(mean)


def test_model_matches_the_paper() -> None:
    import torch

    from utils.export.networks.jina_encoder import JinaEmbedded

    torch.manual_seed(0)
    model = JinaEmbedded(SIZES).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    weights = {name.removeprefix("base."): value.double().numpy() for name, value in model.state_dict().items()}
    texts = [[1, 2, 3, 4, 5, 6, 7], [9, 8, 30]]
    ids, mask = torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 7, dtype=torch.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), 1
    with torch.no_grad():
        found = model(ids, mask).numpy()
    wanted = np.stack([_reference(text, weights, 6, 2) for text in texts])
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_alibi_slopes() -> None:
    from utils.export.networks.jina_encoder import slopes

    assert slopes(8) == [2**-n for n in range(1, 9)]
    assert slopes(12) == [2**-n for n in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]


def test_config_of_another_model_raises() -> None:
    from utils.export.networks.jina_encoder import jina_sizes

    assert jina_sizes(CONFIG, "config.json").activation == "gelu"
    assert jina_sizes({**CONFIG, "feed_forward_type": "reglu"}, "c").activation == "relu"
    with pytest.raises(ModelError, match="export this as BERT"):
        jina_sizes({**CONFIG, "position_embedding_type": "absolute"}, "config.json")
    with pytest.raises(ModelError, match="feed_forward_type 'original'"):
        jina_sizes({**CONFIG, "feed_forward_type": "original"}, "config.json")
