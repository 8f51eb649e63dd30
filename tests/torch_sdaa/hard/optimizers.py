"""Training steps: optimizers of every form, scalers, averages, and complete steps compared with the CPU's."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn

from tests.torch_sdaa.hard.check import DEVICES, agree, check, images, network, same


def steps(device: str, make: Callable[[nn.Module], torch.optim.Optimizer], count: int = 3) -> object:
    """Return the losses of a few steps, and all weights, buffers and the optimizer's state after them."""
    model = network().to(device)
    optimizer = make(model)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images(4).to(device)), torch.randint(0, 10, (4,)).to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, model.state_dict(), [optimizer.state[p] for p in model.parameters()]]


@check
def adamw() -> None:
    agree(lambda device: steps(device, lambda m: torch.optim.AdamW(m.parameters(), 1e-3)), *DEVICES)


@check
def adamw_foreach() -> None:
    agree(lambda device: steps(device, lambda m: torch.optim.AdamW(m.parameters(), 1e-3, foreach=True)), "sdaa:2")


@check
def adamw_fused() -> None:
    agree(lambda device: steps(device, lambda m: torch.optim.AdamW(m.parameters(), 1e-3, fused=True)), "sdaa:2")


@check
def adamw_capturable() -> None:
    """Its steps are counted on the device; the CPU has no such form, so the results are only close."""
    weights = []
    for device in ("cpu", "sdaa:1"):
        torch.manual_seed(0)
        layer = nn.Linear(4, 3).to(device)
        optimizer = torch.optim.AdamW(layer.parameters(), 1e-2, capturable=device != "cpu")
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(2, 4, device=device)).square().sum().backward()
            optimizer.step()
        weights.append(layer.weight.detach().cpu())
    assert next(iter(optimizer.state.values()))["step"].device == torch.device("sdaa:1")
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-7)


@check
def sgd_with_momentum_on_all_devices() -> None:
    agree(lambda device: steps(device, lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)), *DEVICES)


@check
def sgd_fused_and_foreach() -> None:
    agree(lambda device: steps(device, lambda m: torch.optim.SGD(m.parameters(), 0.1, 0.9, fused=True)), "sdaa:1")
    agree(lambda device: steps(device, lambda m: torch.optim.SGD(m.parameters(), 0.1, 0.9, foreach=True)), "sdaa:1")


@check
def other_optimizers() -> None:
    for kind in ("Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Rprop", "Adadelta", "ASGD"):
        for foreach in (False, True):  # by default, the CPU uses one form and devices the other

            def work(device: str, kind: str = kind, foreach: bool = foreach) -> object:
                return steps(device, lambda m: getattr(torch.optim, kind)(m.parameters(), foreach=foreach), 2)

            agree(work)


@check
def lbfgs() -> None:
    def work(device: str) -> object:
        x = torch.tensor([-1.5, 2.0]).to(device).requires_grad_()
        optimizer = torch.optim.LBFGS([x], max_iter=5, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss

        return [optimizer.step(closure), x]

    agree(work)


@check
def states_are_loaded_onto_the_device() -> None:
    model = network().to("sdaa:1")
    optimizer = torch.optim.Adam(model.parameters())
    model(images().to("sdaa:1")).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    other = torch.optim.Adam(network().to("sdaa:2").parameters())
    other.load_state_dict(optimizer.state_dict())
    assert next(iter(other.state.values()))["exp_avg"].device == torch.device("sdaa:2")
    same([s["exp_avg"] for s in other.state.values()], [s["exp_avg"] for s in optimizer.state.values()])


@check
def averaged_models_and_schedules() -> None:
    def work(device: str) -> object:
        model = network().to(device)
        average = torch.optim.swa_utils.AveragedModel(model, avg_fn=torch.optim.swa_utils.get_swa_avg_fn())
        moving = torch.optim.swa_utils.AveragedModel(model, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(0.9))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=4)
        for _ in range(3):
            optimizer.zero_grad()
            model(images().to(device)).square().mean().backward()
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
            moving.update_parameters(model)
        return [average.state_dict(), moving.state_dict(), schedule.get_last_lr()]

    agree(work)


@check
def a_scaler_skips_infinite_gradients() -> None:
    layer = nn.Linear(4, 4).to("sdaa")
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    scaler = torch.amp.GradScaler("sdaa", init_scale=2.0**16, growth_interval=1)
    before = layer.weight.detach().clone()
    scaler.scale((layer(torch.full((1, 4), 1e38, device="sdaa")) * 1e5).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    same(layer.weight, before)
    assert scaler.get_scale() == 2.0**15
    optimizer.zero_grad()
    scaler.scale(layer(torch.ones(1, 4, device="sdaa")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**16
    assert not torch.equal(layer.weight, before)


@check
def autocast_lowers_what_cuda_lowers() -> None:
    x = torch.randn(2, 4, device="sdaa")
    with torch.autocast("sdaa", dtype=torch.float16):
        product = x @ x.t()
        chances = product.softmax(-1)
        results = [
            product,
            chances,
            torch.cat([product, chances]),
            F.layer_norm(product, (2,)),
            F.mse_loss(product, product),
            product.sum(),
            F.conv1d(x[None], torch.ones(1, 2, 1, device="sdaa")),
        ]
    half, full = torch.float16, torch.float32
    assert [t.dtype for t in results] == [half, full, full, full, full, full, half]
    with torch.autocast("sdaa", dtype=torch.bfloat16):
        assert (x @ x.t()).dtype is torch.bfloat16
        with torch.autocast("sdaa", enabled=False):
            assert (x @ x.t()).dtype is torch.float32


@check
def half_precision_trains_as_on_the_cpu() -> None:
    def work(device: str) -> object:
        layer = nn.Linear(8, 4).to(device, torch.bfloat16)
        x = torch.randn(3, 8).to(device, torch.bfloat16)
        layer(x).float().square().sum().backward()
        half = torch.randn(4, 4).to(device, torch.float16)
        return [layer.weight.grad, half @ half, half.softmax(1), half.sum(), half.float().to(torch.float16)]

    agree(work, *DEVICES)
