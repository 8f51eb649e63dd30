"""Token classification: alignment of words and tokens, forms of outputs, settings, whole runs, and what is refused.

The model is a real one of a table: a token has its own logits, wherever it stands.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import bound, described, opened
from onnx import TensorProto, helper, numpy_helper

from engine import ConfigError, DataError, InputError, ModelError
from toolkit.cli import execute
from utils.datasets.base import ListDataset
from utils.datasets.text.tagged import load_tagged, sentence_of, split_text
from utils.pipeline import answers, valid
from utils.preprocess.text.tokens import Encoded
from utils.tasks.model import Model
from utils.tasks.token_classification.entities import UnknownTypes
from utils.tasks.token_classification.scores import Tagged
from utils.tasks.token_classification.task import TokenClassification
from utils.tasks.token_classification.words import Aligned, aligned

pytest.importorskip("tokenizers")

LABELS = ["O", "B-PER", "I-PER", "B-LOC"]
KNOWN = {"ada": 1, "hill": 2, "lyon": 3, "##yon": 1, "l": 3}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ada", "hill", "lives", "in", ".", "l", "##yon", "Ada"]
DATA = "-DOCSTART- O\n\nada B-PER\nhill I-PER\nlives O\nin O\nlyon B-LOC\n. O\n\n-DOCSTART- O\n\nin O\nada B-PER\n"


def tokenizer(lower: bool = False) -> dict[str, Any]:
    """Return a tokenizer for which ``lyon`` is two tokens."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))  # noqa: S106
    if lower:
        made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    found: dict[str, Any] = json.loads(made.to_str())
    return found


