"""Trials: lists in all formats, their speakers, folders of speakers, random draws, and invalid lines."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError, DataError
from utils.datasets.audio.trial_lists import load_trials
from utils.datasets.audio.trials import Trials, drawn, paired, voices_by_name, voices_of


def sound(path: Path, seconds: float = 0.1) -> Path:
    """Write a recording of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(-9999, 9999, round(8000 * seconds))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(noise.astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three speakers of two sessions with two recordings each, in VoxCeleb's layout."""
    root = tmp_path_factory.mktemp("vox")
    for speaker in ("id1", "id2", "id3"):
        for session in ("x", "y"):
            for number in (1, 2):
                sound(root / speaker / session / f"{number}.wav", 0.1 * number)
    return root


def written(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def same_speakers(trials: Trials) -> list[Any]:
    """Return per trial whether it is one speaker, and both speakers."""
    targets = trials.batch(range(len(trials))).targets
    assert targets is not None
    return [(one.same, *one.people) for one in targets]


def test_a_list_of_voxceleb(people: Path) -> None:
    lines = ("1 id1/x/1.wav id1/y/1.wav", "0 id1/x/1.wav id2/x/1.wav", "", "0 id3/x/1.wav id2/x/1.wav")
    trials = load_trials(written(people, "veri_test2.txt", *lines))
    assert same_speakers(trials) == [(True, "id1", "id1"), (False, "id1", "id2"), (False, "id3", "id2")]
    batch = trials.batch([1])
    assert batch.names == ["id1/x/1.wav | id2/x/1.wav"]
    assert batch.units == ["id1"]
    assert (trials.has_units, list(trials.rejected)) == (True, [])


def test_invalid_lines_are_rejected(people: Path) -> None:
    lines = (
        "1 id1/x/1.wav id1/y/1.wav",
        "0 id1/x/1.wav id9/x/1.wav",
        "1 id1/x/1.wav",
        "2 id1/x/1.wav id2/x/1.wav",
        "1 id1/x/1.wav id1/x/1.wav",
        "0 id1/x/1.wav id2/x/1.wav",
    )
    file = written(people, "wrong.txt", *lines)
    trials = load_trials(file)
    assert len(trials) == 2
    reasons = {one.path.name: one.reason for one in trials.rejected}
    assert set(reasons) == {"wrong.txt:2", "wrong.txt:3", "wrong.txt:4", "wrong.txt:5"}
    assert "'id9/x/1.wav' is not in" in reasons["wrong.txt:2"]
    assert "2 columns" in reasons["wrong.txt:3"]
    assert "'2' must be" in reasons["wrong.txt:4"]
    assert "with itself" in reasons["wrong.txt:5"]


def test_kaldis_trials(people: Path, tmp_path: Path) -> None:
    written(tmp_path, "wav.scp", *(f"{who}-{n} {people}/{who}/x/{n}.wav" for who in ("id1", "id2") for n in (1, 2)))
    written(tmp_path, "utt2spk", "id1-1 anna", "id1-2 anna", "id2-1 bert", "id2-2 bert")
    file = written(tmp_path, "trials", "id1-1 id1-2 target", "id1-1 id2-1 nontarget", "id1-1 id2-2 target")
    # paths of a wav.scp start from its folder and must not leave it
    with pytest.raises(DataError, match="pairs=FILE audio=FOLDER"):
        load_trials(file)
    trials = load_trials(file, people)
    assert same_speakers(trials) == [(True, "anna", "anna"), (False, "anna", "bert")]
    (one,) = trials.rejected
    assert (one.path.name, "it is two (anna, bert)" in one.reason) == ("trials:3", True)
    (tmp_path / "utt2spk").write_text("id1-1 anna\n")
    with pytest.raises(DataError, match="utt2spk: has no speaker of 'id1-2'"):
        load_trials(file, people)


def test_speakers_are_inferred_from_the_list(people: Path, tmp_path: Path) -> None:
    for name in "abcde":
        sound(tmp_path / f"{name}.wav")
    lines = ("utt1\tutt2\tlabel", "a\tb\t1", "b\tc\t1", "a\td\t0", "d\te\t0", "a\tc\t0")
    trials = load_trials(written(tmp_path, "trials.tsv", *lines))
    assert [(same, first == second) for same, first, second in same_speakers(trials)] == [
        (True, True),
        (True, True),
        (False, False),
        (False, False),
    ]
    assert [one.path.name for one in trials.rejected] == ["trials.tsv:6"]  # a, b and c are one


def test_a_list_without_labels(tmp_path: Path) -> None:
    for name in "ab":
        sound(tmp_path / f"{name}.wav")
    trials = load_trials(written(tmp_path, "list.txt", "a.wav b.wav"))
    assert (len(trials), trials.batch([0]).targets, trials.has_units) == (1, None, False)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("",), "the list is empty"),
        (("hello",), "'hello' is not a trial"),
        (("a b maybe",), "is not a trial"),
        (("1 a.wav b.wav",), "no trial can be used"),
    ],
)
def test_invalid_lists(lines: tuple[str, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        load_trials(written(tmp_path, "list.txt", *lines))


def test_a_folder_of_speakers(people: Path) -> None:
    voices = voices_of(people)
    assert (voices.names, len(voices.recordings)) == (["id1", "id2", "id3"], 12)
    every = paired(voices, "all", 0)
    assert (len(every), sum(same for same, *_ in same_speakers(every))) == (66, 18)
    balanced = paired(voices, "balanced", 0)
    assert (len(balanced), sum(same for same, *_ in same_speakers(balanced))) == (36, 18)
    kinds = [same for same, *_ in same_speakers(every.mixed())]
    assert 0.15 < np.mean(kinds[:20]) < 0.4  # 18 of 66, wherever a run is stopped
    assert every.fingerprint() != balanced.fingerprint()
    assert every.fingerprint() == paired(voices_of(people), "all", 0).fingerprint()


def test_folders_by_name_with_sessions(people: Path) -> None:
    named = {"anna__x": people / "id1", "anna__y": people / "id2", "bert": people / "id3"}
    voices = voices_by_name(named, ["*/2.wav"])
    assert (voices.names, len(voices.recordings)) == (["anna", "bert"], 6)
    assert sum(same for same, *_ in same_speakers(paired(voices, "all", 0))) == 7
    few = drawn(voices, 1, 0, 0)
    assert [one.path.parts[-3] for one in few.recordings] == ["id1", "id2", "id3"]  # one of each folder
    assert drawn(voices, 1, 0, 0).recordings == few.recordings


def test_only_long_recordings_are_drawn(people: Path) -> None:
    with pytest.warns(UserWarning, match="6 of 12 .*--shortest 0.15"):
        voices = drawn(voices_of(people), 0, 0.15, 0)
    assert {one.path.name for one in voices.recordings} == {"2.wav"}
    with pytest.raises(DataError, match=r"has 9 s.*--shortest"):
        drawn(voices_of(people), 0, 9.0, 0)


def test_too_few_recordings(people: Path, tmp_path: Path) -> None:
    sound(tmp_path / "one" / "a" / "1.wav")
    with pytest.raises(DataError, match="1 recordings are too few"):
        paired(voices_of(tmp_path / "one"), "all", 0)
    sound(tmp_path / "one" / "a" / "2.wav")
    with pytest.raises(DataError, match=r"one speaker \(a\)"):
        paired(voices_of(tmp_path / "one"), "all", 0)
    with pytest.raises(DataError, match=r"anna=.* is not a folder"):
        voices_by_name({"anna": tmp_path / "none"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="contains no recording"):
        voices_by_name({"anna": tmp_path / "empty"})
    many = voices_of(people)._replace(recordings=list(voices_of(people).recordings) * 400)
    with pytest.raises(ConfigError, match="use --of_each"):
        paired(many, "all", 0)
