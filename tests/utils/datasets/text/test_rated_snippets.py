"""Rated snippets: VADER's files, groups of texts about one film, and splits that keep groups together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from engine import ConfigError, DataError
from utils.datasets.text.rated_snippets import divided, grouped, read_snippets


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "snippets.txt"
    file.write_bytes("7\t-1.25\tHarry &amp; Tonto,  é\r\n\r\n8\t0.0\tso so\r\n9\t2\tgood".encode())
    first, second, third = read_snippets(file)
    assert first == (7, -1.25, "Harry & Tonto, é")
    assert [one.label for one in (first, second, third)] == ["negative", "negative", "positive"]


@pytest.mark.parametrize("line", ["7\tgood\tno rating", "7\t1.0", "7\tnan\ttext", "7\t1.0\t  ", "x\t1.0\ttext"])
def test_the_error_for_an_invalid_line_has_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "snippets.txt"
    file.write_text(f"1\t1.0\tfine\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"snippets\.txt:2: "):
        read_snippets(file)


def test_invalid_files(tmp_path: Path) -> None:
    file = tmp_path / "snippets.txt"
    for content in (b"", b"1\t1.0\t\xff\n"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"snippets\.txt: "):
            read_snippets(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_snippets(tmp_path / "none.txt")


def test_texts_about_one_film_are_in_one_group() -> None:
    texts = [
        "Serving Sara is dull.",
        "a dull evening",
        "I slept through Serving Sara's end.",
        "What a waste: you can't wait to see it end, Big Trouble is better",
        "They can't wait to see it end.",
        "A DULL evening!",
    ]
    assert grouped(texts) == [0, 1, 0, 3, 3, 1]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(0, 5))
def test_no_group_is_in_two_parts(groups: list[int], seed: int) -> None:
    wanted = len(groups) // 4
    try:
        parts = divided(groups, {"test": wanted}, "train", seed)
    except ConfigError:
        return
    assert parts.count("test") == wanted
    assert not {g for g, p in zip(groups, parts, strict=True) if p == "test"} & {
        g for g, p in zip(groups, parts, strict=True) if p == "train"
    }
    assert parts == divided(groups, {"test": wanted}, "train", seed)


def test_parts_that_cannot_be_filled() -> None:
    with pytest.raises(ConfigError, match=r"3 texts .*parts of 4"):
        divided([0, 1, 2], {"test": 4}, "train", 0)
