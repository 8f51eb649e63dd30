"""``apex.amp`` around a model: casts, threads, copies, schedulers, compiled models."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

from tests.torch_sdaa.mixed_precision.apex_trainings import batches, net, sgd, train_step, with_apex  # noqa: E402
from torch_sdaa.apex import amp, optimizers  # noqa: E402
from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = pytest.mark.torch

INF = float("inf")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Reset amp for the next test."""
    yield
    amp._state.cast_everywhere(False)
    amp._state.__init__()
    assert not torch.is_autocast_enabled("sdaa")


def test_losses_are_cast_in_o1_only() -> None:
    x = torch.ones(2, 2, device="sdaa", dtype=torch.float16)
    with_apex("O1", steps=1)
    inside = nn.functional.mse_loss(x, x).dtype, (x.float() @ x.float()).dtype
    with amp.disable_casts():
        off = (x.float() @ x.float()).dtype
    with_apex("O2", steps=1)

    assert inside == (torch.float32, torch.float16)
    assert off == torch.float32
    assert (x.float() @ x.float()).dtype == torch.float32


def test_in_o1_operators_in_another_thread_are_cast_in_the_model() -> None:
    model, _ = with_apex("O1", steps=1)
    found = []
    thread = threading.Thread(target=lambda: found.append(model(next(batches(1))[0]).dtype))
    thread.start()
    thread.join()

    assert found == [torch.float16]


def test_in_o1_weights_are_cast_once_a_forward_and_never_stale() -> None:
    layer = nn.Linear(4, 4, bias=False).sdaa()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x))

    model, _ = amp.initialize(Twice().sdaa(), torch.optim.SGD(layer.parameters(), 0.1), opt_level="O1", verbosity=0)
    x = torch.ones(1, 4, device="sdaa", dtype=torch.float16)
    before = C.launches()
    model(x)
    casts = C.launches() - before
    before = C.launches()
    layer(layer(x))
    assert C.launches() - before == casts + 1
    with torch.no_grad():
        layer.weight.fill_(1)
    assert layer(x).tolist() == [[4] * 4]
    assert model(x).tolist() == [[16] * 4]


def test_an_error_in_the_model_restores_autocast() -> None:
    model, _ = with_apex("O1", steps=1)
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 1, device="sdaa"))
    amp._state.cast_everywhere(False)
    assert not torch.is_autocast_enabled("sdaa")
    assert model(next(batches(1))[0]).dtype == torch.float16


