"""Questions on texts: equal results for all layouts, and invalid questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import DataError
from utils.datasets.synthetic.fact_stories import squad, story, vocabulary
from utils.datasets.text.questions import LANGUAGE, UNANSWERABLE, Question, load_questions

TEXT = "Ann lives in Rome. Bob lives in Oslo."
GOOD = {"id": "q1", "question": "Where is Ann?", "answers": [{"text": "Rome", "answer_start": 13}]}
NONE = {"id": "q2", "question": "Who is Eve?", "answers": [], "is_impossible": True}
WANTED = [Question("Where is Ann?", TEXT, "q1"), Question("Who is Eve?", TEXT, "q2")]

ARTICLE = {"title": "t", "paragraphs": [{"context": TEXT, "qas": [GOOD, NONE]}]}
FLAT = [{"context": TEXT, **GOOD}, {"context": TEXT, **NONE}]
HUB = [
    {"context": TEXT, "id": "q1", "question": "Where is Ann?", "answers": {"text": ["Rome"], "answer_start": [13]}},
    {"context": TEXT, "id": "q2", "question": "Who is Eve?", "answers": {"text": [], "answer_start": []}},
]
CMRC = [
    {
        "context_id": "1",
        "context_text": TEXT,
        "qas": [
            {"query_id": "q1", "query_text": "Where is Ann?", "answers": ["Rome"]},
            {"query_id": "q2", "query_text": "Who is Eve?", "answers": []},
        ],
    }
]
LAYOUTS: dict[str, tuple[str, Any]] = {
    "squad": ("a.json", {"version": "v2.0", "data": [ARTICLE]}),
    "flat list": ("a.json", FLAT),
    "lines": ("a.jsonl", FLAT),
    "hub": ("a.jsonl", HUB),
    "cmrc": ("a.json", CMRC),
}


def written(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    lines = content if name.endswith(".jsonl") else [content]
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_all_layouts_give_the_same_questions(layout: str, tmp_path: Path) -> None:
    found = load_questions(written(tmp_path, *LAYOUTS[layout]))
    batch = found.batch(range(2))
    assert (batch.samples, batch.targets, batch.names) == (WANTED, [("Rome",), ()], ["q1", "q2"])
    assert batch.units is not None
    assert len(set(batch.units)) == 1  # both are on one text
    assert found.notes == {UNANSWERABLE: True, LANGUAGE: "en"}
    assert not found.rejected
    only_asked = load_questions(written(tmp_path, *LAYOUTS[layout]), answers=False)
    assert only_asked.batch(range(2)).targets is None


BROKEN: dict[str, tuple[Any, str]] = {
    "place": (
        {**FLAT[0], "answers": [{"text": "Rome", "answer_start": 12}]},
        "answer_start 12 is not the position of 'Rome'; it is at 13",
    ),
    "elsewhere": ({**FLAT[0], "answers": ["Paris"]}, "'Paris' is not in the context"),
    "nowhere": ({**FLAT[0], "answers": [{"text": "Bonn", "answer_start": 3}]}, "it is nowhere in the context"),
    "no context": (GOOD, "it has no context"),
    "empty question": ({**FLAT[0], "question": " "}, "its question is empty"),
    "cut": ('{"question": "Wh', "not JSON"),
    "a list": ("[1, 2]", "it is not an object"),
    "same id": ({**FLAT[0], "id": "good"}, "same id 'good'"),
    "answers": ({**FLAT[0], "answers": 7}, "neither texts nor a list"),
    "lengths": ({**FLAT[0], "answers": {"text": ["Rome"], "answer_start": [1, 2]}}, "different numbers of texts"),
    "contradiction": ({**FLAT[0], "answers": [], "is_impossible": False}, "it has no answers"),
    "half a letter": ({**FLAT[0], "question": "\ud83d?"}, "half of a surrogate pair"),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_invalid_questions_are_rejected(kind: str, tmp_path: Path) -> None:
    line, why = BROKEN[kind]
    file = written(tmp_path, "a.jsonl", [{**FLAT[0], "id": "good"}, line, FLAT[1]])
    found = load_questions(file)
    assert found.batch(range(len(found))).names == ["good", "q2"]
    (rejected,) = found.rejected
    assert str(rejected.path) == f"{file}:2"
    assert why in rejected.reason
    assert "\n" not in rejected.reason


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.json", '{"data": [{"parag', "is not JSON .*truncated"),
        ("a.json", '{"data": []}', "has no question"),
        ("a.json", '{"rows": []}', "no 'data' with paragraphs"),
        ("a.jsonl", "", "is not JSON|has no question"),
        ("b.json", None, "does not exist"),
    ],
)
def test_invalid_files(name: str, content: str | None, why: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=why) as caught:
        load_questions(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_language_detection_and_synthetic_stories(tmp_path: Path) -> None:
    text = "北京是中国的首都。"
    rows = [{"question": "中国的首都是哪里？", "context": text, "answers": [{"text": "北京", "answer_start": -1}]}]
    assert load_questions(written(tmp_path, "zh.jsonl", rows)).notes[LANGUAGE] == "zh"
    chance = np.random.default_rng(5)
    stories = [story(chance, held_out, people) for held_out in (True, False) for people in (2, 9)]
    found = load_questions(written(tmp_path, "stories.json", squad(stories)))
    assert len(found) == 22
    assert not found.rejected
    known = set(vocabulary())
    assert {word.lower() for one in stories for word in one.text.replace(".", " ").split() if word.isalpha()} <= known


@pytest.mark.parametrize("value", ["[" * 400 + "]" * 400, '"' + "x" * 9000 + '"', "1" + "0" * 4000, "NaN"])
def test_questions_with_huge_values_are_rejected(value: str, tmp_path: Path) -> None:
    file = tmp_path / "q.json"
    file.write_text(
        '[{"question": "a?", "context": "b c", "id": '
        + value
        + ', "answers": [{"text": "b", "answer_start": '
        + value
        + "}]}]"
    )
    with pytest.raises(DataError, match="has no question") as caught:
        load_questions(file)
    assert len(str(caught.value)) < 800


def test_a_pipe(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "q.json")
    with pytest.raises(DataError, match=r"q\.json is a pipe"):
        load_questions(tmp_path / "q.json")
