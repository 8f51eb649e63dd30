"""Programs made from models: traced, scripted, exported, compiled, profiled."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import torch
from torch import nn

from tests.torch_sdaa.hard.check import alone, check, costly_check, images, network, same


@costly_check
def export_and_run() -> None:
    model, x = network().eval().to("sdaa"), images().to("sdaa")
    program = torch.export.export(model, (x,))
    same(program.module()(x), model(x))
    held = io.BytesIO()
    torch.export.save(program, held)
    held.seek(0)
    same(torch.export.load(held).module()(x), model(x))


@costly_check
def graphs_from_fake_tensors() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(2, 2, device="sdaa")
    graph = make_fx(lambda t: (t @ t).relu(), tracing_mode="fake")(x)
    same(graph(x), (x @ x).relu())


@costly_check
def symbolic_traces() -> None:
    model, x = network().eval().to("sdaa:1"), images().to("sdaa:1")
    same(torch.fx.symbolic_trace(model)(x), model(x))


@costly_check
def compiled_for_autograd() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = network().to("sdaa")
    x = images().to("sdaa")
    torch.compile(model, backend="aot_eager")(x).sum().backward()
    torch.manual_seed(0)
    plain = network()
    plain(images()).sum().backward()
    torch._dynamo.reset()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-6)  # type: ignore[union-attr]


@costly_check
def jit_traced_scripted_saved() -> None:
    model, x = network().eval().to("sdaa"), images().to("sdaa")
    wanted = model(x).cpu()
    for program in (torch.jit.trace(model, x), torch.jit.script(model)):
        same(program(x), wanted)
        held = io.BytesIO()
        torch.jit.save(program, held)
        held.seek(0)
        same(torch.jit.load(held, map_location="cpu")(x.cpu()), wanted)
        held.seek(0)
        same(torch.jit.load(held, map_location="sdaa:1")(x.to("sdaa:1")), wanted)


@costly_check
def onnx_from_a_model_on_the_device() -> None:
    """In its own process: PyTorch keeps an exported model's tensors alive, also those of the CPU."""
    code = """
import gc, io, logging, weakref
import onnx
from tests.torch_sdaa.hard.check import network, images
logging.getLogger("torch.onnx").setLevel(logging.ERROR)
kept = []
for device in ("cpu", "sdaa"):
    model, x = network().eval().to(device), images().to(device)
    tensors = [weakref.ref(t) for t in model.state_dict(keep_vars=True).values()]
    program, held = torch.onnx.export(model, (x,), dynamo=True, verbose=False), io.BytesIO()
    program.save(held)
    onnx.checker.check_model(onnx.load_from_string(held.getvalue()))
    del model, x, program
    gc.collect()
    kept.append(sum(tensor() is not None for tensor in tensors))
assert kept[0] == kept[1], kept
print("left")
"""
    assert alone(code).endswith("left")


@costly_check
def the_profiler_sees_the_device() -> None:
    from torch.profiler import ProfilerActivity, profile

    model, x = network().to("sdaa"), images(1).to("sdaa")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], record_shapes=True) as seen:
        model(x).sum().backward()
    names = {event.key for event in seen.key_averages()}
    assert {"aten::convolution", "aten::addmm"} <= names
    assert "SDAA" in seen.key_averages().table(row_limit=3).upper()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        assert json.loads(path.read_text())["traceEvents"]


@costly_check
def the_old_profiler_takes_the_device() -> None:
    with torch.autograd.profiler.profile(use_device="sdaa") as seen:
        torch.ones(3, device="sdaa") + 1
    assert "aten::add" in {event.key for event in seen.key_averages()}


@costly_check
def custom_operators_run_on_the_device() -> None:
    name = "hardcheck::scaled"
    if not hasattr(torch.ops.hardcheck, "scaled"):

        @torch.library.custom_op(name, mutates_args=())
        def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
            return x * by

        scaled.register_fake(lambda x, by: torch.empty_like(x))
        scaled.register_autograd(
            lambda ctx, grad: (grad * ctx.by, None),
            setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
        )
    x = torch.ones(3, device="sdaa:1", requires_grad=True)
    y = torch.ops.hardcheck.scaled(x, 3.0)
    y.sum().backward()
    assert y.device.index == 1
    same(x.grad, torch.full((3,), 3.0))


@check
def lazy_modules_move_first() -> None:
    lazy = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(2)).to("sdaa:1")
    y = lazy(torch.ones(1, 3, 5, 5, device="sdaa:1"))
    y.sum().backward()
    assert all(p.device.index == 1 and p.grad is not None for p in lazy.parameters())


@check
def meta_modules_become_real() -> None:
    with torch.device("meta"):
        layer = nn.Linear(2, 2)
    layer.to_empty(device="sdaa:2")
    layer.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    same(layer(torch.ones(1, 2, device="sdaa:2")), torch.ones(1, 2))


@check
def tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(9, 4)
            self.head = nn.Linear(4, 9, bias=False)
            self.head.weight = self.words.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.words(x))
            return out

    model = Tied()
    kept = model.words.weight
    model.to("sdaa")
    assert model.words.weight is model.head.weight is kept
    assert sum(1 for _ in model.parameters()) == 1
    model(torch.tensor([1, 2], device="sdaa")).sum().backward()
    assert model.head.weight.grad is not None
    model.cpu()
    assert model.words.weight is model.head.weight
