"""Backend ``sdaa`` of ``torch.compile``: common operations on tensors, compared with the uncompiled device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._pytree import tree_flatten  # noqa: E402

import torch_sdaa  # noqa: E402, F401 -- makes the device
from torch_sdaa import dynamo  # noqa: E402

F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("compiles_anew")]


def look(values: Any, inputs: list[Any]) -> list[Any]:
    """Return the visible properties of results besides their numbers."""
    places = {each.untyped_storage()._cdata: place for place, each in enumerate(inputs)}
    flat = [each for each in tree_flatten(values)[0] if isinstance(each, torch.Tensor)]
    for place, each in enumerate(flat):
        places.setdefault(each.untyped_storage()._cdata, f"result {place}")
    return [(e.shape, e.stride(), e.dtype, e.device, e.requires_grad, places[e.untyped_storage()._cdata]) for e in flat]


def run(function: Callable[..., Any], inputs: list[Any], backward: bool = True) -> Any:
    """Run a function on copies of inputs; return everything visible afterwards."""
    given = [each.detach().clone().requires_grad_(each.requires_grad) for each in inputs]
    torch.sdaa.manual_seed_all(5)
    out = function(*given)
    seen = look(out, given)
    flat = [each for each in tree_flatten(out)[0] if isinstance(each, torch.Tensor)]
    wanted = [each for each in flat if each.requires_grad]
    if wanted and backward:
        sum((each.float() * (place + 1)).sum() for place, each in enumerate(wanted)).backward()
    return seen, out, [each.grad for each in given if each.requires_grad], [each.detach() for each in given]


def near(made: Any, expected: Any) -> None:
    torch.testing.assert_close(made[1:], expected[1:], rtol=1e-4, atol=1e-5, equal_nan=True)
    assert made[0] == expected[0]


def check(function: Callable[..., Any], *inputs: Any, backward: bool = True, **more: Any) -> Any:
    """Compare a function with its compiled form, twice: the second call reuses everything."""
    compiled = torch.compile(function, backend="sdaa", **more)
    for _ in range(2):
        near(run(compiled, list(inputs), backward), run(function, list(inputs), backward))
    return compiled


def x(*shape: int, grad: bool = False) -> Any:
    torch.manual_seed(1)
    return torch.randn(*(shape or (4, 6))).sdaa().requires_grad_(grad)


def _adds_in_place(a: Any) -> Any:
    a.add_(1)
    return a * 2


def _writes_to_a_view(a: Any) -> Any:
    a[1:3].mul_(3)
    a.t()[0].zero_()
    return a.sum(0)


def _returns_the_input(a: Any) -> Any:
    return a, a + 1


def _returns_views(a: Any) -> Any:
    return a.view(-1), a[1], a.t(), a.chunk(2, 1), a.sin()


def _views_of_a_result(a: Any) -> Any:
    made = a.exp()
    return made, made.view(-1), made[0]


def _one_result_twice(a: Any) -> Any:
    made = a.exp()
    return made, made


def _writes_and_returns(a: Any) -> Any:
    return a.mul_(2), a.view(-1)[:3]


def _two_views(a: Any, b: Any) -> Any:
    b.add_(a.sum())
    return a + b


def _writes_after_reading(a: Any) -> Any:
    first = a + 1
    a.fill_(7)
    return first, a.clone()


def _number(a: Any) -> Any:
    return a + 1, a * 2.5, a > 0, 3 - a, torch.remainder(a, 2)


def _promoted(a: Any) -> Any:
    whole = (a * 4).long()
    return whole + 1.5, whole / 2, whole > 1, whole + a, (a > 0) + 1, (a > 0).sum(), whole.float().mean()


def _constants(a: Any) -> Any:
    return (
        a + torch.tensor(2.0, device=a.device),
        a * torch.tensor([1.0] * 6, device=a.device),
        torch.arange(3, device=a.device),
    )


def _drops(a: Any) -> Any:
    return F.dropout(a, 0.5), F.dropout(a, 0.0) + 1, F.dropout(a, 1.0), F.dropout(a, 0.3, training=False) + 1


def _draws(a: Any) -> Any:
    picked = torch.multinomial(a.abs() + 0.1, 2)
    return (
        picked, F.dropout(picked.float(), 0.5), torch.rand_like(a), torch.randint(0, 9, (4,), device=a.device),
        torch.randn(3, device=a.device), torch.bernoulli(a.sigmoid()), torch.randperm(5, device=a.device),
        torch.empty_like(a).uniform_(2, 3), F.gumbel_softmax(a), F.rrelu(a, training=True),
    )  # fmt: skip


def _checkpointed(a: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda v: F.dropout(v.sin().exp(), 0.5), a, use_reentrant=False)


def _no_gradient(a: Any) -> Any:
    with torch.no_grad():
        fixed = a * 2
    return fixed + a, a.detach() * 3


def _strided(a: Any) -> Any:
    return a.as_strided((3, 2), (2, 1)) * 2, a.unfold(1, 2, 2), a.diagonal() * 2


ONE = {
    "adds in place": _adds_in_place,
    "writes to a view": _writes_to_a_view,
    "returns the input": _returns_the_input,
    "returns views": _returns_views,
    "views of a result": _views_of_a_result,
    "one result twice": _one_result_twice,
    "writes and returns": _writes_and_returns,
    "writes after reading": _writes_after_reading,
    "numbers": _number,
    "promoted": _promoted,
    "constants": _constants,
    "drops": _drops,
    "draws": _draws,
    "strided": _strided,
    "unused": lambda a: torch.ones(2, device=a.device),
    "a list and a dict": lambda a: {"one": [a + 1, None, 3], "two": (a.sum(), 4)},
    "no result": lambda a: None,
    "sorts": lambda a: torch.sort(a, 1),
    "a mask": lambda a: torch.where(a > 0, a, a.new_zeros(())),
    "float64": lambda a: a.double().softmax(1),
}


@pytest.mark.parametrize("name", ONE)
def test_a_function_of_one_tensor(name: str) -> None:
    check(ONE[name], x())


GRADIENTS = {
    name: ONE[name] for name in ("views of a result", "one result twice", "numbers", "drops", "constants", "strided")
} | {
    "checkpointed": _checkpointed,
    "without gradient": _no_gradient,
    "a view of the input": lambda a: a.view(-1)[2:5],
    "expanded": lambda a: a.sum(1, keepdim=True).expand(4, 6),
    "a parameter twice": lambda a: a @ a.t() + a.sum(),
    "softmax": lambda a: F.cross_entropy(a, torch.arange(4, device=a.device)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_function_with_gradients(name: str) -> None:
    check(GRADIENTS[name], x(grad=True))


@pytest.mark.parametrize(
    "tensor",
    [
        lambda: x(2, 3, 4, 4).to(memory_format=torch.channels_last),
        lambda: x(4, 6).t(),
        lambda: x(8, 6)[::2, 1:5],
        lambda: x(1, 6).expand(4, 6),
        lambda: x(4, 1).expand(4, 6)[1:],
        lambda: torch.tensor(2.5).sdaa(),
        lambda: torch.empty(0, 3).sdaa(),
        lambda: torch.arange(6).sdaa().view(2, 3),
        lambda: torch.tensor([True, False]).sdaa(),
        lambda: torch.arange(6, dtype=torch.uint8).sdaa(),
        lambda: x().half(),
        lambda: x().bfloat16(),
        lambda: x().double(),
        lambda: torch.view_as_complex(x(4, 2)),
    ],
)  # fmt: skip
def test_inputs_of_every_kind(tensor: Callable[[], Any]) -> None:
    given = tensor()

    def function(a: Any) -> Any:
        return a + 1, a * a, a.sum(), torch.cat([a, a]) if a.dim() else a, torch.zeros_like(a), a.reshape(-1)

    compiled = torch.compile(function, backend="sdaa")
    for _ in range(2):
        made, expected = compiled(given), function(given)
        torch.testing.assert_close(made, expected, rtol=1e-2 if given.dtype is torch.bfloat16 else 1e-3, atol=1e-5)
        assert look(made, [given]) == look(expected, [given])


def test_inputs_that_share_memory() -> None:
    def function(a: Any, b: Any) -> Any:
        b.mul_(2)
        return a + b

    compiled = torch.compile(function, backend="sdaa")
    results = []
    for each in (function, compiled):
        base = x()
        made = each(base[0], base.view(-1)[:6])
        results.append((made, base))
    torch.testing.assert_close(results[0], results[1])
    check(_two_views, x(), x(4, 6))


class Norms(torch.nn.Module):
    """Batch norms with every kind of statistics, one of them frozen, a written buffer, a shared parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.BatchNorm2d(3, momentum=None)
        self.second = torch.nn.BatchNorm2d(3, momentum=0.3)
        self.third = torch.nn.BatchNorm2d(3, track_running_stats=False, affine=False)
        self.frozen = torch.nn.BatchNorm2d(3).eval()
        self.one, self.two = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.two.weight = self.one.weight
        self.unused = torch.nn.Linear(3, 3)
        self.fixed = torch.nn.Linear(3, 3).requires_grad_(False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, a: Any) -> Any:
        self.calls += 1
        a = self.frozen(self.third(self.second(self.first(a))))
        a = a.mean((2, 3))
        self.seen.mul_(0.5).add_(a.detach().mean(0))
        return self.fixed(self.two(self.one(a)).relu())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_buffers_shared_and_frozen_parameters_over_steps_and_modes() -> None:
    torch.manual_seed(0)
    plain = Norms().sdaa()
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend="sdaa")
    optimizers = [torch.optim.SGD(each.parameters(), 0.1, momentum=0.9) for each in (plain, model)]
    for step in range(6):
        if step == 3:
            plain.eval(), model.eval()
        if step == 4:
            plain.train(), model.train()
        batch = x(4, 3, 5, 5) * (step + 1)
        for function, optimizer in zip((plain, compiled), optimizers, strict=True):
            loss = function(batch).square().mean()
            loss.backward(retain_graph=True)
            loss.backward()  # gradients add up
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        ours, theirs = model.state_dict(), plain.state_dict()
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert model.unused.weight.grad is None
    assert model.fixed.weight.grad is None
    assert int(model.calls) == 6
    other = Norms().sdaa()
    other.load_state_dict({name.removeprefix("_orig_mod."): value for name, value in compiled.state_dict().items()})
    torch.testing.assert_close(other.state_dict(), plain.state_dict(), rtol=1e-4, atol=1e-5)


