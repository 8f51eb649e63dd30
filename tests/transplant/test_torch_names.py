"""The table of names, checked against the installed torch and the card: complete, and without wrong entries."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("torch")
pytest.importorskip("libcst")

from tecoinfer_modelzoo.yaml_files import read_yaml
from torch_sdaa.sdaa.absent import ABSENT
from transplant.names import TABLE, names

pytestmark = pytest.mark.torch

MODULES = read_yaml(TABLE)["modules"]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_public_name_of_torch_cuda_has_its_row(module: str) -> None:
    importlib.import_module("torch.cuda.comm")  # a part of torch that only some imports bring
    entry = MODULES[module]
    same, imported, absent = set(entry["same"].split()), set(entry["imported"].split()), set(entry["absent"])
    real = {name for name in dir(importlib.import_module(module)) if not name.startswith("_")}
    assert {name for name in same | imported | absent if not name.startswith("_")} == real
    assert len(same | absent | imported) == len(same) + len(absent) + len(imported)
    card = importlib.import_module(module.replace("torch.cuda", "torch.sdaa"))
    assert [name for name in sorted(same) if not hasattr(card, name)] == []
    assert [name for name in sorted(absent) if hasattr(card, name)] == []


def test_replacements_of_missing_names_equal_those_of_the_card() -> None:
    said = {name.removeprefix("torch.cuda."): text for name, text in names().absent.items() if name.count(".") == 2}
    assert set(said) == set(ABSENT)
    assert [name for name, text in said.items() if not text.startswith(ABSENT[name])] == []


def test_similar_names_exist() -> None:
    for target in names().similar.values():
        module, _, name = target.rpartition(".")
        owner, _, inner = module.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            found = getattr(getattr(importlib.import_module(owner), inner), name)
        assert callable(found)


def test_lacking() -> None:
    table = names()
    assert table.lacking("torch.cuda.memory.memory_stats") is None
    assert table.lacking("torch.cuda.Event.record") is None
    assert "record_function" in (table.lacking("torch.cuda.nvtx.range_push") or "")
    assert table.lacking("torch.cuda.never_there")
