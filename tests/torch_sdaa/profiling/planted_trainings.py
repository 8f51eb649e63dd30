"""Small trainings: some without a bottleneck, the others with one, at the line marked by the word ``planted``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 6

Step = Callable[[int], torch.Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 8))


def batches(size: int = 24) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    while True:
        yield torch.randn(size, 64, generator=draw), torch.randint(0, 8, (size,), generator=draw)


def train(body: Callable[[nn.Module, torch.Tensor, torch.Tensor, int], torch.Tensor]) -> None:
    """Train for a few steps; ``body`` returns the loss of one."""
    torch.manual_seed(0)
    model = network().to("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, (x, y) in zip(range(STEPS), batches(), strict=False):
        optimizer.zero_grad()
        loss = body(model, x.to("sdaa"), y.to("sdaa"), step)
        loss.backward()
        optimizer.step()


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), y)


# ----------------------------------------------------------------------------------------------------------- healthy


def healthy_steps() -> None:
    train(lambda model, x, y, step: plain(model, x, y))


def healthy_with_the_loss_read_each_step() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        loss = plain(model, x, y)
        loss.item()
        return loss

    train(body)


def healthy_with_a_last_batch_that_is_smaller() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        return plain(model, x, y) if step < STEPS - 1 else plain(model, x[:7], y[:7])

    train(body)


def healthy_under_autocast() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        with torch.autocast("sdaa", dtype=torch.float16):
            return plain(model, x, y)

    train(body)


def healthy_with_an_optimizer_of_many_tensors() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(24))).to("sdaa")
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _, (x, _) in zip(range(STEPS), batches(), strict=False):
        optimizer.zero_grad()
        model(x.to("sdaa")).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def healthy_with_batches_that_share_a_step() -> None:
    torch.manual_seed(0)
    model = network().to("sdaa")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for i, (x, y) in zip(range(8 * STEPS), batches(), strict=False):
        plain(model, x.to("sdaa"), y.to("sdaa")).div(8).backward()
        if i % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()


def healthy_with_attention_in_one_line() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 96, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 8)).to("sdaa")
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 12, 64).to("sdaa")).mean().backward()
        optimizer.step()


def healthy_with_an_evaluation_now_and_then() -> None:
    torch.manual_seed(0)
    model = network().to("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, (x, y) in zip(range(2 * STEPS), batches(), strict=False):
        optimizer.zero_grad()
        plain(model, x.to("sdaa"), y.to("sdaa")).backward()
        optimizer.step()
        if step % 4 == 3:
            with torch.no_grad():
                for _, (inputs, targets) in zip(range(30), batches(), strict=False):
                    (model(inputs.to("sdaa")).argmax(1) == targets.to("sdaa")).sum().item()


def healthy_batches_of_four_tensors() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        x, y, *_ = [
            part.to("sdaa") for part in (torch.randn(24, 64), torch.zeros(24).long(), torch.ones(24), torch.ones(3))
        ]
        return plain(model, x, y)

    train(body)


def healthy_layers_in_a_loop() -> None:
    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(20)).to("sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        for layer in layers:
            x = torch.relu(layer(x)) + x
        return plain(model, x, y)

    train(body)


def healthy_with_blocks_computed_again() -> None:
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64)) for _ in range(9)).to("sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        x.requires_grad_()
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return plain(model, x, y)

    train(body)


def healthy_layers_that_memory_binds() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(256, 512, device="sdaa")).mean().backward()
        optimizer.step()


def healthy_with_times_that_events_tell() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        before, after = (torch.sdaa.Event(enable_timing=True) for _ in range(2))
        before.record()
        loss = plain(model, x, y)
        after.record()
        before.elapsed_time(after)
        return loss

    train(body)


def healthy_with_a_closure() -> None:
    torch.manual_seed(0)
    model = network().to("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _, (x, y) in zip(range(STEPS), batches(), strict=False):

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            optimizer.zero_grad()
            loss = plain(model, x.to("sdaa"), y.to("sdaa"))
            loss.backward()
            return loss

        optimizer.step(closure)


def healthy_with_two_optimizers() -> None:
    adversaries(lambda net, x: net(x).mean())


def healthy_with_an_optimizer_that_steps_more_often() -> None:
    torch.manual_seed(0)
    maker, judge = nn.Linear(64, 64).to("sdaa"), network().to("sdaa")
    often, seldom = torch.optim.Adam(judge.parameters(), 0.01), torch.optim.Adam(maker.parameters(), 0.01)
    for step in range(4 * STEPS):
        x = torch.randn(24, 64, device="sdaa")
        often.zero_grad()
        apart = (judge(x) - judge(maker(x).detach())).sub(0.1).mul(2).abs().add(1).log().square().sub(1).neg().exp()
        loss = apart.mean()
        loss.backward()
        often.step()
        assert loss.item() > 0
        if step % 4 == 3:
            seldom.zero_grad()
            judge(maker(x)).mean().backward()
            seldom.step()


def adversaries(extra: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
    """Train two networks in turn."""
    torch.manual_seed(0)
    maker, judge = nn.Linear(8, 64).to("sdaa"), network().to("sdaa")
    optimizers = [torch.optim.Adam(net.parameters(), 0.01) for net in (judge, maker)]
    for _ in range(STEPS):
        made = maker(torch.randn(24, 8, device="sdaa"))
        (judge(made.detach()).mean() + extra(judge, made.detach())).backward()
        optimizers[0].step()
        judge(made).mean().backward()
        optimizers[1].step()
        for optimizer in optimizers:
            optimizer.zero_grad()


# ----------------------------------------------------------------------------------------------------- slow operator


class InSteps(nn.Module):
    """Attention in separate operators, one per line."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = x @ x.transpose(-1, -2)
        weights = weights / 8
        weights = weights.softmax(-1)  # planted
        return weights @ x


