"""Functions that ranks run in tests of failures."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tccl_ranks import join
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def killed(victim: int, how: str) -> None:
    """Train until a rank is killed; the others continue as before."""
    rank, _ = join()
    model = DistributedDataParallel(nn.Linear(512, 512).to("sdaa"), device_ids=[rank], bucket_cap_mb=0.2)
    x = torch.ones(4, 512, device="sdaa")
    for step in range(400):
        if rank == victim and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "ddp":
            model(x).sum().backward()
        elif how == "barrier":
            dist.barrier(device_ids=[rank])
        elif how == "receive":
            dist.broadcast(x, 0) if rank != victim or step < 3 else None
            if rank == 0 and step == 3:
                dist.recv(x, victim)
        else:
            dist.all_reduce(x)


def killed_before(what: str) -> None:
    """Continue without a rank that was killed: with a new group, or with tensors of the CPU."""
    rank, _ = join(None)
    dist.all_reduce(torch.ones(1, device="sdaa"))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "group":
        time.sleep(1)
        dist.new_group()
    else:
        dist.all_reduce(torch.ones(1))


def other_sizes() -> str:
    """Return the errors of ranks started with different numbers of ranks."""
    rank = os.environ["RANK"]
    os.environ.update(WORLD_SIZE="2" if rank == "0" else "3")
    try:
        join()
    except ValueError as error:
        return str(error)
    return ""


def listening(port: int) -> list[str]:
    """Return the addresses on which this rank listens, in the kernel's form, after two groups on one port."""
    url, ended = f"tcp://127.0.0.1:{port}", Path("ended")
    torch.sdaa.set_device(int(os.environ["RANK"]))
    for again in range(2):
        while again and os.environ["RANK"] == "1" and not ended.exists():
            time.sleep(0.01)  # where rank 0 still served the first group, torch would find that one's addresses
        dist.init_process_group(None, init_method=url, rank=int(os.environ["RANK"]), world_size=2)
        dist.all_reduce(torch.ones(1, device="sdaa"))
        own = {os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink() and entry.exists()}
        texts = [Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
        lines = [line.split() for text in texts for line in text.splitlines()]
        mine = [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own]
        found = sorted({address.partition(":")[0] for address in mine})
        dist.barrier()
        dist.destroy_process_group()
        if os.environ["RANK"] == "0":
            ended.touch()
    return found


def killed_while_joining(victim: int) -> None:
    """Join, with a rank that ends after it has registered."""
    from torch_sdaa.distributed import backend

    if int(os.environ["RANK"]) == victim:
        backend._check_devices = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    elif int(os.environ["RANK"]) == 3:
        time.sleep(2)
    join()
    dist.all_reduce(torch.ones(1, device="sdaa"))


def ended_early() -> None:
    """Continue after rank 1 has ended successfully."""
    rank, _ = join()
    dist.all_reduce(torch.ones(1, device="sdaa"))
    if rank == 1:
        return
    dist.all_reduce(torch.ones(1, device="sdaa"))


def caught() -> str:
    """Return the error of a rank that lost another, and whether it can continue alone."""
    rank, _ = join()
    x = torch.ones(4, device="sdaa")
    dist.all_reduce(x)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    said = ""
    try:
        dist.all_reduce(x)
    except dist.DistBackendError as error:
        said = str(error)
    assert float((x * 0 + 1).sum()) == 4
    return said


def joining(_: Any, kind: str) -> str:
    """Return the error of a rank that waits for one that never comes."""
    assert kind == "alone"
    try:
        dist.init_process_group(
            "tccl", init_method=f"file://{os.getcwd()}/store", rank=0, world_size=2, timeout=timedelta(seconds=1)
        )
    except dist.DistError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def seen() -> list[int]:
    """Return the devices of the host that ``teco-smi`` shows in use while two ranks of two visible devices work."""
    from engine.sdaa.status import read_all

    rank, _ = join()
    x = torch.ones(1 << 20, device="sdaa")
    until, found = time.monotonic() + 20, set()
    while len(found) < 2 and time.monotonic() < until:
        dist.all_reduce(x, dist.ReduceOp.AVG)
        found = {device.index for process in read_all() for device in process.devices}
    dist.barrier(device_ids=[rank])
    return sorted(found)


def crowd() -> str:
    """Return the error of five ranks on four devices."""
    try:
        join()
    except ValueError as error:
        return str(error)
    return ""


def mp_rank(rank: int, size: int, port: int, victim: int) -> None:
    """Run a rank of ``torch.multiprocessing.spawn``, with a store in its parent."""
    import torch_sdaa  # noqa: F401

    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.sdaa.set_device(rank)
    dist.init_process_group("tccl", rank=rank, world_size=size)
    x = torch.ones(2, device="sdaa")
    for step in range(100):
        if rank == victim and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(x, dist.ReduceOp.AVG)
    sys.stdout.write(f"{rank} {x.tolist()}\n")
    dist.destroy_process_group()


def store_gone() -> str:
    """Return the outcome of a rank that confirms a read to a store whose host process has ended."""
    from torch_sdaa.distributed import roll

    holder = dist.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)
    store = dist.TCPStore("127.0.0.1", holder.port, 2, False, wait_for_workers=False)
    store.set("there", "")
    del holder
    for number in (1, 0, 1):  # the first message may still be taken by the system
        roll.part(store, number, "read", ["read", "never"])
    try:
        store.check(["read"])
    except dist.DistError:
        return "gone"
    return "there"
