"""Valid YAML that exceeds the limits is rejected quickly with a one-line error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tecoinfer_modelzoo.text import did_you_mean, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml
from tests.fuzz.makers.yaml_attacks import TEXTS


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("an alias bomb", r"aliases .* 4 MiB"),
        ("an alias bomb of text", r"aliases .* 4 MiB"),
        ("a bomb of merges", r"aliases .* 4 MiB"),
        ("a chain of aliases", r"nested deeper than 100"),
        ("a list in itself", r"line 1: a value holds itself"),
        ("a mapping in itself", r"a value holds itself"),
        ("braces", r"nested deeper than 100"),
        ("a huge number", r"line 1: a number of 4400 characters"),
        ("a huge number in hex", r"a number of 9002 characters"),
        ("a huge number in sixties", r"a number of 9001 characters"),
        ("a huge file", r"it is larger than 512 KiB"),
        ("an object", r"line 1: could not determine a constructor"),
        ("an undefined alias", r"found undefined alias"),
        ("a null character", r"special characters are not allowed"),
        ("two documents", r"expected a single document"),
        ("binary", r"line 1: a value is tagged !!binary"),
        ("a set", r"line 1: a value is tagged !!set"),
        ("pairs", r"line 1: a value is tagged !!pairs"),
        ("a timestamp", r"a value cannot be read \(ValueError"),
    ],
)
def test_values_beyond_the_limits_are_rejected(name: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(TEXTS[name], encoding="utf-8")
    with pytest.raises(YamlError, match=reason) as caught:
        read_yaml(path)
    assert len(str(caught.value)) < 400


def test_a_duplicate_key_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    with pytest.raises(YamlError, match="line 5: key 'c'"):
        read_yaml(path)


def test_small_aliases_and_merges_are_resolved(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("\ufeffa: &a {x: 1}\nb: {<<: *a, y: *a}\nc: 0x1f\nd: 2024-01-02\n".encode())
    found = read_yaml(path)
    assert (found["b"], found["c"], found["d"].day) == ({"x": 1, "y": {"x": 1}}, 31, 2)
    path.write_bytes(b"")
    assert read_yaml(path) is None


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(OSError, match="regular file"):
            read_yaml(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_yaml(tmp_path)
    (tmp_path / "wide").write_bytes("a: 1".encode("utf-16"))
    with pytest.raises(YamlError, match="byte 0 is not UTF-8"):
        read_yaml(tmp_path / "wide")


def test_shown_values_are_bounded() -> None:
    nested: list[object] = ["x"]
    for _ in range(200):
        nested = [nested] * 9
    assert len(shown_value(nested)) <= 80
    assert shown_value(16**9000) == "a number of thousands of digits"
    assert (shown_value("n" * 5000)[:4], len(shown_value("n" * 5000)), shown_value([1, "a"])) == (
        "'nnn",
        80,
        "[1, 'a']",
    )
    assert did_you_mean("n" * 5000, ["n" * 4999]) == ""
