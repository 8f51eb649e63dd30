"""Click prediction: which rows are run, what they become, what is refused, on the committed model and small tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import bound, described, opened, options
from support import ROOT

from engine import ConfigError, DataError, InputError, ModelError
from utils.datasets.base import Dataset
from utils.datasets.tabular.clicks import Click, RatedRows, Wanted, load_table
from utils.datasets.tabular.ratings import read_ratings
from utils.pipeline import answers, valid
from utils.preprocess.features import Features
from utils.tasks.ctr_prediction.task import (
    Context,
    CtrPrediction,
    Likely,
    output_of,
    refuse_short_tables,
    refuse_trained_rows,
)
from utils.tasks.model import Model

FOLDER = ROOT / "example" / "recommendation" / "deepfm_synthetic"
CKPT = FOLDER / "deepfm_synthetic_dyn.onnx"
RATINGS = [(user, item, 1 + (user * item) % 5, 10 * user + item) for user in range(1, 5) for item in range(1, 11)]


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    folder = tmp_path / "ratings"
    folder.mkdir()
    (folder / "u.data").write_text("".join("\t".join(map(str, row)) + "\n" for row in RATINGS))
    return folder


def loaded(path: Path, script: str = "valid", **given: Any) -> Dataset:
    return CtrPrediction(options(CtrPrediction, script, **given)).load({"data": path})


def test_ratings_become_rows_with_known_fields(ratings: Path) -> None:
    every = loaded(ratings, part="all")
    batch = every.batch(range(len(every)))
    assert batch.samples[0] == {"user_id": "1", "item_id": "1"}
    assert batch.units == [str(row[0]) for row in RATINGS]
    assert batch.targets is not None
    assert [one.clicked for one in batch.targets] == [row[2] >= 4 for row in RATINGS]
    assert batch.names[1] == "user 1, item 2"
    strict = loaded(ratings, part="all", positive=5.0).batch(range(len(RATINGS)))
    assert strict.targets is not None
    assert [one.clicked for one in strict.targets] == [row[2] >= 5 for row in RATINGS]


def test_the_baseline_is_of_the_training_only(ratings: Path) -> None:
    found = RatedRows(read_ratings(ratings), Wanted("leave_one_out", part="test"))
    batch = found.batch(range(len(found)))
    assert [name.split(", ")[1] for name in batch.names] == ["item 10"] * 4
    trained = [row[2] >= 4 for row in RATINGS if row[1] <= 8]
    assert batch.targets is not None
    assert {one.baseline for one in batch.targets} == {np.mean(trained)}, "item 10 is in nobody's training"
    assert found.notes["split"] == {"how": "leave_one_out", "seed": 0, "positive": 4.0, "ratings": 40}


def test_a_split_and_a_user_change_the_fingerprint(ratings: Path) -> None:
    data = read_ratings(ratings)
    wishes = [Wanted(), Wanted(seed=1), Wanted("temporal"), Wanted(part="valid"), Wanted(part="all", user="2")]
    assert len({RatedRows(data, one).fingerprint() for one in wishes}) == len(wishes)


def test_answers_are_of_one_user(ratings: Path) -> None:
    many = loaded(ratings, "multi", part="all")
    assert set(many.batch(range(len(many))).units or ()) == {"1"}
    one = loaded(ratings, "single", part="all", user="3", batch_size=1)
    assert (one.batch(range(len(one))).units, len(one)) == (["3"], 1)
    with pytest.raises(ConfigError, match=r"u\.data: no user '33' among 4; .*'3'"):
        loaded(ratings, "multi", user="33")
    late = read_ratings(ratings)._replace(times=np.arange(40.0)[::-1])
    with pytest.raises(ConfigError, match=r"user 4 .*'test' .*'temporal'"):
        RatedRows(late, Wanted("temporal", user="4"))


def test_a_table(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("Click,uid,x\n1,ann,3\n0,bob,\n2,bob,4\n1,ann\nno,,5\n")
    found = load_table(file)
    assert found.samples == [{"uid": "ann", "x": "3"}, {"uid": "bob", "x": ""}, {"uid": "", "x": "5"}]
    assert found.targets == [Click(True, "ann"), Click(False, "bob"), Click(False, "")]
    assert found.units == ["ann", "bob", "line 6"]
    assert [one.reason for one in found.rejected] == [
        "2 fields, expected 3; correct the line",
        "'2' is not a label; write 0 or 1",
    ]
    assert load_table(file, only="bob").samples == [{"uid": "bob", "x": ""}]
    with pytest.raises(ConfigError, match="no user 'anne'; did you mean 'ann'"):
        load_table(file, only="anne")
    file.write_text("x\n3\n")
    with pytest.raises(DataError, match=r"row .*'3'"):
        load_table(file, label="x")
    with pytest.raises(ConfigError, match="--user_column"):
        load_table(file, only="ann")
    (tmp_path / "b.jsonl").write_text('{"a": ["x", "y"], "b": null, "c": 3}\n')
    assert load_table(tmp_path / "b.jsonl").samples == [{"a": "x|y", "b": "", "c": "3"}]
    assert load_table(tmp_path / "b.jsonl").targets is None


def test_invalid_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        loaded(tmp_path / "gone")
    with pytest.raises(DataError, match=r"ratings .* nor a table"):
        loaded(tmp_path)
    (tmp_path / "clicks.txt").write_text("1 2 3\n")
    with pytest.raises(DataError, match=r"clicks\.txt: .*Criteo.* \.tsv \.csv"):
        loaded(tmp_path / "clicks.txt")
    (tmp_path / "clicks.txt").write_text("")
    with pytest.raises(DataError, match=r"clicks\.txt: it is empty"):
        loaded(tmp_path / "clicks.txt")


def stored(**notes: str) -> Model:
    return Model(Path("m.onnx"), metadata=notes)


def task(**notes: str) -> Any:
    """Return the task bound to a model with these metadata."""
    return bound(CtrPrediction, stored(**notes))


def test_outputs() -> None:
    contexts = [Context("a", ()), Context("b", ())]
    for shape in ((2,), (2, 1)):
        found = task().decode([np.array([0.25, 1], np.float16).reshape(shape)], contexts)
        assert found == [Likely(0.25, "a"), Likely(1.0, "b")]
    logits = task(ctr_prediction='{"output": "logits"}')
    big = logits.decode([np.array([-1e4, 0.0], np.float32)], contexts)
    assert [one.score for one in big] == [0.0, 0.5]
    with pytest.raises(InputError, match=r"1\.5, .*--output logits"):
        task().decode([np.array([0.5, 1.5], np.float32)], contexts)
    with pytest.raises(InputError, match=r"\(2, 2\) .*floating-point"):
        task().decode([np.zeros((2, 2), np.float32)], contexts)
    with pytest.raises(ModelError, match="output 'odds' must be one of probability, logits"):
        output_of(stored(ctr_prediction='{"output": "odds"}'), options(CtrPrediction))


def test_training_rows_are_rejected(ratings: Path) -> None:
    with opened(CKPT, "onnx") as engine:
        run = bound(CtrPrediction, described(engine))
        with pytest.raises(DataError, match=r"age, category, .* user_id, item_id"):
            run.setup({"model": engine}, loaded(ratings))
        run.setup({"model": engine}, loaded(FOLDER / "data" / "val.csv"))
        trained = {"how": "random", "seed": 0, "positive": 4.0, "ratings": 40}
        for part in ("test", "valid"):
            refuse_trained_rows(trained, loaded(ratings, part=part), CKPT)
        for wrong in ({"part": "train"}, {"split": "temporal"}, {"split_seed": 3}, {"positive": 3.0}, {"part": "all"}):
            with pytest.raises(ConfigError, match=r"--split random --split_seed 0 --positive"):
                refuse_trained_rows(trained, loaded(ratings, **wrong), CKPT)
        with pytest.raises(ConfigError, match=r"100000 ratings.* 40"):
            refuse_trained_rows({**trained, "ratings": 100000}, loaded(ratings), CKPT)
        with pytest.warns(UserWarning, match="does not store the split"):
            refuse_trained_rows(None, loaded(ratings), CKPT)


def test_a_result_is_drawn(tmp_path: Path) -> None:
    row = {"user_id": "7", "title": "Dr. Strangelove", "year": "1963", "genres": "Comedy|War"}
    shown = task().show(row, Likely(0.75, "Dr. Strangelove (1963)"))
    assert shown.text == "0.750  Dr. Strangelove (1963)"
    assert shown.answer == {"probability": 0.75, "title": "Dr. Strangelove (1963)", "row": row}
    assert shown.save is not None
    assert shown.save(tmp_path / "out").name == "7_Dr_Strangelove_1963.png"
    assert shown.save(tmp_path / "out").name == "7_Dr_Strangelove_1963.png"
    other = task().show({**row, "item_id": "8"}, Likely(0.25, "Dr. Strangelove (1963)"))
    assert other.save is not None
    assert other.save(tmp_path / "out").name.startswith("7_Dr_Strangelove_1963-")


def test_the_committed_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "onnx", "--json", str(tmp_path / "r.json")]
    where = {"ckpt": CKPT, "data_path": FOLDER / "data" / "val.csv", "batch_size": 256}
    assert valid.main(None, CtrPrediction, argv=words, **where) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["metric"] == pytest.approx(0.795535, abs=1e-4)
    assert found["secondary"]["gauc"] == pytest.approx(0.769528, abs=1e-4)
    assert found["warning_counts"] == {"unknown age": 213, "unknown user_id": 102}
    said = "user_id: 102 of 4000 rows"
    assert said in capsys.readouterr().out
    assert task().format_warnings({"unknown user_id": 0}, 5) == []


def test_invalid_row_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (FOLDER / "data" / "rows.csv").read_text().splitlines()[:4]
    cells = lines[2].split(",")
    cells[lines[0].split(",").index("price")] = "cheap"
    file = tmp_path / "rows.csv"
    file.write_text("\n".join([*lines[:2], ",".join(cells), lines[3], "short,line"]))
    words = ["--target", "onnx"]
    code = answers.main(None, CtrPrediction, "multi", argv=words, ckpt=CKPT, data_path=file, batch_size=4)
    out, error = capsys.readouterr()
    assert code == 1
    assert "rows.csv:3: price 'cheap' is not a finite number; write one, or leave the field empty" in out + error
    assert "rows.csv:5: 2 fields" in out + error
    assert [line.split()[0] for line in out.splitlines() if line.startswith("rows.csv")][:2] == [
        "rows.csv:2",
        "rows.csv:4",
    ]


@pytest.mark.parametrize(("size", "taken"), [(509, True), (533, True), (534, False), (1 << 20, False)])
def test_a_table_must_have_a_row_for_every_number_of_the_features(size: int, taken: bool, tmp_path: Path) -> None:
    model = onnx.load(CKPT)
    (note,) = (entry for entry in model.metadata_props if entry.key == "features")
    stored = json.loads(note.value)
    for field in stored["fields"]:
        if field["name"] == "item_id":
            field["size"] = size
    note.value = json.dumps(stored)
    onnx.save(model, tmp_path / "m.onnx")
    features = Features.from_json(stored, "m.onnx")
    if taken:
        refuse_short_tables(features, tmp_path / "m.onnx")
        return
    words = (
        rf"m.onnx: table 'first.weight' has 690 rows, and field 'item_id' of its metadata 'features' needs {157 + size}"
    )
    with pytest.raises(ModelError, match=words):
        refuse_short_tables(features, tmp_path / "m.onnx")


def test_tables_of_other_files_are_not_checked(tmp_path: Path) -> None:
    note = next(entry.value for entry in onnx.load(CKPT).metadata_props if entry.key == "features")
    features = Features.from_json(json.loads(note), "m.onnx")
    (tmp_path / "m.tecoengine").write_bytes(b"tecoengine 2 5196\n{}")
    for path in (tmp_path / "m.tecoengine", tmp_path / "gone.onnx"):
        refuse_short_tables(features, path)
