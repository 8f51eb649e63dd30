"""ImageNet's layouts, from the distributed archives to the labels: small, with the real file names."""

from __future__ import annotations

import contextlib
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import DataError
from utils.datasets.image.imagenet import outputs_of_ids
from utils.datasets.image.matlab import read_matlab
from utils.datasets.loading import load_dataset
from utils.imagenet_classes import WNIDS

scipy_io = pytest.importorskip("scipy.io")

KIT = "ILSVRC2012_devkit_t12"
TRUTH = f"{KIT}/data/ILSVRC2012_validation_ground_truth.txt"
FIELDS = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height", "num_train_images")
KIT_ORDER = [WNIDS[place] for place in np.random.default_rng(0).permutation(1000)]
"""The kit's order of the classes, which is not sorted by name."""

PLACES = {wnid: place for place, wnid in enumerate(WNIDS)}
CHOSEN = ["n02119789", "n15075141", "n01440764", "n02119789", "n03995372"]
"""The classes of the five images."""


def table(compressed: bool = True) -> bytes:
    """Return a ``meta.mat`` in the kit's format: classes first, then their ancestors."""
    rows = [(number, wnid, "words, of it", "a gloss", 0, [], 0, 1300) for number, wnid in enumerate(KIT_ORDER, 1)]
    rows += [(1001 + i, f"n0000{i:04d}", "ancestor", "gloss", 2, [1, 2], 3, 0) for i in range(5)]
    array = np.empty((len(rows), 1), [(name, object) for name in FIELDS])
    for place, row in enumerate(rows):
        array[place, 0] = tuple(row)
    file = io.BytesIO()
    scipy_io.savemat(file, {"synsets": array}, do_compression=compressed)
    return file.getvalue()


def name_of(number: int) -> str:
    return f"ILSVRC2012_val_{number:08d}.JPEG"


def image() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "JPEG")
    return file.getvalue()


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def unpack(path: Path, folder: Path) -> Path:
    """Unpack like ``tar xf``; ``extractall(filter=...)`` needs Python 3.10.12 or 3.11.4."""
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read())
    return folder


@pytest.fixture(scope="module")
def kit_members() -> dict[str, bytes]:
    truth = "".join(f"{KIT_ORDER.index(wnid) + 1}\n" for wnid in CHOSEN)
    return {TRUTH: truth.encode(), f"{KIT}/data/meta.mat": table(), f"{KIT}/readme.txt": b"Development kit"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """The unpacked validation images: ``tar xf ILSVRC2012_img_val.tar -C val``."""
    members = {name_of(number): image() for number in range(1, 6)}
    archive = write_tar(tmp_path / "ILSVRC2012_img_val.tar", members)
    folder = tmp_path / "val"
    return unpack(archive, folder)


def check(path: Path) -> None:
    found = load_dataset(path)
    assert [sample.path.name for sample in found] == [name_of(number) for number in range(1, 6)]
    assert found.labels is not None
    assert [WNIDS[label] for label in found.labels] == CHOSEN
    assert found.classes is None


class TestKit:
    def test_packed_next_to_the_image_folder(self, images: Path, kit_members: dict[str, bytes]) -> None:
        write_tar(images.parent / f"{KIT}.tar.gz", kit_members, "w:gz")
        check(images)
        check(images.parent)

    def test_unpacked_in_the_image_folder(
        self, images: Path, kit_members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unpack(write_tar(images / "kit.tar", kit_members), images)
        check(images)
        monkeypatch.chdir(images)
        check(Path("."))

    def test_an_image_without_a_label_is_rejected(self, images: Path, kit_members: dict[str, bytes]) -> None:
        write_tar(images.parent / f"{KIT}.tar.gz", kit_members, "w:gz")
        (images / name_of(6)).write_bytes(image())
        found = load_dataset(images)
        assert len(found) == 5
        assert "has no label" in found.rejected[0].reason

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({TRUTH: b"490\n0\n"}, "line 2: '0' is not an ILSVRC2012_ID"),
            ({TRUTH: b"490\nx\n"}, "line 2: 'x' is not an ILSVRC2012_ID"),
            ({f"{KIT}/data/meta.mat": b"text"}, "not a MATLAB file"),
            ({f"{KIT}/data/meta.mat": table()[:5000]}, "damaged MATLAB file"),
        ],
    )
    def test_a_damaged_kit(
        self, images: Path, kit_members: dict[str, bytes], changed: dict[str, bytes], message: str
    ) -> None:
        write_tar(images.parent / f"{KIT}.tar.gz", kit_members | changed, "w:gz")
        with pytest.raises(DataError, match=message) as caught:
            load_dataset(images)
        assert "\n" not in str(caught.value)

    def test_a_truncated_kit(self, images: Path, kit_members: dict[str, bytes]) -> None:
        path = write_tar(images.parent / f"{KIT}.tar.gz", kit_members, "w:gz")
        path.write_bytes(path.read_bytes()[:3000])
        with pytest.raises(DataError, match=r"cannot be read"):
            load_dataset(images)

    def test_a_kit_without_its_table(self, images: Path, kit_members: dict[str, bytes]) -> None:
        write_tar(images.parent / f"{KIT}.tar.gz", {TRUTH: kit_members[TRUTH]}, "w:gz")
        with pytest.raises(DataError, match=r"has no meta\.mat"):
            load_dataset(images)

    def test_no_labels_without_a_kit(self, images: Path) -> None:
        assert load_dataset(images).labels is None


