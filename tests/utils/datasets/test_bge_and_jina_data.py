"""Data loaders of scripts for BGE and Jina: batches, cosines, scores, and invalid data."""

from __future__ import annotations

import gzip
import json
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError, DataError, InputError
from utils.datasets.bge import create_dataloader
from utils.datasets.jina import create_dataloader as create_code_loader
from utils.postprocess.pytorch.bge import postprocess
from utils.preprocess.pytorch.bge import ORDER, preprocess

pytest.importorskip("tokenizers")

PAIRS = [("a cat", "a dog"), ("one two three four five six seven eight nine ten", "two"), ("cat", "one dog")]
WORDS = sorted({word for pair in PAIRS for text in pair for word in text.split()})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    rows = [{"sentence1": one, "sentence2": two} for one, two in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def options(folder: Path, data: str, model: str = "bge-large-zh", **more: Any) -> Namespace:
    given = {"config_path": str(folder), "data_path": str(folder / data), "model_name": model, "batch_size": 2}
    return Namespace(**{**given, "shape": 8, **more})


def numbers(*words: str) -> list[int]:
    return [5 + WORDS.index(word) for word in words]


def test_an_embedders_batch_is_two_padded_dicts(folder: Path) -> None:
    loader = create_dataloader(options(folder, "pairs.jsonl", file_type="json"))
    assert len(loader) == 2
    batches = list(loader)
    assert [len(batch) for batch in batches] == [2, 2]
    first = batches[0][0]
    assert list(first) == list(ORDER)
    assert first["input_ids"].tolist()[0] == [2, *numbers("a", "cat"), 3, 0, 0, 0, 0]
    assert first["input_ids"].tolist()[1] == [2, *numbers("one", "two", "three", "four", "five", "six"), 3]
    assert first["attention_mask"].tolist()[0] == [1] * 4 + [0] * 4
    made = preprocess(batches[1][0], 2, batch_padding=True)
    assert [array.shape for array in made] == [(2, 8)] * 3
    assert (made[0][0] == made[0][1]).all()
    assert preprocess(batches[1][0], 2, batch_padding=False)[0].shape == (1, 8)
    turned = {"input_ids": first["input_ids"], "token_type_ids": first["token_type_ids"], **first}
    assert (preprocess(turned, 2)[1] == first["attention_mask"]).all()


def test_a_rerankers_batch_is_one_dict(folder: Path) -> None:
    (batch, *_) = create_dataloader(options(folder, "pairs.jsonl", "bge-reranker-large", file_type="json"))
    assert list(batch) == list(ORDER[:2])
    assert batch["input_ids"].tolist()[0] == [2, *numbers("a", "cat"), 3, *numbers("a", "dog"), 3, 0]
    scores = postprocess(np.array([[1.5], [2.0], [2.0]], np.float16), 2, "bge-reranker-large")
    assert scores.tolist() == [1.5, 2.0]


def test_a_few_sentences_are_keyed_by_their_line(folder: Path) -> None:
    lines = ['["a cat", "one dog"]', "[('two', 'cat')]", "nothing", '["a cat", ""]', "one\ttwo"]
    (folder / "demo.txt").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="2 lines are skipped.*demo.txt:3"):
        found = create_dataloader(options(folder, "demo.txt"))
    assert list(found) == ['["a cat", "one dog"]', "[('two', 'cat')]", "one\ttwo"]
    assert found["one\ttwo"]["input_ids"].shape == (2, 8)
    with pytest.warns(UserWarning, match="2 lines are skipped"):
        scored = create_dataloader(options(folder, "demo.txt", "bge-reranker-v2-m3"))
    assert scored["one\ttwo"]["input_ids"].shape == (1, 8)


