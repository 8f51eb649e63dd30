"""What ranks do in tests of what goes wrong."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from tccl_ranks import join
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def killed(victim: int, how: str) -> None:
    """Train until a rank is killed; the others go on as if it were there."""
    rank, size = join()
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


def killed_while_joining(victim: int) -> None:
    """Join, with a rank that ends after it has said who it is."""
    from torch_sdaa.distributed import backend

    if int(os.environ["RANK"]) == victim:
        backend._refuse_crowds = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    elif int(os.environ["RANK"]) == 3:
        time.sleep(2)
    join()
    dist.all_reduce(torch.ones(1, device="sdaa"))


def ended_early() -> None:
    """Go on after rank 1 has ended well."""
    rank, _ = join()
    dist.all_reduce(torch.ones(1, device="sdaa"))
    if rank == 1:
        return
    dist.all_reduce(torch.ones(1, device="sdaa"))


def caught() -> str:
    """Return what a rank catches that lost another, and whether it can go on alone."""
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


def joining(env: dict[str, str | None], **given: Any) -> str:
    """Return what ``init_process_group`` says with these variables and arguments; "" where it says nothing."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in env.items() if value is not None})
    options = {"timeout": timedelta(seconds=5), **given}
    try:
        dist.init_process_group(**options)
    except Exception as error:  # noqa: BLE001 -- whatever it says is looked at
        return f"{type(error).__name__}: {error}"
    if env.get("TWICE"):
        try:
            dist.init_process_group("tccl")
        except ValueError as error:
            return f"{type(error).__name__}: {error}"
    dist.destroy_process_group()
    return ""


def joining_each(cases: list[Any]) -> list[str]:
    """Return the same of several in one process."""
    return [joining(env, **given) for env, given in cases]


def crowd() -> str:
    """Return what five ranks on four devices are told."""
    try:
        join()
    except ValueError as error:
        return str(error)
    return ""


def mp_rank(rank: int, size: int, port: int, victim: int) -> None:
    """Be a rank of ``torch.multiprocessing.spawn``, with a store that its parent holds."""
    import torch_sdaa  # noqa: F401

    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.sdaa.set_device(rank)
    dist.init_process_group("tccl", rank=rank, world_size=size)
    x = torch.ones(2, device="sdaa")
    for step in range(100):
        if rank == victim and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(x, dist.ReduceOp.AVG)
    print(rank, x.tolist(), flush=True)
    dist.destroy_process_group()
