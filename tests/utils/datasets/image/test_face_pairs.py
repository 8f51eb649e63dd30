"""Pairs of faces: folders of persons, LFW's lists in all formats, invalid lines, disjoint folds."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image import face_pairs
from utils.datasets.image.face_pairs import NO_FOLD, FacePairs, all_pairs, folder_of_people, has_people
from utils.datasets.image.lfw import load_pairs


def people(root: Path, counts: dict[str, int], name: str = "{0}_{1:04d}.jpg") -> Path:
    """Create a folder of images per person."""
    for person, count in counts.items():
        (root / person).mkdir(parents=True, exist_ok=True)
        for number in range(1, count + 1):
            Image.new("L", (2, 2), number).save(root / person / name.format(person, number))
    return root


def listed(root: Path, *lines: str, name: str = "pairs.txt") -> FacePairs:
    (root / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_pairs(root / name)


def shown(found: FacePairs) -> list[tuple[str, bool, int]]:
    batch = found.batch(range(len(found)))
    return [(name, truth.same, truth.fold) for name, truth in zip(batch.names, batch.targets or (), strict=True)]


def folds_are_disjoint(found: FacePairs) -> bool:
    where: dict[str, set[int]] = {}
    for truth in found.batch(range(len(found))).targets or ():
        for person in truth.people if truth.fold != NO_FOLD else ():
            where.setdefault(person, set()).add(truth.fold)
    return all(len(folds) == 1 for folds in where.values())


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=4, max_size=12), st.integers(0, 99), st.integers(2, 10))
def test_balanced_pairs(tmp_path_factory: pytest.TempPathFactory, counts: list[int], seed: int, folds: int) -> None:
    root = people(tmp_path_factory.mktemp("p"), {f"p{i:02d}": count for i, count in enumerate(counts)}, "{1}.pgm")
    found = folder_of_people(root, "balanced", seed, folds)
    whole = folder_of_people(root, "all", seed, folds)
    assert folds_are_disjoint(found)
    pairs = [tuple(sorted(pair)) for pair in found.listed.pairs.tolist()]
    assert len(set(pairs)) == len(pairs)
    truths = found.batch(range(len(found))).targets or ()
    same = [truth.fold for truth in truths if truth.same]
    other = [truth.fold for truth in truths if not truth.same]
    assert len(same) == sum(count * (count - 1) // 2 for count in counts)
    assert all(other.count(fold) <= same.count(fold) for fold in range(folds))
    assert found.fingerprint() == folder_of_people(root, "balanced", seed, folds).fingerprint()
    assert len(whole) == sum(counts) * (sum(counts) - 1) // 2
    kept = {
        tuple(pair): fold for pair, fold in zip(whole.listed.pairs.tolist(), whole.listed.folds.tolist(), strict=True)
    }
    assert {pair: fold for pair, fold in kept.items() if fold != NO_FOLD} == dict(
        zip(pairs, found.listed.folds.tolist(), strict=True)
    )


def test_units_names_and_rejected_files(tmp_path: Path) -> None:
    root = people(tmp_path, {"s1": 2, "s2": 2, "s3": 1, "s4": 2}, "{1}.pgm")
    (root / "s5").mkdir()
    (root / "s1" / "notes.doc").write_text("")
    (root / "s1" / ".hidden").write_text("")
    Image.new("L", (2, 2)).save(root / "lost.png")
    (root / "README").write_text("")
    found = folder_of_people(root, "all", 0)
    reasons = {str(path.relative_to(root)): reason for path, reason in found.rejected}
    assert set(reasons) == {"s5", "s1/notes.doc", "lost.png"}
    batch = found.batch([0, 1])
    assert batch.names == ["s1/1.pgm | s1/2.pgm", "s1/1.pgm | s2/1.pgm"]
    assert batch.units == ["s1", "s1"]
    assert found.has_units
    assert found.select([1]).batch([0]).names == batch.names[1:]


def test_pairs_of_a_person_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(face_pairs, "MAX_PAIRS_OF_ONE", 5)
    root = people(tmp_path, {"a": 8, "b": 2, "c": 2, "d": 2}, "{1}.png")
    truths = folder_of_people(root, "balanced", 3).batch(range(8)).targets or ()
    assert sum(truth.people == ("a", "a") for truth in truths) <= 5
    monkeypatch.setattr(face_pairs, "MOST_PAIRS", 50)
    with pytest.raises(ConfigError, match=r"--pairs all .* 91 pairs"):
        folder_of_people(root, "all", 0)


def test_interleaved_pairs_cover_several_folds(tmp_path: Path) -> None:
    found = folder_of_people(people(tmp_path, dict.fromkeys("abcdefgh", 3)), "all", 0)
    turned = found.interleaved()
    seen = turned.batch(range(18)).targets or ()
    assert {truth.fold for truth in seen[:10]} == {NO_FOLD, 0, 1, 2, 3}
    assert [truth.same for truth in seen if truth.fold != NO_FOLD].count(True) == 8  # of 16: alternating kinds
    balanced = folder_of_people(tmp_path, "balanced", 0).interleaved().batch(range(2)).targets or ()
    assert balanced[0].same != balanced[1].same
    assert balanced[0].fold != balanced[1].fold
    assert sorted(shown(turned)) == sorted(shown(found))


def test_three_persons_are_too_few_for_folds(tmp_path: Path) -> None:
    found = folder_of_people(people(tmp_path, {"a": 2, "b": 2, "c": 2}), "balanced", 0)
    assert set(found.listed.folds.tolist()) == {NO_FOLD}
    with pytest.raises(DataError, match="images of one person"):
        folder_of_people(people(tmp_path / "one", {"a": 2}), "balanced", 0)


def test_fingerprint_changes_with_images_and_pairs(tmp_path: Path) -> None:
    root = people(tmp_path, {"a": 2, "b": 2, "c": 2, "d": 2})
    prints = {folder_of_people(root, "balanced", 0).fingerprint(), folder_of_people(root, "all", 0).fingerprint()}
    Image.new("RGB", (9, 9)).save(root / "a" / "a_0001.jpg")
    prints.add(folder_of_people(root, "balanced", 0).fingerprint())
    assert len(prints) == 3


def test_images_of_unknown_persons(tmp_path: Path) -> None:
    root = people(tmp_path, {"a": 3})
    assert has_people(root)
    assert not has_people(root / "a")
    found = all_pairs(sorted((root / "a").iterdir()), root / "a")
    assert (len(found), found.batch([0]).targets, found.has_units) == (3, None, False)
    with pytest.raises(DataError, match="1 images are too few"):
        all_pairs([root / "a" / "a_0001.jpg"], root)


def test_folds_of_the_first_line(tmp_path: Path) -> None:
    people(tmp_path, {"A_B": 2, "C": 2, "D": 3, "E": 2})
    lines = ["A_B\t1\t2", "A_B\t2\tC\t1", "D\t1\t3", "D\t2\tE\t1"]
    found = listed(tmp_path, "2\t1", *lines)
    names = ["A_B/A_B_0001.jpg | A_B/A_B_0002.jpg", "A_B/A_B_0002.jpg | C/C_0001.jpg"]
    assert shown(found)[:2] == [(names[0], True, 0), (names[1], False, 0)]
    assert [fold for *_, fold in shown(found)] == [0, 0, 1, 1]
    assert found.rejected == []
    assert folds_are_disjoint(found)


def test_other_folders_and_names(tmp_path: Path) -> None:
    people(tmp_path / "lfw-deepfunneled", {"A": 2, "B": 2, "C": 2, "D": 2}, "{1}.pgm")
    blanks = listed(tmp_path, "1", "A 1 2", "B 1 C 2", name="pairsDevTest.txt")
    assert [truth for _, truth, _ in shown(blanks)] == [True, False]
    assert blanks.root.name == "lfw-deepfunneled"
    apart = tmp_path / "lists" / "pairs.txt"
    apart.parent.mkdir()
    apart.write_bytes(b"\xef\xbb\xbfA 1 2\r\nB 1 2\r\n\r\nC 1 D 1\r\n")
    assert len(load_pairs(apart, tmp_path / "lfw-deepfunneled")) == 3


def test_without_folds_connected_groups_are_distributed(tmp_path: Path) -> None:
    people(tmp_path, dict.fromkeys("ABCDEF", 2))
    found = listed(tmp_path, "A 1 2", "A 1 B 1", "C 1 2", "C 1 D 2", "E 1 2", "E 2 F 2")
    assert folds_are_disjoint(found)
    assert len({fold for *_, fold in shown(found)}) == 3
    with pytest.warns(UserWarning, match="connect all persons"):
        whole = listed(tmp_path, "A 1 2", "A 1 B 1", "B 1 2")
    assert {fold for *_, fold in shown(whole)} == {NO_FOLD}


def test_an_invalid_line_rejects_its_pair_and_keeps_folds(tmp_path: Path) -> None:
    people(tmp_path, {"A": 2, "B": 2, "C": 2, "D": 2})
    bad = ["A 1 9", "A x 2", "A 1", "A 1 B 2 3", "A 1 A 2", "A 1 1", "Unknown 1 2", "../A 1 2", "A 1 99999999999"]
    with (
        pytest.warns(UserWarning, match="20 pairs, .*22 lines"),
        pytest.warns(UserWarning, match="10 pairs listed"),
    ):
        found = listed(tmp_path, "2 5", "A 1 2", *bad, "", "C 1 2", *["C 1 D 1"] * 11)
    assert [fold for *_, fold in shown(found)] == [0] + [1] * 12
    reasons = {int(str(path).rpartition(":")[2]): reason for path, reason in found.rejected}
    assert sorted(reasons) == list(range(3, 12))
    assert "has no image 9 (A_0009.jpg)" in reasons[3]
    assert reasons[4].startswith("'x' is not an image number")
    assert reasons[5].startswith("2 columns; write")
    assert reasons[6].startswith("5 columns; write")
    assert reasons[6].endswith("separate the columns by tabs")
    assert "write 'A n1 n2'" in reasons[7]
    assert "with itself" in reasons[8]
    assert "'Unknown' has no folder" in reasons[9]
    assert "'../A' has no folder" in reasons[10]


def test_decomposed_accents_of_macos(tmp_path: Path) -> None:
    apart = unicodedata.normalize("NFD", "Renée")
    people(tmp_path, {apart: 2, "B": 2})
    assert len(listed(tmp_path, "Renée\t1\t2", "B\t1\t2")) == 2


def test_persons_in_several_folds_give_a_warning(tmp_path: Path) -> None:
    people(tmp_path, {"A": 3, "B": 2})
    with pytest.warns(UserWarning, match=r"2 persons .*folds"):
        listed(tmp_path, "2 1", "A 1 2", "A 1 B 1", "A 1 3", "A 2 B 2")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no pair can be used"),
        (b"10 300", "no pair can be used"),
        (b"A 1 2\n", "the first of 1"),
        (b"\xff\xfe1", "not UTF-8"),
    ],
)
def test_invalid_lists(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_bytes(content)
    with pytest.raises(DataError, match=words):
        load_pairs(tmp_path / "pairs.txt")
    with pytest.raises(DataError, match="cannot be read"):
        load_pairs(tmp_path / "other.txt")


def test_the_protocol_of_lfw(tmp_path: Path) -> None:
    """Ten folds of 300 and 300, in the format of LFW's list."""
    chance = np.random.default_rng(0)
    names = [f"P{i}_X" for i in range(200)]
    people(tmp_path, dict.fromkeys(names, 3))
    lines = ["10\t300"]
    for fold in range(10):
        own = names[20 * fold : 20 * fold + 20]
        lines += [f"{own[i % 20]}\t{1 + i % 2}\t3" for i in range(300)]
        for _ in range(300):
            a, b = chance.choice(20, 2, replace=False)
            lines.append(f"{own[a]}\t{chance.integers(1, 4)}\t{own[b]}\t{chance.integers(1, 4)}")
    with pytest.warns(UserWarning, match="pairs listed repeatedly"):
        found = listed(tmp_path, *lines)
    truths = found.batch(range(len(found))).targets or ()
    assert [truth.fold for truth in truths] == np.repeat(np.arange(10), 600).tolist()
    assert [truth.same for truth in truths] == ([True] * 300 + [False] * 300) * 10
    assert found.rejected == []
    assert folds_are_disjoint(found)
