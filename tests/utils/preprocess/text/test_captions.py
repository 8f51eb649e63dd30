"""Captions and their tokens, compared with transformers' tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from grounding_model import write_tokenizer

from engine import DataError, InputError
from utils.coco_classes import IDS, NAMES
from utils.preprocess.text import captions
from utils.preprocess.text.captions import caption_of, encoded, get_tokenlizer, tokens_of

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_classes_of_coco() -> None:
    assert (len(NAMES), len(IDS), len(set(NAMES))) == (80, 80, 80)
    assert dict(zip(IDS, NAMES, strict=True))[13] == "stop sign"
    assert (IDS[-1], NAMES[-1]) == (90, "toothbrush")


def test_each_class_has_its_own_tokens(bert: Path) -> None:
    tokenizer = get_tokenlizer(bert)
    names = ["person", "traffic light", "toothbrush", "3"]
    numbers, kinds, mask = encoded(tokenizer, caption_of(names))
    written = [tokenizer.id_to_token(int(number)) for number in numbers]
    assert written == ["[CLS]", "person", ".", "traffic", "light", ".", "tooth", "##brush", ".", "3", ".", "[SEP]"]
    assert (kinds.tolist(), mask.tolist()) == ([0] * 12, [1] * 12)
    found = [[written[place] for place in places] for places in tokens_of(tokenizer, names)]
    assert found == [["person"], ["traffic", "light"], ["tooth", "##brush"], ["3"]]


def test_a_class_name_within_another(bert: Path) -> None:
    places = tokens_of(get_tokenlizer(bert), ["hot dog", "dog", "Dog"])
    assert [place.tolist() for place in places] == [[1, 2], [4], [6]]


def test_calls_equal_transformers(bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizerFast(vocab=str(bert / "vocab.txt"))
    mine, texts = get_tokenlizer(bert), ["cat . Hot dog .", "toothbrush . 1 . 2 . zebra ."]
    for keywords in ({}, {"padding": "longest", "return_tensors": "np"}, {"return_offsets_mapping": True}):
        want, got = theirs(texts, **keywords), mine(texts, **keywords)
        assert set(got) == set(want)
        assert {name: np.array(rows, object).tolist() for name, rows in got.items()} == {
            name: np.array(rows, object).tolist() for name, rows in want.items()
        }
    assert mine(texts[0]) == dict(theirs(texts[0]))
    names = ["hot dog", "toothbrush"]
    assert [p.tolist() for p in tokens_of(theirs, names)] == [p.tolist() for p in tokens_of(mine, names)]


def test_a_json_file_and_upper_case(bert: Path, tmp_path: Path) -> None:
    get_tokenlizer(bert).save(str(tmp_path / "tokenizer.json"))
    assert get_tokenlizer(tmp_path)("Cat .") == get_tokenlizer(bert)("cat .")
    cased = tmp_path / "cased"
    cased.mkdir()
    (cased / "vocab.txt").write_text((bert / "vocab.txt").read_text())
    (cased / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    unknown = get_tokenlizer(cased).token_to_id("[UNK]")
    assert unknown in get_tokenlizer(cased)("Cat .")["input_ids"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / "none", "does not exist"),
        (lambda folder: folder, "is a folder without tokenizer.json or vocab.txt"),
        (lambda folder: folder / "tokenizer.json", "cannot be read"),
    ],
)
def test_missing_tokenizers(make: object, says: str, tmp_path: Path) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    if path.name == "tokenizer.json":
        path.write_text("{")
    with pytest.raises(DataError, match=says) as found:
        get_tokenlizer(path)
    assert "\n" not in str(found.value)


def test_a_panic_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def read(file: Path) -> None:
        raise PanicException("out of its depth")

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(captions, "read_tokenizer", read)
    with pytest.raises(DataError, match=r"\(out of its depth\); .*tokenizer\.json"):
        get_tokenlizer(tmp_path)


def test_invalid_captions(bert: Path) -> None:
    tokenizer = get_tokenlizer(bert)
    with pytest.raises(InputError, match="caption ' ' is empty"):
        encoded(tokenizer, " ")
    with pytest.raises(InputError, match=r"tokenizer is a str; .*get_tokenlizer"):
        encoded(str(bert), "cat .")
    with pytest.raises(DataError, match="class ' ' has no token"):
        tokens_of(tokenizer, ["cat", " "])
    with pytest.raises(InputError, match="padding='longest'"):
        tokenizer(["cat", "hot dog"], return_tensors="np")
    with pytest.raises(InputError, match="'tf' is not supported"):
        tokenizer("cat", return_tensors="tf")