def model(path: Path, *steps: Any, labels: Any = LABELS, lower: bool = False, **notes: Any) -> Path:
    """Write the model: ``steps`` follow the logits, N x L x C; each is a node of one input."""
    table = np.zeros((len(PIECES), len(LABELS)), np.float32)
    for i, piece in enumerate(PIECES):
        table[i, KNOWN.get(piece, 0)] = 4.0
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["v0"])]
    nodes += [helper.make_node(kind, [f"v{i}"], [f"v{i + 1}"], **given) for i, (kind, given) in enumerate(steps)]
    last, labelled = f"v{len(steps)}", any(kind == "ArgMax" for kind, _ in steps)
    nodes.append(helper.make_node("Identity", [last], ["logits"]))
    sides: list[Any] = ["batch", "length"]
    kind = TensorProto.INT64 if labelled else TensorProto.FLOAT
    turned = any(kind == "Transpose" for kind, _ in steps)
    shape: list[Any] = sides if labelled else ["batch", 4, "length"] if turned else [*sides, 4]
    graph = helper.make_graph(
        nodes,
        "tags",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, sides)],
        [helper.make_tensor_value_info("logits", kind, shape)],
        [numpy_helper.from_array(table, "table")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    stored = {"tokenizer": tokenizer(lower), **({} if labels is None else {"class_labels": labels}), **notes}
    for key, value in stored.items():
        made.metadata_props.add(key=key, value=json.dumps(value))
    onnx.save(made, path)
    return path


def tagged(ckpt: Path, *texts: str, **flags: Any) -> list[Tagged]:
    """Return the tags of sentences, by a real engine."""
    with opened(ckpt, "onnx") as engine:
        task = bound(TokenClassification, described(engine), "multi", **flags)
        task.setup({"model": engine}, ListDataset([]))
        prepared = task.prepare([split_text(text) for text in texts])
        found: list[Tagged] = task.decode(engine(task.collate([prepared])), prepared.contexts)
        return found


def run(script: str, ckpt: Path, data: Path, folder: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    words = ["--target", "onnx", *argv, "--json", str(folder / "r.json")]
    where: dict[str, Any] = {"argv": words, "ckpt": ckpt, "data_path": data, "batch_size": 2}
    code = (
        valid.main(None, TokenClassification, **where)
        if script == "valid"
        else answers.main(None, TokenClassification, script, **where)
    )
    return code, json.loads((folder / "r.json").read_text())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "val.conll").write_text(DATA)
    return tmp_path / "val.conll"


FORMS = {
    "logits": [],
    "probabilities": [("Softmax", {"axis": -1})],
    "logarithms": [("LogSoftmax", {"axis": -1})],
    "labels": [("ArgMax", {"axis": 2, "keepdims": 0})],
}


@pytest.mark.parametrize("form", FORMS)
def test_tags_of_each_form_of_output(form: str, tmp_path: Path) -> None:
    ckpt = model(tmp_path / "m.onnx", *FORMS[form])
    one, two = tagged(ckpt, "ada hill lives in lyon.", "in")
    assert one.tags == ("B-PER", "I-PER", "O", "O", "B-LOC", "O")
    assert two.tags == ("O",)
    likely = 1.0 if form == "labels" else math.exp(4) / (math.exp(4) + 3)
    assert one.scores == pytest.approx([likely] * 6)
    assert one.score == pytest.approx(likely)
    expected = {"probabilities": (math.exp(4) - 1) / (math.exp(4) + 3), "labels": 1.0}
    assert one.margin == pytest.approx(expected.get(form, 4.0))


def test_channels_first(tmp_path: Path) -> None:
    ckpt = model(tmp_path / "m.onnx", ("Transpose", {"perm": [0, 2, 1]}))
    (one,) = tagged(ckpt, "ada in lyon.", output_layout="channels_first")
    assert one.tags == ("B-PER", "O", "B-LOC", "O")
    with pytest.raises(ModelError, match="4 labels and its output has 7"):
        tagged(ckpt, "ada in lyon.", output_layout="channels_last")


def test_the_first_or_the_last_token_of_a_word(tmp_path: Path) -> None:
    """The second token of ``lyon`` is tagged B-PER."""
    assert tagged(model(tmp_path / "a.onnx"), "lyon in")[0].tags == ("B-LOC", "O")
    stored = model(tmp_path / "b.onnx", token_classification={"subword": "last"})
    assert tagged(stored, "lyon in")[0].tags == ("B-PER", "O")
    assert tagged(stored, "lyon in", subword="first")[0].tags == ("B-LOC", "O")
    with pytest.raises(ModelError, match="subword 'middle'"):
        tagged(model(tmp_path / "c.onnx", token_classification={"subword": "middle"}), "in")


def test_case_is_a_setting(tmp_path: Path) -> None:
    ckpt = model(tmp_path / "m.onnx")
    assert tagged(ckpt, "ADA")[0].tags == ("O",)
    assert tagged(ckpt, "ADA", case="lower")[0].tags == ("B-PER",)


def test_truncated_words_are_outside_and_counted(tmp_path: Path) -> None:
    ckpt = model(tmp_path / "m.onnx", max_length=4)
    (one,) = tagged(ckpt, "ada hill ada hill")
    assert one.tags == ("B-PER", "I-PER", "O", "O")
    assert one.scores[2:] == (0.0, 0.0)
    task = bound(TokenClassification, Model(ckpt), "multi")
    context = Aligned(("a", "b"), np.array([0, -1]), np.zeros(4, np.int64), 1)
    assert "1 of 5" in task.format_warnings(task.warning_counts([context]), 5)[0]


def test_words_without_tokens_and_tokens_of_spaces() -> None:
    """Byte-level tokenizers have the space before a word in its token, or as a token of its own."""
    sentence = sentence_of(["ab", "\u200b", "cd"])
    spans = np.array([[0, 0], [0, 1], [1, 2], [4, 5], [5, 7], [0, 0]], np.int64)
    part = np.array([-1, 0, 0, 0, 0, -1], np.int64)
    encoded = Encoded(np.arange(6), np.zeros(6, np.int64), spans, part)
    assert aligned(sentence, encoded, sentence, "first").places.tolist() == [1, -1, 3]
    assert aligned(sentence, encoded, sentence, "last").places.tolist() == [2, -1, 4]


def test_a_vocabulary_of_words_without_a_tokenizer(tmp_path: Path) -> None:
    ckpt = model(tmp_path / "m.onnx", vocabulary=["<unk>" if one == "[UNK]" else one for one in PIECES])
    stored = onnx.load(ckpt)
    kept = [entry for entry in stored.metadata_props if entry.key != "tokenizer"]
    del stored.metadata_props[:]
    stored.metadata_props.extend(kept)
    onnx.save(stored, ckpt)
    assert tagged(ckpt, "Ada lives in paris")[0].tags == ("B-PER", "O", "O", "O")
    assert tagged(ckpt, "Ada Hill", max_length=1)[0].tags == ("B-PER", "O")


def test_a_run_with_documents_as_units(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt = model(tmp_path / "m.onnx")
    code, found = run("valid", ckpt, data, tmp_path, "--save_predictions", str(tmp_path / "p.txt"))
    assert (code, found["metric"], found["samples"]) == (0, 1.0, 2)
    assert found["secondary"]["entities"] == 3
    assert found["per_class"]["PER"]["f1"] == 1
    assert (tmp_path / "p.txt").read_text().splitlines()[:3] == ["ada B-PER B-PER", "hill I-PER I-PER", "lives O O"]
    assert load_tagged(tmp_path / "p.txt").targets == load_tagged(data).targets
    capsys.readouterr()
    _, found = run("multi", ckpt, data, tmp_path, "--save", str(tmp_path / "out"))
    assert found["answers"][0]["answer"]["entities"][0] == {
        "type": "PER", "text": "ada hill", "begin": 0, "end": 8, "score": pytest.approx(0.9479, abs=1e-4),
    }  # fmt: skip
    assert "[PER ada hill] lives in [LOC lyon] ." in capsys.readouterr().out
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_strict_mode_and_accuracy(data: Path, tmp_path: Path) -> None:
    """A model that says I-PER where B-PER is right: default mode accepts it, strict mode does not."""
    ckpt = model(tmp_path / "m.onnx", labels=["O", "I-PER", "B-PER", "B-LOC"])
    assert run("valid", ckpt, data, tmp_path)[1]["metric"] == pytest.approx(2 * 2 / (4 + 3))
    assert run("valid", ckpt, data, tmp_path, "--mode", "strict")[1]["metric"] < 0.5
    assert run("valid", ckpt, data, tmp_path, "--metric", "accuracy")[1]["metric"] == pytest.approx(5 / 8)


def test_parts_of_speech_need_accuracy(tmp_path: Path, data: Path) -> None:
    data.write_text("ada NOUN\nlives VERB\n\nin VERB\n")
    ckpt = model(tmp_path / "m.onnx", labels=["VERB", "NOUN", "ADJ", "DET"])
    _, found = run("valid", ckpt, data, tmp_path, "--metric", "accuracy")
    assert (found["metric"], found["secondary"]) == (1.0, {"words": 3})
    with pytest.raises(DataError, match="--metric accuracy"):
        run("valid", ckpt, data, tmp_path)


@pytest.mark.parametrize("planted", ["--subword last", "--case lower"])
def test_mistake_is_found(planted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The source has the setting ``planted``, which the exported model does not store."""
    pytest.importorskip("psutil")
    ckpt, data = model(tmp_path / "m.onnx"), tmp_path / "val.conll"
    data.write_text("ADA B-PER\nlyon B-LOC\n\nlyon B-LOC\nADA B-PER\nin O\n\nADA B-PER\n\n" * 3)
    run("valid", ckpt, data, tmp_path, *planted.split(), "--save_predictions", str(tmp_path / "golden.txt"))
    capsys.readouterr()
    task = ("--task", "token_classification", "--data", str(data))
    assert execute(["fix", str(ckpt), *task, "--golden", str(tmp_path / "golden.txt")]) == 0
    assert f"this explains it: {planted}" in capsys.readouterr().out


def test_types_that_the_model_lacks_are_listed() -> None:
    found = UnknownTypes({"PER"})
    found.see(None, None, [("B-PER", "O"), ("B-ORG", "I-ORG"), (3,)])
    (line,) = found.hints()
    assert "ORG (1 sentences)" in line
    assert UnknownTypes({"PER"}).hints() == []


def test_what_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="class_labels"):
        tagged(model(tmp_path / "a.onnx", labels=None), "in")
    with pytest.raises(ConfigError, match="--tag_column 1"):
        run("valid", model(tmp_path / "b.onnx"), data, tmp_path, "--tag_column", "1")
    flat = bound(TokenClassification, Model(tmp_path / "b.onnx", metadata={"class_labels": '["O", "B-A"]'}), "multi")
    with pytest.raises(InputError, match="N x L x C"):
        flat.decode(np.zeros((2, 3), np.float32), [])
    other = tmp_path / "other.conll"
    other.write_text("ada B-PER\n")
    task = bound(TokenClassification, Model(tmp_path / "b.onnx"), "valid")
    with pytest.raises(DataError, match=r"other\.conll"):
        task.reference_answers(other, load_tagged(data))