class TestKaggle:
    @pytest.fixture
    def root(self, images: Path, tmp_path: Path) -> Path:
        folder = tmp_path / "kaggle/ILSVRC/Data/CLS-LOC"
        folder.mkdir(parents=True)
        images.rename(folder / "val")
        rows = [f"ILSVRC2012_val_{n:08d},{wnid} 85 1 499 272 {wnid} 1 1 9 9\n" for n, wnid in enumerate(CHOSEN, 1)]
        text = "ImageId,PredictionString\n" + "".join(reversed(rows))
        (tmp_path / "kaggle/LOC_val_solution.csv").write_text(text)
        return tmp_path / "kaggle"

    def test_root_and_image_folder(self, root: Path) -> None:
        check(root)
        check(root / "ILSVRC/Data/CLS-LOC/val")

    @pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "ImageId,PredictionString\nILSVRC2012_val_00000001,\n"])
    def test_another_table(self, root: Path, text: str) -> None:
        (root / "LOC_val_solution.csv").write_text(text)
        with pytest.raises(DataError, match=r"LOC_val_solution\.csv"):
            load_dataset(root)

    def test_an_unknown_class(self, root: Path) -> None:
        (root / "LOC_val_solution.csv").write_text(
            "ImageId,PredictionString\nILSVRC2012_val_00000001,n99999999 1 1 1 1\n"
        )
        with pytest.raises(DataError, match="'n99999999'"):
            load_dataset(root)


def test_torchvisions_folder(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for wnid in ("n01440764", "n02119789"):
            folder = tmp_path / part / wnid
            folder.mkdir(parents=True)
            (folder / name_of(3)).write_bytes(image())
    (tmp_path / "meta.bin").write_bytes(b"as torch.save wrote it")
    found = load_dataset(tmp_path)
    assert found.classes == ["n01440764", "n02119789"]
    assert len(found) == 2


def test_caffes_list_next_to_the_image_folder(images: Path) -> None:
    lines = [f"{name_of(number)} {PLACES[wnid]}\n" for number, wnid in enumerate(CHOSEN, 1)]
    (images.parent / "val.txt").write_text("".join(lines))
    check(images.parent)


def test_the_error_for_an_archive_has_the_unpack_command(images: Path) -> None:
    with pytest.raises(DataError, match=r"tar xf .*ILSVRC2012_img_val\.tar"):
        load_dataset(images.parent / "ILSVRC2012_img_val.tar")


@pytest.mark.parametrize("compressed", [True, False])
def test_ids_of_the_kit_are_mapped_by_its_table(compressed: bool) -> None:
    found = outputs_of_ids(table(compressed), "meta.mat")
    assert found == {number: PLACES[wnid] for number, wnid in enumerate(KIT_ORDER, 1)}


VALUES: Any = st.one_of(
    st.integers(0, 2**30), st.floats(-1e9, 1e9), st.text(st.characters(codec="ascii", min_codepoint=32), min_size=1)
)


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5), compressed=st.booleans())
def test_structures_written_by_scipy(rows: list[tuple[Any, Any]], compressed: bool) -> None:
    array = np.empty((len(rows), 1), [("first", object), ("second", object)])
    for place, row in enumerate(rows):
        array[place, 0] = row
    file = io.BytesIO()
    scipy_io.savemat(file, {"s": array}, do_compression=compressed)
    found = read_matlab(file.getvalue(), "x.mat")["s"]
    wanted = [{"first": a, "second": b} for a, b in rows]
    plain = [{key: value if isinstance(value, str) else value[0] for key, value in row.items()} for row in found]
    assert plain == wanted


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_damage_is_a_data_error_or_harmless(data: st.DataObject) -> None:
    file = io.BytesIO()
    scipy_io.savemat(file, {"s": np.arange(3.0), "t": "text"}, do_compression=data.draw(st.booleans()))
    damaged = bytearray(file.getvalue())
    for place in data.draw(st.lists(st.integers(126, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        read_matlab(bytes(damaged), "x.mat")
