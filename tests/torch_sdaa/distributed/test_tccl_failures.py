"""A lost rank ends the others with one line; invalid groups are errors before they wait."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from tccl_ranks import HERE, Host, hosted  # noqa: E402

import torch_sdaa  # noqa: E402, F401 -- compiles the extension where the cache has none

pytestmark = [pytest.mark.slow, pytest.mark.long]

FOLDER = str(HERE)
LIMIT = 30.0
"""Maximum seconds until the other ranks have ended after one was killed."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("ranks")) as host:
        yield host


def line(said: str) -> str:
    """Return the one line of a rank."""
    found = said.splitlines()
    assert len(found) == 1, said
    return found[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "victim", "how"),
    [(2, 1, "all_reduce"), (4, 2, "all_reduce"), (4, 0, "ddp"), (4, 3, "ddp"), (3, 1, "barrier"), (3, 1, "receive")],
)
def test_a_killed_rank_ends_the_others_in_one_line(ranks: Host, size: int, victim: int, how: str) -> None:
    began = time.monotonic()
    found = ranks(size, "tccl_failures:killed", victim, how, timeout=LIMIT)
    assert time.monotonic() - began < LIMIT
    for rank, one in enumerate(found):
        if rank == victim:
            assert one.code == -signal.SIGKILL
            continue
        assert one.code == 1
        said = line(one.said)
        assert re.match(
            rf"tccl: rank {rank} lost rank \d .*process \d+\) in \w+: that process has ended; see its", said
        )
        assert f"rank {victim} (process " in said  # where rank 0 held the store, others that ended may be named too


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("group", r"tccl: .*rank 1 \(process \d+\).* ended.*; see its last output"),
        (
            "cpu",
            r"tccl: rank [02] lost (rank 0 .*, )?rank 1 \(process \d+\).* in a collective on the CPU: that process ",
        ),
    ],
)
def test_a_rank_killed_before_a_new_group_or_a_collective_on_the_cpu(ranks: Host, what: str, said: str) -> None:
    found = ranks(3, "tccl_failures:killed_before", what, timeout=LIMIT)
    assert [one.code for one in found] == [1, -9, 1]
    for rank in (0, 2):  # rank 0 may have ended for it before rank 2 looks who has
        assert re.match(said, line(found[rank].said)), found[rank].said


def test_a_lost_store_does_not_hide_read_data(ranks: Host) -> None:
    assert ranks.values(1, "tccl_failures:store_gone") == ["gone"]


def test_different_world_sizes_are_an_error(ranks: Host) -> None:
    for said in ranks.values(3, "tccl_failures:other_sizes"):
        assert re.match(r"rank \d was started with WORLD_SIZE \d, and rank \d with \d:", said)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not say who listens where")
def test_ranks_of_one_host_listen_on_the_loopback_address_only(ranks: Host) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = ranks(2, "tccl_failures:listening", port)
    assert [one.value for one in found] == [["0100007F"]] * 2, found


def test_a_rank_killed_while_the_others_join(ranks: Host) -> None:
    found = ranks(4, "tccl_failures:killed_while_joining", 1, timeout=LIMIT)
    assert [one.code for one in found] == [1, -9, 1, 1]
    for rank in (0, 2, 3):
        assert re.search(
            r"tccl: rank 1 \(process \d+\) ended before all ranks had (joined|connected);", found[rank].said
        )


def test_a_rank_ends_before_the_others(ranks: Host) -> None:
    first, second = ranks(2, "tccl_failures:ended_early", timeout=LIMIT)
    assert second.code == 0
    assert line(first.said).startswith("tccl: rank 0 lost rank 1 ")


def test_a_lost_rank_can_be_caught(ranks: Host) -> None:
    first, second = ranks(2, "tccl_failures:caught", timeout=LIMIT)
    assert (first.code, second.code) == (0, -9)
    assert first.value.startswith("tccl: rank 0 lost rank 1 ")


def test_more_ranks_than_devices_is_an_error(ranks: Host) -> None:
    for said in ranks.values(5, "tccl_failures:crowd"):
        assert re.match(r"5 ranks on \S+, .*4 sdaa devices.*--nproc_per_node 4", said)


# ---------------------------------------------------------------------------------------------------- bad input


