"""Metadata that an ONNX file lacks and that files beside it have: configurations of transformers, timm and NeMo, tokens
and names of classes. What none of them says is asked for, not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import ConfigError, TecoInferError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.json_values import plain_json
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml
from toolkit.adapt.sources.text_folders import TextFolder
from utils.export.image_processors import of_timm, of_transformers
from utils.preprocess.audio.features import LogMel, settings_to_json

Signature = Mapping[str, Any]
"""Of :func:`toolkit.adapt.signature.signature_of`."""

LARGEST = 32 << 20
"""Maximum bytes of such a file; a tokenizer has a few MB."""

HEADS = {**TextFolder.heads, "ForImageClassification": "classification"}
"""Task of the zoo by the end of an architecture's name in ``config.json``."""


@dataclass
class Beside:
    """What was found: JSON values by key of the metadata, and the file of each key; the ``task`` and its ``reason``; a
    line for each file that cannot be read."""

    notes: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    task: str = ""
    reason: str = ""
    unused: list[str] = field(default_factory=list)

    def add(self, origin: str, **notes: Any) -> None:
        """Add values, unless their keys are known already."""
        for key, value in notes.items():
            if key not in self.notes and value is not None:
                self.notes[key], self.origins[key] = value, origin


def found_beside(file: Path, found: Signature, texts: Mapping[str, str]) -> Beside:
    """Return what the files in the folder of an ONNX file say about it, and its own metadata of other programs.

    Args:
        file: the ONNX file. found: its signature. texts: its metadata.

    A file that cannot be read is named: it may belong to something else.
    """
    result, folder = Beside(), file.parent
    _sherpa(result, found, texts)
    for name, read in READERS.items():
        path = folder / name
        if path.is_file() and path.stat().st_size <= LARGEST:
            try:
                read(result, path, found)
            except (OSError, ValueError, TecoInferError) as error:
                result.unused.append(f"{path} beside {file.name} is not used: {one_line(error)}")
    for key in texts:  # what the model says of itself counts
        result.notes.pop(key, None)
        result.origins.pop(key, None)
    return result


def _json(path: Path) -> Any:
    return plain_json(read_regular(path).decode())


def _object(path: Path) -> dict[str, Any]:
    found = _json(path)
    if not isinstance(found, dict):
        raise ConfigError("it is not a JSON object")
    return found


def _classes(found: Signature) -> int:
    """Return the size of the first output's last axis; 0 if it is dynamic, or there is none."""
    shape = found["outputs"][0]["shape"] if found["outputs"] else []
    return shape[-1] if shape and isinstance(shape[-1], int) else 0


def _takes(found: Signature, kind: str, rank: int) -> bool:
    """Return whether the first input has a kind of dtype (``f``: floats, ``i``: integers) and a rank."""
    first = found["inputs"][0] if found["inputs"] else {"dtype": "", "shape": []}
    return len(first["shape"]) == rank and str(first["dtype"]).startswith({"f": "float", "i": "int"}[kind])


def _is_ctc(found: Signature) -> bool:
    """Return whether the model takes frames of features and gives scores per step."""
    ranks = [len(one["shape"]) for one in found["outputs"]]
    return _takes(found, "f", 3) and ranks[:1] == [3]


# ------------------------------------------------------------------------------------------------ transformers and timm


def _config(result: Beside, path: Path, found: Signature) -> None:
    """``config.json``: names of classes, architecture; timm's preprocessing."""
    config = _object(path)
    named = config.get("id2label")
    labels = [str(named[str(n)]) for n in range(len(named))] if isinstance(named, dict) and "0" in named else None
    labels = labels or config.get("label_names")
    if isinstance(labels, list) and len(labels) == _classes(found) and all(isinstance(one, str) for one in labels):
        result.add(path.name, class_labels=labels)
    pretrained = config.get("pretrained_cfg")
    if isinstance(pretrained, dict) and _takes(found, "f", 4):
        result.add(path.name, preprocess=of_timm(pretrained, path.name))
        result.task, result.reason = "classification", f"{path.name} beside it is that of a classifier of timm"
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    task = next((task for end, task in HEADS.items() if architecture.endswith(end)), "")
    if task and _takes(found, *(("f", 4) if task == "classification" else ("i", 2))):
        result.task, result.reason = task, f"{path.name} beside it names the architecture {architecture}"
    if _takes(found, "i", 2):
        places = config.get("max_position_embeddings")
        pad = config.get("pad_token_id")
        skipped = pad + 1 if type(pad) is int and config.get("model_type") in ("roberta", "xlm-roberta") else 0
        result.add(path.name, max_length=places - skipped if type(places) is int else None)
        result.add(path.name, pad_id=pad, vocabulary_size=config.get("vocab_size"))


def _processor(result: Beside, path: Path, found: Signature) -> None:
    """``preprocessor_config.json`` of images."""
    config = _object(path)
    if "image_mean" in config or "size" in config:
        shape = found["inputs"][0]["shape"] if _takes(found, "f", 4) else []
        usual = [one if isinstance(one, int) else 224 for one in shape[2:]]
        if len(usual) == 2:
            result.add(path.name, preprocess=of_transformers(config, (usual[0], usual[1]), path.name))


def _tokenizer(result: Beside, path: Path, found: Signature) -> None:
    """``tokenizer.json`` of a model of token ids."""
    if _takes(found, "i", 2):
        result.add(path.name, tokenizer=_object(path))


# ------------------------------------------------------------------------------------------------------------- speech


