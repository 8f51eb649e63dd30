from __future__ import annotations

import gc
import json
import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from publishing import MB, publishing

from engine.base import ConfigError
from engine.sdaa import status
from engine.sdaa.status import DeviceStatus, Publisher, card_count, directory, read_all

BUSY = DeviceStatus(1, "OK", 165 * MB, 0.5)
IDLE = DeviceStatus(1, "OK", 165 * MB, 0.0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_SMI_DIR", str(tmp_path / "smi" / "devices"))
    monkeypatch.setattr(status, "_warned", False)
    return tmp_path / "smi" / "devices"


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_published_status_is_read(folder: Path) -> None:
    publisher = Publisher()
    assert read_all() == []
    publisher.publish([BUSY])
    (found,) = read_all()
    assert (found.pid, found.devices) == (os.getpid(), (BUSY,))
    assert found.name == Path("/proc/self/comm").read_text().strip()
    assert abs(found.updated - time.time()) < 2
    assert folder.stat().st_mode & 0o777 == 0o700
    assert only_file(folder).name.startswith(f"{os.getpid()}-")  # no temporary file stays
    publisher.close()
    assert (read_all(), list(folder.iterdir())) == ([], [])


def test_a_running_call_is_busy_for_any_time(folder: Path) -> None:
    publisher = Publisher()
    publisher.publish([IDLE], force=True)
    with publisher.computing(lambda: [BUSY]):
        edit(only_file(folder), updated=1.0)
        assert [found.devices for found in read_all()] == [(replace(BUSY, host_busy=1.0),)]
    publisher.publish([BUSY])  # at once, even directly after another write
    (found,) = read_all()
    assert json.loads(only_file(folder).read_text())["computing"] is False
    assert 0 < found.devices[0].host_busy <= 1
    edit(only_file(folder), updated=1.0)
    assert [found.devices for found in read_all()] == [(IDLE,)]


def test_a_failed_call_ends(folder: Path) -> None:
    publisher, devices = Publisher(), [BUSY]

    def lose() -> None:
        with publisher.computing(lambda: devices):
            devices[0] = replace(BUSY, health="DEVICE_LOST", utilisation=0.0)
            raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        lose()
    (found,) = read_all()
    assert json.loads(only_file(folder).read_text())["computing"] is False
    assert (found.devices[0].health, found.devices[0].host_busy) == ("DEVICE_LOST", 0.0)


def test_short_calls_are_counted_and_not_announced(folder: Path) -> None:
    publisher = Publisher()
    with publisher.computing(lambda: [BUSY]):
        pass
    publisher.publish([IDLE])
    written = only_file(folder).stat().st_mtime_ns
    for _ in range(3):
        with publisher.computing(lambda: [BUSY]):
            pass
    assert only_file(folder).stat().st_mtime_ns == written
    publisher.publish([BUSY], force=True)
    (found,) = read_all()
    assert 0 < found.devices[0].host_busy <= 1


def test_a_file_without_the_hosts_time_is_read(folder: Path) -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    content = json.loads(only_file(folder).read_text())
    del content["computing"], content["devices"][0]["host_busy"]
    only_file(folder).write_text(json.dumps(content))
    assert [found.devices for found in read_all()] == [(BUSY,)]


def test_close_is_final_and_may_be_repeated(folder: Path) -> None:
    publisher = Publisher()
    publisher.close()
    publisher.publish([BUSY], force=True)
    publisher.close()
    assert not folder.exists()


@pytest.mark.slow
def test_a_dropped_publisher_removes_its_file(folder: Path) -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    assert only_file(folder)
    del publisher
    gc.collect()
    assert list(folder.iterdir()) == []


def test_two_publishers_of_one_process_are_independent() -> None:
    first, second = Publisher(), Publisher()
    first.publish([BUSY])
    second.publish([DeviceStatus(2, "OK", MB, 0.0)])
    assert sorted(found.devices[0].index for found in read_all()) == [1, 2]
    first.close()
    assert [found.devices[0].index for found in read_all()] == [2]
    second.close()


def test_at_most_five_writes_a_second_unless_forced() -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    publisher.publish([])
    assert read_all()[0].devices == (BUSY,)
    publisher.publish([], force=True)
    assert read_all()[0].devices == ()
    time.sleep(0.21)
    publisher.publish([BUSY])
    assert read_all()[0].devices == (BUSY,)
    publisher.close()


def test_publishing_costs_little() -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    start = time.process_time()
    for _ in range(10_000):
        publisher.publish([BUSY])
    assert time.process_time() - start < 0.1, "more than 10 us a call"
    publisher.close()


def test_numpy_scalars_are_accepted() -> None:
    publisher = Publisher()
    publisher.publish([DeviceStatus(np.int64(1), "OK", np.int64(165 * MB), np.float32(0.5))])  # type: ignore[arg-type]
    assert read_all()[0].devices == (BUSY,)
    publisher.close()


def test_threads_may_share_a_publisher(folder: Path) -> None:
    publisher = Publisher()

    def work() -> None:
        for _ in range(50):
            publisher.publish([BUSY], force=True)
            assert [found.devices for found in read_all()] == [(BUSY,)]

    failures: list[Any] = []
    hook, threading.excepthook = threading.excepthook, failures.append
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    threading.excepthook = hook
    assert failures == []
    publisher.close()
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_created_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TECO_SMI_DIR", str(tmp_path / "file" / "devices"))
    with caplog.at_level(logging.WARNING):
        for publisher in (Publisher(), Publisher()):
            publisher.publish([BUSY])
            publisher.publish([BUSY], force=True)
            publisher.close()
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith("teco-smi will not show this process: ")
    assert str(tmp_path / "file") in caplog.messages[0]


def test_a_deleted_folder_is_recreated(folder: Path) -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    only_file(folder).unlink()
    folder.rmdir()
    publisher.publish([BUSY], force=True)
    assert len(read_all()) == 1
    publisher.close()


# ------------------------------------------------------------------------------------------------------ many processes


def test_ended_processes_remove_their_file(folder: Path) -> None:
    with publishing(folder) as first, publishing(folder) as second:
        first.publish((0, "OK", MB, 1.0))
        second.publish((0, "HEARTBEAT_ERROR", 2 * MB, 0.25), (3, "OK", 0, 0.0))
        assert [found.pid for found in read_all()] == sorted([first.pid, second.pid])
        first.end()
        (left,) = read_all()
        assert (left.pid, left.devices) == (
            second.pid,
            (DeviceStatus(0, "HEARTBEAT_ERROR", 2 * MB, 0.25), DeviceStatus(3, "OK", 0, 0.0)),
        )
        assert len(list(folder.iterdir())) == 1


def test_a_killed_process_disappears_before_its_parent_notices(folder: Path) -> None:
    with publishing(folder) as child:
        child.publish((0, "OK", MB, 1.0))
        file = only_file(folder)
        file.with_suffix(".tmp").write_text('{"schema_ver')  # killed while it wrote
        assert len(read_all()) == 1
        child.kill()
        assert read_all() == []
        assert list(folder.iterdir()) == []


def test_a_process_number_given_to_another_process_is_noticed(folder: Path) -> None:
    with publishing(folder) as child:
        child.publish((0, "OK", MB, 1.0))
        file = only_file(folder)
        start = json.loads(file.read_text())["start_time"]
        edit(file, start_time=start - 1)
        assert read_all() == []
        assert not file.exists()


def test_a_forked_child_neither_writes_nor_removes_its_parents_file(folder: Path) -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    pid = os.fork()
    if pid == 0:
        publisher.publish([DeviceStatus(2, "OK", MB, 0.0)], force=True)
        found = {status.pid: status.devices[0].index for status in read_all()}
        publisher.close()
        os._exit(0 if found == {os.getppid(): 1, os.getpid(): 2} else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert [found.devices for found in read_all()] == [(BUSY,)]
    publisher.close()
    assert list(folder.iterdir()) == []


def test_an_idle_process_keeps_its_memory_without_computing(folder: Path) -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    for updated in (time.time() - 2.5, time.time() + 3600):  # the second: the host's clock was set back
        edit(only_file(folder), updated=updated)
        (found,) = read_all()
        assert found.devices == (DeviceStatus(1, "OK", 165 * MB, 0.0),)
    publisher.close()


# --------------------------------------------------------------------------------------------------------- bad content


DEVICE = {"index": 0, "health": "OK", "memory_used": 1, "utilisation": 0.5}

BAD: list[dict[str, Any]] = [
    {"schema_version": 2},
    {"pid": 1},
    {"pid": float("inf")},
    {"devices": None},
    {"devices": [1]},
    {"devices": [{**DEVICE, "index": -1}]},
    {"devices": [{**DEVICE, "index": 10**9}]},
    {"devices": [{**DEVICE, "memory_used": -1}]},
    {"devices": [{**DEVICE, "memory_used": "much"}]},
    {"devices": [{**DEVICE, "utilisation": float("nan")}]},
    {"devices": [{**DEVICE, "host_busy": float("inf")}]},
    {"devices": [{**DEVICE, "health": "FINE"}]},
    {"devices": [{**DEVICE, "health": ["OK"]}]},
    {"name": 3},
    {"updated": None},
]


def test_an_incomplete_file_is_skipped_and_unchanged(folder: Path) -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    file = only_file(folder)
    good = file.read_bytes()
    for changes in BAD:
        file.write_bytes(good)
        edit(file, **changes)
        assert read_all() == [], changes
    for cut in range(0, len(good), 7):
        file.write_bytes(good[:cut])
        assert read_all() == []
    file.write_bytes(b"[" * 100_000)
    assert read_all() == []
    file.write_bytes(good)
    assert len(read_all()) == 1
    publisher.close()


@pytest.mark.slow
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: json.dumps(text).encode())))
def test_any_content_can_be_read(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / f"{os.getpid()}-0.json").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TECO_SMI_DIR", str(folder))
        assert read_all() == []


