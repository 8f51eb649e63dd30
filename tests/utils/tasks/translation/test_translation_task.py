"""Translation: tokens equal those of PyTorch without a cache, whatever the batch and the plans; whole runs; refusals.

The networks are small ones with random weights, exported as users' are.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("sacrebleu")

import torch

from engine import ConfigError, DataError, ModelError
from toolkit.cli import execute
from utils.datasets.text.parallel import load_pairs
from utils.export.networks.seq2seq import SIZES, Form, buckets
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.export.networks.translation_models import (
    TranslationModel,
    export_translation_model,
    random_translation_model,
)
from utils.pipeline import answers, valid
from utils.preprocess.text.tokens import Tokens
from utils.tasks.translation.settings import Notes
from utils.tasks.translation.task import Translation

pytestmark = pytest.mark.torch

TEXTS = ["the cat sat on the mat", "a dog", "hello", "the dog sat on a cat and a cat sat on the dog"]
SMALL: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "decoder_layers": 2,
    "heads": 2,
    "size": 8,
    "inner": 16,
    "positions": 64,
}
MARIAN = replace(SIZES["marian"], **SMALL, start=1, pad=1, end=2)
T5 = replace(
    SIZES["t5_small"], **SMALL, activation="gelu_new", gated=True, tied=False, scaled=False, start=1, pad=1, end=2
)


def network(form: Form) -> TranslationModel:
    """Return a network whose translations have different lengths."""
    model = random_translation_model(form, small_tokenizer("roberta", TEXTS))
    with torch.no_grad():
        for name, weight in model.module.named_parameters():
            if weight.ndim > 1 and "embed_positions" not in name:
                weight.normal_(std=0.7, generator=torch.Generator().manual_seed(len(name)))
    return model


@pytest.fixture(scope="module", params=["marian", "t5"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TranslationModel, Path]:
    """Return a network and the stem of its dynamic files."""
    model = network(MARIAN if request.param == "marian" else T5)
    stem = tmp_path_factory.mktemp(request.param) / "m"
    results = export_translation_model(model, stem, source="a test", forms=["dyn"], exporter="torchscript")
    assert [one.error for one in results] == [None, None]
    return model, stem


def files(stem: Path) -> dict[str, Path]:
    return {part: stem.with_name(f"{stem.name}_{part}_dyn.onnx") for part in ("encoder", "decoder")}


def greedy(model: TranslationModel, text: str, most: int) -> list[int]:
    """Return the tokens by PyTorch, all of them again at each step."""
    tokens = Tokens(json.dumps(model.source), "test")
    ids = torch.from_numpy(tokens.encode([text])[0].ids)[None]
    target = [model.module.form.start]
    with torch.no_grad():
        while len(target) <= most:
            logits = model.module(ids, torch.ones_like(ids), torch.tensor([target]))[0, -1]
            logits[list(model.suppress)] = -math.inf
            target.append(int(logits.argmax()))
            if target[-1] == model.module.form.end:
                return target[1:-1]
    return target[1:]


def run(script: str, stem: Path, data: Any, folder: Path, *argv: str, **given: Any) -> tuple[int, dict[str, Any]]:
    words = ["--target", "onnx", "--max_new_tokens", "12", *argv, "--json", str(folder / "r.json")]
    where: dict[str, Any] = {"argv": words, "ckpt": files(stem), "data_path": data, "batch_size": 4, **given}
    code = (
        valid.main(None, Translation, **where)
        if script == "valid"
        else answers.main(None, Translation, script, **where)
    )
    return code, json.loads((folder / "r.json").read_text())


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return tmp_path / "texts.txt"


def test_tokens_are_those_without_a_cache(exported: tuple[TranslationModel, Path], texts: Path, tmp_path: Path) -> None:
    model, stem = exported
    tokens = Tokens(json.dumps(model.target), "test")
    wanted = [greedy(model, text, 12) for text in TEXTS]
    for batch, flags in ((4, ()), (1, ()), (3, ("--lengths", "24", "40"))):
        _, found = run("multi", stem, texts, tmp_path, *flags, batch_size=batch)
        assert [one["answer"]["text"] for one in found["answers"]] == [tokens.decode(ids).strip() for ids in wanted]
        assert [one["answer"]["tokens"] for one in found["answers"]] == [len(ids) for ids in wanted]


def test_an_evaluation_in_two_files_and_the_writer(
    exported: tuple[TranslationModel, Path], texts: Path, tmp_path: Path
) -> None:
    _, stem = exported
    _, found = run("multi", stem, texts, tmp_path, "--save", str(tmp_path / "out"))
    assert len(list((tmp_path / "out").iterdir())) == len(TEXTS)
    own = [one["answer"]["text"] for one in found["answers"]]
    (tmp_path / "ref.txt").write_text("\n".join(" ".join(one.split()) or "-" for one in own) + "\n")
    data = {"src": texts, "ref": tmp_path / "ref.txt"}
    code, found = run("valid", stem, data, tmp_path, "--save_predictions", str(tmp_path / "p.txt"))
    assert (code, found["metric_name"]) == (0, "bleu")
    assert found["secondary"]["chrf"] == pytest.approx(100, abs=2)
    assert len((tmp_path / "p.txt").read_text().splitlines()) == len(TEXTS)
    assert {"decode_tokens_per_s", "first_token_s_median"} <= set(found["figures"])
    assert run("valid", stem, data, tmp_path, "--metric", "chrf")[1]["metric"] == found["secondary"]["chrf"]


def test_prefix_and_case_are_stored_settings(
    exported: tuple[TranslationModel, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, stem = exported
    settings = {"case": "lower", "prefix": "hello "}
    export_translation_model(
        model, tmp_path / "m", source="a test", settings=settings, forms=["dyn"], exporter="torchscript"
    )
    stored = run("multi", tmp_path / "m", None, tmp_path, "--text", "A Dog")[1]["answers"][0]["answer"]["text"]
    assert run("multi", stem, None, tmp_path, "--text", "hello a dog")[1]["answers"][0]["answer"]["text"] == stored
    given = ("--prefix", "hello ", "--case", "lower", "--text", "A Dog")
    assert run("multi", stem, None, tmp_path, *given)[1]["answers"][0]["answer"]["text"] == stored


@pytest.mark.slow
@pytest.mark.parametrize("planted", [("--case", "lower"), ("--prefix", "translate English to French: ")])
def test_mistake_is_found(
    planted: tuple[str, str],
    exported: tuple[TranslationModel, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The source has the setting ``planted``, which the exported model does not store."""
    pytest.importorskip("psutil")
    _, stem = exported
    rows = [f"{word.upper()} {text}" for text in TEXTS for word in ("the", "cat", "dog")]
    data = tmp_path / "val.tsv"
    data.write_text("source\ttarget\n" + "".join(f"{text}\tx\n" for text in rows))
    saved = ("--max_new_tokens", "128", "--save_predictions", str(tmp_path / "golden.txt"))
    run("valid", stem, data, tmp_path, *planted, *saved)
    capsys.readouterr()
    task = ("--task", "translation", "--model_name", "encoder", "--ckpt", f"decoder={files(stem)['decoder']}")
    words = [*task, "--data", str(data), "--golden", str(tmp_path / "golden.txt")]
    assert execute(["fix", str(files(stem)["encoder"]), *words]) == 0
    assert f"this explains it: {planted[0]} " in capsys.readouterr().out


