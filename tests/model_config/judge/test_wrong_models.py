"""A wrong model fails the check in every domain.

The main form is a fault of a contributor, which is in the target's run and in the baseline's alike: wrong
preprocessing, or labels that are off by one. Both runs agree, so the figure of the source framework has to find it, or
the scorecard where 1 % is too wide.

The other form is a fault of an engine or an export: one layer is scaled by 1.02, in the target's file or in both. In
most domains that moves no metric by 0.1 %, so the metric passes; the outputs in the scorecard find it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import written
from judged_case import JudgedCase, case_of, inputs_changed, noted, outputs_changed, rewrite, weighted

from engine import Array
from model_config.cases.case import AccuracyRule, Case, Command
from model_config.judge import scorecard
from model_config.results import Verdict
from utils.tasks.face_detection import FaceDetection

pytestmark = pytest.mark.slow

Fault = Callable[[JudgedCase], None]

DRAWN = "drawn_faces"
"""The face detector of the template, because the zoo's own face models are fetched, and find every face of their data:
AP50 is 1 with many faults, too. It finds yellow faces; all that are drawn are found, so the correct figure is 1."""


@pytest.fixture(scope="module")
def drawn_faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(FaceDetection, tmp_path_factory.mktemp("home"))


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], JudgedCase]:
    def opened(name: str) -> JudgedCase:
        if name != DRAWN:
            return JudgedCase(case_of(name), tmp_path)
        params = {"ckpt": "tiny_float16_dyn.onnx", "batch_size": 16, "data_path": "data"}
        params |= {"target": "sdaa", "dtype": "float16"}
        steps = (Command("valid", "example_valid.py", params), Command("multi", "example_multi_batch.py", params))
        rule = AccuracyRule(reference=1.0, reference_source="every drawn face is found")
        case = Case(DRAWN, "example/face/drawn_faces", steps, Path("model.yaml"), accuracy=rule)
        home = request.getfixturevalue(DRAWN)
        if not (home / scorecard.NUMERICS).is_file():
            JudgedCase(case, tmp_path / "correct", home).store()
        return JudgedCase(case, tmp_path, home)

    return opened


def inputs(change: Callable[[Array], Array], place: int = 0) -> Fault:
    return lambda case: setattr(case, "task", inputs_changed(change, place))


def outputs(change: Callable[[Array], Array]) -> Fault:
    return lambda case: setattr(case, "task", outputs_changed(change))


def stored(key: str, **values: object) -> Fault:
    return lambda case: case.change_both(noted(key, lambda found: {**found, **values}))


def value(key: str, change: Callable[[object], object]) -> Fault:
    return lambda case: case.change_both(noted(key, change))


def weights(*names: str, change: Callable[[Array], Array]) -> Fault:
    def plant(case: JudgedCase) -> None:
        for name in names:
            case.change_both(weighted(name, change))

    return plant


def text(name: str, change: Callable[[str], str]) -> Fault:
    return lambda case: rewrite(case.own_data() / name, change)


def of_next_row(separator: str, column: int, head: int = 1) -> Callable[[str], str]:
    """Return a change of a table: every row has the label of the next one."""

    def change(found: str) -> str:
        lines = found.splitlines()
        rows = [line.split(separator) for line in lines[head:]]
        labels = [row[column] for row in rows]
        for row, label in zip(rows, labels[1:] + labels[:1], strict=True):
            row[column] = label
        return "\n".join([*lines[:head], *map(separator.join, rows), ""])

    return change


def folders(case: JudgedCase) -> None:
    """Make class 1 of class 0, and so on."""
    data = case.own_data() / "val"
    for digit in range(10):
        (data / str(digit)).rename(data / f"old{digit}")
    for digit in range(10):
        (data / f"old{digit}").rename(data / str((digit + 1) % 10))


def categories(found: str) -> str:
    """Number the categories from 0 where the file numbers them from 1."""
    data = json.loads(found)
    for one in data["annotations"]:
        one["category_id"] = one["category_id"] % len(data["categories"]) + 1
    return json.dumps(data)


def graph(**changes: Callable[[Array], Array]) -> Fault:
    def plant(case: JudgedCase) -> None:
        file = case.own_data() / "digits_graph.npz"
        with np.load(file) as found:
            arrays = {name: changes.get(name, lambda array: array)(found[name]) for name in found.files}
        file.unlink()
        np.savez(file, **arrays)

    return plant


def points_of_next(found: str) -> str:
    """Name the first key point of each object as the second, and so on."""
    data = json.loads(found)
    for one in data["annotations"]:
        one["keypoints"] = one["keypoints"][-3:] + one["keypoints"][:-3]
    return json.dumps(data)


def captions_of_next(found: str) -> str:
    """Give every image the caption of the next one."""
    return of_next_row("\t", 1, head=0)(found)


def tags_of_previous(found: str) -> str:
    """Give the words of a sentence the tags of the words before them."""
    sentences = []
    for sentence in found.split("\n\n"):
        rows = [row.split() for row in sentence.splitlines()]
        moved = [row[-1] for row in rows[-1:] + rows[:-1]]
        sentences.append("\n".join(f"{row[0]} {tag}" for row, tag in zip(rows, moved, strict=True)))
    return "\n\n".join(sentences) + "\n"


def moved(images: Array) -> Array:
    """Move images or maps one pixel to the right."""
    return np.roll(images, 1, axis=-1)


def boxes_of_next(found: str) -> str:
    """Give every image the boxes of the next one of its size; the sizes repeat after four images."""
    parts = found.split("# ")[1:]
    names = [part.partition("\n")[0] for part in parts]
    rest = [part.partition("\n")[2] for part in parts]
    return "".join(f"# {name}\n{boxes}" for name, boxes in zip(names, rest[4:] + rest[:4], strict=True))


def bgr(images: Array) -> Array:
    return images[:, ::-1]


def turned(images: Array) -> Array:
    return images.swapaxes(-1, -2)


def of_next_class(scores: Array) -> Array:
    return np.roll(scores, 1, axis=-1)


def rolled(columns: Array) -> Array:
    return np.roll(columns, 1, axis=-1)


SOURCE, SCORECARD = "source", "scorecard"

BOTH: list[tuple[str, str, Fault, str]] = [
    # Images are grey, so their channels are equal: transposed instead of BGR.
    ("digits", "transposed", inputs(turned), SOURCE),
    ("digits", "no_mean", stored("preprocess", mean=[0.0] * 3), SOURCE),
    ("digits", "label", folders, SOURCE),
    # Digits of any colour are read, so the order of channels moves mAP by 0.27 % and mIoU by 0.13 %.
    ("digit_detector", "bgr", inputs(bgr), SCORECARD),
    ("digit_detector", "std", stored("preprocess", std=[0.5] * 3), SOURCE),
    ("digit_detector", "label", text("val.json", categories), SOURCE),
    ("digit_unet", "bgr", inputs(bgr), SCORECARD),
    ("digit_unet", "no_mean", stored("preprocess", mean=[0.0] * 3), SOURCE),
    ("digit_unet", "label", outputs(lambda scores: np.roll(scores, 1, axis=1)), SOURCE),
    (DRAWN, "bgr", inputs(bgr), SOURCE),
    (DRAWN, "std", stored("preprocess", std=[255.0] * 3), SOURCE),
    (DRAWN, "label", text("label.txt", boxes_of_next), SOURCE),
    ("digit_crnn", "pixel_values", stored("text_recognition", pixel_values="0..1"), SOURCE),
    ("digit_crnn", "vocabulary", value("vocabulary", lambda found: [*found[1:], found[0]]), SOURCE),  # type: ignore[index]
    ("digit_crnn", "label", text("val/rec_gt.txt", of_next_row("\t", 1, head=0)), SOURCE),
    ("bert_qa", "token", inputs(lambda tokens: np.maximum(tokens - 1, 0)), SOURCE),
    ("language_id", "token", inputs(lambda tokens: np.maximum(tokens - 1, 0)), SOURCE),
    ("language_id", "label", outputs(of_next_class), SOURCE),
    ("deepfm_synthetic", "columns", inputs(rolled), SOURCE),
    ("deepfm_synthetic", "scale", inputs(np.expm1, 1), SOURCE),
    ("deepfm_synthetic", "label", text("val.csv", of_next_row(",", 0)), SOURCE),
    ("silero_vad", "rate", value("sample_rate", lambda _: 8000), SOURCE),
    ("silero_vad", "scale", inputs(lambda sound: sound / 32768), SOURCE),
    ("silero_vad", "label", outputs(of_next_class), SOURCE),
    ("digits_gcn", "columns", graph(x=rolled), SOURCE),
    ("digits_gcn", "label", graph(y=lambda labels: (labels + 1) % 10), SOURCE),
    ("ppo_cartpole", "columns", weights("layers.0.weight", change=rolled), SOURCE),
    ("ppo_acrobot", "scale", weights("layers.0.weight", change=lambda found: found / 4), SOURCE),
    (
        "ppo_cartpole",
        "action",
        weights("layers.4.weight", "layers.4.bias", change=lambda found: np.roll(found, 1, 0)),
        SOURCE,
    ),
    ("digit_pose", "std", stored("preprocess", std=[0.5] * 3), SOURCE),
    ("digit_pose", "label", text("val.json", points_of_next), SOURCE),
    ("digit_instances", "std", stored("preprocess", std=[0.5] * 3), SOURCE),
    ("digit_instances", "label", text("val.json", categories), SOURCE),
    ("planes_stereo", "view_order", stored("dense_regression", view_order="right_left"), SOURCE),
    ("planes_stereo", "right", inputs(moved, 1), SOURCE),
    ("espcn_x2", "pixel", outputs(lambda found: [moved(one) for one in found]), SOURCE),
    ("keypad_words", "log", stored("features", log="log10"), SOURCE),
    ("keypad_words", "label", outputs(of_next_class), SOURCE),
    ("bert_ner", "token", inputs(lambda tokens: np.maximum(tokens - 1, 0)), SOURCE),
    ("bert_ner", "label", text("val.conll", tags_of_previous), SOURCE),
    # These have no figure of the source framework.
    ("digit_clip", "bgr", inputs(bgr), SCORECARD),
    ("digit_clip", "label", text("captions.txt", captions_of_next), SCORECARD),
    ("point_net", "columns", inputs(rolled), SCORECARD),
    ("point_net", "label", outputs(of_next_class), SCORECARD),
    ("tiny_marian", "token", inputs(lambda tokens: np.maximum(tokens - 1, 0)), SCORECARD),
    ("tiny_marian", "label", text("val.tsv", of_next_row("\t", 1)), SCORECARD),
]


LONG = {
    ("bert_qa", "token"),
    ("digit_crnn", "label"),
    ("digit_crnn", "pixel_values"),
    ("digit_unet", "label"),
    ("digit_unet", "no_mean"),
    ("digit_detector", "label"),
    ("digit_detector", "std"),
    ("keypad_words", "log"),
    ("language_id", "label"),
    ("silero_vad", "label"),
    ("silero_vad", "scale"),
    ("digit_pose", "std"),
    ("digit_instances", "std"),
    ("digit_instances", "label"),
    ("tiny_marian", "token"),
}
"""Faults of two to ten seconds; the same models have others, or, as ``bert_qa``, others of the same kind do."""


@pytest.mark.parametrize(
    ("name", "fault", "by"),
    [pytest.param(n, f, b, id=f"{n}-{w}", marks=[pytest.mark.long] if (n, w) in LONG else []) for n, w, f, b in BOTH],
)
def test_a_fault_of_both_runs_fails(opened: Callable[[str], JudgedCase], name: str, fault: Fault, by: str) -> None:
    case = opened(name)
    fault(case)
    result = case.judge()
    assert result.verdict is Verdict.FAIL
    assert result.reasons
    failed = [one.against for one in result.accuracy if one.verdict is Verdict.FAIL]
    source = case.case.accuracy.reference_source
    rules = {finding.rule for finding in result.findings}
    assert (source in failed) if by == SOURCE else (source not in failed and rules == {SCORECARD}), result.reasons
    assert all(one.verdict is not Verdict.INCONCLUSIVE for one in result.accuracy)


SCALED: list[tuple[str, str, bool]] = [
    # The layer, and whether the metric of the target alone changes by more than 0.1 %.
    ("digits", "stem.0.weight", False),
    ("digit_detector", "box.1.weight", True),
    ("digit_unet", "stem.2.body.0.0.weight", False),
    (DRAWN, "sides", False),
    ("digit_crnn", "seen.3.body.0.0.weight", True),
    ("bert_ner", "val_116", False),  # bert_qa has near ties that float16 decides by the processor
    ("language_id", "norm.weight", False),
    ("deepfm_synthetic", "deep.6.weight", False),
    ("silero_vad", "model.encoder.1.reparam_conv.bias", False),
    ("digits_gcn", "onnx::MatMul_15", False),
    ("ppo_acrobot", "layers.0.weight", False),
    ("ppo_cartpole", "layers.0.weight", False),
    ("keypad_words", "front.weight", False),
    ("planes_stereo", "mix.2.weight", False),
]


LONG_SCALED = {"bert_ner", "digit_crnn", "digit_unet", "keypad_words"}
"""Models of two to six seconds; others with images, texts and sounds stay."""


def _marked(*values: object) -> Any:
    return pytest.param(*values, marks=[pytest.mark.long] if values[0] in LONG_SCALED else [])


@pytest.mark.parametrize(("name", "layer", "moved"), [_marked(*row) for row in SCALED])
def test_a_layer_scaled_by_two_percent_on_the_target_fails(
    opened: Callable[[str], JudgedCase], name: str, layer: str, moved: bool
) -> None:
    case = opened(name)
    case.plant(weighted(layer, lambda values: values * 1.02))
    result = case.judge()
    assert result.verdict is Verdict.FAIL
    (against,) = (one for one in result.accuracy if one.against == "onnx float32")
    assert (against.verdict is Verdict.FAIL) is moved, against.reason
    assert SCORECARD in [finding.rule for finding in result.findings]


@pytest.mark.parametrize(("name", "layer"), [(name, layer) for name, layer, _ in SCALED])
@pytest.mark.long
def test_a_layer_scaled_by_two_percent_in_both_files_fails(
    opened: Callable[[str], JudgedCase], name: str, layer: str
) -> None:
    case = opened(name)
    case.change_both(weighted(layer, lambda values: values * 1.02))
    result = case.judge()
    assert result.verdict is Verdict.FAIL
    assert SCORECARD in [finding.rule for finding in result.findings]


@pytest.mark.parametrize("name", [_marked(name) for name, *_ in SCALED])
def test_the_correct_model_passes(opened: Callable[[str], JudgedCase], name: str) -> None:
    """Guards the tests above, which would pass with any outputs in the scorecards."""
    case = opened(name)
    assert scorecard.stored_outputs(case.home, case.key)
    result = case.judge()
    assert result.verdict is Verdict.PASS, result.reasons


@pytest.mark.parametrize(
    ("name", "layer", "strict"),
    [
        ("digits", "stem.0.weight", Verdict.INCONCLUSIVE),
        # All margins grow by 2 %: with 1697 nodes that bounds the change on other data below 0.1 %.
        ("digits_gcn", "onnx::MatMul_15", Verdict.PASS),
    ],
)
def test_a_layer_scaled_by_two_percent_without_any_other_prediction(
    opened: Callable[[str], JudgedCase], name: str, layer: str, strict: Verdict
) -> None:
    case = opened(name)
    case.plant(weighted(layer, lambda values: values * 1.02))
    (found,) = (one for one in case.judge(strict=True).accuracy if one.against == "onnx float32")
    assert (found.metric, found.differing) == (found.reference, 0)
    assert found.verdict is strict
    assert found.bound is not None
    assert (found.bound <= found.tolerance) == (strict is Verdict.PASS)
