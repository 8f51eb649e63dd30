"""Without h5py the error is one line with its user and the install command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine import ConfigError
from engine.training import TrainingDumpWriter, needed_h5py, open_training_dump
from tecoinfer_modelzoo import install_command
from toolkit.dump.entries import h5py_module


def test_the_module_is_h5py() -> None:
    h5py = pytest.importorskip("h5py")
    assert needed_h5py("a test") is h5py
    assert h5py_module() is h5py


def test_missing_h5py_names_its_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    line = f"need the package h5py, which is not installed; run: {install_command('toolkit')}"
    with pytest.raises(ConfigError) as said:
        TrainingDumpWriter(tmp_path / "a.h5", {})
    assert str(said.value) == f"dumps of a training {line}"
    with pytest.raises(ConfigError) as said:
        open_training_dump(tmp_path / "a.h5")
    assert str(said.value) == f"dumps of a training {line}"
    with pytest.raises(ConfigError) as said:
        h5py_module()
    assert str(said.value) == f"HDF5 dumps {line}, or pass a folder as --out"
