"""Zero-shot classification and retrieval with the template's encoders of colours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import NAME, options, written
from support import made

from engine import ConfigError, DataError
from utils.pipeline import answers, valid
from utils.tasks.image_text.settings import note
from utils.tasks.image_text.task import ImageText
from utils.tasks.model import Model

pytest.importorskip("tokenizers")

COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template's folder, exported, with captions in ``captions/``."""
    made_in = written(ImageText, tmp_path_factory.mktemp("patches"))
    (made_in / "captions").mkdir()
    rows = []
    for name in ("red", "green", "blue"):
        shutil.copyfile(made_in / f"data/{name}/0.png", made_in / f"captions/{name}.png")
        rows.append(f"{name}.png\ta {name} square\n")
    (made_in / "captions/captions.txt").write_text("".join(rows))
    return made_in


def run(script: str, folder: Path, data: Any, result: Path, *argv: str, code: int = 0) -> dict[str, Any]:
    ckpt = {name: folder / f"{NAME}_{name}_dyn.onnx" for name in ImageText.models}
    words = ["--target", "onnx", "--lengths", "8", *argv, "--json", str(result)]
    where: dict[str, Any] = {"argv": words, "ckpt": ckpt, "data_path": data, "batch_size": 4}
    if script == "valid":
        assert valid.main(None, ImageText, **where) == code
    else:
        assert answers.main(None, ImageText, script, **where) == code
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def test_class_folders(folder: Path, tmp_path: Path) -> None:
    found = run("valid", folder, folder / "data", tmp_path / "r.json")
    assert (found["metric_name"], found["metric"], found["samples"]) == ("top1", 1.0, 18)


def test_classes_in_another_order_than_the_folders(folder: Path, tmp_path: Path) -> None:
    names = tmp_path / "classes.txt"
    names.write_text("red\nblue\n\ngreen\n")
    for given in ((str(names),), ("blue", "red", "green")):
        assert run("valid", folder, folder / "data", tmp_path / "r.json", "--classes", *given)["metric"] == 1.0


def test_a_template_without_the_colour_cannot_tell(folder: Path, tmp_path: Path) -> None:
    """Both encoders are read right: with the colours swapped in the texts, every answer is wrong."""
    words = ("--classes", "green", "blue", "red", "--topk", "1")
    names = folder / "captions/labels.txt"
    names.write_text("red.png 0\ngreen.png 1\nblue.png 2\n")
    assert run("valid", folder, names, tmp_path / "r.json", *words)["metric"] == 0.0


@pytest.mark.parametrize("direction", ["image_to_text", "text_to_image"])
def test_retrieval(folder: Path, tmp_path: Path, direction: str) -> None:
    found = run("valid", folder, folder / "captions", tmp_path / "r.json", "--metric", direction)
    assert (found["metric_name"], found["metric"]) == (f"{direction}_r1", 1.0)
    assert found["secondary"]["images"] == found["secondary"]["captions"] == 3


def test_answers(folder: Path, tmp_path: Path) -> None:
    words = ("--classes", "red", "green", "blue", "--topk", "2", "--save", str(tmp_path / "out"))
    found = run("multi", folder, folder / "data/green", tmp_path / "r.json", *words)
    assert [one["answer"][0]["label"] for one in found["answers"]] == ["green"] * 6
    assert all(len(one["answer"]) == 2 for one in found["answers"])
    assert len(list((tmp_path / "out").iterdir())) == 6


def test_captions_are_the_candidates_of_answers(folder: Path, tmp_path: Path) -> None:
    found = run("multi", folder, folder / "captions", tmp_path / "r.json")
    assert {one["answer"][0]["label"] for one in found["answers"]} == {f"a {name} square" for name in COLOURS}


