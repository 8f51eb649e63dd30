"""Guess of the task from a signature."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.adapt.guesses import GENERIC, RULES, guesses


def tensor(name: str, *shape: Any, dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "dtype": dtype, "kind": None}


def signature(inputs: list[Any], outputs: list[Any], **more: Any) -> dict[str, Any]:
    return {"inputs": inputs, "outputs": outputs, "metadata": [], "labels": 0, "operators": [], **more}


DENSE = "dense_regression"
IMAGE = [tensor("images", "batch", 3, 224, 224)]
IDS = [tensor(name, "batch", "seq", dtype="int64") for name in ("input_ids", "attention_mask")]


@pytest.mark.parametrize(
    ("found", "task"),
    [
        (signature(IMAGE, [tensor("y", "batch", 1000)]), "classification"),
        (signature([tensor("x", "N", 224, 224, 3)], [tensor("y", "N", 10)]), "classification"),
        (signature(IMAGE, [tensor("output0", "batch", 84, 8400)]), "detection"),
        (signature(IMAGE, [tensor("output", "batch", 25200, 85)]), "detection"),
        (signature(IMAGE, [tensor("boxes", 1, 300, 4), tensor("scores", 1, 300, 80)]), "detection"),
        (signature(IMAGE, [tensor("y", "batch", 21, 224, 224)]), "segmentation"),
        (signature([tensor("x", "N", 1, 16, 16)], [tensor("y", "N", 1, 32, 32)]), "image_restoration"),
        (signature(IDS, [tensor("logits", "batch", 2)]), "text_classification"),
        (signature(IDS, [tensor("logits", "batch", "seq", 9)], labels=9), "token_classification"),
        (signature(IDS, [tensor("start", "b", "s"), tensor("end", "b", "s")]), "question_answering"),
        (
            signature([tensor("x", "b", "t", 80)], [tensor("y", "b", "t", 30)], metadata=["features", "vocabulary"]),
            "speech_recognition",
        ),
        (signature([tensor("left", 1, 1, 8, 8), tensor("right", 1, 1, 8, 8)], [tensor("y", 1, 1, 8, 8)]), DENSE),
        (
            signature([tensor("a", "N", 3, "h", "w"), tensor("b", "N", 3, "h", "w")], [tensor("y", "N", "h", "w")]),
            DENSE,
        ),
        (signature(IMAGE, [tensor("y", "batch", 1, 56, 56)]), DENSE),
        (signature([tensor("a", 1, 3, 8, 8), tensor("b", 1, 3, 9, 9)], [tensor("y", 1, 1, 8, 8)]), GENERIC),
        (signature([tensor("a", 1, 3, 8, 8), tensor("b", 1, 3, 8, 8)], [tensor("y", 1, 1, 7, 7)]), GENERIC),
        (signature([tensor("x", "N", 2048, dtype="int32")], [tensor("y", "N", 214)]), GENERIC),
        (signature([], [tensor("y")]), GENERIC),
    ],
)
def test_first_guess(found: dict[str, Any], task: str) -> None:
    made = guesses(found)
    assert made[0].task == task
    assert made[-1].task == GENERIC
    assert all(one.reason for one in made)
    assert [one.task for one in made if one.certain] == (["speech_recognition"] if task == "speech_recognition" else [])
    assert len({one.task for one in made}) == len(made)


def test_what_the_source_states_comes_first() -> None:
    made = guesses(signature(IMAGE, [tensor("y", "N", 1000)]), "keypoints", "it says so")
    assert (made[0].task, made[0].reason, made[0].certain) == ("keypoints", "it says so", True)
    assert [one.task for one in made] == ["keypoints", "classification", GENERIC]


def test_rules_know_tasks_of_the_zoo() -> None:
    from utils.tasks.find import tasks

    found = {task for rule in RULES for task, _ in [rule(signature(IMAGE, [tensor("y", "N", 9)]))] if task}
    assert found <= set(tasks())
