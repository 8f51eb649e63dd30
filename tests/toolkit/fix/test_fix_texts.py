"""The choices of text classification: the source's labels explain each mistake that people make after an export."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support import ROOT

from toolkit.cli import execute
from utils.pipeline import answers
from utils.tasks.text_classification import TEXT_CLASSIFICATION


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted", [("--label_order", "1,0"), ("--case", "lower")], ids=["labels_swapped", "lower_case_missing"]
)
def test_a_planted_mistake_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    planted: tuple[str, str],
) -> None:
    """The source did what ``planted`` says, and the exported model is run without it."""
    pytest.importorskip("psutil")
    monkeypatch.syspath_prepend(str(ROOT / "tests/utils/tasks"))
    sys.modules.pop("word_vectors", None)
    model = ROOT / "example/nlp/bert_qa/small_bert_qa_dyn.onnx"
    assert model.is_file()
