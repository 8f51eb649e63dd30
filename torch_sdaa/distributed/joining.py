"""Checks before torch waits for other ranks, and its errors in one line with the fix."""

from __future__ import annotations

import errno
import functools
import importlib
import inspect
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch
from torch import distributed
from torch.distributed import DistBackendError, DistNetworkError, DistStoreError, device_mesh, distributed_c10d

from tecoinfer_modelzoo.text import one_line
from torch_sdaa.distributed import backend, roll
from torch_sdaa.sdaa.devices import is_available

START = "start the script with torchrun --nproc_per_node N script.py, which sets it, or set it"
OTHERS = ("nccl", "hccl", "cncl", "xccl")
"""Backends of other vendors' devices."""

_ACCELERATE_FSDP = ("ACCELERATE_USE_FSDP", "FSDP_OFFLOAD_PARAMS", "FSDP_STATE_DICT_TYPE")
"""Environment variables of accelerate: FSDP, its parameters in host memory, the form of its checkpoints."""

_served: set[int] = set()
"""Ports on which this process serves a store; torch serves several groups on one."""

_master = "localhost"
"""Host of rank 0 in the last ``init_process_group``; "" if unknown."""

rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
"""The module; the package has a function of this name."""

_PATIENCE = 3.0
"""Seconds to wait for a process to end after its connections have closed."""

_AFTER_LOSS = "see its last output, and start all ranks again from the last checkpoint"

_join: Any = None


def explain() -> None:
    """Wrap ``init_process_group`` and ``new_group`` with checks and clearer errors."""
    global _join
    _join = distributed_c10d.init_process_group
    for name, wrapped in (
        ("init_process_group", _checked_join(_join)),
        ("new_group", _local_new_group(distributed_c10d.new_group)),
    ):
        for module in (distributed, distributed_c10d, device_mesh):
            setattr(module, name, wrapped)


def _checked_join(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        global _master
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        options = given.arguments
        options["backend"] = _with_cpu_for_accelerate(_backend(options["backend"]))
        if "tccl" not in options["backend"].lower():
            original(*args, **kwargs)
            return
        _check_first_call()
        if options["store"] is None:
            _check_rendezvous(options)
        _master = _address(options)
        roll.forget()
        try:
            with _loopback():
                original(*given.args, **given.kwargs)
        except (DistNetworkError, DistStoreError, DistBackendError) as error:
            raise type(error)(_explained(error)) from None
        _name_default(distributed_c10d._get_default_group())
        _end_in_one_line()

    return init_process_group


def _with_cpu_for_accelerate(name: str) -> str:
    """Return a backend with gloo for CPU tensors where accelerate's FSDP needs it: accelerate adds it to nccl only."""
    asked = {key: os.environ.get(key, "").upper() for key in _ACCELERATE_FSDP}
    on, offload, state = asked.values()
    needed = on == "TRUE" and (offload == "TRUE" or state == "FULL_STATE_DICT")
    return backend.DEFAULT if name == "tccl" and needed else name


def _local_new_group(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        ranks = signature.bind(*args, **kwargs).arguments.get("ranks")
        if ended := [one for one in roll.lost() if ranks is None or one.number in ranks]:  # gloo would wait for them
            raise DistBackendError(f"tccl: new_group without {_names(ended)}, which has ended; {_AFTER_LOSS}")
        with _loopback():
            made = original(*args, **kwargs)
        _name_default(made)
        return made

    return new_group


def _name_default(group: Any) -> None:
    """Set the default backend of a group with both backends; torch does this only for its own pairs."""
    if isinstance(group, distributed.ProcessGroup) and {one.type for one in group._device_types} == {"cpu", "sdaa"}:
        group._set_default_backend(distributed.ProcessGroup.BackendType.GLOO)


def _backend(name: str | None) -> str:
    """Return the backend of a name; ``None`` selects the device's, if there is one.

    Raises:
        ValueError: it is another vendor's, or unknown.
    """
    if name is None:
        return backend.DEFAULT if is_available() else "undefined"
    words = str(name).lower()
    for pair in words.split(","):
        device, _, known = pair.rpartition(":")
        if known in OTHERS and device in ("", "sdaa") and not distributed.is_backend_available(known):
            raise ValueError(
                f"backend {known!r} is for other vendors' devices; on sdaa use 'tccl': init_process_group('tccl'), or "
                "no name"
            )
        if device == "" and known not in distributed.Backend.backend_list and ":" not in words:
            known_names = ", ".join(sorted({"gloo", "tccl"}))
            raise ValueError(f"unknown backend {str(name)!r}; on sdaa use 'tccl' (known: {known_names})")
    return words


def _check_first_call() -> None:
    if distributed.is_initialized():
        raise ValueError(
            "init_process_group was called twice in this process: call torch.distributed.destroy_process_group() "
            "before the second time, or new_group() for another group"
        )


# -------------------------------------------------------------------------------- checks before waiting for others


def _check_rendezvous(options: dict[str, Any]) -> None:
    """Check rank, host and port."""
    url = options["init_method"] or "env://"
    parts = urlparse(url)
    if parts.scheme not in ("env", "tcp", "file"):
        return
    query = dict(parse_qsl(parts.query))
    by_env = parts.scheme == "env"
    size = _number("world_size", options["world_size"], query, "WORLD_SIZE", by_env)
    rank = _number("rank", options["rank"], query, "RANK", by_env)
    if size < 1:
        raise ValueError(f"world_size is {size}; it must be the number of all processes, 1 or more")
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is out of range: with world_size {size}, ranks are 0 to {size - 1}")
    if parts.scheme == "file":
        return
    host = _variable("MASTER_ADDR") if by_env else parts.hostname or ""
    text = _variable("MASTER_PORT") if by_env else parts.netloc.rpartition(":")[2]
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) < 2**16):
        raise ValueError(f"{text!r} is not a port: MASTER_PORT (or tcp://host:port) must be a number from 1 to 65535")
    _reach(host, int(text), rank)