TCCL = {"backend": "tccl"}
GOOD = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("env", "given", "said"),
    [
        ({}, {"backend": "nccl"}, "ValueError: backend 'nccl' is for other vendors' devices; on sdaa use 'tccl'"),
        ({}, {"backend": "cpu:gloo,sdaa:nccl"}, "ValueError: backend 'nccl' is for other vendors'"),
        ({}, {"backend": "hccl"}, "ValueError: backend 'hccl' is for other vendors'"),
        ({}, {"backend": "tcl"}, "ValueError: unknown backend 'tcl'; on sdaa use 'tccl'"),
        ({}, TCCL, "ValueError: environment variable WORLD_SIZE is not set:"),
        ({"WORLD_SIZE": "2"}, TCCL, "ValueError: environment variable RANK is not set"),
        ({**GOOD, "MASTER_ADDR": ""}, TCCL, "ValueError: environment variable MASTER_ADDR is not set"),
        ({**GOOD, "MASTER_PORT": ""}, TCCL, "ValueError: environment variable MASTER_PORT is not set"),
        ({**GOOD, "MASTER_PORT": "99999"}, TCCL, "ValueError: '99999' is not a port"),
        ({**GOOD, "MASTER_PORT": "http"}, TCCL, "ValueError: 'http' is not a port"),
        ({**GOOD, "WORLD_SIZE": "two"}, TCCL, "ValueError: WORLD_SIZE='two' is not an integer"),
        ({**GOOD, "RANK": "4", "WORLD_SIZE": "4"}, TCCL, "ValueError: rank 4 is out of range: with world"),
        ({**GOOD, "WORLD_SIZE": "0"}, TCCL, "ValueError: world_size is 0"),
        ({}, {**TCCL, "init_method": "tcp://127.0.0.1", "rank": 0, "world_size": 1}, "ValueError: '127.0.0.1' is"),
        ({}, {"backend": "tccl", "init_method": "file:///nowhere/x", "rank": 0}, "ValueError: world_size is missing"),
        (
            {**GOOD, "MASTER_ADDR": "no-such-host.invalid"},
            TCCL,
            "DistNetworkError: MASTER_ADDR 'no-such-host.invalid' cannot be resolved",
        ),
    ],
)  # fmt: skip
def test_invalid_rendezvous_is_an_error_before_waiting(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], given: dict[str, Any], said: str
) -> None:
    for name in GOOD:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((ValueError, RuntimeError)) as raised:
        dist.init_process_group(**given)
    text = f"{type(raised.value).__name__}: {raised.value}"
    assert text.startswith(said), text
    assert "\n" not in text


def test_a_port_in_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        for name, value in {**GOOD, "MASTER_PORT": str(taken.getsockname()[1])}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(dist.DistNetworkError, match=r"^port \d+ .*MASTER_PORT"):
            dist.init_process_group("tccl")


def test_a_second_initialization_is_an_error(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    dist.init_process_group("tccl", init_method=url, rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match=r"^init_process_group .* twice"):
            dist.init_process_group("tccl", init_method=url, rank=0, world_size=1)
    finally:
        dist.destroy_process_group()


def test_a_missing_rank_is_an_error(ranks: Host) -> None:
    [said] = ranks.values(1, "tccl_failures:joining", {}, "alone")
    assert re.match(r"DistBackendError: tccl: rank 0 waited 1 s for rank 1 of a group of 2; ", said)


# ------------------------------------------------------------------------------------------ other ways of starting


SCRIPT = """
import os, signal, sys, torch, torch_sdaa, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.sdaa.set_device(rank)
dist.init_process_group()
x = torch.full((2,), float(rank + 1), device="sdaa")
dist.all_reduce(x)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} on {x.device} sum {x[0].item()}\\n".encode())
for step in range(1000 if sys.argv[1:] else 0):
    if rank == 1 and step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x, dist.ReduceOp.AVG)
dist.destroy_process_group()
"""


def environment() -> dict[str, str]:
    found = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join((str(HERE.parents[2]), FOLDER))}
    return {
        **found,
        "TECO_CACHE_DIR": str(Path(str(sys.modules["_sdaa"].__file__)).parents[1]),
        "PYTHONWARNINGS": "ignore",
    }


def torchrun(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "train.py",
        *words,
    ]
    return subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.long
def test_torchrun(tmp_path: Path) -> None:
    done = torchrun(tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of 2 on sdaa:{r} sum 3.0" for r in (0, 1)]


@pytest.mark.long
def test_torchrun_with_a_killed_rank(tmp_path: Path) -> None:
    began = time.monotonic()
    done = torchrun(tmp_path, "kill")
    assert time.monotonic() - began < 2 * LIMIT  # starting python three times is in it
    assert done.returncode == 1
    assert "Signal 9 (SIGKILL)" in done.stderr
    lines = [text for text in done.stderr.splitlines() if text.startswith("tccl: ")]
    assert len(lines) <= 1  # torchrun may end rank 0 before it has said it
    assert all(text.startswith("tccl: rank 0 lost rank 1 ") for text in lines)


@pytest.mark.long
def test_spawn(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import tccl_failures

    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    torch.multiprocessing.spawn(tccl_failures.mp_rank, (2, store.port, -1), nprocs=2)
    assert sorted(capfd.readouterr().out.splitlines()) == ["0 [1.0, 1.0]", "1 [1.0, 1.0]"]
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    began = time.monotonic()
    with pytest.raises(Exception, match=r"process 1 .*SIGKILL|lost rank 1"):
        torch.multiprocessing.spawn(tccl_failures.mp_rank, (2, store.port, 1), nprocs=2)
    assert time.monotonic() - began < 2 * LIMIT


@pytest.mark.long
def test_every_rank_is_in_teco_smi_and_may_use_one_device(tmp_path: Path) -> None:
    env = {"TECO_SMI_DIR": str(tmp_path / "smi"), "SDAA_VISIBLE_DEVICES": "1,3"}
    with hosted(tmp_path / "ranks", env) as host:
        for found in host.values(2, "tccl_failures:seen"):
            assert found == [1, 3]


@pytest.mark.long
def test_torch_sdaa_imports_only_distributed_modules_that_torch_imports() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import torch_sdaa; "
        "print(sorted(m for m in set(sys.modules) - before if m.startswith('torch.distributed')))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
