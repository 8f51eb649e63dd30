"""Autograd on the device: retained and double graphs, hooks, custom functions, modes, checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.torch_sdaa.hard.check import DEVICES, agree, check, images, network, refused, same


@check
def a_graph_that_is_kept() -> None:
    def work(device: str) -> object:
        x = torch.randn(4).to(device).requires_grad_()
        loss = (x.sin() * x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return x.grad

    agree(work, *DEVICES)
    x = torch.ones(2, device="sdaa", requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    refused(loss.backward, "second time")


@check
def derivatives_of_derivatives() -> None:
    def work(device: str) -> object:
        x = torch.randn(5).to(device).requires_grad_()
        first = torch.autograd.grad((x**4).sum() + x.sigmoid().prod(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)[0]
        return [first, second, torch.autograd.grad(second.sum(), x)]

    agree(work, "sdaa:0", "sdaa:1")


@check
def a_gradient_penalty_trains() -> None:
    def work(device: str) -> object:
        critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
        x = torch.randn(6, 4).to(device).requires_grad_()
        slope = torch.autograd.grad(critic(x).sum(), x, create_graph=True)[0]
        (slope.norm(dim=1) - 1).pow(2).mean().backward()
        return [p.grad for p in critic.parameters() if p.grad is not None]

    agree(work)


@check
def gradcheck_passes() -> None:
    x = torch.randn(3, 3, dtype=torch.float64, device="sdaa", requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: (t @ t).tanh(), (x,))
    assert torch.autograd.gradgradcheck(lambda t: (t * t).sin().sum(), (x,))


@check
def hooks_of_tensors_and_modules() -> None:
    seen: list[str] = []
    layer = nn.Linear(3, 2).to("sdaa:1")
    layer.register_forward_pre_hook(lambda _m, args: seen.append(f"pre {args[0].device}"))
    layer.register_forward_hook(lambda _m, _a, out: seen.append(f"out {out.device}"))
    layer.register_full_backward_hook(lambda _m, grads, _o: seen.append(f"back {grads[0].device}"))
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(f"grad {p.grad.device}"))
    x = torch.ones(1, 3, device="sdaa:1", requires_grad=True)
    y = layer(x)
    y.register_hook(lambda grad: grad * 2)
    y.sum().backward()
    assert sorted(seen) == ["back sdaa:1", "grad sdaa:1", "out sdaa:1", "pre sdaa:1"]
    same(layer.bias.grad, torch.full((2,), 2.0))


@check
def hooks_for_several_gradients() -> None:
    calls: list[int] = []
    a = torch.ones(2, device="sdaa", requires_grad=True)
    b = torch.ones(2, device="sdaa", requires_grad=True)
    handle = torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: calls.append(len(grads)))
    (a * b).sum().backward()
    handle.remove()
    assert calls == [2]


@check
def saved_tensors_on_the_cpu() -> None:
    def work(device: str) -> object:
        x = torch.randn(4).to(device).requires_grad_()
        with torch.autograd.graph.save_on_cpu(pin_memory=device != "cpu"):
            y = x.exp() * x.cos()
        y.sum().backward()
        return x.grad

    agree(work, "sdaa:2")


@check
def saved_tensors_through_hooks() -> None:
    packed: list[str] = []

    def pack(t: Tensor) -> Tensor:
        packed.append(t.device.type)
        return t.clone()

    x = torch.ones(3, device="sdaa", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = (x.exp() * 2).sum()
    y.backward()
    assert packed == ["sdaa"]
    same(x.grad, 2 * torch.ones(3).exp())


class Cube(torch.autograd.Function):
    """Cubes, with a custom derivative that can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable()
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


@check
def a_function_of_ones_own() -> None:
    def work(device: str) -> object:
        x = torch.randn(4).to(device).requires_grad_()
        first = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)[0]
        return [first, torch.autograd.grad(first.sum(), x)]

    agree(work, *DEVICES)


