"""Lists of recordings: all formats, invalid lines, and fingerprints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError, DataError
from utils.datasets.audio.recordings import Sounds, load_sounds
from utils.datasets.audio.speech_spans import Spoken, load_spoken
from utils.preprocess.audio.reading import read_sound
from utils.preprocess.audio.wav import write_mu_law


def sound(path: Path, seconds: float = 0.5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_mu_law(path, np.sin(np.arange(round(8000 * seconds))) * 0.3, 8000)
    return path


def listed(file: Path, *rows: Mapping[str, Any] | str) -> Path:
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def reasons(found: Any) -> dict[str, str]:
    assert all("\n" not in one.reason for one in found.rejected)
    return {one.path.name: one.reason for one in found.rejected}


def test_a_manifest(tmp_path: Path) -> None:
    sound(tmp_path / "wav" / "a.wav")
    file = listed(
        tmp_path / "m.jsonl",
        {"audio_filepath": "wav/a.wav", "text": "one", "duration": 0.5, "speaker": "x", "more": [1]},
        {"audio_filepath": str(tmp_path / "wav" / "a.wav"), "text": "two", "offset": 0.25, "duration": 0.125},
    )
    found = load_sounds({"data": file})
    assert found.targets == ["one", "two"]
    assert found.fields[0] == {"text": "one", "speaker": "x", "more": [1]}
    assert [one.start for one in found.samples] == [0.0, 0.25]
    assert [len(read_sound(one).samples) for one in found.samples] == [4000, 1000]
    assert len(set(found.names)) == 2
    assert load_sounds(tmp_path).targets == ["one", "two"], "by its folder"
    assert load_sounds(file, target="more").targets == [[1]]
    assert load_sounds(file, target=None).targets is None


def test_invalid_rows_of_a_manifest_are_rejected(tmp_path: Path) -> None:
    sound(tmp_path / "data" / "a.wav")
    sound(tmp_path / "b.wav")
    (tmp_path / "data" / "c.txt").write_text("no")
    file = listed(
        tmp_path / "data" / "m.jsonl",
        {"audio_filepath": "a.wav", "text": "fine"},
        "{",
        "[1]",
        {"wave": "a.wav", "text": "?"},
        {"audio_filepath": "gone.wav", "text": "?"},
        {"audio_filepath": "../b.wav", "text": "?"},
        {"audio_filepath": "c.txt", "text": "?"},
        {"audio_filepath": "a.wav", "offset": -1, "text": "?"},
        {"audio_filepath": "a.wav", "duration": "long", "text": "?"},
        {"audio_filepath": "a.wav", "offset": 0.1},
    )
    found = load_sounds(file)
    assert found.targets == ["fine"]
    rejected = reasons(found)
    assert len(rejected) == 9
    assert "JSON object" in rejected["m.jsonl:2"]
    assert "('wave', 'text')" in rejected["m.jsonl:4"]
    assert "does not exist; correct the path (m.jsonl:5)" in rejected["gone.wav"]
    assert "leaves the data folder" in rejected["b.wav"]
    assert "not a sound file" in rejected["c.txt"]
    assert "offset -1" in rejected["m.jsonl:8"]
    assert "duration 'long'" in rejected["m.jsonl:9"]
    assert "'text'" in rejected["a.wav@0.1"]
    other = listed(tmp_path / "data" / "n.jsonl", {"audio_filepath": "b.wav"}, {"audio_filepath": "data/a.wav"})
    assert len(load_sounds({"manifest": other, "audio": tmp_path})) == 2


def test_kaldi(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", 1.0)
    listed(tmp_path / "wav.scp", "r1 a.wav", "r2 sph2pipe -f wav a.sph |", "r3 gone.wav", "r1 a.wav")
    listed(tmp_path / "text", "r1 hello  world", "r3 ?")
    listed(tmp_path / "utt2spk", "r1 ann")
    found = load_sounds(tmp_path)
    assert (found.targets, found.names) == (["hello  world"], ["r1"])
    assert found.fields[0]["speaker"] == "ann"
    rejected = reasons(found)
    assert "is a command" in rejected["r2"]
    assert "does not exist" in rejected["gone.wav"]
    assert "already" in rejected["r1"]


def test_kaldis_segments(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", 1.0)
    listed(tmp_path / "wav.scp", "r1 a.wav", "r2 cat a.wav |")
    rows = ("u1 r1 0.25 0.5", "u2 r1 0.5 -1", "u3 r1 0.5 0.2", "u4 r9 0 1", "u5 r2 0 1", "u6 r1 x y", "u7 r1")
    listed(tmp_path / "segments", *rows)
    listed(tmp_path / "text", "u1 one", "u2 two")
    found = load_sounds(tmp_path / "wav.scp")
    assert found.targets == ["one", "two"]
    assert [len(read_sound(one).samples) for one in found.samples] == [2000, 4000]
    rejected = reasons(found)
    assert {"u3", "u4", "u5", "u6", "u7", "r2"} == set(rejected)
    assert "r9 is not in wav.scp" in rejected["u4"]
    assert "r2 was rejected" in rejected["u5"]


def test_librispeech(tmp_path: Path) -> None:
    for name in ("1-2-0001", "1-2-0000", "1-2-0009"):
        sound(tmp_path / "1" / "2" / f"{name}.wav")
    listed(tmp_path / "1" / "2" / "1-2.trans.txt", "1-2-0000 ONE TWO", "1-2-0001 THREE", "1-2-0007 GONE")
    found = load_sounds(tmp_path)
    assert (found.names, found.targets) == (["1-2-0000", "1-2-0001"], ["ONE TWO", "THREE"])
    assert reasons(found).keys() == {"1-2-0007", "1-2-0009.wav"}
    assert load_sounds(tmp_path, units="speaker").units == ["1", "1"]
    assert load_sounds(tmp_path / "1" / "2").targets == ["ONE TWO", "THREE"]
    assert load_sounds(tmp_path / "1" / "2" / "1-2.trans.txt").targets == ["ONE TWO", "THREE"]


def test_aishell(tmp_path: Path) -> None:
    for name in ("train/S1/A1", "test/S2/A2", "test/S2/A3"):
        sound(tmp_path / "wav" / f"{name}.wav")
    (tmp_path / "transcript").mkdir()
    (tmp_path / "transcript" / "aishell_transcript_v0.8.txt").write_text("A1 甚至 出现\nA2 交易\n", encoding="utf-8")
    found = load_sounds(tmp_path, split="test")
    assert (found.targets, found.fields[0]["speaker"]) == (["交易"], "S2")
    assert reasons(found) == {"A3.wav": "not in the transcript"}
    assert load_sounds(tmp_path).targets == ["交易", "甚至出现"]
    with pytest.raises(DataError, match=r"no part 'dev' in wav/ .*test, train"):
        load_sounds(tmp_path, split="dev")


def test_folders(tmp_path: Path) -> None:
    sound(tmp_path / "yes" / "a.wav")
    sound(tmp_path / "no" / "b.wav")
    found = load_sounds(tmp_path, target="label")
    assert sorted(zip(found.targets or [], (one.path.name for one in found.samples), strict=True)) == [
        ("no", "b.wav"),
        ("yes", "a.wav"),
    ]
    with pytest.raises(DataError, match="contains no recording"):
        load_sounds(tmp_path)
    sound(tmp_path / "c.wav")
    (tmp_path / "words.txt").write_text("?")
    (tmp_path / ".hidden").write_text("?")
    found = load_sounds(tmp_path)
    assert [one.path.name for one in found.samples] == ["c.wav"]
    assert reasons(found).keys() == {"no", "yes", "words.txt"}
    assert load_sounds(tmp_path / "c.wav").targets is None


def test_invalid_data(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("no list")
    two = tmp_path / "two"
    two.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (two / name).write_text("")
    bad = listed(tmp_path / "bad.jsonl", {"audio_filepath": "gone.wav"})
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe\xfa")
    for path, message in (
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "empty", "is empty"),
        (tmp_path / "a.txt", "not a sound file"),
        (two, r"2 lists \(a.jsonl, b.jsonl\)"),
        (two / "a.jsonl", "none of 0 recordings"),
        (bad, "none of 1 recordings.*gone.wav"),
        (tmp_path / "latin.jsonl", "byte 0 is not UTF-8"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            load_sounds(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="manifest=FILE audio=FOLDER"):
        load_sounds({"list": bad})
    sound(tmp_path / "x.wav")
    with pytest.raises(ConfigError, match="--units speaker"):
        load_sounds(tmp_path / "x.wav", units="speaker")


def test_fingerprint_changes_with_the_data(tmp_path: Path) -> None:
    sound(tmp_path / "one" / "a.wav")
    rows = [{"audio_filepath": "a.wav", "text": "x", "duration": 0.25}]

    def now() -> str:
        return load_sounds(tmp_path / "one").fingerprint()

    listed(tmp_path / "one" / "m.jsonl", *rows)
    before = now()
    assert now() == before
    os.rename(tmp_path / "one", tmp_path / "two")
    assert load_sounds(tmp_path / "two").fingerprint() == before, "moved as a whole"
    os.rename(tmp_path / "two", tmp_path / "one")
    seen = {before}
    for change in ({"text": "y"}, {"duration": 0.125}, {"offset": 0.125}):
        listed(tmp_path / "one" / "m.jsonl", rows[0] | change)
        seen.add(now())
    sound(tmp_path / "one" / "a.wav", 0.75)
    seen.add(now())
    assert len(seen) == 5


def test_duplicate_recordings_are_rejected(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav")
    row = {"audio_filepath": "a.wav", "text": "one"}
    file = listed(tmp_path / "m.jsonl", row, row, row | {"offset": 0.1}, row | {"offset": 0.2, "text": 5}, {"path": 3})
    found = load_sounds(file)
    assert [one.start for one in found.samples] == [0, 0.1]
    assert [one.reason.partition(";")[0] for one in found.rejected] == [
        "a.wav is already listed in m.jsonl:1",
        "text 5 is not a string",
        "path 3 is not a path",
    ]
    kaldi = tmp_path / "kaldi"
    kaldi.mkdir()
    sound(kaldi / "a.wav")
    listed(kaldi / "wav.scp", "a a.wav")
    listed(kaldi / "text", "a one", "a two", "z text")
    sounds = load_sounds(kaldi)
    assert (sounds.targets, len(sounds.rejected)) == (["one"], 2)
    assert reasons(sounds)["z"] == "is in text, but not in wav.scp"


def test_links_and_pipes_named_like_recordings(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav")
    (tmp_path / "b.wav").symlink_to("gone.wav")
    os.mkfifo(tmp_path / "c.wav")
    rejected = reasons(load_sounds(tmp_path))
    assert rejected["b.wav"].startswith("is a link to gone.wav")
    assert rejected["c.wav"].startswith("is a pipe")


def test_spans_of_speech(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav")
    row = {"audio_filepath": "a.wav"}
    file = listed(
        tmp_path / "m.jsonl",
        row | {"segments": [[0.3, 0.4], {"start": 0.0, "end": 0.2}]},
        row | {"segments": [], "duration": 0.5},
        row | {"segments": [[0.4, 0.3]], "offset": 0.1},
        row | {"segments": "all", "offset": 0.2},
        row | {"offset": 0.3},
    )
    found = load_spoken({"data": file})
    assert found.targets == [((0.0, 0.2), (0.3, 0.4)), ()]
    assert all(isinstance(one, Spoken) for one in found.samples)
    assert len(found.rejected) == 3
    assert load_spoken({"data": tmp_path / "a.wav"}).targets is None
    listed(file, row | {"segments": 3})
    with pytest.raises(DataError, match="no recording can be used"):
        load_spoken({"data": file})


def test_rttm(tmp_path: Path) -> None:
    for name in ("a", "b"):
        sound(tmp_path / f"{name}.wav")
    rttm = listed(
        tmp_path / "x.rttm",
        ";; a comment",
        "SPEAKER a 1 0.10 0.25 <NA> <NA> ann <NA> <NA>",
        "SPEAKER z 1 0.10 0.25 <NA> <NA> ann <NA> <NA>",
    )
    (tmp_path / "sounds").mkdir()
    for name in ("a", "b"):
        os.rename(tmp_path / f"{name}.wav", tmp_path / "sounds" / f"{name}.wav")
    found = load_spoken({"audio": tmp_path / "sounds", "rttm": rttm})
    assert found.targets == [((0.1, 0.35),), ()]
    assert reasons(found).keys() == {"z"}
    listed(rttm, "SPEAKER a 1 late 0.25")
    with pytest.raises(DataError, match=r"x\.rttm:1: "):
        load_spoken({"audio": tmp_path / "sounds", "rttm": rttm})
    with pytest.raises(ConfigError, match="audio=FOLDER rttm=FILE"):
        load_spoken({"rttm": rttm})


def test_kinds_of_units(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav")
    file = listed(tmp_path / "m.jsonl", *({"audio_filepath": "a.wav", "offset": at} for at in (0.0, 0.1)))
    found = load_sounds(file, units="file")
    assert isinstance(found, Sounds)
    assert found.units == [str(tmp_path / "a.wav")] * 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("duration", "1" + "0" * 400),
        ("offset", "1e300"),
        ("offset", json.dumps(["x" * 9000])),
        ("segments", "[[0, 1e300]]"),
    ],
)
def test_huge_values_are_shortened_in_messages(key: str, value: str, tmp_path: Path) -> None:
    sound(tmp_path / "a.wav")
    file = listed(tmp_path / "l.jsonl", f'{{"audio_filepath": "a.wav", "{key}": {value}}}')
    with pytest.raises(DataError, match=f"(?i){key[:7]}") as caught:
        load_spoken({"data": file})
    assert len(str(caught.value)) < 600