def test_modes_without_gradients() -> None:
    model = torch.nn.Linear(6, 3).sdaa()
    compiled = torch.compile(model, backend="sdaa")
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            made = compiled(x())
            torch.testing.assert_close(made, model(x()))
            assert made.requires_grad is (mode is torch.enable_grad)


def test_a_second_derivative_is_an_error_of_pytorch() -> None:
    a = x(grad=True)
    made = torch.compile(lambda v: v.sin().sum(), backend="sdaa")(a)
    (first,) = torch.autograd.grad(made, a, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_with_a_scaler(dtype: Any) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 3)
    )
    plain = layers.sdaa()
    model = copy.deepcopy(plain)
    for function, own in ((plain, plain), (torch.compile(model, backend="sdaa"), model)):
        optimizer = torch.optim.AdamW(own.parameters(), 0.01)
        scaler = torch.amp.GradScaler("sdaa", init_scale=1024.0, enabled=dtype is torch.float16)
        for _ in range(3):
            with torch.autocast("sdaa", dtype=dtype):
                loss = F.mse_loss(function(x()), x(4, 3))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=3e-2, atol=6e-3)
    assert not dynamo.report().fallbacks


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "Adamax", "RAdam"])
def test_an_optimizer_is_compiled(kind: str) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Linear(6, 3).sdaa()
    model = copy.deepcopy(plain)
    more = {"momentum": 0.9} if kind == "SGD" else {}
    first, second = (getattr(torch.optim, kind)(each.parameters(), lr=0.01, **more) for each in (plain, model))
    compiled = torch.compile(second.step, backend="sdaa")
    for _ in range(3):
        for own, step in ((plain, first.step), (model, compiled)):
            own.zero_grad()
            own(x()).square().mean().backward()
            step()
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=1e-4, atol=1e-6)
    assert dynamo.report().graphs


