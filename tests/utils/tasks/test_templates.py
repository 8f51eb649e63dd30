"""The templates of ``teco new``: what they render keeps the rules of a folder, and the data is what it says."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from string import Template as Text

import numpy as np
import pytest
from PIL import Image

from model_config.cases.config import read_cases
from model_config.structure import check_structure
from utils.datasets.image.boxes import load_boxes
from utils.datasets.image.masks import Labelled, load_masks
from utils.datasets.text.texts import load_texts
from utils.tasks.base import Template
from utils.tasks.templates import sample_arrays, sample_images, sample_maps, sample_sounds, sample_tables, sample_texts

TEMPLATES = {
    "arrays": sample_arrays.ARRAYS,
    "classification": sample_images.CLASSIFICATION,
    "ctr_prediction": sample_tables.CTR_PREDICTION,
    "dense_regression": sample_maps.DENSE_REGRESSION,
    "detection": sample_images.DETECTION,
    "face_detection": sample_images.FACE_DETECTION,
    "face_verification": sample_images.FACE_VERIFICATION,
    "image_restoration": sample_maps.IMAGE_RESTORATION,
    "instance_segmentation": sample_images.INSTANCE_SEGMENTATION,
    "image_text": sample_images.IMAGE_TEXT,
    "item_recommendation": sample_tables.ITEM_RECOMMENDATION,
    "keypoints": sample_images.KEYPOINTS,
    "graph_prediction": sample_tables.GRAPH_PREDICTION,
    "policy_rollout": sample_tables.POLICY_ROLLOUT,
    "segmentation": sample_images.SEGMENTATION,
    "sound_classification": sample_sounds.SOUND_CLASSIFICATION,
    "speech_recognition": sample_sounds.SPEECH_RECOGNITION,
    "speaker_verification": sample_sounds.SPEAKER_VERIFICATION,
    "text_classification": sample_tables.TEXT_CLASSIFICATION,
    "text_generation": sample_tables.TEXT_GENERATION,
    "page_reading": sample_images.PAGE_READING,
    "text_recognition": sample_images.TEXT_RECOGNITION,
    "token_classification": sample_texts.TOKEN_CLASSIFICATION,
    "translation": sample_texts.TRANSLATION,
    "voice_activity": sample_sounds.VOICE_ACTIVITY,
}
LONG = "a" * 40
PATHS = """\
sys.path.insert(0, str(Path(__file__).resolve().parents[4]))  # the core
sys.path.append(str(Path(__file__).resolve().parents[3]))  # contrib/, behind it"""
NEW = (
    "arrays",
    "ctr_prediction",
    "dense_regression",
    "detection",
    "face_detection",
    "face_verification",
    "image_restoration",
    "instance_segmentation",
    "image_text",
    "item_recommendation",
    "graph_prediction",
    "keypoints",
    "page_reading",
    "policy_rollout",
    "segmentation",
    "sound_classification",
    "speech_recognition",
    "speaker_verification",
    "text_classification",
    "text_generation",
    "text_recognition",
    "token_classification",
    "translation",
    "voice_activity",
)


def rendered(template: Template, root: Path) -> Path:
    """Render a template as ``teco new`` does, with the longest names, and return the folder."""
    name = f"contrib/example/{LONG}/{LONG}"
    folder = root / name
    folder.mkdir(parents=True)
    words = {"model": LONG, "title": LONG.title(), "folder": name, "paths": PATHS, "install": "pip install ."}
    words |= template.fill(folder)
    for file in template.folder.glob("*.tmpl"):
        text = Text(file.read_text(encoding="utf-8")).substitute(words)
        target = root / "case.yaml" if file.name == "case.yaml.tmpl" else folder / file.name.removesuffix(".tmpl")
        target.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("task", NEW)
def test_rendered_files_keep_the_style(task: str, root: Path, tmp_path: Path) -> None:
    folder = rendered(TEMPLATES[task], tmp_path)
    (tmp_path / "pyproject.toml").write_bytes((root / "pyproject.toml").read_bytes())
    for command in (["check"], ["format", "--check"]):
        linted = subprocess.run(
            [sys.executable, "-m", "ruff", *command, folder], cwd=tmp_path, capture_output=True, check=False
        )
        assert linted.returncode == 0, linted.stdout
    for script in folder.glob("example_*.py"):
        lines = [line for line in script.read_text().splitlines() if line.strip()]
        assert len(lines) <= 11  # one more than outside contrib/: two lines set the path
        ast.parse(script.read_text())
    assert "constructed, not trained" in (folder / "README.md").read_text(encoding="utf-8")
    assert "constructed, not trained" in (folder / "model.py").read_text(encoding="utf-8")
    assert "torch" not in "".join(path.read_text() for path in folder.glob("*.py"))


@pytest.mark.parametrize("task", NEW)
def test_readme_and_case_keep_the_rules(task: str, tmp_path: Path) -> None:
    rendered(TEMPLATES[task], tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)  # noqa: S607
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)  # noqa: S607
    (case,), problems = read_cases([tmp_path / "case.yaml"], tmp_path)
    assert not problems
    rules = {
        "layout",
        "required-files",
        "names",
        "sample-data",
        "readme-headings",
        "readme-order",
        "readme-text",
        "readme-steps",
        "requirements-lines",
        "requirements-versions",
        "size",
        "text",
        "syntax",
        "absolute-path",
    }
    assert [str(found) for found in check_structure(case, tmp_path) if found.rule in rules] == []


