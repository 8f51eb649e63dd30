from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import ConfigError, DataError
from tecoexec.load.logs import ACCURACY, DETAIL, read_accuracy, read_result


def write(folder: Path, *entries: tuple[str, Any, str]) -> None:
    lines = [
        json.dumps({"key": key, "value": value, "metadata": {"is_error": mark == "e", "is_warning": mark == "w"}})
        for key, value, mark in entries
    ]
    (folder / DETAIL).write_text("not a log line\n" + "".join(f":::MLLOG {line}\n" for line in lines))


def test_a_valid_result(tmp_path: Path) -> None:
    write(
        tmp_path,
        ("result_validity", "VALID", ""),
        ("result_query_count", 12, ""),
        ("result_99.00_percentile_latency_ns", 2_000_000, ""),
        ("result_99.00_percentile_per_query_latency_ns", 3_000_000, ""),
        ("error_runtime", "IssueQueryThread 0 Ending early: Max query count reached. query_count 5", "e"),
    )
    found = read_result(tmp_path, "Server")
    assert (found.valid, found.queries, found.reasons) == (True, 12, ())
    assert found.latency == {"percentile_99": 0.002}
    assert read_result(tmp_path, "MultiStream").latency == {"percentile_99": 0.003}


def test_an_invalid_result_has_reasons(tmp_path: Path) -> None:
    write(
        tmp_path,
        ("result_validity", "INVALID", ""),
        ("result_perf_constraints_met", False, ""),
        ("early_stopping_met", False, ""),
        ("early_stopping_result", " * Run unsuccessful.\n * Processed 50 queries.", ""),
        ("warning_x", "clock drift", "w"),
    )
    found = read_result(tmp_path, "Server")
    assert found.valid is False
    assert len(found.reasons) == 3
    assert "--latency_bound" in found.reasons[0]
    assert "Processed 50 queries" in found.reasons[1]
    assert all("\n" not in reason for reason in found.reasons)


def test_refused_settings(tmp_path: Path) -> None:
    text = "Invalid value for server_target_qps requested. requested: -3 using: 1"
    write(tmp_path, ("error_invalid_test_settings", text, "e"), ("result_validity", "VALID", ""))
    with pytest.raises(ConfigError, match="refuses the settings: Invalid value for server_target_qps"):
        read_result(tmp_path, "Server")


def test_a_refused_test(tmp_path: Path) -> None:
    write(tmp_path, ("error_x", "the sample library is empty", "e"))
    with pytest.raises(ConfigError, match="refuses the test: the sample library is empty"):
        read_result(tmp_path, "Server")


def test_an_accuracy_run_has_no_result(tmp_path: Path) -> None:
    write(tmp_path, ("loadgen_version", "6", ""))
    assert read_result(tmp_path, "Offline").valid is None


def test_missing_and_damaged_logs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=DETAIL):
        read_result(tmp_path, "Server")
    (tmp_path / DETAIL).write_text(":::MLLOG {broken\n")
    with pytest.raises(DataError, match="not JSON"):
        read_result(tmp_path, "Server")


def test_answers_of_the_accuracy_log(tmp_path: Path) -> None:
    (tmp_path / ACCURACY).write_text('[\n{ "seq_id" : 0, "qsl_idx" : 3, "data" : "0102" }\n]\n')
    assert read_accuracy(tmp_path) == {3: b"\x01\x02"}
    for text in ("", "[", '[{"qsl_idx": 1}]', '[{"qsl_idx": 1, "data": "xy"}]', "{}3", "[7]"):
        (tmp_path / ACCURACY).write_text(text)
        with pytest.raises(DataError, match=ACCURACY):
            read_accuracy(tmp_path)