def _number(name: str, given: int, query: dict[str, str], variable: str, by_env: bool) -> int:
    if given != -1:
        return given
    text = query[name] if name in query else _variable(variable) if by_env else None
    if text is None:
        raise ValueError(f"{name} is missing: init_process_group(..., {name}=...)")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable}={text!r} is not an integer") from None


def _variable(name: str) -> str:
    found = os.environ.get(name)
    if not found:
        raise ValueError(f"environment variable {name} is not set: {START}")
    return found


def _reach(host: str, port: int, rank: int) -> None:
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise DistNetworkError(
            f"MASTER_ADDR {host!r} cannot be resolved ({error.strerror}); use the name or address of the host of rank "
            "0, or 127.0.0.1 for a single host"
        ) from None
    if rank or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" or port in _served:
        return
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise DistNetworkError(_in_use(port)) from None
    _served.add(port)


def _in_use(port: object) -> str:
    return (
        f"port {port} is in use on this host: set another MASTER_PORT for all ranks (torchrun: --master_port; any free "
        "one: --standalone)"
    )


def _explained(error: Exception) -> str:
    """Return torch's error in one line, with the fix if known."""
    text = one_line(error)
    if "EADDRINUSE" in text or "address already in use" in text:
        return _in_use(os.environ.get("MASTER_PORT", "of the store"))
    if "waiting for clients" in text:
        return (
            f"not all ranks have joined ({text}); start world_size processes with the same MASTER_ADDR and MASTER_PORT"
        )
    if ("timed out" in text and "connect" in text) or "onnection refused" in text:
        return f"no answer at MASTER_ADDR and MASTER_PORT ({text}); rank 0 must run there, with an open port"
    if "Failed to recv" in text or "Broken pipe" in text:
        return f"the process with the store, rank 0 or the launcher, has ended; see its last output ({text})"
    return text


def _address(options: dict[str, Any]) -> str:
    """Return the host of rank 0; "" if unknown: a shared file, or another kind of store."""
    store = options["store"]
    while isinstance(store, distributed.PrefixStore):
        store = store.underlying_store
    if store is not None:
        return str(getattr(store, "host", ""))
    parts = urlparse(options["init_method"] or "env://")
    if parts.scheme == "env":
        return os.environ.get("MASTER_ADDR", "")
    return parts.hostname or "" if parts.scheme == "tcp" else ""


@contextmanager
def _loopback() -> Iterator[None]:
    """Let gloo and the store of rank 0 listen only on this host if the address of rank 0 is a loopback address."""
    if _master not in ("localhost", "::1") and not _master.startswith("127."):
        yield
        return
    interfaces = {name for _, name in socket.if_nameindex()}
    named = os.environ.get("GLOO_SOCKET_IFNAME") or "lo" not in interfaces
    original = rendezvous._create_c10d_store
    rendezvous._create_c10d_store = functools.partial(_store, original)
    if not named:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        yield
    finally:
        rendezvous._create_c10d_store = original
        if not named:
            os.environ.pop("GLOO_SOCKET_IFNAME", None)


def _store(
    original: Any, hostname: str, port: int, rank: int, world_size: int, timeout: Any, use_libuv: bool = True
) -> Any:
    """Create the store; on rank 0 one that listens only on the given address, where torch's listens on all."""
    listener = None if rank or rendezvous._torchelastic_use_agent_store() else _listener(hostname, port)
    if listener is None:
        return original(hostname, port, rank, world_size, timeout, use_libuv)
    return distributed.TCPStore(
        hostname, port, world_size, True, timeout, multi_tenant=True, master_listen_fd=listener, use_libuv=use_libuv
    )


def _listener(hostname: str, port: int) -> int | None:
    """Return a listening socket for torch; ``None`` on failure: torch then raises, or shares a store."""
    family = socket.AF_INET6 if ":" in hostname else socket.AF_INET
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((hostname, port))
        made.listen(2**11)
    except OSError:
        made.close()
        return None
    return made.detach()


# ------------------------------------------------------------------------------------------------------- end


def _end_in_one_line() -> None:
    """Show the loss of a rank as one line instead of a traceback."""
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        text = str(error)
        detail = torch.distributed.get_debug_level() == torch.distributed.DebugLevel.DETAIL
        if isinstance(error, RuntimeError) and "gloo/transport/" in text:  # from the CPU part of a group
            text = _lost_by_gloo(text)
        if isinstance(error, RuntimeError) and text.startswith("tccl: ") and not detail:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        else:
            before(kind, error, trace)

    sys.excepthook = show


def _names(members: Sequence[roll.Member]) -> str:
    return ", ".join(f"rank {one.number} (process {one.pid})" for one in members)


def _lost_by_gloo(text: str) -> str:
    """Return gloo's error about a lost rank in the words of tccl; unchanged if no rank is known to have ended."""
    ended = roll.lost(patience=_PATIENCE)
    if not ended:
        return text
    rank = f"rank {distributed.get_rank()}" if distributed.is_initialized() else "this rank"
    return f"tccl: {rank} lost {_names(ended)} in a collective on the CPU: that process has ended; {_AFTER_LOSS}"
