"""Pipes in place of files: no tool blocks on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import ConfigError, DataError, ModelError
from model_config.written import read_json
from toolkit.commands.table import write_markdown
from toolkit.dump.entries import JOURNAL
from toolkit.dump.recover import recover
from toolkit.profile.record import read_profile
from utils.export.networks.bert_encoder import read_config


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.json")
    return tmp_path / "pipe.json"


def test_profiles_and_pages(pipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"pipe.json cannot be read"):
        read_profile(pipe)
    with pytest.raises(DataError, match=r"pipe.json cannot be read"):
        write_markdown(pipe, [], [], [1])
    with pytest.raises(OSError, match="it is a pipe"):
        read_json(pipe)


def test_journals_of_dumps_and_configurations_of_networks(pipe: Path) -> None:
    os.mkfifo(pipe.parent / JOURNAL)
    with pytest.raises(DataError, match=r"no readable manifest\.json"):
        recover(pipe.parent, pipe.parent / "new")
    with pytest.raises(ModelError, match="it is a pipe"):
        read_config(pipe)


def test_a_configuration_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ModelError, match="get the file again"):
        read_config(tmp_path / "config.json")
