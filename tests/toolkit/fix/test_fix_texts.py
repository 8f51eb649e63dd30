"""Settings of text classification: answers of the source explain each common mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from toolkit.cli import execute
from utils.pipeline import answers
from utils.tasks.text_classification import TEXT_CLASSIFICATION

pytest.importorskip("tokenizers")

WORDS = "A Man plays the Guitar Rain is wet Dogs bark At cats a man guitar rain dogs at"
PAIRS = [("A Man plays", "the Guitar"), ("Rain is wet", "Dogs bark At cats"), ("Dogs bark", "a man"), ("At cats", "is")]


def _classifier(path: Path) -> Path:
    """Write a model whose logits are a weighted sum over tokens, so that case and order matter."""
    from utils.export.networks.small_tokenizers import small_tokenizer

    tokenizer = small_tokenizer("gpt2", [WORDS])
    table = np.random.default_rng(0).standard_normal((len(tokenizer["model"]["vocab"]) + 8, 2)).astype(np.float32)
    constants = {"table": table, "one": np.array(1, np.int64), "two": np.array([2], np.int64), "ones": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("CumSum", ["mask", "one"], ["place"]),
        helper.make_node("Div", ["mask", "place"], ["weight"]),
        helper.make_node("Unsqueeze", ["weight", "two"], ["weights"]),
        helper.make_node("Mul", ["tokens", "weights"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "ones"], ["logits"], keepdims=0),
    ]
    names = ("input_ids", "attention_mask")
    ints = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    made = helper.make_model(
        helper.make_graph(nodes, "g", ints, [logits], kept), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    for key, value in {"tokenizer": tokenizer, "class_labels": ["no", "yes"]}.items():
        made.metadata_props.add(key=key, value=json.dumps(value))
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("planted", ["--label_order 1,0", "--case lower", "--pair_order swapped"])
def test_mistake_is_found(planted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The source has the setting ``planted``, which the exported model does not store."""
    pytest.importorskip("psutil")
    model, data, golden = _classifier(tmp_path / "m.onnx"), tmp_path / "p.tsv", tmp_path / "golden.tsv"
    rows = [*PAIRS, *((two, one) for one, two in PAIRS)] * 2
    data.write_text("sentence1\tsentence2\n" + "".join(f"{one}\t{two}\n" for one, two in rows))
    words = ["--target", "onnx", *planted.split(), "--json", str(tmp_path / "r.json")]
    answers.main(None, TEXT_CLASSIFICATION, "multi", argv=words, ckpt=model, data_path=data, batch_size=8)
    found = [one["answer"][0] for one in json.loads((tmp_path / "r.json").read_text())["answers"]]
    golden.write_text("label\tscore\n" + "".join(f"{one['label']}\t{one['score']}\n" for one in found))
    capsys.readouterr()
    task = ("--task", "text_classification", "--data", str(data))
    assert execute(["fix", str(model), *task, "--golden", str(golden)]) == 0
    assert f"this explains it: {planted}" in capsys.readouterr().out