def test_a_model_with_nan_is_reported(exported: tuple[TranslationModel, Path], texts: Path, tmp_path: Path) -> None:
    _, stem = exported
    for part, file in files(stem).items():
        model = onnx.load(file)
        if part == "decoder":
            for one in model.graph.initializer:
                if "embed_positions" in one.name or "final_layer_norm" in one.name or "shared" in one.name:
                    values = onnx.numpy_helper.to_array(one) * np.float32("nan")
                    one.CopyFrom(onnx.numpy_helper.from_array(values, one.name))
        onnx.save(model, tmp_path / file.name)
    code, found = run("multi", tmp_path / "m", texts, tmp_path)
    assert (code, len(found["nan_outputs"])) == (1, len(TEXTS))


def test_what_is_refused(exported: tuple[TranslationModel, Path], texts: Path, tmp_path: Path) -> None:
    _, stem = exported
    for part, file in files(stem).items():
        model = onnx.load(file)
        if part == "decoder":
            kept = [entry for entry in model.metadata_props if entry.key != "translation"]
            del model.metadata_props[:]
            model.metadata_props.extend(kept)
        onnx.save(model, tmp_path / file.name)
    with pytest.raises(ModelError, match="start, end and positions"):
        run("multi", tmp_path / "m", texts, tmp_path)
    with pytest.raises(ConfigError, match="--max_new_tokens 0"):
        run("multi", stem, texts, tmp_path, "--max_new_tokens", "0")
    for flags, text in (
        (("--beam_width", "0"), "--beam_width 0"),
        (("--length_penalty", "2"), "--beam_width 4"),
        (("--beam_width", "2", "--length_penalty", "nan"), "--length_penalty nan"),
    ):
        with pytest.raises(ConfigError, match=text):
            run("multi", stem, texts, tmp_path, *flags)
    (tmp_path / "ref.txt").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match="3 lines"):
        run("valid", stem, {"src": texts, "ref": tmp_path / "ref.txt"}, tmp_path)


def test_buckets_of_distances() -> None:
    apart = torch.tensor([0, 1, 7, 8, 200, -1, -7, -8, -200])
    both = buckets(apart, T5, both=True).tolist()
    assert both[:3] == [0, 17, 23]
    assert both[5:7] == [1, 7]
    assert (max(both), both[4], both[8]) == (31, 31, 15)
    assert buckets(apart, T5, both=False).tolist()[:6] == [0, 0, 0, 0, 0, 1]


def test_references_per_line_are_read(texts: Path, tmp_path: Path) -> None:
    task = Translation.__new__(Translation)
    data = load_pairs({"data": texts})
    (tmp_path / "golden.txt").write_text("a\n\nb\nc\n")
    assert task.reference_answers(tmp_path / "golden.txt", data) == ["a", "", "b", "c"]
    (tmp_path / "golden.txt").write_text("a\n")
    with pytest.raises(DataError, match="1 lines for 4"):
        task.reference_answers(tmp_path / "golden.txt", data)


def test_notes_that_cannot_be_used(tmp_path: Path) -> None:
    from utils.tasks.model import Model

    for stored in ({}, {"start": [], "end": 0, "positions": 9}, {"start": [1], "end": 0, "positions": 1}, [1]):
        with pytest.raises(ModelError, match="translation"):
            Notes.of(Model(tmp_path / "m.onnx", metadata={"translation": json.dumps(stored)}))
