"""Forms that a CUDA script may use, one check each; run in its own process, prints the name of each failure.

``python transfer_checks.py`` redirects by import. Names bound before the redirection begins are checked too.
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn, tensor as early_tensor, zeros as early_zeros
from torch.nn.utils.rnn import pack_sequence

EARLY_DEVICE = torch.device("cuda:1")
EARLY_TO = torch.Tensor.to
FAKE = {name: getattr(torch, name) for name in ("zeros", "device", "tensor", "Generator")}

from transfer_branches import BRANCHES  # noqa: E402

from torch_sdaa.contrib import transfer_to_sdaa  # noqa: E402

CHECKS: list[Callable[[], object]] = []
on = torch.device("sdaa", 0)


def check(function: Callable[[], object]) -> Callable[[], object]:
    CHECKS.append(function)
    return function


def is_on(x: Any, index: int = 0) -> bool:
    return str(x.device) == f"sdaa:{index}"


@check
def factories() -> bool:
    calls: list[Callable[..., Any]] = [
        *(lambda d, f=f: f(3, device=d) for f in (torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn)),
        *(lambda d, f=f: f(3, device=d) for f in (torch.arange, torch.eye, torch.randperm, torch.hann_window)),
        *(lambda d, f=f: f(torch.ones(2), device=d) for f in (torch.zeros_like, torch.rand_like, torch.tensor)),
        lambda d: torch.full((2,), 1.0, device=d),
        lambda d: torch.linspace(0, 1, 3, device=d),
        lambda d: torch.logspace(0, 1, 3, device=d),
        lambda d: torch.randint(0, 3, (2,), device=d),
        lambda d: torch.normal(0.0, 1.0, (2,), device=d),
        lambda d: torch.as_tensor([1.0], device=d),
        lambda d: torch.asarray([1.0], device=d),
        lambda d: torch.empty_strided((2,), (1,), device=d),
        lambda d: torch.tril_indices(2, 2, device=d),
        lambda d: torch.fft.fftfreq(4, device=d),
        lambda d: torch.signal.windows.hann(4, device=d),
        lambda d: torch.sparse_coo_tensor([[0]], [1.0], (2,), device=d),
        lambda d: torch.nested.nested_tensor([torch.ones(2)], device=d),
        lambda d: torch.ones(2).new_zeros(2, device=d),
        lambda d: torch.ones(2).new_tensor([1.0], device=d),
        lambda d: torch.ones(2).to(d),
        lambda d: torch.ones(2).to(device=d, dtype=torch.half),
        lambda d: nn.Linear(2, 2, device=d).weight,
        lambda d: nn.Linear(2, 2).to(d).weight,
        lambda d: nn.Linear(2, 2, device="meta").to_empty(device=d).weight,
        lambda d: torch.Generator(device=d),
        lambda d: torch.UntypedStorage(4, device=d),
        lambda d: early_zeros(2, device=d),
        lambda d: early_tensor([1.0], device=d),
        lambda d: EARLY_TO(torch.ones(1), d),
        lambda d: torch.hann_window(3, device=d),
    ]
    for number, call in enumerate(calls):
        for name, index in (("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), (torch.device("cuda", 1), 1)):
            if not is_on(call(name), index):
                raise AssertionError((number, name))
    return is_on(torch.zeros(1, device=EARLY_DEVICE), 1) and is_on(torch.ones(1).to(EARLY_DEVICE), 1)


@check
def devices() -> bool:
    same = torch.device("cuda") == torch.device("sdaa") and torch.device("cuda:1") == torch.device("cuda", 1)
    named = torch.device(type="cuda", index=1) == torch.zeros(1).cuda(1).device
    with torch.device("cuda"):
        inside = torch.zeros(1)
    return same and named and is_on(inside) and isinstance(torch.device("cuda"), torch.device)


@check
def identity_is_kept() -> bool:
    return all(getattr(torch, name) is value for name, value in FAKE.items())


@check
def comparisons() -> bool:
    x = torch.zeros(1, device="cuda")
    return (
        x.device.type == "cuda"
        and x.is_cuda
        and x.get_device() == 0
        and "sdaa" in repr(x)
        and str(x.device) == "sdaa:0"
    )


@check
def tensors_methods() -> bool:
    x = torch.ones(2)
    return all(
        is_on(each, index)
        for each, index in (
            (x.cuda(), 0),
            (x.cuda(1), 1),
            (x.cuda("cuda:1"), 1),
            (x.cuda(torch.device("cuda:1"), non_blocking=True), 1),
            (x.cuda(device=1), 1),
            (nn.Parameter(x).cuda(), 0),
            (x.type("torch.cuda.HalfTensor"), 0),
            (x.type(torch.cuda.DoubleTensor), 0),
            (x.to(x.cuda(1)), 1),
        )
    )


@check
def kinds() -> bool:
    x = torch.cuda.FloatTensor(2, 3).fill_(1)
    is_cuda = x.type() == "torch.cuda.FloatTensor" and isinstance(x, torch.cuda.FloatTensor)
    return (
        is_cuda
        and not isinstance(torch.ones(1), torch.cuda.FloatTensor)
        and torch.ones(1).type() == "torch.FloatTensor"
    )


@check
def modules() -> bool:
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    tied.cuda(1)
    return is_on(tied[0].weight, 1) and tied[1].weight is tied[0].weight and is_on(nn.LSTM(2, 2).cuda().weight_ih_l0)


@check
def packed_sequences_and_storages() -> bool:
    packed = pack_sequence([torch.ones(2)]).cuda()
    untyped, typed = torch.ones(2).untyped_storage().cuda(), torch.FloatStorage([1.0]).cuda(1)
    return (
        packed.is_cuda and untyped.is_cuda and typed.is_cuda and typed.device.index == 1 and not torch.ones(1).is_cuda
    )


@check
def streams_and_events() -> bool:
    side, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        begin.record()
        x = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        end.record(side)
    x.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize("cuda:0")
    return begin.elapsed_time(end) > 0 and isinstance(side, torch.cuda.Stream)


@check
def current_devices() -> bool:
    with torch.cuda.device(1):
        inside = torch.cuda.current_device(), str(torch.zeros(1, device="cuda").device)
    torch.cuda.set_device(torch.device("cuda:2"))
    after = torch.cuda.current_device()
    torch.cuda.set_device(0)
    return inside == (1, "sdaa:1") and after == 2 and torch.cuda.device_count() == 4


@check
def seeds() -> bool:
    torch.cuda.manual_seed_all(3)
    state = torch.cuda.get_rng_state("cuda:0")
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state, torch.device("cuda", 0))
    with torch.random.fork_rng(devices=[0], device_type="cuda"):
        second = torch.rand(3, device="cuda")
    third = torch.rand(3, device="cuda")
    return torch.equal(first, second) and torch.equal(first, third)


@check
def memory() -> bool:
    torch.cuda.reset_peak_memory_stats()
    x = torch.ones(1 << 20, device="cuda")
    free, total = torch.cuda.mem_get_info()
    used = (
        torch.cuda.memory_allocated(x.device) >= 1 << 22 and torch.cuda.memory.max_memory_allocated("cuda:0") >= 1 << 22
    )
    del x
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.25)
    refused(lambda: torch.empty(total // 2, dtype=torch.uint8, device="cuda"), torch.cuda.OutOfMemoryError)
    torch.cuda.set_per_process_memory_fraction(1.0, "cuda:0")
    return used and free < total and "MiB" in torch.cuda.memory_summary()


@check
def mixed_precision() -> bool:
    a = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda"), torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        first = (a @ a).dtype, torch.is_autocast_enabled(), torch.is_autocast_enabled("cuda")
    with torch.cuda.amp.autocast():
        second = (a @ a).dtype, torch.get_autocast_gpu_dtype()
    scalers = torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler(), torch.amp.GradScaler()
    scaled = [scaler.scale(a.sum()).item() for scaler in scalers if scaler.is_enabled()]
    return (
        first == (torch.bfloat16, True, True)
        and second == (torch.half, torch.half)
        and scaled == [16 * 65536.0] * 3
        and not torch.is_autocast_enabled()
        and torch.amp.is_autocast_available("cuda")
    )


@check
def custom_functions_cast_their_inputs() -> bool:
    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, x: Any) -> Any:
            ctx.kind = x.dtype
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    x = torch.ones(2, device="cuda", dtype=torch.half, requires_grad=True)
    with torch.autocast("cuda"):
        y = Twice.apply(x)
    y.sum().backward()
    return y.dtype == torch.float32 and x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def _saved_on_cuda(device: str = "cuda:1") -> io.BytesIO:
    """Return a file with a tensor that claims to have been saved on a device of CUDA."""
    taggers = torch.serialization._package_registry
    entry = (0, lambda storage: device, lambda storage, location: None)
    taggers.insert(0, entry)
    file = io.BytesIO()
    torch.save({"w": torch.ones(3), "n": 1}, file)
    taggers.remove(entry)
    file.seek(0)
    return file


@check
def checkpoints() -> bool:
    maps: list[tuple[Any, int]] = [
        (None, 1),
        ("cuda:0", 0),
        ("cuda", 0),
        (torch.device("cuda:2"), 2),
        ({"cuda:1": "cuda:3"}, 3),
        (lambda storage, location: storage.cuda(2), 2),
        (lambda storage, location: storage.cuda(2) if location == "cuda:1" else storage, 2),
    ]
    for place, index in maps:
        if not is_on(torch.load(_saved_on_cuda(), map_location=place)["w"], index):
            raise AssertionError(place)
    ours = io.BytesIO()
    torch.save({"w": torch.ones(3, device="cuda:1"), "d": torch.device("cuda")}, ours)
    ours.seek(0)
    found = torch.load(ours, map_location={"cuda:1": "cuda:2"}, weights_only=False)
    cpu = torch.load(_saved_on_cuda(), map_location="cpu")["w"]
    return is_on(found["w"], 2) and found["d"] == torch.device("cuda") and cpu.device.type == "cpu"


@check
def checkpoints_of_too_many_devices() -> bool:
    return "map_location='cuda:0'" in refused(lambda: torch.load(_saved_on_cuda("cuda:7")), RuntimeError)


@check
def devices_are_copied_and_pickled() -> bool:
    device = torch.device("cuda:1")
    return copy.deepcopy(device) == device == pickle.loads(pickle.dumps(device))  # noqa: S301


@check
def defaults() -> bool:
    torch.set_default_device("cuda")
    first = torch.zeros(1), nn.Linear(2, 2).weight
    torch.set_default_device(None)
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    second = torch.zeros(1)
    torch.set_default_tensor_type(torch.FloatTensor)
    return all(is_on(each) for each in (*first, second)) and torch.zeros(1).device.type == "cpu"


@check
def profiles() -> bool:
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as found, torch.profiler.record_function("mine"):
        torch.cuda.nvtx.range_push("pushed")
        (torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")).sum().item()
        torch.cuda.nvtx.range_pop()
    table = found.key_averages().table(sort_by="cuda_time_total", row_limit=20)
    return "SDAA" in table and "pushed" in table and "mine" in table


@check
def loaders() -> bool:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(
        data, 4, shuffle=True, pin_memory=True, num_workers=1, generator=torch.Generator("cpu").manual_seed(0)
    )
    return sum(batch.cuda(non_blocking=True).sum().item() for (batch,) in loader) == 28.0


@check
def settings_of_cudnn() -> bool:
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    return torch.backends.cudnn.benchmark


@check
def properties() -> bool:
    found = torch.cuda.get_device_properties("cuda:0")
    return found.total_memory > 0 and torch.cuda.get_device_name() == found.name and torch.cuda.is_bf16_supported()


@check
def checkpointed_layers_and_functional_transforms() -> bool:
    x = torch.rand(4, device="cuda", requires_grad=True)
    torch.utils.checkpoint.checkpoint(lambda y: (y * y).sum(), x, use_reentrant=False).backward()
    mapped = torch.func.vmap(lambda y: y + torch.ones((), device="cuda"))(x.detach())
    return torch.equal(x.grad, 2 * x.detach()) and is_on(mapped)


@check
def compiled_functions() -> bool:
    @torch.compile(backend="eager", fullgraph=True)
    def work(x: Any) -> Any:
        with torch.autocast("cuda", enabled=False):
            return x.to("cuda") + torch.ones(2, device="cuda")

    return work(torch.ones(2)).tolist() == [2.0, 2.0]


def refused(call: Callable[[], object], kind: type[Exception] = transfer_to_sdaa.NotOnSdaaError) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("was not refused")


@check
def refusals() -> bool:
    calls: list[Callable[[], object]] = [
        lambda: torch.cuda.CUDAGraph(),
        lambda: torch.cuda.graph(None),
        lambda: torch.cuda.make_graphed_callables(nn.Linear(1, 1), ()),
        lambda: torch.cuda.graphs.graph(None),
        lambda: torch.cuda.jiterator._create_jit_fn("", x=1),
        lambda: torch.cuda.nccl.all_reduce([]),
        lambda: torch.cuda.utilization(),
        lambda: torch.cuda.memory._record_memory_history(),
        lambda: torch.cuda.memory.memory_snapshot(),
        lambda: torch.cuda.MemPool(),
        lambda: torch.cuda.cudart().cudaProfilerStart(),
        lambda: torch.cuda.profiler.start(),
        lambda: __import__("torch.cuda.comm").cuda.comm.broadcast(None),
    ]
    for call in calls:
        line = refused(call)
        if "\n" in line or not line.startswith("transfer_to_sdaa cannot redirect torch.cuda."):
            raise AssertionError(line)
    return "DistributedDataParallel" in refused(lambda: nn.DataParallel(nn.Linear(1, 1)), RuntimeError)


@check
def extensions_with_kernels() -> bool:
    from torch.utils.cpp_extension import CUDAExtension, load, load_inline

    return all(
        "torch.library" in refused(call)
        for call in (
            lambda: load("x", ["a.cpp", "b.cu"]),
            lambda: load(name="x", sources=["b.cu"]),
            lambda: load_inline("x", "", cuda_sources="__global__"),
            lambda: CUDAExtension("x", ["a.cpp"]),
        )
    )


@check
def reports() -> bool:
    found = transfer_to_sdaa.report()
    names = {"torch.zeros", "torch.Tensor.to", "torch.Tensor.cuda", "torch.cuda.synchronize", "torch.load"}
    return names <= set(found["redirected"]) and "torch.cuda.CUDAGraph" in found["refused"]


CHECKS += BRANCHES


@check
def it_ends_and_begins_again() -> bool:
    kept = torch.ones(2).to
    transfer_to_sdaa.restore()
    transfer_to_sdaa.restore()
    x = torch.ones(2, device="sdaa")
    gone = (
        not torch.cuda.is_available()
        and x.device.type == "sdaa"
        and not x.is_cuda
        and "cuda" in str(torch.device("cuda"))
        and "cuda" not in str(x.device)
        and not torch.compile(lambda x: x + x.is_cuda, backend="eager")(torch.zeros(1, device="sdaa")).item()
    )
    still = torch.autocast.__init__.__module__ == "torch.amp.autocast_mode" and x.type() == "torch.sdaa.FloatTensor"
    transfer_to_sdaa.start()
    transfer_to_sdaa.start()
    return gone and still and is_on(kept("cuda")) and is_on(torch.zeros(1, device="cuda")) and torch.cuda.is_available()


def main() -> None:
    warnings.simplefilter("ignore", FutureWarning)
    for function in CHECKS:
        try:
            said = "" if function() else "is wrong"
        except Exception as error:  # noqa: BLE001 -- every check is to be run
            said = f"{type(error).__name__}: {error}"
        if said:
            sys.stdout.write(f"{function.__name__}: {said}\n")
    sys.stdout.write(f"{len(CHECKS)} checks\n")


if __name__ == "__main__":
    main()
