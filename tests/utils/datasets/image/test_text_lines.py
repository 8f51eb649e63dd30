"""Label files and folders of text recognition, and invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.text_lines import TextLines, load_text_lines, unit_of


def images(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 10)).save(folder / name)


def rows(found: TextLines) -> list[tuple[str, str]]:
    assert found.targets is not None
    return [(path.name, text) for path, text in zip(found.samples, found.targets, strict=True)]


def listed(folder: Path, text: str | bytes, name: str = "rec_gt.txt") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a/x.jpg\t12 3\n\na/y_Word_7.jpg\t\n", [("x.jpg", "12 3"), ("y_Word_7.jpg", "")]),
        (
            '\ufeffa/x.jpg, "say \\"hi\\", you"\r\na/y_Word_7.jpg, ""\r\n',
            [("x.jpg", 'say "hi", you'), ("y_Word_7.jpg", "")],
        ),
        ("./a/y_Word_7.jpg 88172\n\n", [("y_Word_7.jpg", "Word")]),
        ("a/x.jpg\t中文\u2028é\t2\n", [("x.jpg", "中文\u2028é\t2")]),
    ],
    ids=["paddle", "icdar", "mjsynth", "all after the first tab"],
)
def test_label_files(tmp_path, text, wanted):
    images(tmp_path, "a/x.jpg", "a/y_Word_7.jpg")
    assert rows(load_text_lines({"data": listed(tmp_path, text)})) == wanted
    assert rows(load_text_lines({"data": tmp_path})) == wanted


def test_paths_relative_to_the_parent_or_a_given_folder(tmp_path):
    images(tmp_path, "images/x.jpg")
    file = listed(tmp_path, "images/x.jpg\tab\n")
    (tmp_path / "labels").mkdir()
    moved = file.rename(tmp_path / "labels" / file.name)
    assert rows(load_text_lines({"data": moved})) == [("x.jpg", "ab")]
    assert rows(load_text_lines({"labels": moved, "images": tmp_path})) == [("x.jpg", "ab")]


def test_missing_files_are_rejected(tmp_path):
    images(tmp_path, "a.png")
    found = load_text_lines({"data": listed(tmp_path, "a.png\tab\nb.png\tc\n../c.png\td\nrec_gt.txt\te\n")})
    assert rows(found) == [("a.png", "ab")]
    reasons = [one.reason for one in found.rejected]
    assert ["does not exist (rec_gt.txt:2)" in reasons[0], "leaves the data folder" in reasons[1]] == [True, True]
    assert "not an image file" in reasons[2]


def test_texts_next_to_images(tmp_path):
    images(tmp_path, "a.png", "b.png", "c.png")
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.gt.txt").write_text("")
    found = load_text_lines({"data": tmp_path})
    assert rows(found) == [("a.png", "one"), ("b.png", "")]
    assert [one.path.name for one in found.rejected] == ["c.png"]
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(DataError, match=r"a\.txt: 2 lines"):
        load_text_lines({"data": tmp_path})


def test_images_without_texts(tmp_path):
    images(tmp_path, "a.png", "b.png")
    assert load_text_lines({"data": tmp_path}).targets is None
    assert len(load_text_lines({"data": tmp_path / "a.png"})) == 1


def test_units_and_the_fingerprint(tmp_path):
    images(tmp_path, "p1/w_1.png", "p1/w_2.png", "p2/x.png")
    file = listed(tmp_path, "p1/w_1.png\ta\np1/w_2.png\tb\np2/x.png\tc\n")
    folders, names = (load_text_lines({"data": file}, units) for units in ("folder", "name"))
    assert [Path(str(unit)).name for unit in folders.units or ()] == ["p1", "p1", "p2"]
    assert [Path(str(unit)).name for unit in names.units or ()] == ["w", "w", "x"]
    assert unit_of(Path("a/page_one_07.png"), "name") == str(Path("a/page_one"))
    prints = {one.fingerprint() for one in (folders, names, load_text_lines({"data": file}))}
    listed(tmp_path, "p1/w_1.png\ta\np1/w_2.png\tB\np2/x.png\tc\n")
    prints.add(load_text_lines({"data": file}).fingerprint())
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "lists no image"),
        (b"a.png\t\xff\n", "byte 6 is not UTF-8"),
        (b"a.png ab\n", "rec_gt.txt:1: 'a.png ab' is not 'path<tab>text'"),
        (b"a.png\tab\na.png ab\n", "rec_gt.txt:2: 'a.png ab' has no tab"),
        (b'a.png, "b"\na.png, b\n', "rec_gt.txt:2: 'a.png, b' is not 'path, \"text\"'"),
        (b"a_b_1.png 1\na.png 2\n", "rec_gt.txt:2: 'a.png 2' is not MJSynth's"),
        (b"b.png\tab\n", "none of its 1 images can be used"),
    ],
)
def test_invalid_label_files(tmp_path, text, message):
    images(tmp_path, "a.png", "a_b_1.png")
    with pytest.raises(DataError) as error:
        load_text_lines({"data": listed(tmp_path, text)})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_invalid_paths(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        load_text_lines({"data": tmp_path / "none"})
    with pytest.raises(DataError, match="pass a label file"):
        load_text_lines({"data": listed(tmp_path, "", "a.json")})
    with pytest.raises(ConfigError, match="labels=FILE images=FOLDER"):
        load_text_lines({"labels": tmp_path})


def test_duplicates_and_names_that_are_too_long(tmp_path):
    images(tmp_path, "a.png")
    found = load_text_lines({"data": listed(tmp_path, f"a.png\tx\na.png\ty\n{'b' * 5000}.png\tz\n")})
    assert list(found.targets) == ["x"]
    reasons = [one.reason for one in found.rejected]
    assert [("already listed in line 1" in reasons[0], "(rec_gt.txt:2)" in reasons[0])] == [(True, True)]
    assert reasons[1] == "it is listed, but it does not exist (rec_gt.txt:3)"


def test_carriage_returns_inside_a_line(tmp_path):
    images(tmp_path, "a.png")
    with pytest.raises(DataError, match=r"rec_gt\.txt:1: a carriage return"):
        load_text_lines({"data": listed(tmp_path, b"a.png\tx\ra.png\ty\r")})