@pytest.mark.parametrize("level", ["O0", "O2", "O3"])
def test_inputs_and_outputs_are_cast(level: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.seen: Any = None

        def forward(self, x: Any, *, more: dict[str, Any]) -> Any:
            self.seen = x.dtype, more["y"][0].dtype, more["n"].dtype
            return {"out": self.layer(x), "all": (more["y"][0], "text")}

    half = torch.float32 if level == "O0" else torch.float16
    model = amp.initialize(Named().sdaa(), opt_level=level, verbosity=0)
    x = torch.ones(1, 2, device="sdaa", dtype=torch.float64)
    out = model(x, more={"y": [x], "n": torch.ones(1, dtype=torch.int64, device="sdaa")})
    assert model.seen == (half, half, torch.int64)
    assert out["out"].dtype == out["all"][0].dtype == torch.float32
    kept = amp.initialize(Named().sdaa(), opt_level=level, verbosity=0, cast_model_outputs=torch.float16)
    assert kept(x, more={"y": [x], "n": x})["out"].dtype == torch.float16


def test_batch_norm_may_be_half_and_o3_may_keep_it() -> None:
    def dtypes(**options: Any) -> Any:
        model = amp.initialize(net(), verbosity=0, **options)
        return model[1].weight.dtype, model[0].weight.dtype

    assert dtypes(opt_level="O2", keep_batchnorm_fp32=False) == (torch.float16, torch.float16)
    assert dtypes(opt_level="O3", keep_batchnorm_fp32="True") == (torch.float32, torch.float16)
    assert dtypes(opt_level="O2", cast_model_type=torch.float32) == (torch.float32, torch.float32)


def test_custom_functions() -> None:
    seen = []

    @amp.float_function
    def single(x: Any) -> Any:
        seen.append(x.dtype)
        return x

    class Module:
        @staticmethod
        def lowered(x: Any, y: Any) -> Any:
            seen.append((x.dtype, y.dtype))

        wide = lowered

    amp.register_half_function(Module, "lowered")
    amp.register_promote_function(Module, "wide")
    x = torch.ones(2, device="sdaa")

    def call() -> None:
        single(x.half())
        Module.lowered(x, y=x)
        Module.wide(x, x.half())

    call()
    with_apex("O1", steps=1)
    call()
    h, f = torch.float16, torch.float32
    assert seen == [h, (f, f), (f, h), f, (h, h), (f, f)]


def test_a_copy_of_the_model_is_independent() -> None:
    """A copy as for an average of the weights."""
    model, _ = with_apex("O2", steps=1)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[4].bias.fill_(7)
    x, _ = next(batches(1))

    assert not torch.equal(model(x), other(x))
    assert other.state_dict()["4.bias"].unique().tolist() == [7.0]
    assert model.state_dict()["4.bias"].abs().max() < 1


@pytest.mark.parametrize("first", [True, False])
def test_a_scheduler_made_before_or_after_counts_steps_without_a_warning(first: bool) -> None:
    model = net()
    optimizer = sgd(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5) if first else None
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", verbosity=0)
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    x, y = next(batches(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_step(model, optimizer, x, y)
        scheduler.step()

    assert optimizer.param_groups[0]["lr"] == 0.025


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad_clears_the_models_gradients_and_the_copies(to_none: bool) -> None:
    model = net()
    model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level="O2", verbosity=0)
    with amp.scale_loss(model(next(batches(1))[0]).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.zero_grad(set_to_none=to_none)

    assert all(p.grad is None or not p.grad.any() for p in (*model.parameters(), *amp.master_params(optimizer)))
    assert (model[0].weight.grad is None) == to_none


def test_disabled_amp_has_no_effect() -> None:
    model = net()
    optimizer = sgd(model.parameters())
    assert amp.initialize(model, optimizer, opt_level="O2", enabled=False) == (model, optimizer)
    x, y = next(batches(1))
    loss = nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled:
        assert scaled is loss
    assert model[0].weight.dtype == torch.float32
    assert amp.state_dict() == {}


@pytest.mark.parametrize("combine", [None, True])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_device_memory_is_released(level: str, combine: Any) -> None:
    gc.collect()
    before = torch.sdaa.memory_allocated()
    with_apex(level, lambda p: optimizers.SdaaFusedAdam(p, 0.01), steps=2, combine_grad=combine)
    gc.collect()

    assert torch.sdaa.memory_allocated() == before


def test_a_checkpointed_part_is_computed_again_in_the_same_dtypes() -> None:
    class Part(nn.Module):
        def __init__(self, again: bool) -> None:
            super().__init__()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(3)
                self.first, self.second, self.again = nn.Linear(4, 4), nn.Linear(4, 2), again

        def forward(self, x: Any) -> Any:
            hidden = (
                torch.utils.checkpoint.checkpoint(self.first, x, use_reentrant=False) if self.again else self.first(x)
            )
            return self.second(hidden)

    def grads(again: bool) -> list[Any]:
        model = Part(again).sdaa()
        model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level="O1", verbosity=0)
        with amp.scale_loss(model(torch.ones(2, 4, device="sdaa")).float().mean(), optimizer) as scaled:
            scaled.backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(grads(True), grads(False), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_compiled_model_learns_the_same(level: str) -> None:
    def losses(compiled: bool) -> list[float]:
        model = net()
        model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level=level, verbosity=0)
        called = torch.compile(model, backend="eager") if compiled else model
        return [train_step(called, optimizer, x, y) for x, y in batches(3)]

    assert losses(True) == losses(False)
