"""Reader of a folder in FunASR's layout: ``config.yaml``, ``am.mvn``, and ``tokens.json`` or ``tokens.txt``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from model import Form

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.text import reason_of
from tecoinfer_modelzoo.yaml_files import read_yaml
from utils.preprocess.audio.features import FilterBank

KINDS = ("Paraformer", "BiCifParaformer", "SeacoParaformer")
"""Supported models, with the same encoder, predictor and decoder; the last two have additional parts."""

SPECIAL = ("<blank>", "<s>", "</s>", "<unk>")
"""Tokens that are not part of the text."""

UNUSED = (
    "decoder.embed.",
    "predictor.upsample_cnn.",
    "predictor.blstm.",
    "predictor.cif_output2.",
    "predictor.self_attn.",
    "bias_encoder.",
    "bias_embed.",
    "seaco_decoder.",
    "hotword_output_layer.",
    "ctc.",
    "criterion_att.",
)
"""Prefixes of weights that are skipped: for training, for timestamps and for hot words."""

_ASKED: dict[str, dict[str, Any]] = {
    "encoder_conf": {"selfattention_layer_type": "sanm", "input_layer": "pe", "normalize_before": True, "tp_blocks": 0},
    "decoder_conf": {"normalize_before": True, "concat_after": False, "use_output_layer": True},
    "predictor_conf": {"threshold": 1.0, "tail_mask": True},
}
"""Settings that must have these values, if they are given."""

_SIZES: dict[str, dict[str, tuple[str, int | None]]] = {
    "encoder_conf": {
        "width": ("output_size", None),
        "layers": ("num_blocks", None),
        "heads": ("attention_heads", None),
        "inner": ("linear_units", None),
        "kernel": ("kernel_size", 11),
        "shift": ("sanm_shfit", 0),
    },
    "decoder_conf": {
        "decoder_layers": ("att_layer_num", None),
        "decoder_heads": ("attention_heads", None),
        "decoder_inner": ("linear_units", None),
        "decoder_kernel": ("kernel_size", None),
        "decoder_shift": ("sanm_shfit", 0),
    },
    "predictor_conf": {"left": ("l_order", None), "right": ("r_order", None)},
    "frontend_conf": {"bands": ("n_mels", 80), "together": ("lfr_m", 1), "step": ("lfr_n", 1)},
}
"""Names in ``config.yaml``, spelled as in FunASR, and their defaults."""


class Folder(NamedTuple):
    """Content of the folder: the network's sizes, the tokens, the settings of the features, and their means."""

    form: Form
    tokens: list[str]
    features: FilterBank
    shift: list[float]
    scale: list[float]


def read_folder(folder: Path) -> Folder:
    """Read a folder without its weights, which are read when the network is built.

    Raises:
        ModelError: a file is missing, cannot be read, or has unsupported settings.
    """
    where = folder / "config.yaml"
    config = _config(where)
    _refuse_others(config, where)
    tokens = _tokens(folder, config)
    form = _form(config, len(tokens), where)
    shift, scale = read_means(folder / "am.mvn", form.inputs)
    return Folder(form, tokens, _features(config, where), shift, scale)


