"""Creation of a group of backend ``tccl``: ranks register in the store, gloo connects them, the extension does the
rest.
"""

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
"""Backends of ``init_process_group()``: gloo for tensors of the host."""

LOOPBACK = "127.0.0.1"


def register() -> None:
    """Register ``tccl`` in ``torch.distributed``, as the backend of the device."""
    distributed.Backend.register_backend(NAME, create, extended_api=True, devices=["sdaa"])
    torch.distributed.is_tccl_available = is_available
    if is_available():  # split_group copies the options
        distributed.ProcessGroupGloo._Options.__deepcopy__ = _copied


def _copied(options: Any, _: Any) -> Any:
    made = distributed.ProcessGroupGloo._Options()
    for name in ("_timeout", "_devices", "_threads", "global_ranks_in_group", "group_name"):
        setattr(made, name, getattr(options, name))
    return made


def is_available() -> bool:
    """Return whether backend ``tccl`` can be used: it requires gloo."""
    return bool(distributed.is_gloo_available())


def create(options: Any, _: Any = None) -> Any:
    """Return this rank's backend of a new group, after all its ranks have joined.

    Args:
        options: torch's: store, rank, size and timeout of the group, and the global ranks.

    Raises:
        DistBackendError: a rank did not join, or cannot be reached. ValueError: there are more ranks than devices.
    """
    if not is_available():
        raise RuntimeError("backend tccl requires gloo, which this torch was built without; install torch from PyPI")
    rank, size = options.group_rank, options.group_size
    numbers = list(options.global_ranks_in_group) or list(range(size))
    members = roll.call(options.store, rank, numbers, options.timeout)
    _check_devices(members)
    gloo_options = distributed.ProcessGroupGloo._Options()
    gloo_options._timeout = options.timeout
    gloo_options._devices = [_network(members)]
    gloo = _connected(options.store, rank, gloo_options, members)
    who = [(one.number, one.place, one.pid, one.began) for one in members]
    names = [str(number) for number in all_visible_devices()]
    launched = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return C.make_tccl(gloo, options.store, who, names, launched)


def _connected(store: Any, rank: int, options: Any, members: Sequence[roll.Member]) -> Any:
    """Return the gloo group; check the other ranks while it connects, because gloo waits for lost ones."""
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
            f"tccl: rank {members[rank].number} cannot reach the others ({one_line(made[0])}); set "
            "GLOO_SOCKET_IFNAME to the network interface that connects the hosts"
        )
    return made[0]


def _network(members: Sequence[roll.Member]) -> Any:
    """Return where gloo listens: only on loopback if all ranks are on this host and no interface is set."""
    if os.environ.get("GLOO_SOCKET_IFNAME") or len({one.place for one in members}) > 1:
        return distributed.ProcessGroupGloo.create_default_device()
    return distributed.ProcessGroupGloo.create_device(hostname=LOOPBACK)


def _check_devices(members: Sequence[roll.Member]) -> None:
    """Raise ValueError if a host has more ranks than visible devices."""
    for place, ranks in Counter(one.place for one in members).items():
        here = [one for one in members if one.place == place]
        devices = {number for one in here for number in one.devices}
        if ranks > len(devices):
            raise ValueError(
                f"{ranks} ranks on {here[0].host}, which has {len(devices)} sdaa devices, one for each rank; start "
                f"at most {len(devices)} (torchrun --nproc_per_node {len(devices)}), or make more visible: "
                "SDAA_VISIBLE_DEVICES, and TECO_SIM_CARDS for more cards of 4"
            )