def slow_attention_in_steps() -> None:
    part = InSteps()

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        wide = part(x.requires_grad_().repeat(28, 1)[None])
        return plain(model, x, y) + wide.mean() * 1e-3

    train(body)


def slow_formula_of_an_activation() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        wide = x.repeat(1200, 1)
        return plain(model, x, y) + (wide * torch.sigmoid(1.7 * wide + wide**2)).mean()  # planted

    train(body)


def slow_update_of_a_large_table() -> None:
    torch.manual_seed(0)
    model = nn.Embedding(30000, 64).to("sdaa")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.arange(24, device="sdaa")).mean().backward()
        optimizer.step()  # planted


def slow_distances_by_broadcasting() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        rows = x.repeat(12, 1)
        return plain(model, x, y) + (rows[:, None] - rows[None]).mean() * 1e-3  # planted

    train(body)


def slow_arithmetic_in_float64() -> None:
    table = torch.randn(700, 700, dtype=torch.float64, device="sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        return plain(model, x, y) + (table @ table).sum().float() * 1e-9  # planted

    train(body)


def slow_matrix_product_of_all_with_all() -> None:
    table = torch.randn(1800, 1800, device="sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        return plain(model, x, y) + (table @ table)[0, 0] * 1e-6  # planted

    train(body)


def slow_network_in_float64() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(384, 384, dtype=torch.float64) for _ in range(12))).to("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(512, 384).double().to("sdaa")).mean()  # planted
        loss.backward()
        optimizer.step()


class WideHead(nn.Module):
    """A layer with far more weights than its input needs."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, 300000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(x)  # planted


def slow_layer() -> None:
    head = WideHead().to("sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), y) + head(model(x)).mean()

    train(body)


def slow_gradient_of_a_large_table() -> None:
    table = nn.Embedding(400000, 32).to("sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        table.weight.grad = None
        return plain(model, x, y) + table(y).mean() * 1e-3  # planted

    train(body)


def slow_parts_that_are_taken_one_by_one() -> None:
    steps = nn.Parameter(torch.zeros(24, 9000, 64, device="sdaa"))

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        for t in range(6):
            x = x + steps[:, t]  # planted
        return plain(model, x, y)

    train(body)


# ------------------------------------------------------------------------------------------------------------ copies


def copies_by_item_in_a_loop() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        out = model(x)
        for row in out:
            row[0].item()  # planted
        return nn.functional.cross_entropy(out, y)

    train(body)


def copies_of_features_to_the_host() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        out = model(x)
        for part in out.split(6):
            part.detach().cpu()  # planted
        return nn.functional.cross_entropy(out, y)

    train(body)


def copies_of_samples_one_by_one() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        host = torch.randn(24, 64)
        rows = torch.stack([row.to("sdaa") for row in host])  # planted
        return plain(model, rows, y)

    train(body)


def copies_by_asking_for_a_branch() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        loss = plain(model, x, y)
        for weight in model.parameters():
            if weight.isnan().any():  # planted
                return loss * 0
        return loss

    train(body)


def copies_by_synchronising() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        for part in model:
            x = part(x)
            torch.sdaa.synchronize()  # planted
        return nn.functional.cross_entropy(x, y)

    train(body)


def copies_by_printing_what_is_on_the_device() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        out = model(x)
        str(out)  # planted
        return nn.functional.cross_entropy(out, y)

    train(body)


def copies_by_an_optimizer_that_decides() -> None:
    torch.manual_seed(0)
    model = nn.Linear(16, 4).to("sdaa")
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(64, 16, device="sdaa")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (model(x) - 1).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)  # planted


def copies_by_selecting_with_masks() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        every = torch.ones(24, device="sdaa", dtype=torch.bool)
        out = model(x)
        losses = [out[every].mean() for _ in range(4)]  # planted
        return plain(model, x, y) + losses[0]

    train(body)


def copies_to_other_layouts() -> None:
    image = torch.ones(96, 40, 64, 24, device="sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        turned = image.transpose(1, 3).contiguous()  # planted
        return plain(model, x, y) + turned[0, 0, 0, 0] * 1e-3

    train(body)


# ---------------------------------------------------------------------------------------------------- framework gaps


def gaps_by_a_loop_over_rows() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        total = torch.zeros((), device="sdaa")
        for row in x.detach().repeat(2, 1):
            total = total + row.mul(row).sum()  # planted
        return plain(model, x, y) + total * 1e-6

    train(body)


def gaps_by_a_loop_in_a_closure() -> None:
    torch.manual_seed(0)
    model = network().to("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device="sdaa")
        for row in torch.randn(48, 64, device="sdaa"):
            total = total + row.mul(row).sum()  # planted
        loss: torch.Tensor = model(torch.randn(24, 64, device="sdaa")).mean() + total * 1e-6
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure=closure)


def gaps_by_a_loop_over_time() -> None:
    cell = nn.Linear(64, 64).to("sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        state = x
        for _ in range(40):
            state = torch.tanh(torch.nn.functional.linear(state, cell.weight))  # planted
        return plain(model, x + state * 1e-3, y)

    train(body)


class OwnCell(nn.Module):
    """A recurrent network of layers, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x
        for _ in range(20):
            state = torch.tanh(self.inner(x) + self.outer(state))  # planted
        return state


def gaps_by_a_cell_of_several_modules() -> None:
    cell = OwnCell().to("sdaa")
    train(lambda model, x, y, step: plain(model, x + cell(x) * 1e-3, y))


class ManyRoots(nn.Module):
    """Computes element by element, instead of one operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for column in range(x.shape[1]):
            x = torch.where(torch.arange(x.shape[1], device=x.device) == column, x.abs(), x)  # planted
        return x


def gaps_in_a_module() -> None:
    part = ManyRoots()

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        return nn.functional.cross_entropy(model(part(x.detach()[:, :48].repeat(1, 2)[:, :64])), y)

    train(body)


def gaps_by_an_optimizer_that_steps_each_tensor() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))).to("sdaa")
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=False)
    for _, (x, _) in zip(range(STEPS), batches(), strict=False):
        optimizer.zero_grad()
        model(x.to("sdaa")).mean().backward()
        optimizer.step()  # planted


def gaps_by_an_optimizer_without_a_fused_form() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))).to("sdaa")
    optimizer = torch.optim.RMSprop(model.parameters(), 0.01, foreach=False)
    for _, (x, _) in zip(range(STEPS), batches(), strict=False):
        optimizer.zero_grad()
        model(x.to("sdaa")).mean().backward()
        optimizer.step()  # planted


class Outer(torch.autograd.Function):
    """A product with a backward row by row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        made = torch.zeros_like(weight)
        for row, grad in zip(x, grads[0], strict=True):
            made += torch.outer(row, grad)  # planted
        return None, made


def gaps_in_a_backward_of_its_own() -> None:
    weight = nn.Parameter(torch.randn(64, 64, device="sdaa"))
    train(lambda model, x, y, step: plain(model, Outer.apply(x, weight), y))


def gaps_by_hooks_of_gradients() -> None:
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(9))).to("sdaa")
    for weight in layers.parameters():
        weight.register_hook(lambda grad: grad / (grad.norm() + 1))  # planted
    train(lambda model, x, y, step: plain(model, layers(x), y))


