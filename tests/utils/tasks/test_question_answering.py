"""Question answering: windows over long texts, answers back in the text's own characters, whole runs, bad questions.

The model is a real one of two tables: a word of the text has its own two numbers, wherever it stands.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import ConfigError, DataError, EngineSpec, ModelError, open_engine
from utils.datasets.text.questions import Question, load_questions
from utils.pipeline.flags.options import options
from utils.pipeline.run.pipeline import Pipeline
from utils.tasks.model import Model
from utils.tasks.question_answering import Answer, QuestionAnswering

pytest.importorskip("tokenizers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "?", "filler", "red", "cat", "dog", "Ünder", "."]
BEGINS = {"red": 6.0, "dog": 4.0, "[CLS]": 3.0, "[PAD]": 99.0}
ENDS = {"cat": 6.0, "dog": 5.0, "[CLS]": 3.0, "[PAD]": 99.0}
LONG = "filler " * 40 + "red Cat . " + "filler " * 30
"""71 words: several windows of 24 tokens."""


def tokenizer() -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    numbers = {word.lower() if word[0] != "[" else word: i for i, word in enumerate(WORDS)}
    made = Tokenizer(models.WordLevel(numbers, "[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return str(made.to_str())


@pytest.fixture(scope="module")
def ckpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the model: input_ids and attention_mask N x L in, start_logits and end_logits N x L out."""
    tables = {"end_logits": ENDS, "start_logits": BEGINS}  # the end first: outputs go by their names
    weights = {name: np.array([known.get(word, -4.0) for word in WORDS], np.float32) for name, known in tables.items()}
    sides: list[Any] = ["batch", "length"]
    graph = helper.make_graph(
        [helper.make_node("Gather", [f"table_{name}", "input_ids"], [name]) for name in tables],
        "spans",
        [helper.make_tensor_value_info(name, TensorProto.INT64, sides) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, sides) for name in tables],
        [numpy_helper.from_array(table, f"table_{name}") for name, table in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for key, value in {"tokenizer": tokenizer(), "max_length": "24", "vocabulary_size": str(len(WORDS))}.items():
        model.metadata_props.add(key=key, value=value)
    path = tmp_path_factory.mktemp("spans") / "spans.onnx"
    onnx.save(model, path)
    return path


def answered(ckpt: Path, *questions: Question, script: str = "multi", notes: Any = None, **flags: Any) -> list[Answer]:
    """Return what the task answers, by a real engine."""
    from utils.datasets.base import ListDataset

    data = ListDataset(list(questions), notes=notes)
    opt = options(None, QuestionAnswering, script, ["--ckpt", str(ckpt), "--target", "onnx"], **flags)
    with open_engine("onnx", EngineSpec(ckpt=ckpt, batch_size=2)) as engine:
        task = QuestionAnswering(opt).bind(Model.of(engine))
        pipeline = Pipeline(task, {"model": engine}, data)
        prepared = task.prepare(list(questions))
        found = pipeline.infer(task.collate([prepared]), prepared.contexts, len(questions))
        return list(pipeline.decode(found.outputs, prepared.contexts))


def task_of(ckpt: Path, script: str, *flags: str) -> QuestionAnswering:
    """Return the task bound to a model that says nothing, with flags as they are typed."""
    task = QuestionAnswering(options(None, QuestionAnswering, script, ["--ckpt", str(ckpt), *flags]))
    task.bind(Model(ckpt))
    return task


def test_an_answer_is_found_in_any_window_and_copied_from_the_text(ckpt: Path) -> None:
    short = Question("Where?", "The Dog. A red CAT!")
    found, also = answered(ckpt, Question("where ?", LONG), short)
    assert (found.text, found.begin, found.end) == ("red Cat", 280, 287)
    assert LONG[found.begin : found.end] == found.text
    assert also.text == "red CAT"
    assert also.best[0].text == "red CAT"
    assert 0.5 < also.score < 1


def test_answers_are_independent_of_windows_and_batches(ckpt: Path) -> None:
    question = Question("where ?", LONG)
    (first,) = answered(ckpt, question)
    for stride in (0, 3, 15):
        (other,) = answered(ckpt, question, stride=stride)
        assert (other.text, other.begin) == (first.text, first.begin)


@pytest.mark.parametrize(
    ("flags", "notes", "text"),
    [
        ({}, None, "dog"),
        ({}, {"unanswerable": True}, "dog"),
        ({"no_answer": "yes", "null_threshold": -4.0}, None, ""),
        ({"no_answer": "yes", "null_threshold": -2.0}, None, "dog"),
        ({"no_answer": "no", "null_threshold": -4.0}, {"unanswerable": True}, "dog"),
    ],
)
def test_no_answer_setting(flags: Any, notes: Any, text: str, ckpt: Path) -> None:
    """The dog has 9 logits, no answer 6."""
    (found,) = answered(ckpt, Question("where ?", "filler dog filler"), notes=notes, **flags)
    assert found.text == text
    assert found.gap == (-3 if (notes and not flags) or flags.get("no_answer") == "yes" else -math.inf)


def test_the_longest_answer_is_a_setting(ckpt: Path) -> None:
    text = "red filler filler cat"
    assert answered(ckpt, Question("where ?", text))[0].text == text
    assert answered(ckpt, Question("where ?", text), max_answer_length=3)[0].text != text


def test_long_questions_reduce_the_stride_or_fail(ckpt: Path) -> None:
    assert answered(ckpt, Question("where " * 15, LONG))[0].text == "red Cat"
    with pytest.raises(DataError, match=r"of 24 "):
        answered(ckpt, Question("where " * 30, LONG))


def test_rendering_and_saved_file(ckpt: Path, tmp_path: Path) -> None:
    question = Question("where ?", "A red Cat.", "q/1")
    (found,) = answered(ckpt, question)
    task = task_of(ckpt, "multi")
    shown = task.show(question, found)
    assert shown.text == "where ? -> red Cat  1.00"
    assert (shown.answer["answer"], shown.answer["begin"], shown.answer["end"]) == ("red Cat", 2, 9)
    json.dumps(shown.answer)
    assert shown.save is not None
    file = shown.save(tmp_path / "drawn")
    assert "A >>>red Cat<<<." in file.read_text()
    assert task.agreement(found, "cat") == pytest.approx(2 / 3)
    said = task.summary([found])
    assert said == "1 question, 0 without an answer in the text"


def test_answer_files_are_unique(ckpt: Path, tmp_path: Path) -> None:
    texts = (
        ("q/1", "where ?"),
        ("q_1", "where ?"),
        ("q-1", "where ?"),
        ("", "where ?"),
        ("", "where !"),
        ("n" * 80, "where ?"),
    )
    questions = [
        Question(text, "A red Cat.", key) for key, text in (*texts, ("n" * 79, "where ?"), ("56ab", "where ?"))
    ]
    for question in questions * 2:
        shown = task_of(ckpt, "multi").show(question, answered(ckpt, question)[0])
        assert shown.save is not None
        shown.save(tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert len(files) == len(questions)
    assert "56ab.txt" in files


def test_questions_on_the_command_line(ckpt: Path) -> None:
    for flags in (["--text", "where ?", "A dog."], ["--text", "where ?", "--pair", "A dog."]):
        found = task_of(ckpt, "single", *flags).inline_samples()
        assert found is not None
        assert found.batch([0]).samples == [Question("where ?", "A dog.")]
    with pytest.raises(ConfigError, match=r"--text .*--pair"):
        task_of(ckpt, "single", "--text", "where ?").inline_samples()


def test_raw_outputs_are_the_logits_of_the_first_window(ckpt: Path) -> None:
    questions = [Question("where ?", "A red Cat."), Question("where ?", "A dog.")]
    with open_engine("onnx", EngineSpec(ckpt=ckpt, batch_size=2)) as engine:
        task = task_of(ckpt, "multi").bind(Model.of(engine))
        prepared = task.prepare(questions)
        task.state = False
        arrays = task.collate([prepared])
        assert isinstance(arrays, list)
        found = task.infer({"model": engine}, arrays, prepared.contexts)
        wanted = dict(zip((output.name for output in engine.outputs), engine(arrays), strict=True))
    assert [one.shape for one in found.raw] == [arrays[0].shape] * 2
    for got, name in zip(found.raw, ("start_logits", "end_logits"), strict=True):
        np.testing.assert_array_equal(got, wanted[name])


def test_answers_are_saved_in_the_format_of_squad_evaluation(ckpt: Path, tmp_path: Path) -> None:
    rows = [{"id": "a", "question": "where ?", "context": "A red Cat.", "answers": ["red Cat"]}]
    (tmp_path / "q.json").write_text(json.dumps(rows))
    data = load_questions(tmp_path / "q.json")
    task = task_of(ckpt, "valid")
    writer = task.prediction_writer(tmp_path / "p.json", data)
    predictions = answered(ckpt, data.batch([0]).samples[0])
    writer.see(data.batch([0]), predictions)
    writer.close()
    assert json.loads((tmp_path / "p.json").read_text()) == {"a": "red Cat"}
    assert task.reference_answers(tmp_path / "p.json", data) == ["red Cat"]


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("stride", -1, "--stride -1"),
        ("n_best", 0, "--n_best 0"),
        ("max_answer_length", 0, "--max_answer_length 0"),
        ("null_threshold", float("nan"), "--null_threshold nan"),
    ],
)
def test_invalid_settings_are_reported(flag: str, value: Any, why: str, ckpt: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        options(None, QuestionAnswering, "valid", ["--ckpt", str(ckpt)], **{flag: value})


def test_a_model_without_the_head_is_named(ckpt: Path, tmp_path: Path) -> None:
    model = onnx.load(ckpt)
    del model.graph.output[0], model.graph.node[0]
    onnx.save(model, tmp_path / "one.onnx")
    with pytest.raises(ModelError, match="start and end logits"):
        answered(tmp_path / "one.onnx", Question("where ?", "A dog."))
