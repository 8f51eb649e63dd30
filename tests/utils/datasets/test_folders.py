from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from engine import DataError
from utils.datasets.folders import EXTENSIONS, class_folders, flat_folder, has_class_folders, single_image


def image(path: Path) -> Path:
    """Write a tiny image with any extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), "red").save(path, format="PNG")
    return path


def odd_tree(root: Path) -> Path:
    """Create a class folder with everything that affects order or class indices."""
    names = [
        "b/2.png",
        "b/10.PNG",
        "b/A.JpEg",
        "b/a.jpg",
        "b/.hidden.png",
        "b/sub/deep/1.png",
        "b/sub.d/1.tiff",
        "b/sub/1.webp",
        "b/archive.png.jpg",
        "B/1.bmp",
        "10/1.ppm",
        "9/1.pgm",
        "ü é/ 1 .tif",
        ".dot/1.jpg",
        "z-link-target/.jpg",
        "猫/1.png",
    ]
    for name in names:
        image(root / name)
    for name in ("b/notes.txt", "b/1.png.txt", "b/.gitkeep", "b/1.gif", "b/jpg", "README.md", ".DS_Store"):
        (root / name).write_text("not an image")
    image(root / "stray.png")
    outside = image(root.parent / "outside" / "1.png").parent
    (root / "link").symlink_to(outside, target_is_directory=True)
    (root / "b" / "nested-link").symlink_to(outside, target_is_directory=True)
    (root / "b" / "linked.png").symlink_to(outside / "1.png")
    (root / "b" / "dangling.png").symlink_to(outside / "gone.png")
    return root


@pytest.fixture
def folder() -> ModuleType:
    """The module of torchvision that defines ``ImageFolder``."""
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    from utils.export.networks.torchvision_models import import_torchvision

    return import_torchvision().datasets.folder


@pytest.mark.torch
def test_class_folders_agree_with_torchvision(tmp_path: Path, folder: ModuleType) -> None:
    root = odd_tree(tmp_path / "data")
    theirs, ours = folder.ImageFolder(root), class_folders(root)
    assert ours.classes == theirs.classes
    assert [(str(sample.path), sample.label) for sample in ours] == theirs.samples
    assert folder.IMG_EXTENSIONS == EXTENSIONS


@pytest.mark.torch
def test_class_folders_raise_like_torchvision(tmp_path: Path, folder: ModuleType) -> None:
    image(tmp_path / "a" / "1.png")
    (tmp_path / "b").mkdir()
    for root in (tmp_path, tmp_path / "a"):  # an empty class; no class at all
        with pytest.raises(FileNotFoundError):
            folder.ImageFolder(root)
        with pytest.raises(DataError):
            class_folders(root)


def test_class_folders_order_without_torchvision(tmp_path: Path) -> None:
    dataset = class_folders(odd_tree(tmp_path / "data"))
    assert dataset.classes == [".dot", "10", "9", "B", "b", "link", "z-link-target", "ü é", "猫"]
    in_b = [str(s.path.relative_to(tmp_path / "data" / "b")) for s in dataset if s.label == 4]
    assert in_b[:7] == [".hidden.png", "10.PNG", "2.png", "A.JpEg", "a.jpg", "archive.png.jpg", "dangling.png"]
    assert in_b[7:] == ["linked.png", "nested-link/1.png", "sub/1.webp", "sub.d/1.tiff", "sub/deep/1.png"]


def test_class_folders_report_files_that_torchvision_skips(tmp_path: Path) -> None:
    dataset = class_folders(odd_tree(tmp_path / "data"))
    reasons = {rejected.path.name: rejected.reason for rejected in dataset.rejected}
    assert sorted(reasons) == ["1.gif", "1.png.txt", "README.md", "jpg", "notes.txt", "stray.png"]
    assert "not an image" in reasons["notes.txt"]
    assert "outside the class folders" in reasons["stray.png"]


def test_empty_class_is_reported(tmp_path: Path) -> None:
    image(tmp_path / "a" / "1.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("no")
    with pytest.raises(DataError, match=r"class folder empty, texts"):
        class_folders(tmp_path)


@pytest.mark.parametrize("target", [".", "..", "../..", "../b"])
def test_link_loop_is_refused(tmp_path: Path, target: str) -> None:
    image(tmp_path / "a" / "1.png")
    image(tmp_path / "b" / "1.png")
    (tmp_path / "a" / "loop").symlink_to(target, target_is_directory=True)
    (tmp_path / "b" / "back").symlink_to("../a", target_is_directory=True)
    with pytest.raises(DataError, match="is a link"):
        class_folders(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_unreadable_folder_is_not_skipped(tmp_path: Path) -> None:
    image(tmp_path / "a" / "1.png")
    closed = image(tmp_path / "a" / "closed" / "1.png").parent
    closed.chmod(0)
    try:
        with pytest.raises(DataError, match=r"closed .*Permission denied"):
            class_folders(tmp_path)
    finally:
        closed.chmod(0o755)


def test_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/gone .*No such file"):
        flat_folder(tmp_path / "gone")


def test_flat_folder_lists_the_rest_as_rejected(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "10.png", "9.png", ".hidden.png", "sub/1.png"):
        image(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no")
    (tmp_path / ".DS_Store").write_text("no")
    dataset = flat_folder(tmp_path)
    assert [sample.path.name for sample in dataset] == ["10.png", "9.png", "a.JPG", "b.png"]
    assert dataset.labels is None
    assert dataset.classes is None
    assert [path.name for path, _ in dataset.rejected] == ["notes.txt", "sub"]
    assert "not an image file" in dataset.rejected[0].reason
    assert "a folder" in dataset.rejected[1].reason


def test_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is empty; .*\.jpg"):
        flat_folder(tmp_path)
    (tmp_path / "notes.txt").write_text("no")
    with pytest.raises(DataError, match=r"contains no image; .*\.jpg"):
        flat_folder(tmp_path)


def test_has_class_folders_ignores_hidden_folders(tmp_path: Path) -> None:
    image(tmp_path / "1.png")
    image(tmp_path / ".thumbs" / "1.png")
    (tmp_path / "empty").mkdir()
    assert not has_class_folders(tmp_path)
    image(tmp_path / "empty" / "deep" / "1.png")
    assert has_class_folders(tmp_path)


def test_single_image(tmp_path: Path) -> None:
    dataset = single_image(image(tmp_path / "1.png"))
    assert [(sample.path, sample.label) for sample in dataset] == [(tmp_path / "1.png", None)]
    with pytest.raises(DataError, match=r"notes.docx: not an image file"):
        single_image(tmp_path / "notes.docx")
