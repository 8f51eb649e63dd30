"""Pages with their lines: layouts, and invalid lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.pages import Truth, load_pages

POINTS = [[1, 2], [30, 2], [30, 12], [1, 12]]


def image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (40, 20), 255).save(path)
    return path


def entry(text: str = "ab", points: object = POINTS) -> dict[str, object]:
    return {"transcription": text, "points": points, "difficult": False}


def test_paddle_labels(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    for name in "abc":
        image(folder / f"{name}.png")
    rows = [
        f"pages/a.png\t{json.dumps([entry('太初', POINTS), entry('###')], ensure_ascii=False)}",
        "",
        f"b.png\t{json.dumps([])}\r",
        f"elsewhere/c.png\t{json.dumps([entry(points=POINTS[:3])])}",
    ]
    (folder / "Label.txt").write_bytes(("\ufeff" + "\n".join(rows)).encode())
    for data in (folder, folder / "Label.txt"):
        found = load_pages({"data": data})
        batch = found.batch(range(3))
        assert [Path(name).name for name in batch.names] == ["a.png", "b.png", "c.png"]
        assert batch.targets is not None
        first, second, third = batch.targets
        assert [word.text for word in first.words] == ["太初", None]
        np.testing.assert_array_equal(first.words[0].outline, POINTS)
        assert second == Truth(())
        assert third.words[0].outline.shape == (3, 2)
        assert not found.rejected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a.png []", r"has no tab"),
        ("a.txt\t[]", r"'a.txt' is not an image file"),
        ("b.png\t[]", r"image 'b.png' does not exist"),
        ("a.png\t[", r"not JSON"),
        ("a.png\t{}", r"is not a list"),
        ('a.png\t[{"points": []}]', r"entry 1, .* has no transcription"),
        (f"a.png\t{json.dumps([entry(), entry(points=[[1, 2]])])}", r"entry 2: points .* at least three pairs"),
        (f"a.png\t{json.dumps([entry(points=[[1, 2], [3], [4, 5]])])}", r"entry 1: points .* not pairs of numbers"),
        (f"a.png\t{json.dumps([entry(points=[[1, 2], [3, float('nan')], [4, 5]])])}", r"entry 1: points"),
        (f"a.png\t{json.dumps([entry(points='abc')])}", r"entry 1: points 'abc'"),
        (
            f"a.png\t{json.dumps([entry(points=[[10**400, 2], [3, 4], [4, 5]])])}",
            r"entry 1: points .* not pairs of numbers",
        ),
        (f"a.png\t{json.dumps([entry(points=[[1e7, 2], [3, 4], [4, 5]])])}", r"entry 1: points .* 1e\+06 pixels"),
        (f"a.png\t{json.dumps([entry(points=[POINTS[i] for i in (0, 2, 1, 3)])])}", r"the sides of points .* cross"),
        (f"a.png\t{json.dumps([entry(points=[POINTS[i] for i in (0, 1, 3, 2)])])}", r"the sides of points .* cross"),
    ],
)
def test_an_invalid_line_rejects_its_page(row: str, reason: str, tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    label = tmp_path / "Label.txt"
    label.write_text(f"a.png\t[]\n{row}\n", encoding="utf-8")
    found = load_pages({"data": label})
    assert len(found) == 1
    (bad,) = found.rejected
    assert bad.path.name == "Label.txt:2"
    assert re.search(reason, bad.reason)
    label.write_text(f"{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"none of its pages.*Label.txt:1: .*{reason}"):
        load_pages({"data": label})


def test_icdar_and_texts_next_to_images(tmp_path: Path) -> None:
    images, labels = tmp_path / "images", tmp_path / "labels"
    for name in ("img_1.png", "img_2.png", "img_3.png", "img_4.png"):
        image(images / name)
    labels.mkdir()
    (labels / "gt_img_1.txt").write_text(
        "\ufeff1,2,30,2,30,12,1,12,Genaxis, Theatre\n1,2,3,2,3,4,1,4,###\n", encoding="utf-8"
    )
    (labels / "gt_img_2.txt").write_text("1,2,30,2,30,12,1,x,bad\n", encoding="utf-8")
    (labels / "img_3.txt").write_text("first line\n\nsecond\n", encoding="utf-8")
    found = load_pages({"images": images, "labels": labels})
    targets = found.batch(range(len(found))).targets
    assert targets is not None
    assert [word.text for word in targets[0].words] == ["Genaxis, Theatre", None]
    assert targets[1] == Truth(None, "first line\nsecond")
    reasons = {Path(one.path).name: one.reason for one in found.rejected}
    assert "gt_img_2.txt:1: could not convert" in reasons["img_2.png"]
    assert "no gt_img_4.txt or img_4.txt" in reasons["img_4.png"]


def test_duplicate_pages_are_rejected(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    (tmp_path / "Label.txt").write_text("a.png\t[]\n./a.png\t[]\n", encoding="utf-8")
    found = load_pages({"data": tmp_path})
    assert len(found) == 1
    (one,) = found.rejected
    assert "'./a.png' is already listed in line 1" in one.reason


def test_unknown_names_of_paths(tmp_path: Path) -> None:
    for paths in ({"labels": tmp_path}, {"pages": tmp_path}):
        with pytest.raises(ConfigError, match=r"images=FOLDER labels=FOLDER"):
            load_pages(paths)


def test_images_without_labels(tmp_path: Path) -> None:
    one = image(tmp_path / "a.png")
    assert load_pages({"data": one}).batch([0]).targets is None
    assert load_pages({"data": tmp_path}).batch([0]).targets is None
    with pytest.raises(DataError, match="does not exist"):
        load_pages({"data": tmp_path / "none"})
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="lists no page"):
        load_pages({"data": tmp_path / "empty.txt"})
    with pytest.raises(DataError, match=r"has no gt_STEM\.txt"):
        load_pages({"images": tmp_path, "labels": tmp_path / ".."})


def test_a_fingerprint_changes_with_a_label(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    label = tmp_path / "Label.txt"
    prints = []
    for text in ("ab", "ac", "###"):
        label.write_text(f"a.png\t{json.dumps([entry(text)])}\n")
        prints.append(load_pages({"data": label}).fingerprint())
    assert len(set(prints)) == 3
    assert load_pages({"data": label}).fingerprint() == prints[-1]