@pytest.mark.parametrize("device", ["sdaa:1", "sdaa:3"])
def test_another_device(device: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Dropout(0.5), torch.nn.ReLU()).to(device)
    check(model, x().to(device))
    assert not dynamo.report().fallbacks


def test_two_devices_in_one_graph() -> None:
    def function(a: Any, b: Any) -> Any:
        return (a.sin() + 1) * b.to(a.device).cos(), b.exp() + 1

    check(function, x(), x().to("sdaa:1"))


def test_the_host_in_a_graph() -> None:
    def function(a: Any, b: Any) -> Any:
        return a.sin() + b.to(a.device), (a * 2).cpu().exp() + b, a * torch.tensor(3.0)

    check(function, x(), x().cpu())
    check(lambda b: (b.sin() + 1).relu(), x().cpu().requires_grad_())


def test_mixed_devices_are_an_error_as_uncompiled() -> None:
    with pytest.raises(Exception, match=r"same device|different device|two devices"):
        torch.compile(lambda a, b: a + b, backend="sdaa")(x(), x().cpu())


def test_views_by_strides_depend_on_the_layout_of_their_input() -> None:
    def function(a: Any) -> Any:
        return a.as_strided((2, 2), (3, 1), 1) * 2

    whole = x(4, 6)
    for given in (whole, whole.t().contiguous().t()):  # equal sizes and numbers, another order in memory
        torch.compiler.reset()
        torch.testing.assert_close(torch.compile(function, backend="sdaa")(given), function(given))
        assert not dynamo.report().fallbacks