class Head(nn.Module):
    """One head of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


def gaps_by_heads_one_by_one() -> None:
    heads = nn.ModuleList(Head() for _ in range(8)).to("sdaa")

    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        return plain(model, torch.cat([head(x) for head in heads], 1), y)  # planted

    train(body)


def gaps_with_two_optimizers() -> None:
    def extra(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([row.square().sum() for row in x]).mean() * 0 + net(x).mean()  # planted

    adversaries(extra)


# ----------------------------------------------------------------------------------------------------- recompilation


def recompilation_by_sequences_of_any_length() -> None:
    torch.manual_seed(0)
    model = network().to("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(8 + 3 * step, 64).to("sdaa")  # planted
        model(x).mean().backward()
        optimizer.step()


def recompilation_by_rows_that_are_selected() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        kept = x[: 9 + 2 * step] * 1.0  # planted
        return plain(model, kept, y[: 9 + 2 * step])

    train(body)


def recompilation_by_padding_to_the_longest() -> None:
    def body(model: nn.Module, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        longer = nn.functional.pad(x, (0, 0, 0, 1 + step))  # planted
        return plain(model, longer[:24], y) + longer.mean() * 0.1

    train(body)


TRAININGS = {name: found for name, found in globals().items() if name.startswith(("healthy", "slow", "copies"))}
TRAININGS |= {name: found for name, found in globals().items() if name.startswith(("gaps", "recompilation"))}

if __name__ == "__main__":
    import torch_sdaa  # noqa: F401 -- makes sdaa a device

    parser = argparse.ArgumentParser()
    parser.add_argument("training", choices=TRAININGS)
    TRAININGS[parser.parse_args().training]()
