"""Export of encoder-decoders for translation: two ONNX files, from a folder of transformers' weights or random ones.

The folder has ``config.json``, the weights (``model.safetensors`` or ``pytorch_model.bin``), ``tokenizer.json`` and, if
translations have another one, ``target_tokenizer.json``; or Marian's own files of both tokenizers
(:mod:`utils.export.marian_tokenizers`). Nothing is downloaded, and transformers is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine import ModelError
from utils.export.forms import FORMS
from utils.export.marian_tokenizers import TABLE, has_marian_tokenizers, marian_tokenizers
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.seq2seq import Decoding, Encoding, Form, Seq2Seq, cache_names, fitted_state, read_form
from utils.export.networks.text_models import WEIGHTS, read_tokenizer, tokens_of
from utils.export.onnx_files import ExportResult
from utils.export.torch_export import export_onnx
from utils.export.weight_files import load_state, read_state

TARGET = "target_tokenizer.json"
"""File of the tokenizer of translations, if it is not that of the sources."""


@dataclass(frozen=True)
class TranslationModel:
    """An encoder-decoder for :func:`export_translation_model`.

    Attributes:
        module: both networks. source, target: contents of the tokenizers. weights: name, for the metadata.
        suppress: tokens that are never output.
    """

    module: Seq2Seq
    source: Mapping[str, Any]
    target: Mapping[str, Any]
    weights: str
    suppress: Sequence[int] = ()


def translation_model(
    folder: str | Path, *, tokenizer: str | Path | None = None, target_tokenizer: str | Path | None = None
) -> TranslationModel:
    """Return a model with the weights in a folder; Marian never outputs the padding token, as in transformers.

    Raises ModelError if a file is missing or damaged, the weights do not match, or a tokenizer has more tokens.
    """
    place = Path(folder)
    form = read_form(place / "config.json")
    file = next((place / name for name in WEIGHTS if (place / name).is_file()), None)
    if file is None:
        raise ModelError(f"{place}: contains no weights; add {' or '.join(WEIGHTS)}")
    state = fitted_state(read_state(file))
    form = replace(form, tied=form.tied and (form.kind == "marian" or "lm_head.weight" not in state))
    module = Seq2Seq(form)
    load_state(module, _without_constants(state, module, file), str(file))
    source, target = _tokenizers(place, form, tokenizer, target_tokenizer)
    suppress = (form.pad,) if form.kind == "marian" else ()
    return TranslationModel(module.eval(), source, target, place.resolve().name, suppress)


def random_translation_model(form: Form, tokenizer: Mapping[str, Any]) -> TranslationModel:
    """Return a model with seeded random weights, for functional and speed checks; the vocabulary is the tokenizer's."""
    form = replace(form, vocabulary=tokens_of(tokenizer, "the tokenizer"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Seq2Seq(form)
    return TranslationModel(module.eval(), tokenizer, tokenizer, RANDOM)


def export_translation_model(
    model: TranslationModel,
    stem: str | Path,
    *,
    source: str,
    settings: Mapping[str, Any] | None = None,
    forms: Sequence[str] = FORMS,
    exporter: str | None = None,
) -> list[ExportResult]:
    """Write ``<stem>_encoder*.onnx`` and ``<stem>_decoder*.onnx``; every size but those of the network is open.

    Args:
        source: provenance of the model. settings: ``case`` and ``prefix`` of the sources, if they are not the usual.
        stem, forms, exporter: as of :func:`~utils.export.torch_export.export_onnx`, with its errors.
    """
    form = model.module.form
    how: dict[str, Any] = {
        "provenance": {"source": source, "weights": model.weights}, "forms": forms, "exporter": exporter,
    }  # fmt: skip
    notes: dict[str, Any] = {"vocabulary_size": form.vocabulary, "max_length": form.positions, "pad_id": form.pad}
    ids, mask, *rest = example_inputs(form)
    results = export_onnx(
        Encoding(model.module),
        [ids, mask],
        f"{stem}_encoder",
        input_names=["input_ids", "attention_mask"],
        output_names=["cross_keys", "cross_values"],
        dynamic={name: {0: "batch", 1: "source"} for name in ("input_ids", "attention_mask")},
        notes=notes | {"tokenizer": model.source} | ({"translation": dict(settings)} if settings else {}),
        **how,
    )
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "position_ids")}
    axes |= {"attention_mask": {0: "batch", 1: "slots"}}
    axes |= {name: {0: "batch", 3: "source"} for name in ("cross_keys", "cross_values")}
    axes |= {"encoder_attention_mask": {0: "batch", 1: "source"}}
    names = cache_names(form.decoder_layers, "past")
    axes |= {name: {0: "batch", 2: "slots"} for name in names}
    stored = {
        "start": [form.start], "end": form.end, "suppress": list(model.suppress), "positions": form.positions,
    }  # fmt: skip
    return results + export_onnx(
        Decoding(model.module),
        rest,
        f"{stem}_decoder",
        input_names=list(axes),
        output_names=["logits", *cache_names(form.decoder_layers, "new")],
        dynamic=axes,
        notes={"tokenizer": model.target, "vocabulary_size": form.vocabulary, "translation": stored},
        **how,
    )