def test_cosines_of_the_first_tokens() -> None:
    chance = np.random.default_rng(0)
    one, two = chance.normal(size=(2, 3, 5, 4)).astype(np.float32)
    first, second = one[:, 0], two[:, 0]
    wanted = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert np.allclose(postprocess([one, two], 3, "bge-large-zh"), wanted, atol=1e-6)
    assert np.allclose(postprocess([first, second], 2, "bge-m3"), wanted[:2], atol=1e-6)
    assert np.allclose(postprocess([[one, first], [two, second]], 3, "bge-m3"), wanted, atol=1e-6)
    assert postprocess([one[0], two[0]], 1, "bge-large-zh", demo=True)[0] == pytest.approx(wanted[0], abs=1e-6)
    assert postprocess([first[0], second[0]], 1, "bge-m3", demo=True)[0] == pytest.approx(wanted[0], abs=1e-6)


def test_tensors_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    rows = torch.ones((1, 4), dtype=torch.int64)
    made = preprocess({"input_ids": rows, "attention_mask": rows}, 3)
    assert all(isinstance(one, torch.Tensor) and one.shape == (3, 4) for one in made)
    assert isinstance(postprocess([torch.ones(2, 3), torch.ones(2, 3)], 2, "bge-m3"), torch.Tensor)


def test_code_in_lines_compressed_files_and_archives(folder: Path) -> None:
    rows = "".join(json.dumps({"docstring": one, "code": two}) + "\n" for one, two in PAIRS)
    packed = gzip.compress(rows.encode())
    (folder / "plain.jsonl").write_text(
        rows.replace("docstring", "func_documentation_string").replace("code", "func_code_string")
    )
    (folder / "data").mkdir()
    with zipfile.ZipFile(folder / "data" / "python.zip", "w") as archive:
        archive.writestr("python/final/jsonl/test/python_test_0.jsonl.gz", packed)
        archive.writestr("python/final/jsonl/train/python_train_0.jsonl.gz", packed)
    for path in (folder / "plain.jsonl", folder / "data"):
        loader = create_code_loader(path, folder, 2, max_length=6)
        assert loader.pairs == PAIRS
        assert len(loader) == 2
        queries, codes = next(iter(loader))
        assert list(queries) == list(codes) == ["input_ids", "attention_mask"]
        assert queries["input_ids"].shape == (2, 6)


def test_invalid_data(folder: Path) -> None:
    (folder / "x.jsonl").write_text('{"x": 1}\n')
    (folder / "t.parquet").write_bytes(b"PAR1....")
    with pytest.raises(DataError, match="columns 'x'"):
        create_dataloader(options(folder, "x.jsonl", file_type="json"))
    (folder / "some.jsonl").write_text('{"sentence1": "a cat", "sentence2": "a dog"}\n{"sentence1": 3}\n{"sen')
    with pytest.warns(UserWarning, match=r"2 rows .*some.jsonl:2: 3 is"):
        assert len(create_dataloader(options(folder, "some.jsonl", file_type="json"))) == 1
    with pytest.raises(DataError, match="does not exist"):
        create_dataloader(options(folder, "gone.jsonl", file_type="json"))
    with pytest.raises(DataError, match=r"tokenizer.json or vocab.txt"):
        create_code_loader(folder / "pairs.jsonl", folder.parent, 2)
    (folder.parent / "pieces").mkdir()
    (folder.parent / "pieces" / "sentencepiece.bpe.model").write_bytes(b"x")
    with pytest.raises(DataError, match=r"sentencepiece.bpe.model .*tokenizer.json"):
        create_code_loader(folder / "pairs.jsonl", folder.parent / "pieces", 2)
    with pytest.raises(DataError, match="Parquet is not supported"):
        create_dataloader(options(folder, "t.parquet", file_type="json"))
    with pytest.raises(ConfigError, match=r"config_path is missing.*--config-path"):
        create_dataloader(options(folder, "pairs.jsonl", config_path=None))
    with pytest.raises(InputError, match="inputs are named ids"):
        preprocess({"ids": np.zeros((1, 2), np.int64)}, 1)
    with pytest.raises(InputError, match="pass integers"):
        preprocess([np.zeros((1, 2))], 1)
    with pytest.raises(InputError, match="N x 1"):
        postprocess(np.zeros((2, 3)), 2, "bge-reranker-large")
