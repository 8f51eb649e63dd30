"""Scripts for BGE and Jina in the historical style run unchanged, with the results of transformers' tokenizers."""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from bge_jina_scripts import BGE_SINGLE, BGE_VALID, HEAD, JINA_VALID
from sentence_encoder import write_bert_folder, write_encoder, write_roberta_folder
from support import ROOT, RunPython

pytestmark = [pytest.mark.slow, pytest.mark.long]

LENGTH = 24
PAIRS = [
    ("样例数据-1", "样例数据-2"),
    ("今天天气很好", "今天下雨了。"),
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("what is panda?", "The giant panda (Ailuropoda melanoleuca) is a bear species endemic to China."),
    ("Zürich is a city", "zurich is a city, and a long text is cut where the row of numbers ends, which it does here"),
    ("one", "two"),
    ("the last of seven", "so the last batch is short"),
]
CODE = [(f"return the sum of {n} numbers", f"def sum_{n}(values):\n    return sum(values[:{n}])\n") for n in range(9)]

BARE = """
import os, runpy, sys
sys.path.append(sys.argv[1])
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script where packages are there but no zoo is installed."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the zoo with the scripts, models, tokenizers and data."""
    root = tmp_path_factory.mktemp("sentences")
    for folder in ("contrib/engine", "contrib/utils", "engine", "tecoinfer_modelzoo", "utils"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for where in ("example", "contrib/example"):
        for name, texts in (
            ("bge", {"example_valid.py": HEAD + BGE_VALID, "example_single_batch.py": HEAD + BGE_SINGLE}),
            ("jina", {"example_valid.py": JINA_VALID}),
        ):
            home = root / where / "nlp" / name
            home.mkdir(parents=True)
            for file, text in texts.items():
                (home / file).write_text(text, encoding="utf-8")
    size = write_bert_folder(root / "bert", [text for pair in PAIRS for text in pair])
    codes = write_roberta_folder(root / "roberta", [text for pair in CODE for text in pair])
    for kind in ("bge-large-zh", "bge-m3", "bge-reranker-large"):
        write_encoder(root / f"{kind}.onnx", kind, size, LENGTH)
    write_encoder(root / "jina.onnx", "bge-m3", codes, LENGTH)
    rows = [{"sentence1": first, "sentence2": second, "label": 0} for first, second in PAIRS]
    (root / "pairs.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    first, second = zip(*PAIRS, strict=True)
    (root / "lists.jsonl").write_text(json.dumps({"sent1": first, "sent2": second, "labels": [0] * len(PAIRS)}) + "\n")
    (root / "demo.txt").write_text("".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in PAIRS[:3]))
    (root / "reranker_demo.txt").write_text("".join(f"{[list(pair)]}\n" for pair in PAIRS[2:4]))
    part = root / "code_search_net" / "python" / "final" / "jsonl" / "test"
    part.mkdir(parents=True)
    lines = [json.dumps({"docstring": query, "code": code, "language": "python"}) + "\n" for query, code in CODE]
    (part / "python_test_0.jsonl").write_text("".join(lines))
    return root


def run(run_python: RunPython, place: Path, where: str, script: str, *flags: object) -> str:
    """Run a script from its own folder and return what it prints."""
    file = place / where / "nlp" / script
    done = run_python("-S", "-c", BARE, sysconfig.get_path("purelib"), file, *flags, cwd=file.parent, path=[])
    assert done.returncode == 0, done.stderr
    return done.stdout


def reference(place: Path, model: str, tokens: str, *texts: list[str]) -> list[Any]:
    """Return what ONNX Runtime gives for what transformers' tokenizer makes of texts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(place / tokens))
    found = tokenizer(*texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="np")
    session = onnxruntime.InferenceSession(str(place / model), providers=["CPUExecutionProvider"])
    if "token_type_ids" not in found:
        found["token_type_ids"] = np.zeros_like(found["input_ids"])
    return session.run(None, {one.name: found[one.name].astype(np.int64) for one in session.get_inputs()})


def cosine(first: Any, second: Any) -> Any:
    return (first * second).sum(-1) / np.linalg.norm(first, axis=-1) / np.linalg.norm(second, axis=-1)


@pytest.mark.parametrize(("where", "data"), [("example", "pairs.jsonl"), ("contrib/example", "lists.jsonl")])
@pytest.mark.parametrize("model", ["bge-large-zh", "bge-reranker-large"])
def test_an_evaluation_of_bge(where: str, data: str, model: str, place: Path, run_python: RunPython) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    flags = ("--ckpt", place / f"{model}.onnx", "--config-path", place / "bert", "--data-path", place / data)
    flags += ("--model_name", model, "--shape", LENGTH, "--batch-size", 4, "--onnx-datas", place / where)
    run(run_python, place, where, "bge/example_valid.py", *flags, "--target", "onnx")
    found = np.load(place / where / model / f"{model}_bs4_onnx.npy")
    first, second = (list(texts) for texts in zip(*PAIRS, strict=True))
    if model == "bge-large-zh":
        one, two = (reference(place, f"{model}.onnx", "bert", texts)[0][:, 0] for texts in (first, second))
        wanted = cosine(one, two)
    else:
        wanted = reference(place, f"{model}.onnx", "bert", first, second)[0][:, 0]
    assert found.shape == (len(PAIRS),)
    assert np.allclose(found, wanted, atol=1e-5)
    printed = run(run_python, place, where, "bge/example_valid.py", *flags, "--target", "sdaa", "--half")
    assert float(re.search(r"eval_metric:([0-9.e-]+)", printed)[1]) < 0.01


@pytest.mark.parametrize(("where", "batch"), [("example", 2), ("contrib/example", 1)])
def test_a_few_sentences_of_bge(where: str, batch: int, place: Path, run_python: RunPython) -> None:
    """With the defaults of such scripts too, a batch of one and two sentences in it."""
    pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    wanted = {}
    for model, layer in (("bge-large-zh", 0), ("bge-m3", 1)):
        texts = [reference(place, f"{model}.onnx", "bert", list(pair))[layer] for pair in PAIRS[:3]]
        wanted[model] = [cosine(*(two[:, 0] if layer == 0 else two)) for two in texts]
    wanted["bge-reranker-large"] = [
        float(reference(place, "bge-reranker-large.onnx", "bert", [one], [two])[0][0, 0]) for one, two in PAIRS[2:4]
    ]
    for model, values in wanted.items():
        data = "reranker_demo.txt" if "reranker" in model else "demo.txt"
        flags = ("--ckpt", place / f"{model}.onnx", "--config-path", place / "bert", "--data-path", place / data)
        flags += ("--model_name", model, "--shape", LENGTH, "--batch-size", batch, "--target", "onnx")
        lines = run(run_python, place, where, "bge/example_single_batch.py", *flags).splitlines()
        assert [float(line.rpartition(":")[2]) for line in lines] == pytest.approx(values, abs=1e-5)
        written = (place / data).read_text().splitlines()
        assert [re.sub(r"-(cosine_sim|score):.*", "", line) for line in lines] == written


@pytest.mark.parametrize("where", ["example", "contrib/example"])
def test_an_evaluation_of_jina(where: str, place: Path, run_python: RunPython) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    flags = ("--ckpt", place / "jina.onnx", "--config_path", place / "roberta", "--batch-size", 4)
    flags += ("--data_path", place / "code_search_net", "--max_sequence_len", LENGTH)
    queries, codes = (list(texts) for texts in zip(*CODE, strict=True))
    one, two = (reference(place, "jina.onnx", "roberta", texts)[1] for texts in (queries, codes))
    best = cosine(one[:, None], two[None]).argmax(axis=1)
    wanted = float((best == np.arange(len(best))).mean())
    printed = run(run_python, place, where, "jina/example_valid.py", *flags, "--target", "onnx", "--dtype", "float32")
    assert float(re.search(r"eval_metric: ([0-9.]+)", printed)[1]) == pytest.approx(wanted)
    assert "summary: batches 3" in printed
    printed = run(run_python, place, where, "jina/example_valid.py", *flags, "--target", "sdaa")
    assert float(re.search(r"eval_metric: ([0-9.]+)", printed)[1]) == pytest.approx(wanted, abs=1 / 9)