@pytest.mark.parametrize("task", TEMPLATES)
def test_sample_data_is_always_the_same_and_small(task: str, tmp_path: Path) -> None:
    def drawn(name: str) -> dict[str, bytes]:
        folder = tmp_path / name
        folder.mkdir()
        TEMPLATES[task].fill(folder)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    first = drawn("a")
    assert first == drawn("b")
    assert sum(map(len, first.values())) < 200_000


def test_the_squares_match_the_boxes(tmp_path: Path) -> None:
    sample_images.fill_squares(tmp_path)
    found = load_boxes(tmp_path / "data" / "val.json")
    assert len(found) == sample_images.SQUARES
    assert not found.rejected
    batch = found.batch(range(len(found)))
    assert batch.targets is not None
    counts = np.zeros(len(sample_images.COLOURS), int)
    for path, real in zip(batch.samples, batch.targets, strict=True):
        pixels = np.asarray(Image.open(path)).astype(int)
        assert real.categories == tuple(sample_images.COLOURS)
        for box, label in zip(real.boxes.astype(int), real.classes, strict=True):
            left, top, right, bottom = box
            inside = pixels[top:bottom, left:right] - np.array(sample_images.COLOURS[real.categories[label]])
            assert np.abs(inside).max() <= 12
            counts[label] += 1
    assert (counts > 5).all()
    assert any(len(real.boxes) == 0 for real in batch.targets)
    assert len({np.asarray(Image.open(path)).shape for path in batch.samples}) == len(sample_images.SIZES)


def test_masks_match_the_pixels(tmp_path: Path) -> None:
    sample_images.fill_discs(tmp_path)
    found = load_masks({"data": tmp_path / "data"})
    assert len(found) == sample_images.DISCS
    assert not found.rejected
    counts = np.zeros(len(sample_images.DISC_LABELS), int)
    for sample in found.samples:
        assert isinstance(sample, Labelled)
        pixels = np.asarray(Image.open(sample.image)).astype(int)
        classes = sample.truth.read(pixels.shape[:2])
        counts += np.bincount(classes.ravel(), minlength=len(sample_images.DISC_LABELS))
        for place, colour in enumerate(sample_images.COLOURS.values(), start=1):
            near = np.abs(pixels - np.array(colour)).max(axis=-1) <= 12
            assert (near == (classes == place)).all()
    assert (counts > 1000).all()


def test_the_words_match_the_labels(tmp_path: Path) -> None:
    sample_tables.fill_reviews(tmp_path)
    found = load_texts(tmp_path / "data" / "val.tsv")
    batch = found.batch(range(len(found)))
    assert len(found) == sample_tables.REVIEWS
    assert batch.targets == list(sample_tables.WORDS) * (len(found) // 2)
    misleading = 0
    for text, label in zip(batch.samples, batch.targets, strict=True):
        parts = text.lower().replace(",", " ").replace("!", " ").replace(".", " ").split()
        counts = {name: sum(part in words for part in parts) for name, words in sample_tables.WORDS.items()}
        misleading += max(counts, key=lambda name: counts[name]) != label
        assert len(parts) <= 32
        assert counts["negative"] != counts["positive"]
    assert misleading == sample_tables.REVIEWS // sample_tables.NEGATED
    assert load_texts(tmp_path / "data" / "texts.txt").batch([0]).targets is None


def test_texts_follow_the_template_except_a_few(tmp_path: Path) -> None:
    words = sample_tables.fill_diets(tmp_path)
    texts = load_texts(tmp_path / "data" / "val.txt").samples
    assert len(texts) == sample_tables.DIETS == int(words["texts"])
    sentences_of = [one.split() for text in texts for one in str(text).removesuffix(" .").split(" . ")]
    assert all(len(one) == 3 and one[1] in sample_tables.VERBS for one in sentences_of)
    wrong = sum(sample_tables.FOOD[eater] != food for eater, _, food in sentences_of)
    assert 0 < wrong < len(sentences_of) / 10


def test_classification_draws_the_same_as_the_scaffold(tmp_path: Path) -> None:
    words = sample_images.fill_shapes(tmp_path)
    assert words == {"shapes": "circle, cross, square", "size": "32", "labels": '["circle", "cross", "square"]'}
    listed = (tmp_path / "images" / "val.txt").read_text().splitlines()[1:]
    assert listed == [f"{shape}_{i}.png {label}" for label, shape in enumerate(sample_images.SHAPES) for i in (0, 1)]
    assert all((tmp_path / "images" / line.split()[0]).is_file() for line in listed)
    assert json.loads(words["labels"]) == list(sample_images.SHAPES)


def test_the_templates_are_package_data(root: Path) -> None:
    files = sorted(path.relative_to(root / "utils") for path in (root / "utils").rglob("*.tmpl"))
    assert len(files) >= 24
    assert all(path.match("tasks/templates/*/*.tmpl") for path in files)
    assert '"tasks/templates/*/*.tmpl"' in (root / "pyproject.toml").read_text(encoding="utf-8")
