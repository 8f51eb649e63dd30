from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from engine.host.cores import Slots, host_slots, smallest_quota, usable_cores


def group(root: Path, path: str, **files: str) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def test_cgroup_v2_takes_the_smallest_quota_on_the_way_up(tmp_path: Path) -> None:
    group(tmp_path, "a", cpu__max="150000 100000\n")
    group(tmp_path, "a/b", cpu__max="max 100000\n")
    assert smallest_quota(tmp_path, "0::/a/b\n") == 1.5
    group(tmp_path, "a/b", cpu__max="50000 100000\n")
    assert smallest_quota(tmp_path, "0::/a/b\n") == 0.5


def test_cgroup_v1(tmp_path: Path) -> None:
    group(tmp_path, "cpu/x", cpu__cfs_quota_us="200000\n", cpu__cfs_period_us="100000\n")
    assert smallest_quota(tmp_path, "3:memory:/x\n2:cpu,cpuacct:/x\n") == 2.0
    group(tmp_path, "cpu/x", cpu__cfs_quota_us="-1\n")
    assert smallest_quota(tmp_path, "2:cpu,cpuacct:/x\n") is None


@pytest.mark.parametrize("own", ["", "0::/\n", "0::/../other\n", "5:memory:/x\n"])
def test_no_quota(tmp_path: Path, own: str) -> None:
    assert smallest_quota(tmp_path, own) is None


def test_the_cgroup_of_a_container_is_at_the_mount_point(tmp_path: Path) -> None:
    group(tmp_path, "", cpu__max="100000 100000")
    assert smallest_quota(tmp_path, "0::/../host/path\n") == 1.0


def test_at_least_one_core() -> None:
    assert usable_cores() >= 1
    assert host_slots() is host_slots()


def test_concurrency_is_limited_to_the_slots() -> None:
    slots, inside, most = Slots(2), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        for _ in range(20):
            with slots.taken():
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                with lock:
                    inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 2


def test_urgent_requests_are_first() -> None:
    slots, order = Slots(1), []

    def wait(name: str, urgent: bool) -> None:
        with slots.taken(urgent=urgent):
            order.append(name)

    with slots.taken():
        threads = []
        for name, urgent in (("first", False), ("second", False), ("urgent", True)):
            threads.append(threading.Thread(target=wait, args=(name, urgent)))
            threads[-1].start()
            time.sleep(0.02)  # each is waiting before the next one asks
    for thread in threads:
        thread.join()
    assert order == ["urgent", "first", "second"]
