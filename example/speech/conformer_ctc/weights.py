"""Reader of a Conformer's weights: NeMo's .nemo archives, and transformers' Parakeet folders."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from model import ConformerCTC, Size

from engine import ModelError
from tecoinfer_modelzoo.text import reason_of
from tecoinfer_modelzoo.yaml_files import build_yaml, check_yaml, compose_yaml

SMALLEST = 7
"""Smallest size in bytes of a file of weights."""

TO_NEMO = (
    (r"^encoder\.subsampling\.layers\.", "encoder.pre_encode.conv."),
    (r"^encoder\.subsampling\.linear\.", "encoder.pre_encode.out."),
    (r"\.self_attn\.([qkv])_proj\.", r".self_attn.linear_\1."),
    (r"\.self_attn\.o_proj\.", ".self_attn.linear_out."),
    (r"\.self_attn\.relative_k_proj\.", ".self_attn.linear_pos."),
    (r"\.self_attn\.bias_([uv])$", r".self_attn.pos_bias_\1"),
    (r"\.conv\.norm\.", ".conv.batch_norm."),
    (r"^ctc_head\.", "decoder.decoder_layers.0."),
)
"""Maps the parameter names of transformers' ``ParakeetForCTC`` to NeMo's."""


class Loaded(NamedTuple):
    """Content of a file: the network's size, its weights by NeMo's names, and its tokens, if it has them."""

    size: Size
    weights: dict[str, torch.Tensor]
    tokens: list[str] | None


def load(path: Path) -> Loaded:
    """Read an archive ``*.nemo`` or a folder with ``config.json`` and ``model.safetensors``.

    Raises:
        ModelError: it is neither of them, is damaged, or holds another kind of network.
    """
    try:
        return _folder(path) if path.is_dir() else _archive(path)
    except (OSError, KeyError, ValueError, TypeError, tarfile.TarError) as error:
        raise ModelError(
            f"{path}: no weights of a Conformer with CTC ({reason_of(error)}); give NeMo's .nemo"
        ) from error


def _archive(path: Path) -> Loaded:
    """Read NeMo's archive: a configuration as YAML and a checkpoint of tensors, whose code is not executed."""
    with tarfile.open(path) as archive:
        members = {Path(one.name).name: one for one in archive.getmembers() if one.isfile()}
        config = _settings(_read(archive, members["model_config.yaml"]))
        content = io.BytesIO(_read(archive, members["model_weights.ckpt"]))
    weights = torch.load(content, map_location="cpu", weights_only=True)
    encoder, decoder = config["encoder"], config["decoder"]
    if encoder.get("self_attention_model", "rel_pos") != "rel_pos" or encoder.get("conv_norm_type") == "layer_norm":
        raise ValueError("its attention or its norms are of another kind")
    if encoder.get("causal_downsampling") or encoder.get("conv_context_size") is not None:
        raise ValueError("its convolutions are causal")
    tokens = [str(one) for one in decoder.get("vocabulary") or ()] or None
    size = Size(
        encoder["d_model"],
        encoder["n_layers"],
        encoder["n_heads"],
        encoder["conv_kernel_size"],
        encoder["subsampling_factor"],
        encoder["subsampling"] == "dw_striding",
        max(0, encoder.get("subsampling_conv_channels") or 0),
        encoder["feat_in"],
        encoder["ff_expansion_factor"],
        weights["decoder.decoder_layers.0.bias"].shape[0],
        bool(encoder.get("xscaling", True)),
        bool(encoder.get("use_bias", True)),
    )
    return Loaded(size, _own(weights), tokens)


def _settings(content: bytes) -> dict[str, Any]:
    """Return the parsed configuration, with the same limits as the zoo's YAML files."""
    top = compose_yaml(content.decode("utf-8-sig"))
    if top is not None:
        check_yaml(top)
    found = None if top is None else build_yaml(top)
    if not isinstance(found, dict):
        raise ValueError("its model_config.yaml holds no settings by name")
    return found


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    if file is None or member.size < SMALLEST:
        raise ValueError(f"{member.name} is empty")
    return file.read()


def _folder(path: Path) -> Loaded:
    """Read a folder of transformers' ``ParakeetForCTC``."""
    from safetensors.torch import load_file

    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "parakeet_ctc":
        raise ValueError(f"its model_type is {config.get('model_type')!r}, not 'parakeet_ctc'")
    encoder = config["encoder_config"]
    weights = {}
    for name, value in load_file(path / "model.safetensors").items():
        for pattern, nemo in TO_NEMO:
            name = re.sub(pattern, nemo, name)
        weights[name] = value
    size = Size(
        encoder["hidden_size"],
        encoder["num_hidden_layers"],
        encoder["num_attention_heads"],
        encoder["conv_kernel_size"],
        encoder["subsampling_factor"],
        True,
        encoder["subsampling_conv_channels"],
        encoder["num_mel_bins"],
        encoder["intermediate_size"] // encoder["hidden_size"],
        weights["decoder.decoder_layers.0.bias"].shape[0],
        encoder["scale_input"],
        encoder["attention_bias"],
    )
    return Loaded(size, _own(weights), _tokens(path / "tokenizer.json", config["pad_token_id"], size.classes))


def _tokens(file: Path, blank: int, classes: int) -> list[str] | None:
    """Return the tokens of a ``tokenizer.json`` without the blank, which is the last class."""
    if not file.is_file():
        return None
    if blank != classes - 1:
        raise ValueError(f"its blank is class {blank} of {classes}, not the last one")
    vocabulary: Any = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    if isinstance(vocabulary, Mapping):
        vocabulary = sorted(vocabulary, key=vocabulary.__getitem__)
    return [str(one[0] if isinstance(one, list) else one) for one in vocabulary][: classes - 1]


def _own(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the network's parameters, without the window and filters of the features that NeMo stores with them."""
    return {name: value for name, value in weights.items() if name.startswith(("encoder.", "decoder."))}


def put_in(loaded: Loaded, path: Path) -> ConformerCTC:
    """Return the network with the weights.

    Raises:
        ModelError: they do not fit this network; the message names the first missing, unexpected or misshapen one.
    """
    network = ConformerCTC(loaded.size)
    own, given = network.state_dict(), loaded.weights
    for name in sorted({*own, *given}):
        if name not in given or name not in own:
            what = "is missing" if name not in given else "is none of this network's"
            raise ModelError(f"{path}: weight {name!r} {what}; give the weights of a Conformer with CTC")
        if own[name].shape != given[name].shape:
            shapes = f"{list(given[name].shape)}, and {list(own[name].shape)} was expected"
            raise ModelError(f"{path}: weight {name!r} has shape {shapes}; its configuration is another network's")
    network.load_state_dict(given)
    return network
