"""Functions that ranks run in tests of collectives; each runs on every rank and returns values for its test."""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist
from tccl_ranks import join

SUM, AVG, MIN, MAX, PRODUCT = (getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MIN", "MAX", "PRODUCT"))
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
OPS = {"sum": SUM, "avg": AVG, "min": MIN, "max": MAX, "product": PRODUCT}


def _inputs(dtype: torch.dtype, size: int) -> list[torch.Tensor]:
    """Return each rank's input, small integers that every dtype adds and multiplies exactly."""
    made = torch.Generator().manual_seed(3)
    return [torch.randint(1, 4, (5, 3), generator=made).to(dtype) for _ in range(size)]


def _reduced(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    whole = torch.stack([part.to(torch.float64) for part in parts])
    made = {
        "sum": whole.sum(0),
        "avg": whole.mean(0),
        "min": whole.amin(0),
        "max": whole.amax(0),
        "product": whole.prod(0),
    }[name]
    return (
        made.trunc().to(parts[0].dtype)
        if name == "avg" and not parts[0].is_floating_point()
        else made.to(parts[0].dtype)
    )


def reductions() -> list[str]:
    """Return each (operation, dtype) with an unexpected result."""
    rank, size = join()
    wrong = []
    for dtype in (*FLOATS, *INTEGERS):
        parts = _inputs(dtype, size)
        for name, op in OPS.items():
            expected = _reduced(name, parts)
            x = parts[rank].to("sdaa")
            dist.all_reduce(x, op)
            y = parts[rank].to("sdaa")
            dist.reduce(y, size - 1, op)
            pieces = [parts[rank].to("sdaa") + k for k in range(size)]
            z = torch.empty(5, 3, dtype=dtype, device="sdaa")
            dist.reduce_scatter(z, pieces, op)
            w = torch.empty(5, 3, dtype=dtype, device="sdaa")
            dist.reduce_scatter_tensor(w, torch.cat(pieces), op)
            scattered = _reduced(name, [part + rank for part in parts])
            for what, got, want in (
                ("all_reduce", x, expected),
                ("reduce", y, expected if rank == size - 1 else y.cpu()),
                ("reduce_scatter", z, scattered),
                ("reduce_scatter_tensor", w, scattered),
            ):
                if not (got.device.type == "sdaa" and got.dtype == dtype and torch.equal(got.cpu(), want)):
                    wrong.append(f"{what} {name} {dtype}: {got.cpu().tolist()} not {want.tolist()}")
    flags = torch.tensor([rank == 0, False, True], device="sdaa")
    dist.all_reduce(flags, MAX)
    if flags.tolist() != [True, False, True]:
        wrong.append(f"bool {flags.tolist()}")
    scaled = torch.ones(3, device="sdaa")
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    if scaled.tolist() != [size / 2] * 3:
        wrong.append(f"premul {scaled.tolist()}")
    return wrong


def uneven() -> list[str]:
    """Return failures with lists of tensors of different sizes per rank, and errors of invalid calls."""
    rank, size = join()
    wrong = []
    for dtype in (*FLOATS, *INTEGERS):
        sent = [torch.full((other + rank, 2), rank * size + other).to("sdaa", dtype) for other in range(size)]
        got = [torch.empty(2, rank + other, dtype=dtype, device="sdaa").t() for other in range(size)]
        dist.all_to_all(got, sent)
        if any(not bool((part == other * size + rank).all()) for other, part in enumerate(got)):
            wrong.append(f"all_to_all {dtype}: {got}")
        parts = [torch.empty(other + 1, dtype=dtype, device="sdaa") for other in range(size)]
        dist.all_gather(parts, torch.full((rank + 1,), rank).to("sdaa", dtype))
        if [part.tolist() for part in parts] != [[other] * (other + 1) for other in range(size)]:
            wrong.append(f"all_gather {dtype}: {parts}")
        for name, op in OPS.items():
            pieces = [torch.full((other + 1,), rank + 1).to("sdaa", dtype) for other in range(size)]
            piece = torch.empty(rank + 1, dtype=dtype, device="sdaa")
            dist.reduce_scatter(piece, pieces, op)
            expected = _reduced(name, [torch.full((rank + 1,), other + 1).to(dtype) for other in range(size)])
            if not torch.equal(piece.cpu(), expected):
                wrong.append(f"reduce_scatter {name} {dtype}: {piece.tolist()}")
    x = torch.ones(2, device="sdaa")
    for call, said in (
        (lambda: dist.all_to_all([x], [x]), f"tccl: all_to_all has 1 outputs for {size} ranks"),
        (lambda: dist.all_gather([x[: k % 2] for k in range(size)], x), "the numbers must be equal"),
        (lambda: dist.all_reduce(x, dist.ReduceOp.BAND), "takes integers, not float"),
    ):
        try:
            call()
        except ValueError as error:
            text = str(error)
        else:
            text = ""
        if said not in text:
            wrong.append(f"{text!r} and not {said!r}")
    dist.all_reduce(x)  # the group goes on
    return wrong if x.tolist() == [size] * 2 else [*wrong, str(x)]


def movements() -> dict[str, Any]:
    """Return this rank's results of each collective that moves values."""
    rank, size = join()
    found: dict[str, Any] = {}
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        mine = torch.full((2,), rank + 1, device="sdaa").to(dtype)
        all_of_them = [torch.full((2,), r + 1).to(dtype) for r in range(size)]
        lists = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(lists, mine)
        into = torch.empty(2 * size, dtype=dtype, device="sdaa")
        dist.all_gather_into_tensor(into, mine)
        sent = torch.full((2,), 7 if rank == 1 else 0, device="sdaa").to(dtype)
        dist.broadcast(sent, 1)
        gathered = [torch.empty_like(mine) for _ in range(size)] if rank == 0 else None
        dist.gather(mine, gathered, 0)
        part = torch.empty_like(mine)
        dist.scatter(part, [t.to("sdaa") for t in all_of_them] if rank == 0 else None, 0)
        swapped = torch.empty(2 * size, dtype=dtype, device="sdaa")
        dist.all_to_all_single(swapped, torch.cat([mine] * size))
        outs = [torch.empty_like(mine) for _ in range(size)]
        dist.all_to_all(outs, [mine.clone() for _ in range(size)])
        right = [torch.equal(a.cpu(), b) for a, b in zip(lists, all_of_them, strict=True)]
        right += [torch.equal(into.cpu(), torch.cat(all_of_them)), torch.equal(part, mine)]
        right += [
            sent.cpu().tolist() == torch.full((2,), 7).to(dtype).tolist(),
            torch.equal(swapped.cpu(), torch.cat(all_of_them)),
        ]
        right += [torch.equal(a.cpu(), b) for a, b in zip(outs, all_of_them, strict=True)]
        if gathered is not None:
            right += [torch.equal(a.cpu(), b) for a, b in zip(gathered, all_of_them, strict=True)]
        found[str(dtype)] = all(right)
    uneven = torch.empty(sum(range(1, size + 1)), device="sdaa")
    dist.all_to_all_single(
        uneven,
        torch.full(((rank + 1) * size,), float(rank), device="sdaa"),
        [r + 1 for r in range(size)],
        [rank + 1] * size,
    )
    found["uneven"] = uneven.tolist() == [float(r) for r in range(size) for _ in range(r + 1)]
    return found


def between_two() -> dict[str, Any]:
    """Return results of sends and receives in a ring."""
    rank, size = join()
    right, left = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(3, device="sdaa")
    sending = dist.isend(torch.full((3,), float(rank), device="sdaa"), right)
    receiving = dist.irecv(got, left)
    while not receiving.is_completed():  # as a script that asks does
        pass
    receiving.wait()
    sending.wait()
    found: dict[str, Any] = {"ring": got.tolist() == [float(left)] * 3}
    if rank == 0:
        for peer in range(1, size):
            dist.send(torch.tensor([peer * 10], dtype=torch.int32, device="sdaa"), peer, tag=4)
        number = torch.zeros(1, device="sdaa")
        # a tag of its own: what a quick rank sends to its right next would be taken for the number of a slow one
        found["from"] = sorted((dist.recv(number, tag=5), int(number)) for _ in range(1, size))
    else:
        number = torch.zeros(1, dtype=torch.int32, device="sdaa")
        dist.recv(number, 0, tag=4)
        found["number"] = int(number) == rank * 10
        dist.send(torch.tensor([float(rank)], device="sdaa"), 0, tag=5)
    both = torch.zeros(2, device="sdaa")
    ops = [
        dist.P2POp(dist.isend, torch.full((2,), 5.0 + rank, device="sdaa"), right),
        dist.P2POp(dist.irecv, both, left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    found["batch"] = both.tolist() == [5.0 + left] * 2
    return found


def works() -> dict[str, Any]:
    """Return results of work objects, futures, coalescing, barriers and timeouts."""
    rank, size = join()
    x = torch.ones(1000, device="sdaa")
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    received: list[float] = []
    after = future.then(lambda done: done.value()[0] * 2)
    after.add_done_callback(lambda done: received.append(float(done.value()[0])))
    found: dict[str, Any] = {"waited": work.wait(), "done": work.is_completed(), "success": work.is_success()}
    future.wait()
    found["future"] = [t.device.type for t in future.value()] == ["sdaa"] and float(after.wait()[0]) == 2 * size
    found["result"] = float(work.result()[0][0]) == size
    a, b = torch.ones(3, device="sdaa"), torch.full((2,), 2.0, device="sdaa")
    with dist._coalescing_manager(device=torch.device("sdaa", rank)):
        dist.all_reduce(a)
        dist.all_reduce(b)
    dist.all_reduce_coalesced([c := torch.ones(2, device="sdaa"), d := torch.ones(3, device="sdaa")])
    found["coalesced"] = [a.tolist(), b.tolist(), c.tolist(), d.tolist()] == [
        [size] * 3,
        [2 * size] * 2,
        [size] * 2,
        [size] * 3,
    ]
    with dist._coalescing_manager(async_ops=True) as manager:
        e = torch.empty(size, device="sdaa")
        dist.all_gather_into_tensor(e, torch.tensor([float(rank)], device="sdaa"))
    manager.wait()
    found["gathered"] = e.tolist() == list(range(size))
    dist.barrier(device_ids=[rank])
    answer = dist.barrier(device_ids=[rank], async_op=True)
    found["barrier"] = answer.wait()
    return found


def groups() -> dict[str, Any]:
    """Return results of groups of some ranks, meshes and objects."""
    rank, size = join(device_id=torch.device("sdaa", int(__import__("os").environ["RANK"])))
    found: dict[str, Any] = {}
    evens = dist.new_group(list(range(0, size, 2)))
    if rank % 2 == 0:
        x = torch.ones(1, device="sdaa")
        dist.all_reduce(x, group=evens)
        found["evens"] = int(x)
    mine, _ = dist.new_subgroups(2)
    y = torch.tensor([rank], device="sdaa")
    dist.all_reduce(y, group=mine)
    found["pairs"] = int(y)
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    z = torch.tensor([rank], device="sdaa")
    dist.all_reduce(z, group=half)
    found["split"] = [int(z), dist.get_backend(half)]
    mesh = dist.device_mesh.init_device_mesh("sdaa", (2, size // 2), mesh_dim_names=("dp", "tp"))
    w = torch.tensor([rank], device="sdaa")
    dist.all_reduce(w, group=mesh.get_group("tp"))
    found["mesh"] = int(w)
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    found["objects"] = [o["rank"] for o in objects]
    received = [rank, "x"] if rank == 1 else [None, None]
    dist.broadcast_object_list(received, 1)
    found["received"] = received
    got: list[Any] = [None]
    dist.scatter_object_list(got, [[r] for r in range(size)] if rank == 0 else None, 0)
    found["got"] = got[0]
    everything = [None] * size if rank == 0 else None
    dist.gather_object(rank, everything, 0)
    found["everything"] = everything
    functional = torch.distributed._functional_collectives.all_reduce(
        torch.ones(2, device="sdaa"), "sum", dist.group.WORLD
    )
    found["functional"] = functional.tolist()
    dist.destroy_process_group()
    return found


def default_backends() -> dict[str, Any]:
    """Return the backend of a group without a backend's name."""
    join(None)
    on_host, on_device = torch.ones(2), torch.ones(2, device="sdaa")
    dist.all_reduce(on_host)
    dist.all_reduce(on_device)
    dist.barrier()
    config = dist.get_backend_config(dist.group.WORLD)
    return {"host": on_host.tolist(), "device": on_device.tolist(), "config": str(config), "name": dist.get_backend()}


def simulated(megabytes: int) -> dict[str, Any]:
    """Return the simulated times of a large all_reduce and of an independent product."""
    join()
    from torch_sdaa.reports.summaries import device_times

    device = torch.sdaa.current_device()
    x = torch.ones(megabytes << 18, device="sdaa")
    m = torch.ones(2048, 2048, device="sdaa")
    torch.sdaa.synchronize()
    before = device_times(device).now
    begin, middle, end = (torch.sdaa.Event(enable_timing=True) for _ in range(3))
    begin.record()
    work = dist.all_reduce(x, async_op=True)
    m @ m
    middle.record()
    work.wait()
    end.record()
    torch.sdaa.synchronize()
    after = device_times(device)
    return {
        "all": after.now - before,
        "product": begin.elapsed_time(middle) / 1e3,
        "both": begin.elapsed_time(end) / 1e3,
    }


def two_on_one() -> None:
    """Use the first device on every rank."""
    join()
    torch.sdaa.set_device(0)
    dist.all_reduce(torch.ones(1, device="sdaa"))


def mixed_devices() -> str:
    """Return the error for a list of tensors on two devices."""
    join()
    try:
        dist.all_gather([torch.ones(1, device="sdaa"), torch.ones(1)], torch.ones(1, device="sdaa"))
    except RuntimeError as error:
        return str(error)
    return ""


def sparse() -> str:
    """Return the error for a sparse tensor."""
    join()
    try:
        dist.all_reduce(torch.eye(3).to_sparse().to("sdaa"))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def late() -> str:
    """Return the error of a rank that waits for one that does not call."""
    rank, _ = join(timeout=datetime.timedelta(seconds=2))
    dist.all_reduce(torch.ones(1, device="sdaa"))
    if rank == 1:
        import time

        time.sleep(4)
        return ""
    try:
        dist.all_reduce(torch.ones(1, device="sdaa"))
    except dist.DistBackendError as error:
        return str(error)
    return ""


def late_wait() -> str:
    """Return the error of a wait with a time limit."""
    rank, _ = join()
    x = torch.ones(1, device="sdaa")
    if rank == 0:
        try:
            dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=0.2))
        except dist.DistBackendError as error:
            said = str(error)
        dist.barrier(device_ids=[0])
        return said
    import time

    time.sleep(1)
    dist.all_reduce(x)
    dist.barrier(device_ids=[rank])
    return ""
