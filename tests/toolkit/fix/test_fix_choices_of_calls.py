"""Settings of a task with several calls: final answers of the source explain a prefix and a pooling."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support import ROOT

from engine import ConfigError
from toolkit.cli import execute
from utils.pipeline import answers
from utils.tasks.sentence_similarity import SENTENCE_SIMILARITY

PAIRS = [
    ("a man plays the guitar", "someone plays an instrument"),
    ("rain is wet", "dogs bark at cats"),
    ("dogs bark", "a man plays music"),
    ("the guitar is music", "rain at the guitar"),
    ("cats bark", "the man is wet"),
    ("someone is wet", "rain is an instrument"),
]


def test_source_setting_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psutil")
    monkeypatch.syspath_prepend(str(ROOT / "tests/utils/tasks"))
    word_vectors = __import__("word_vectors").word_vectors
    monkeypatch.delitem(sys.modules, "word_vectors", raising=False)
    model, data, golden = word_vectors(tmp_path / "m.onnx"), tmp_path / "p.tsv", tmp_path / "s.txt"
    data.write_text("sentence1\tsentence2\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS * 4))
    words = ["--target", "onnx", "--prefix", "query: ", "--pooling", "mean", "--json", str(tmp_path / "r.json")]
    answers.main(None, SENTENCE_SIMILARITY, "multi", argv=words, ckpt=model, data_path=data, batch_size=8)
    found = json.loads((tmp_path / "r.json").read_text())["answers"]
    golden.write_text("\n".join(str(one["answer"]["score"]) for one in found))
    task = ("--task", "sentence_similarity", "--data", str(data))
    assert execute(["fix", str(model), *task, "--golden", str(golden)]) == 0
    assert "this explains it: --prefix query:" in capsys.readouterr().out
    (tmp_path / "arrays.npz").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"--golden.*--reference"):
        execute(["fix", str(model), *task, "--golden", str(tmp_path / "arrays.npz")])