def test_stored_settings(folder: Path, tmp_path: Path) -> None:
    """Probabilities of SigLIP's kind do not add up to 1."""
    for name in ImageText.models:
        model = onnx.load(folder / f"{NAME}_{name}_dyn.onnx")
        if name == "image":
            own = {"template": ["{}"], "scores": "sigmoid", "logit_scale": 1.0, "logit_bias": -1.0}
            (entry,) = (one for one in model.metadata_props if one.key == "image_text")
            entry.value = json.dumps(own)
        onnx.save(model, tmp_path / f"{NAME}_{name}_dyn.onnx")
    words = ("--classes", "red", "green", "--topk", "2")
    (found,) = run("single", tmp_path, folder / "data/red/0.png", tmp_path / "r.json", *words)["answers"]
    scores = [one["score"] for one in found["answer"]]
    assert scores == pytest.approx([0.5, 1 / (1 + np.exp(1.5))], abs=0.02)


def test_constant_text_vectors_are_no_answer(folder: Path, tmp_path: Path) -> None:
    """Texts without a colour have vectors of length 0, whose direction is not defined: NaN, which is reported."""
    run("multi", folder, folder / "data/red", tmp_path / "r.json", "--classes", "a", "square", code=1)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"template": ["a photo"]}, ConfigError, "--template 'a photo'"),
        ({"topk": 0}, ConfigError, "--topk 0"),
        ({"input_size": [0]}, ConfigError, "--input_size"),
    ],
)
def test_options_that_are_refused(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        made(ImageText, options(ImageText, **given)).check()


@pytest.mark.parametrize(
    ("data", "words", "text"),
    [
        ("data/red", (), "classes are missing"),
        ("data", ("--classes", "red", "red", "blue"), "'red' twice"),
        ("data", ("--classes", "red", "green"), "folder"),
    ],
)
def test_runs_that_are_refused(folder: Path, tmp_path: Path, data: str, words: tuple[str, ...], text: str) -> None:
    ckpt = {name: folder / f"{NAME}_{name}_dyn.onnx" for name in ImageText.models}
    argv = ["--target", "onnx", "--lengths", "8", *words]
    with pytest.raises((ConfigError, DataError), match=text) as error:
        valid.main(None, ImageText, argv=argv, ckpt=ckpt, data_path=folder / data, batch_size=4)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"template": "a {}"}, "template"),
        ({"template": ["a"]}, "template"),
        ({"logit_scale": 0}, "logit_scale"),
        ({"scores": "x"}, "scores"),
    ],
)
def test_metadata_that_is_refused(stored: dict[str, Any], text: str) -> None:
    model = Model(Path("text.onnx"), metadata={"image_text": json.dumps(stored)})
    with pytest.raises(Exception, match=rf"text\.onnx: metadata 'image_text': {text}"):
        note(next(iter(stored)), Model(Path("i.onnx"), named={"image": Model(Path("i.onnx")), "text": model}))


def test_reference_answers_name_classes(folder: Path, tmp_path: Path) -> None:
    """Answers of the source framework, for teco fix --golden: a class per image."""
    from engine import EngineSpec, open_engine
    from utils.tasks.model import described

    specs = {name: EngineSpec(ckpt=folder / f"{NAME}_{name}_dyn.onnx", batch_size=4) for name in ImageText.models}
    engines = {name: open_engine("onnx", spec) for name, spec in specs.items()}
    task = made(ImageText, options(ImageText, lengths=[8]), described(engines))
    dataset = task.load({"data": folder / "data"})
    task.state = task.setup(engines, dataset)
    labels = [name for name in ("blue", "green", "red") for _ in range(6)]
    file = tmp_path / "golden.txt"
    file.write_text("\n".join(labels))
    wanted = task.reference_answers(file, dataset)
    prepared = task.prepare(dataset.batch(range(len(dataset))).samples)
    found = task.decode(task.infer(engines, prepared.arrays, prepared.contexts), prepared.contexts)
    assert [task.agreement(one, other) for one, other in zip(found, wanted, strict=True)] == [1.0] * 18
