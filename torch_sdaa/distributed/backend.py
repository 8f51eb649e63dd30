"""How a group of backend ``tccl`` is made: its ranks' roll is called, gloo joins them, the extension does the rest."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed
from torch.distributed import DistBackendError

from engine.sdaa import all_visible_devices
from tecoinfer_modelzoo.text import one_line
from torch_sdaa.distributed import roll
from torch_sdaa.loading.core import C

NAME = "tccl"
DEFAULT = "cpu:gloo,sdaa:tccl"
"""Backends of ``init_process_group()``: tensors of the host go over gloo itself."""

LOOPBACK = "127.0.0.1"


def register() -> None:
    """Make ``tccl`` a backend of ``torch.distributed``, and the one that is taken for the device."""
    distributed.Backend.register_backend(NAME, create, extended_api=True, devices=["sdaa"])
    torch.distributed.is_tccl_available = is_available
    if is_available():  # split_group copies them
        distributed.ProcessGroupGloo._Options.__deepcopy__ = _copied


def _copied(options: Any, _: Any) -> Any:
    made = distributed.ProcessGroupGloo._Options()
    for name in ("_timeout", "_devices", "_threads", "global_ranks_in_group", "group_name"):
        setattr(made, name, getattr(options, name))
    return made


def is_available() -> bool:
    """Return whether backend ``tccl`` can be used: it needs gloo, which carries it."""
    return bool(distributed.is_gloo_available())


def create(options: Any, _: Any = None) -> Any:
    """Return this rank's backend of a new group, once all its ranks have come.

    Args:
        options: torch's: the group's store, rank, size, timeout, and its ranks' numbers in the world.

    Raises:
        DistBackendError: a rank did not come, or cannot be reached. ValueError: there are more ranks than devices.
    """
    if not is_available():
        raise RuntimeError(
            "backend tccl is carried by gloo, which this torch was built without; install torch from PyPI"
        )
    rank, size = options.group_rank, options.group_size
    numbers = list(options.global_ranks_in_group) or list(range(size))
    members = roll.call(options.store, rank, numbers, options.timeout)
    _refuse_crowds(members)
    gloo_options = distributed.ProcessGroupGloo._Options()
    gloo_options._timeout = options.timeout
    gloo_options._devices = [_network(members)]
    gloo = _connected(options.store, rank, gloo_options, members)
    who = [(one.number, one.place, one.pid, one.began) for one in members]
    names = [str(number) for number in all_visible_devices()]
    launched = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return C.make_tccl(gloo, options.store, who, names, launched)


def _connected(store: Any, rank: int, options: Any, members: Sequence[roll.Member]) -> Any:
    """Return gloo's part, looking after the other ranks while it connects: gloo itself waits for the lost."""
    made: list[Any] = []

    def connect() -> None:
        try:
            inner = distributed.PrefixStore("tccl/gloo", store)
            made.append(distributed.ProcessGroupGloo(inner, rank, len(members), options))
        except Exception as error:  # noqa: BLE001 -- the other thread raises it
            made.append(error)

    thread = threading.Thread(target=connect, name="tccl", daemon=True)
    thread.start()
    thread.join(roll.LOOK)
    while thread.is_alive():
        roll.refuse_ended(members, "all ranks had connected")
        thread.join(roll.LOOK)
    if isinstance(made[0], Exception):
        roll.refuse_ended(members, "all ranks had connected")
        raise DistBackendError(
            f"tccl: rank {members[rank].number} cannot reach the others ({one_line(made[0])}); GLOO_SOCKET_IFNAME "
            "names the network interface that joins the hosts"
        )
    return made[0]


def _network(members: Sequence[roll.Member]) -> Any:
    """Return where gloo listens: on this host alone while all ranks are here and no interface is named."""
    if os.environ.get("GLOO_SOCKET_IFNAME") or len({one.place for one in members}) > 1:
        return distributed.ProcessGroupGloo.create_default_device()
    return distributed.ProcessGroupGloo.create_device(hostname=LOOPBACK)


def _refuse_crowds(members: Sequence[roll.Member]) -> None:
    """Refuse more ranks on a host than they see devices there."""
    for place, ranks in Counter(one.place for one in members).items():
        here = [one for one in members if one.place == place]
        devices = {number for one in here for number in one.devices}
        if ranks > len(devices):
            raise ValueError(
                f"{ranks} ranks on {here[0].host}, and {len(devices)} devices of sdaa there: one device a rank; start "
                f"at most {len(devices)} (torchrun --nproc_per_node {len(devices)}), or show more: "
                "SDAA_VISIBLE_DEVICES, and TECO_SIM_CARDS for more cards of 4"
            )