def test_other_files_in_the_folder_stay(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("0-0.json", "notes.txt", "99999999999-0.json.bak", "x-1.json"):
        (folder / name).write_text("{}")
    (folder / "999999999999999999999-0.json").write_text("{}")  # no such process can be
    assert read_all() == []
    assert sorted(p.name for p in folder.iterdir()) == ["0-0.json", "99999999999-0.json.bak", "notes.txt", "x-1.json"]


# --------------------------------------------------------------------------------------------------------- the folder


def test_the_folder_belongs_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TECO_SMI_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own = tmp_path / f"tecoinfer-{os.getuid()}"
    assert directory() == own / "devices"
    assert read_all() == []
    publisher = Publisher()
    publisher.publish([BUSY])
    assert len(read_all()) == 1
    assert (own.stat().st_mode & 0o777, (own / "devices").stat().st_mode & 0o777) == (0o700, 0o700)
    publisher.close()


def test_without_a_runtime_folder_the_temporary_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TECO_SMI_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert directory() == tmp_path / f"tecoinfer-{os.getuid()}" / "devices"


def test_a_folder_that_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TECO_SMI_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own = tmp_path / f"tecoinfer-{os.getuid()}"
    (own / "devices").mkdir(parents=True)
    own.chmod(0o777)
    Publisher().publish([BUSY])
    assert "only this user can write; set TECO_SMI_DIR" in caplog.text
    assert list((own / "devices").iterdir()) == []
    with pytest.raises(ConfigError, match=r"this user can write; .*TECO_SMI_DIR"):
        read_all()


@pytest.mark.parametrize("text", ["0", "65", "", "two", "-1", "1.5", "²"])
def test_an_invalid_number_of_cards(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_CARDS", text)
    with pytest.raises(ConfigError, match=r"TECO_SIM_CARDS=.* from 1 to 64"):
        card_count()


def test_the_number_of_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TECO_SIM_CARDS", raising=False)
    assert card_count() == 1
    monkeypatch.setenv("TECO_SIM_CARDS", "3")
    assert card_count() == 3


@pytest.mark.parametrize(
    "change",
    [
        {"name": 3},
        {"name": "\ud800"},
        {"pid": True},
        {"pid": 1e300},
        {"updated": None},
        {"updated": float("nan")},
        {"start_time": "x"},
        {"start_time": [1]},
        {"devices": {"index": 0}},
        {"devices": [3]},
        *(
            {"devices": [{"index": 0, "health": "OK", "memory_used": 5, "utilisation": 0.5, key: value}]}
            for key, values in {
                "index": (True, 0.5, -1, "0"),
                "memory_used": (2**70, None),
                "utilisation": ("much", float("inf")),
                "health": (["OK"],),
                "host_busy": ([],),
            }.items()
            for value in values
        ),
    ],
)
def test_a_status_of_wrong_types_is_left_out(folder: Path, change: dict[str, Any]) -> None:
    publisher = Publisher()
    publisher.publish([BUSY])
    file = only_file(folder)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert read_all() == []
    publisher.close()


def test_special_files_are_refused_at_once(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    for name in (f"{os.getpid()}-7.json", "1-1.tmp"):
        os.mkfifo(folder / name)
    (folder / f"{os.getpid()}-8.json").symlink_to("/dev/zero")
    assert read_all() == []
