"""Ratings: the same data set in four layouts, and invalid lines."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import DataError
from utils.datasets.tabular.ratings import GENRES, Ratings, is_ratings, read_ratings
from utils.fetch import UnreachableError, fetched

ROWS = [("7", "20", "3", "50"), ("9", "20", "5", "40"), ("7", "10", "4.5", "40")]
PEOPLE = {"7": ("24", "M", "writer", "85711"), "9": ("53", "F", "other", "94043")}
FILMS = {"10": ("Toy Story", "1995", ["Animation", "Comedy"]), "20": ("Amélie, Le Film", "2001", ["Romance"])}


def recbole(folder: Path) -> None:
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float", *("\t".join(row) for row in ROWS)]
    (folder / "x.inter").write_text("\n".join(lines) + "\n", encoding="utf-8")
    head = "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
    people = "".join(f"{name}\t" + "\t".join(one) + "\n" for name, one in PEOPLE.items())
    (folder / "x.user").write_text(head + people, encoding="utf-8")
    head = "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    films = "".join(f"{name}\t{title}\t{year}\t{' '.join(of)}\n" for name, (title, year, of) in FILMS.items())
    (folder / "x.item").write_text(head + films, encoding="utf-8")


def first(folder: Path) -> None:
    (folder / "u.data").write_text("".join("\t".join(row) + "\n" for row in ROWS))
    (folder / "u.user").write_text("".join(f"{name}|{'|'.join(one)}\n" for name, one in PEOPLE.items()))
    lines = []
    for name, (title, year, genres) in FILMS.items():
        flags = "|".join(str(int(genre in genres)) for genre in GENRES)
        lines.append(f"{name}|{title} ({year})|01-Jan-{year}||http://example.org|{flags}\n")
    (folder / "u.item").write_text("".join(lines), encoding="latin-1")


def second(folder: Path) -> None:
    (folder / "ratings.dat").write_text("".join("::".join(row) + "\n" for row in ROWS))
    people = {name: (one[1], one[0], *one[2:]) for name, one in PEOPLE.items()}
    (folder / "users.dat").write_text("".join(f"{name}::{'::'.join(one)}\n" for name, one in people.items()))
    films = (f"{name}::{title} ({year})::{'|'.join(of)}\n" for name, (title, year, of) in FILMS.items())
    (folder / "movies.dat").write_text("".join(films), encoding="latin-1")


def latest(folder: Path) -> None:
    (folder / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\r\n" + "".join(",".join(r) + "\n" for r in ROWS)
    )
    films = (f'{name},"{title} ({year})",{"|".join(of)}\n' for name, (title, year, of) in FILMS.items())
    (folder / "movies.csv").write_text("movieId,title,genres\n" + "".join(films), encoding="utf-8")


@pytest.mark.parametrize("layout", [recbole, first, second, latest])
def test_four_layouts_give_the_same_data(layout: object, tmp_path: Path) -> None:
    inner = tmp_path / "deep" / "down"
    inner.mkdir(parents=True)
    layout(inner)  # type: ignore[operator]
    assert is_ratings(tmp_path)
    found = read_ratings(tmp_path)
    assert (found.user_names, found.item_names) == (["7", "9"], ["20", "10"])
    assert (found.users.tolist(), found.items.tolist()) == ([0, 1, 0], [0, 0, 1])
    assert (found.ratings.tolist(), found.times.tolist()) == ([3, 5, 4.5], [50, 40, 40])
    assert found.titles == ["Amélie, Le Film (2001)", "Toy Story (1995)"]
    assert found.item_fields["genres"] == ["Romance", "Animation|Comedy"]
    if layout is not latest:
        assert found.user_fields["age"] == ["24", "53"]
        assert set(found.user_fields) == {"age", "gender", "occupation", "zip"}
    assert not found.rejected
    (file,) = (file for file in inner.iterdir() if is_ratings(file))
    assert read_ratings(file).titles == found.titles


def test_invalid_lines_are_rejected(tmp_path: Path) -> None:
    lines = ["1\t2\t3\t4", "1\t2", "1\t2\tgood\t4", "\t2\t3\t4", "1\t2\tnan\t4", "1\t2\t3\tnow", "", "5\t6\t1\t9"]
    (tmp_path / "u.data").write_text("\n".join(lines))
    (tmp_path / "u.item").write_text("2|A film (1999)|||\n6|B|||x|" + "|".join("0" * 19) + "\n")
    (tmp_path / "u.user").write_text("1|24|M\n")
    found = read_ratings(tmp_path)
    assert found.user_names == ["1", "5"]
    assert [one.path.name for one in found.rejected] == [
        *("u.data:2", "u.data:3", "u.data:4", "u.data:5", "u.data:6", "u.user:1", "u.item:1")
    ]
    assert "'1 2 good 4' is not a rating" in found.rejected[1].reason
    assert found.titles == ["2", "B"]


def test_invalid_data_sets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_ratings(tmp_path / "gone")
    with pytest.raises(DataError, match=r"no file .*\*\.inter, u\*\.data"):
        read_ratings(tmp_path)
    (tmp_path / "u.data").write_text("hello\n")
    with pytest.raises(DataError, match=r"u\.data:1: 'hello' is not a rating"):
        read_ratings(tmp_path)
    (tmp_path / "ratings.csv").write_text("who,what\n1,2\n")
    with pytest.raises(DataError, match=r"2 files .*\(u\.data, ratings\.csv\)"):
        read_ratings(tmp_path)
    with pytest.raises(DataError, match="no column 'user_id' among who, what"):
        read_ratings(tmp_path / "ratings.csv")


def test_ratings_without_times(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,2,3\n")
    assert np.isnan(read_ratings(tmp_path).times).all()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["x.inter", "u.data", "ratings.dat", "ratings.csv"]),
    st.text(st.sampled_from('userId,movie rating:_\t|"19\n\r\x00\ufffd.e-'), max_size=80),
)
def test_any_text_is_read_or_a_data_error(name: str, text: str) -> None:
    heads = {"x.inter": "user_id:token\titem_id:token\trating:float\n", "ratings.csv": "userId,movieId,rating\n"}
    with tempfile.TemporaryDirectory() as folder:
        for file in (name, "x.user", "x.item", "u.user", "u.item", "users.dat", "movies.dat", "movies.csv"):
            Path(folder, file).write_bytes((heads.get(file, "") + text).encode())
        try:
            found = read_ratings(Path(folder))
        except DataError as error:
            error_message = str(error)
        else:
            error_message = ""
            assert len(found.users) == len(found.items) == len(found.ratings) > 0
            assert len(found.titles) == len(found.item_names)
        assert "\n" not in error_message


def test_a_line_with_an_unclosed_quote_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,2,3\n1,3,3\n")
    (tmp_path / "movies.csv").write_text('movieId,title,genres\n2,"A film,Drama\n3,"B, or not (1990)",Drama\n')
    found = read_ratings(tmp_path)
    assert found.titles == ["2", "B, or not (1990)"]
    assert [one.path.name for one in found.rejected] == ["movies.csv:2"]


@pytest.mark.slow
def test_fetched_movielens() -> None:
    try:
        fetched("ml_100k")
    except UnreachableError as error:
        pytest.skip(str(error))
    found: Ratings = read_ratings("fetch:ml_100k")
    assert (len(found.users), len(found.user_names), len(found.item_names)) == (100000, 943, 1682)
    assert found.titles[found.item_names.index("1")] == "Toy Story (1995)"
    assert not found.rejected
    assert {genre for text in found.item_fields["genres"] for genre in text.split("|")} == set(GENRES)