def example_inputs(form: Form, rows: int = 3, length: int = 7, tokens: int = 2, slots: int = 5) -> list[torch.Tensor]:
    """Return source tokens and mask, then the decoder's inputs; rows have different lengths and filled slots."""
    made = torch.Generator().manual_seed(0)

    def random(count: int) -> torch.Tensor:
        return torch.randint(0, form.vocabulary, (rows, count), generator=made)

    mask = (torch.arange(length) < length - torch.arange(rows)[:, None]).to(torch.int64)
    filled = torch.arange(rows) % slots + 1
    places = filled[:, None] + torch.arange(tokens)
    cross = [torch.randn((rows, form.decoder_layers, form.heads, length, form.size), generator=made) for _ in range(2)]
    past = [torch.randn((rows, form.heads, slots, form.size), generator=made) for _ in range(2 * form.decoder_layers)]
    return [
        random(length), mask,
        random(tokens), places, (torch.arange(slots) < filled[:, None]).float(), *cross, mask.clone(), *past,
    ]  # fmt: skip


def _tokenizers(
    place: Path, form: Form, tokenizer: str | Path | None, target_tokenizer: str | Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tokenizers of sources and translations: given files, ``tokenizer.json``, or Marian's own files."""
    own = Path(tokenizer) if tokenizer else place / "tokenizer.json"
    other = Path(target_tokenizer) if target_tokenizer else place / TARGET
    if not tokenizer and not own.is_file() and has_marian_tokenizers(place):
        source, target = (_fitting(found, place / TABLE, form) for found in marian_tokenizers(place))
    else:
        source = target = _fitting(read_tokenizer(own, None), own, form)
    if other.is_file() or target_tokenizer:
        target = _fitting(read_tokenizer(other, None), other, form)
    return source, target


def _fitting(found: dict[str, Any], file: Path, form: Form) -> dict[str, Any]:
    tokens = tokens_of(found, str(file))
    if tokens > form.vocabulary:
        raise ModelError(f"{file}: has {tokens} tokens, the model has {form.vocabulary}; use the model's tokenizer")
    return found


def _without_constants(state: dict[str, torch.Tensor], module: Seq2Seq, file: Path) -> dict[str, torch.Tensor]:
    """Return weights with this network's positions, which some files leave out, and without an unused output."""
    own = module.state_dict()
    places = {key: value for key, value in own.items() if key.endswith("embed_positions.weight")}
    longer = next((key for key in places if key in state and state[key].shape != places[key].shape), None)
    if longer is not None:
        raise ModelError(f"{file}: {longer} has {len(state[longer])} positions, config.json {len(places[longer])}")
    return {**places, **{key: value for key, value in state.items() if key in own or key != "lm_head.weight"}}
