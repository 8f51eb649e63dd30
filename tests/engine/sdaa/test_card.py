from __future__ import annotations

from pathlib import Path

import pytest

from engine import ConfigError
from engine.sdaa.card import CARDS, MARKS, load_card, visible_devices

T1 = (CARDS / "t1.yaml").read_text(encoding="utf-8")


def described(folder: Path, text: str) -> Path:
    path = folder / "card.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_card_description_of_the_t1() -> None:
    card = load_card()
    assert (card.name, card.memory_bytes) == ("TECO_AICARD_01", 15296 * 2**20)
    assert set(card.layouts) == {"plain", "blocked"}
    assert card.layout("blocked").memory_gb_s > card.layout("plain").memory_gb_s
    with pytest.raises(ConfigError, match=r"t1\.yaml: .*TECO_AICARD_01 .*'tiled'; .*: plain, bl"):
        card.layout("tiled")


def test_every_figure_has_its_provenance() -> None:
    assert T1.count("source: ") == T1.count("mark: ") == T1.count("value: ") == 12
    assert all(f"mark: {mark}" in T1 for mark in MARKS)


def test_another_card_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = described(tmp_path, T1.replace("TECO_AICARD_01", "MINE").replace("15296", "100"))
    monkeypatch.setenv("TECO_SIM_CARD", str(path))
    assert (load_card().name, load_card().memory_bytes) == ("MINE", 100 * 2**20)
    monkeypatch.setenv("TECO_SIM_CARD", "t1")
    assert load_card().name == "TECO_AICARD_01"


@pytest.mark.parametrize("text", ["t9", "", "/", "no/such/file.yaml", "n" * 5000, "/dev/zero"])
def test_a_card_out_of_range(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_CARD", text)
    with pytest.raises(ConfigError, match=r"card description file nor.*: t1"):
        load_card()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema_version: 1", "schema_version: 2", "schema_version 2 is not 1"),
        ("schema_version: 1", "schema_version: 1\ncolour: red", "unknown key colour"),
        ("    launch_us: {value: 37", "    lunch_us: {value: 37", "unknown key layouts.plain.lunch_us"),
        ("heartbeat_ms: {value: 1000, ", "heartbeat_ms: {", "heartbeat_ms must be {value"),
        ("heartbeat_ms: {value: 1000, ", "heartbeat_ms: 1000 #", "heartbeat_ms must be {value"),
        ("value: 15296", "value: 0", "memory_mb.value 0 must be a number above 0"),
        ("value: 15296", "value: -1", "memory_mb.value -1 must be a number above 0"),
        ("value: 15296", "value: .nan", "memory_mb.value nan must be"),
        ("value: 15296", "value: .inf", "memory_mb.value inf must be"),
        ("value: 15296", "value: yes", "memory_mb.value True must be"),
        ("value: 15296", "value: lots", "memory_mb.value 'lots' must be"),
        ("value: 1000", "value: -1", "heartbeat_ms.value -1 must be a number of at least 0"),
        ("value: 15296", "value: 1.0e+308", "memory_mb.value 1e+308 must be a number above 0 (from 1e-09 to 1e+12)"),
        ("value: 15296", "value: 5.0e-324", "memory_mb.value 5e-324 must be a number above 0 (from"),
        ("value: 15296", f"value: {'9' * 4400}", "a number of 4400 characters"),
        ("value: 15296", f"value: 0x{'f' * 98}", "memory_mb.value 1"),
        ("mark: published", "mark: [published]", "memory_mb.mark ['published'] must be one of"),
        ("name: TECO_AICARD_01", f"name: {'n' * 5000}", "must be a text of 1 to 100 characters"),
        ("name: TECO_AICARD_01", "name: [a]", "name ['a'] must be a text"),
        ("name: TECO_AICARD_01", f"{'k' * 900}: 1", "unknown key 'kkk"),
        ("layouts:", "name: again\nlayouts:", "key 'name' is given twice"),
        ("layouts:", "a: &a [*a]\nlayouts:", "a value holds itself"),
        ("mark: published", "mark: guessed", "memory_mb.mark 'guessed' must be one of: published, fitted, assumed"),
        ("layouts:", "layouts: []\nname: [", "cannot be read"),
        (T1, "- a list", "is not a mapping"),
        (T1, "", "is not a mapping"),
        (T1[T1.index("layouts:") :], "layouts: {}", "layouts must map"),
        (T1[T1.index("layouts:") :], "layouts: {plain: 3}", "layouts.plain must map"),
    ],
)
def test_an_invalid_card_description(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in T1
    path = described(tmp_path, T1.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_card(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_costs_may_be_zero(tmp_path: Path) -> None:
    assert load_card(described(tmp_path, T1.replace("value: 1000", "value: 0"))).heartbeat_ms == 0


@pytest.mark.parametrize(
    ("variables", "rank", "devices"),
    [
        ({}, 0, [0, 1, 2, 3]),
        ({"MAX_ENGINE_NUMS": "3"}, 0, [0, 1, 2]),
        ({"TECO_SIM_CARDS": "2"}, 1, [4, 5, 6, 7]),
        ({"TECO_SIM_CARDS": "2", "SDAA_VISIBLE_DEVICES": "7, 0,5"}, 0, [7, 0, 5]),
        ({"TECO_SIM_CARDS": "2", "SDAA_VISIBLE_DEVICES": "7,0,5,1,2"}, 1, [2]),
    ],
)
def test_devices_of_a_card(
    variables: dict[str, str], rank: int, devices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert visible_devices(rank) == devices


@pytest.mark.parametrize("text", ["", "0,", "4", "-1", "0,0", "0;1", "a", "0 1", "١", "9" * 5000])
def test_missing_devices(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDAA_VISIBLE_DEVICES", text)
    with pytest.raises(ConfigError, match=r"SDAA_VISIBLE_DEVICES=.*0 to 3, each once"):
        visible_devices(0)


@pytest.mark.parametrize("name", ["MAX_ENGINE_NUMS", "TECO_SIM_CARDS"])
@pytest.mark.parametrize("text", ["9" * 5000, "0", "", "nan"])
def test_an_invalid_number_of_any_length_is_refused(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError, match=rf"{name}=.*whole number from 1 to") as caught:
        visible_devices(0)
    assert len(str(caught.value)) < 1400


@pytest.mark.parametrize("rank", [1, 7, -1])
def test_an_unknown_card_is_refused(rank: int) -> None:
    with pytest.raises(ConfigError, match=rf"card {rank} .*: 4 "):
        visible_devices(rank)


def test_a_process_without_a_card_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"TECO_SIM_CARDS .*processes, 4 .*SDAA_V"):
        visible_devices(3)
    monkeypatch.setenv("TECO_SIM_CARDS", "4")
    monkeypatch.setenv("SDAA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ConfigError, match=r"a card; check SDAA_VISIBLE_DEVICES .*rank"):
        visible_devices(3)