def _config(path: Path) -> dict[str, Any]:
    try:
        found = read_yaml(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({reason_of(error)}); give a folder in FunASR's layout") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds no settings by name; give a folder in FunASR's layout")
    return found


def _refuse_others(config: Mapping[str, Any], where: Path) -> None:
    wanted = {
        "model": KINDS,
        "encoder": ("SANMEncoder",),
        "decoder": ("ParaformerSANMDecoder",),
        "predictor": ("CifPredictorV2", "CifPredictorV3"),
        "frontend": ("WavFrontend",),
    }
    for key, known in wanted.items():
        if config.get(key) not in known:
            raise ModelError(f"{where}: {key} {config.get(key)!r} is not supported; known: {', '.join(known)}")
    for part, settings in _ASKED.items():
        for key, value in settings.items():
            if _part(config, part, where).get(key, value) != value:
                raise ModelError(f"{where}: {part} {key} {config[part][key]!r} is not supported, only {value!r}")


def _part(config: Mapping[str, Any], name: str, where: Path) -> Mapping[str, Any]:
    found = config.get(name)
    if not isinstance(found, Mapping):
        raise ModelError(f"{where}: {name} is missing; give a folder in FunASR's layout")
    return found


def _form(config: Mapping[str, Any], vocabulary: int, where: Path) -> Form:
    sizes: dict[str, int] = {}
    for part, names in _SIZES.items():
        own = _part(config, part, where)
        for name, (key, usual) in names.items():
            value, least = own.get(key, usual), 0 if name in ("shift", "decoder_shift", "left", "right") else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ModelError(
                    f"{where}: {part} {key} {value!r} must be a whole number of at least {least}; correct it"
                )
            sizes[name] = value
    decoder, predictor = config["decoder_conf"], config["predictor_conf"]
    blocks = decoder.get("num_blocks", sizes["decoder_layers"])
    try:
        smooth, noise = float(predictor.get("smooth_factor", 1.0)), float(predictor.get("noise_threshold", 0.0))
        tail = float(predictor.get("tail_threshold", 0.0))
        blind = max(0, int(blocks) - sizes["decoder_layers"])
    except (TypeError, ValueError) as error:
        raise ModelError(f"{where}: {reason_of(error)}; correct it") from error
    if not (0 < tail < 1 and 0 < smooth <= 1 and 0 <= noise < 1):
        raise ModelError(
            f"{where}: predictor_conf tail_threshold {tail:g}, smooth_factor {smooth:g}, noise_threshold {noise:g}: "
            "supported are a tail above 0 and below 1, a factor up to 1 and noise from 0"
        )
    form = Form(**sizes, blind_layers=blind, smooth=smooth, noise=noise, tail=tail, vocabulary=vocabulary)
    for heads in (form.heads, form.decoder_heads):
        if form.width % heads:
            raise ModelError(
                f"{where}: output_size {form.width} must be a multiple of {heads} attention_heads; correct it"
            )
    if form.width == form.inputs:
        raise ModelError(f"{where}: output_size {form.width} is also the features' width, which is not supported")
    return form


def _features(config: Mapping[str, Any], where: Path) -> FilterBank:
    own = _part(config, "frontend_conf", where)
    try:
        rate = int(own.get("fs", 16000))
        return FilterBank(
            rate=rate,
            window=int(float(own.get("frame_length", 25)) * rate / 1000),
            hop=int(float(own.get("frame_shift", 10)) * rate / 1000),
            bands=int(own.get("n_mels", 80)),
            shape=str(own.get("window", "hamming")),
            snip_edges=bool(own.get("snip_edges", True)),
            full_scale=32768.0 if own.get("upsacle_samples", True) else 1.0,
        )
    except (TypeError, ValueError, ConfigError) as error:
        raise ModelError(f"{where}: frontend_conf: {reason_of(error)}; correct it") from error


def _tokens(folder: Path, config: Mapping[str, Any]) -> list[str]:
    given = config.get("token_list")
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [str(one) for one in given]
    name = next((name for name in ("tokens.json", "tokens.txt") if (folder / name).is_file()), None)
    if name is None:
        raise ModelError(f"{folder}: holds neither tokens.json nor tokens.txt; add the model's own")
    path = folder / name
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if name.endswith("json") else _lines(text)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({reason_of(error)}); get it again") from error
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise ModelError(f"{path} must be a list of tokens; get it again")
    return found


def _lines(text: str) -> list[str]:
    """Return the tokens of lines; a line is a token, or a token and its number, which is the line's index."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if all(len(row) == 2 and row[1] == str(number) for number, row in enumerate(rows)):
        return [row[0] for row in rows]
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_means(path: Path, width: int) -> tuple[list[float], list[float]]:
    """Return the offset and the scale of each value of a frame, read from Kaldi's text format.

    Raises:
        ModelError: the file cannot be read, or has another number of values.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({reason_of(error)}); add the model's own") from error
    found = []
    for name in ("AddShift", "Rescale"):
        match = re.search(rf"<{name}>[^\[]*\[([^\]]*)\]", text)
        try:
            values = np.array(match.group(1).split() if match else [], np.float64)
        except ValueError as error:
            raise ModelError(f"{path}: <{name}>: {reason_of(error)}; get it again") from error
        if len(values) != width or not np.isfinite(values).all():
            raise ModelError(f"{path}: <{name}> has {len(values)} numbers, and a frame has {width}; get it again")
        found.append([float(value) for value in values])
    return found[0], found[1]
