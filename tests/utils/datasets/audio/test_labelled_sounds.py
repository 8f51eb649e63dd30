"""Recordings with classes, in the layouts of public data sets."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import pytest

from engine import ConfigError, DataError
from utils.datasets.audio.labelled import load_labelled


def sound(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 1, 8000, 0, "NONE", ""))
        out.writeframes(bytes(range(256)) * 8)
    return file


def esc(folder: Path) -> Path:
    rows = ["filename,fold,target,category,esc10,src_file,take"]
    for name, fold, target, category, source in (
        ("1-100-A-0.wav", 1, 0, "dog", "100"),
        ("2-200-A-1.wav", 2, 1, "chirping_birds", "200"),
        ("2-200-B-1.wav", 2, 1, "chirping_birds", "200"),
        ("5-300-A-2.wav", 5, 2, "airplane", "300"),
    ):
        sound(folder / "audio" / name)
        rows.append(f"{name},{fold},{target},{category},False,{source},A")
    (folder / "meta").mkdir()
    (folder / "meta" / "esc50.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_esc50(tmp_path: Path) -> None:
    found = load_labelled({"data": esc(tmp_path)})
    assert found.targets == ["dog", "chirping_birds", "chirping_birds", "airplane"]
    assert found.units == ["100", "200", "200", "300"]
    assert found.notes["classes"] == ["dog", "chirping_birds", "airplane"]  # by number, not by name
    assert [one.path.name for one in found.samples][:2] == ["1-100-A-0.wav", "2-200-A-1.wav"]


def test_folds_of_esc50(tmp_path: Path) -> None:
    found = load_labelled({"data": esc(tmp_path)}, folds=[2, 5], units="recording")
    assert found.targets == ["chirping_birds", "chirping_birds", "airplane"]
    assert found.units is None
    assert found.notes["classes"] == ["dog", "chirping_birds", "airplane"]
    with pytest.raises(DataError, match=r"--fold 4; use others"):
        load_labelled({"data": tmp_path}, folds=[4])


def test_urban_sound_folders(tmp_path: Path) -> None:
    sound(tmp_path / "audio/fold1/7061-6-0-0.wav")
    sound(tmp_path / "audio/fold2/7062-6-0-0.wav")
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/UrbanSound8K.csv").write_text(
        "slice_file_name,fsID,start,end,salience,fold,classID,class\n"
        "7061-6-0-0.wav,7061,0,1,1,1,6,gun_shot\n7062-6-0-0.wav,7062,0,1,1,2,6,gun_shot\n"
    )
    found = load_labelled({"data": tmp_path}, folds=[2])
    assert (found.targets, found.units) == (["gun_shot"], ["7062"])
    assert found.samples[0].path == tmp_path / "audio/fold2/7062-6-0-0.wav"


def commands(folder: Path) -> Path:
    for name in ("yes/a1_nohash_0.wav", "yes/b2_nohash_0.wav", "no/a1_nohash_1.wav", "no/c3_nohash_0.wav"):
        sound(folder / name)
    sound(folder / "_background_noise_/tap.wav")
    (folder / "testing_list.txt").write_text("yes/a1_nohash_0.wav\nno/a1_nohash_1.wav\n")
    (folder / "validation_list.txt").write_text("yes/b2_nohash_0.wav\n")
    return folder


@pytest.mark.parametrize(
    ("split", "names", "units"),
    [
        ("testing", ["yes/a1_nohash_0.wav", "no/a1_nohash_1.wav"], ["a1", "a1"]),
        ("validation", ["yes/b2_nohash_0.wav"], ["b2"]),
        ("training", ["no/c3_nohash_0.wav"], ["c3"]),
        (
            "all",
            ["no/a1_nohash_1.wav", "no/c3_nohash_0.wav", "yes/a1_nohash_0.wav", "yes/b2_nohash_0.wav"],
            ["a1", "c3", "a1", "b2"],
        ),
    ],
)
def test_speech_commands(tmp_path: Path, split: str, names: list[str], units: list[str]) -> None:
    found = load_labelled({"data": commands(tmp_path)}, split=split)
    assert [one.path.relative_to(tmp_path).as_posix() for one in found.samples] == names
    assert found.targets == [name.partition("/")[0] for name in names]
    assert found.units == units


def test_a_wrong_list_of_speech_commands(tmp_path: Path) -> None:
    commands(tmp_path)
    (tmp_path / "testing_list.txt").write_text("yes/a1_nohash_0.wav\nyes/missing.wav\n../yes/x.wav\nyes/notes.txt\n")
    found = load_labelled({"data": tmp_path})
    assert found.targets == ["yes"]
    assert [one.path.name for one in found.rejected] == ["missing.wav", "x.wav", "notes.txt"]
    (tmp_path / "validation_list.txt").unlink()
    with pytest.raises(DataError, match=r"validation_list\.txt"):
        load_labelled({"data": tmp_path}, split="validation")


def test_a_table_apart_from_its_recordings(tmp_path: Path) -> None:
    """As of FSD50K: names without ending, several classes per sound."""
    for number in (64760, 16399):
        sound(tmp_path / f"sounds/{number}.wav")
    table = tmp_path / "eval.csv"
    table.write_text('fname,labels,mids\n64760,"Bark,Dog",/m/1\n16399,Run,/m/2\n5,Run,/m/2\n')
    found = load_labelled({"list": table, "audio": tmp_path / "sounds"})
    assert found.targets == ["Bark,Dog", "Run"]
    assert [str(one.path) for one in found.rejected] == [f"{table}:4"]
    with pytest.raises(ConfigError, match="list=TABLE audio=FOLDER"):
        load_labelled({"list": table})


def test_a_folder_per_class_and_json_lines(tmp_path: Path) -> None:
    sound(tmp_path / "data/cat/1.wav")
    sound(tmp_path / "data/dog/deep/2.wav")
    found = load_labelled({"data": tmp_path / "data"})
    assert (found.targets, found.notes["classes"]) == (["cat", "dog"], ["cat", "dog"])
    rows = tmp_path / "list.jsonl"
    rows.write_text(
        '{"audio_filepath": "data/cat/1.wav", "labels": ["a", "b"]}\n'
        '{"audio_filepath": "data/dog/deep/2.wav", "label": "c"}\n'
    )
    assert load_labelled({"data": rows}).targets == [["a", "b"], "c"]


def test_recordings_without_classes(tmp_path: Path) -> None:
    one = sound(tmp_path / "a.wav")
    assert load_labelled({"data": one}).targets is None
    assert load_labelled({"data": tmp_path}).targets is None


WRONG: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "no column of recordings": ({"meta/t.csv": "sound,category\na.wav,dog\n"}, {}, "'filename'"),
    "no fold": ({"meta/t.csv": "filename,category\na.wav,dog\n"}, {"folds": [1]}, "no column 'fold'"),
    "two tables": ({"meta/t.csv": "filename\n", "meta/u.csv": "filename\n"}, {}, "2 tables"),
    "no recording": ({"meta/t.csv": "filename,category\nb.wav,dog\n"}, {}, "none of 1 recordings"),
    "out of the folder": ({"meta/t.csv": "filename,category\n../a.wav,dog\n"}, {}, "none of 1 recordings"),
    "empty class": ({"meta/t.csv": "filename,category\na.wav,\n"}, {}, "is empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    files, how, text = WRONG[name]
    folder = tmp_path / "set"
    sound(folder / "a.wav")
    sound(tmp_path / "a.wav")
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(content)
    with pytest.raises(DataError, match=text) as error:
        load_labelled({"data": folder}, **how)
    assert "\n" not in str(error.value)