class Halved(torch.autograd.Function):
    """Doubles, regardless of autocast."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="sdaa", cast_inputs=torch.float32)
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="sdaa")
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


@check
def functions_under_autocast() -> None:
    x = torch.ones(2, device="sdaa", dtype=torch.float16, requires_grad=True)
    with torch.autocast("sdaa", dtype=torch.float16):
        y = Halved.apply(x)
    assert y.dtype is torch.float32
    y.sum().backward()
    same(x.grad, torch.full((2,), 2.0, dtype=torch.float16))


@check
def models_run_in_inference_mode() -> None:
    model, x = network().eval(), images()
    with torch.inference_mode():
        wanted = model(x)
    for device in DEVICES:
        model.to(device)
        with torch.inference_mode():
            same(model(x.to(device)), wanted)


@check
def inference_mode_and_no_grad() -> None:
    layer = nn.Linear(2, 2).to("sdaa")
    with torch.inference_mode():
        y = layer(torch.ones(1, 2, device="sdaa"))
        y[0, 0] = 3
        moved = y.to("sdaa:1")
    assert y.is_inference()
    assert moved.is_inference()
    assert not y.requires_grad
    assert moved.cpu()[0, 0].item() == 3
    with torch.no_grad():
        assert not layer(torch.ones(1, 2, device="sdaa")).requires_grad
    w = torch.ones(2, device="sdaa", requires_grad=True)
    refused(lambda: (y[0] * w).sum().backward(), "nference tensors cannot be saved")


@check
def writing_what_backward_needs_is_refused() -> None:
    x = torch.ones(2, device="sdaa", requires_grad=True)
    y = x.exp()
    loss = y.sum()
    y.detach().add_(1)
    refused(loss.backward, "modified by an inplace operation")
    refused(lambda: x.add_(1), "leaf Variable")


@check
def anomaly_mode_names_the_operator() -> None:
    x = torch.zeros(2, device="sdaa", requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        loss = (x.sqrt() * 0).sum()
        refused(loss.backward, "SqrtBackward0", "nan")


@check
def checkpointing_draws_the_same_numbers_again() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).to("sdaa:1")
    for reentrant in (False, True):
        x = torch.randn(4, 8, device="sdaa:1", requires_grad=True)
        torch.manual_seed(1)
        model(x).sum().backward()
        wanted, x.grad = x.grad, None
        torch.manual_seed(1)
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        same(x.grad, wanted)


@check
def checkpointing_in_segments_is_the_cpus() -> None:
    def work(device: str) -> object:
        model = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Dropout(0.3)) for _ in range(4)))
        model.to(device)
        x = torch.randn(3, 6).to(device).requires_grad_()
        torch.manual_seed(1)
        checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
        return [x.grad, [p.grad for p in model.parameters()]]

    agree(work, "sdaa:0", "sdaa:3")


@check
def a_graph_over_two_devices() -> None:
    first, second = nn.Linear(4, 4).to("sdaa:0"), nn.Linear(4, 4).to("sdaa:1")
    second(first(torch.ones(2, 4, device="sdaa:0")).to("sdaa:1")).sum().backward()
    assert str(first.weight.grad.device) == "sdaa:0"  # type: ignore[union-attr]
    assert str(second.weight.grad.device) == "sdaa:1"  # type: ignore[union-attr]


@check
def a_graph_that_goes_to_the_cpu_and_back() -> None:
    def work(device: str) -> object:
        x = torch.randn(3).to(device).requires_grad_()
        y = (x * 2).cpu().sin().to(device)
        (y * x).sum().backward()
        return x.grad

    agree(work, *DEVICES)


@check
def gradients_add_up() -> None:
    def work(device: str) -> object:
        model = network().to(device)
        for _ in range(3):
            model(images().to(device)).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        return [norm, [p.grad for p in model.parameters()], dict(model.named_buffers())]

    agree(work, *DEVICES)


@check
def detach_and_in_place_and_views() -> None:
    def work(device: str) -> object:
        x = torch.randn(4, 4).to(device).requires_grad_()
        y = x * 1
        y[:, 1].mul_(2)
        y.view(-1)[3:5] += x.detach().view(-1)[:2]
        z = torch.zeros(4, 4, device=device)
        z[1:3] = y[1:3]
        z.relu_().sum().backward()
        return [x.grad, z]

    agree(work)