def _nemo(result: Beside, path: Path, found: Signature) -> None:
    """``model_config.yaml`` of a NeMo archive: features and tokens."""
    try:
        config = read_yaml(path)
    except YamlError as error:
        raise ConfigError(str(error)) from error
    made = config.get("preprocessor") if isinstance(config, dict) else None
    if not isinstance(made, dict) or not _is_ctc(found):
        return
    rate = made.get("sample_rate", 16000)
    sizes = [round(rate * made.get(key, usual)) for key, usual in (("window_size", 0.025), ("window_stride", 0.01))]
    bands = made.get("features", _bands(found))
    _add_nemo(result, path.name, rate, bands, sizes, made.get("normalize"), made.get("n_fft") or 512)
    decoder = config.get("decoder")
    tokens = decoder.get("vocabulary") if isinstance(decoder, dict) else None
    tokens = tokens or config.get("labels")
    if isinstance(tokens, list) and tokens:
        result.add(path.name, vocabulary=[str(one) for one in tokens])


def _sherpa(result: Beside, found: Signature, texts: Mapping[str, str]) -> None:
    """The metadata that sherpa-onnx writes into NeMo's CTC models."""
    if not texts.get("model_type", "").startswith("EncDecCTC") or not _is_ctc(found):
        return
    _add_nemo(result, "the file's metadata", 16000, _bands(found), [400, 160], texts.get("normalize_type"), 512)


def _bands(found: Signature) -> int:
    """Return the fixed size among the axes behind the batch, which is that of the bands; 80 if there is none."""
    return next((size for size in found["inputs"][0]["shape"][1:] if isinstance(size, int)), 80)


def _add_nemo(
    result: Beside, origin: str, rate: int, bands: int, sizes: Sequence[int], normalize: Any, fft: int
) -> None:
    """Add NeMo's features: a symmetric Hann window, pre-emphasis, natural logarithms; the blank is the last class."""
    made = LogMel(
        rate=rate, fft=fft, window=sizes[0], hop=sizes[1], bands=bands, pad="constant", periodic=False,
        preemphasis=0.97, log="ln", floor=2.0**-24, guard="add",
    )  # fmt: skip
    way = "bands" if normalize == "per_feature" else "none"
    result.add(origin, features=json.loads(settings_to_json(made)), sample_rate=rate)
    result.add(origin, speech_recognition={"blank": -1, "normalize": way})


def _tokens(result: Beside, path: Path, found: Signature) -> None:
    """``tokens.txt`` of k2 and sherpa-onnx (a token and its number in each line), or a token per line."""
    lines = read_regular(path).decode("utf-8-sig").splitlines()
    parts = [line.rsplit(maxsplit=1) for line in lines if line.strip()]
    if all(len(part) == 2 and part[1].isdigit() for part in parts):
        numbered = {int(part[1]): part[0] for part in parts}
    else:
        numbered = dict(enumerate(line.rstrip("\r\n") for line in lines if line))
    _numbered(result, path.name, numbered, found)


def _vocabulary(result: Beside, path: Path, found: Signature) -> None:
    """``vocab.json``: numbers by token, or a list of tokens."""
    held = _json(path)
    if isinstance(held, dict) and all(type(number) is int for number in held.values()):
        _numbered(result, path.name, {number: str(token) for token, number in held.items()}, found)
    elif isinstance(held, list):
        _numbered(result, path.name, dict(enumerate(map(str, held))), found)


BLANKS = ("<blk>", "<blank>", "<pad>", "[PAD]", "<b>", "_")
"""Tokens that are CTC's blank, the likeliest first."""


def _numbered(result: Beside, origin: str, numbered: Mapping[int, str], found: Signature) -> None:
    """Add the tokens of a CTC model, with the class of the blank if one of them is its name."""
    if not _is_ctc(found) or sorted(numbered) != list(range(len(numbered))):
        return
    classes, tokens = _classes(found), [numbered[number] for number in range(len(numbered))]
    if classes and len(tokens) not in (classes, classes - 1):
        return
    blank = next((tokens.index(one) for one in BLANKS if one in tokens), None)
    result.add(origin, vocabulary=tokens)
    if blank is not None and len(tokens) == (classes or len(tokens)):
        delimiter = {"delimiter": "|"} if "|" in tokens else {}
        own = {"blank": blank, **delimiter}
        result.notes["speech_recognition"] = {**result.notes.get("speech_recognition", {}), **own}
        result.origins["speech_recognition"] = origin


# ------------------------------------------------------------------------------------------------------------ classes


def _labels(result: Beside, path: Path, found: Signature) -> None:
    """Names of classes: a line each, or a JSON list or object by number."""
    if path.suffix == ".json":
        held = _json(path)
        if isinstance(held, dict) and all(str(n) in held for n in range(len(held))):
            held = [held[str(n)] for n in range(len(held))]
        names = held if isinstance(held, list) else []
    else:
        names = [line.strip() for line in read_regular(path).decode("utf-8-sig").splitlines() if line.strip()]
    if names and len(names) == _classes(found) and all(isinstance(one, str) for one in names):
        if _is_ctc(found):
            result.add(path.name, vocabulary=names)
        else:
            result.add(path.name, class_labels=names)


READERS: Mapping[str, Callable[[Beside, Path, Signature], None]] = {
    "config.json": _config,
    "preprocessor_config.json": _processor,
    "tokenizer.json": _tokenizer,
    "model_config.yaml": _nemo,
    "tokens.txt": _tokens,
    "vocab.json": _vocabulary,
    "vocab.txt": _tokens,
    "labels.txt": _labels,
    "labels.json": _labels,
    "classes.txt": _labels,
    "class_names.txt": _labels,
}
"""Function by the name of a file; the first value of a key counts."""
