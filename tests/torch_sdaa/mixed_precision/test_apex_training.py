"""Trainings with ``apex.amp``: compared with plain ones and with ``torch.amp``, interrupted, with several losses."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

from tests.torch_sdaa.mixed_precision.apex_trainings import batches, net, plainly, same, sgd, train_step, with_apex  # noqa: E402
from torch_sdaa.apex import amp, optimizers  # noqa: E402
from torch_sdaa.apex.scaler import LossScaler  # noqa: E402
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


@pytest.mark.parametrize(
    "make", [sgd, lambda p: torch.optim.Adam(p, 0.01), lambda p: optimizers.SdaaFusedAdam(p, 0.01)]
)
@pytest.mark.parametrize("combine", [None, True])
def test_o0_is_the_plain_training_bit_for_bit(make: Any, combine: Any) -> None:
    ours, losses = with_apex("O0", make, combine_grad=combine)
    plain, expected = plainly(make)

    assert losses == expected
    assert same(ours, plain)


@pytest.mark.parametrize("combine", [None, True])
def test_o1_is_the_training_of_torch_amp(combine: Any) -> None:
    """The same casts by the same lists, and scales that are powers of two: the same bits."""
    ours, losses = with_apex("O1", combine_grad=combine)
    theirs, expected = plainly(autocast=True)

    assert losses == expected
    assert same(ours, theirs)
    assert {p.dtype for p in ours.parameters()} == {torch.float32}


@pytest.mark.parametrize("combine", [None, True])
def test_o2_matches_up_to_rounding(combine: Any) -> None:
    ours, losses = with_apex("O2", combine_grad=combine)
    _, expected = plainly(autocast=True)

    assert losses == pytest.approx(expected, rel=2e-3)
    assert [each.dtype for each in ours.parameters()] == [
        *[torch.float16] * 2,
        *[torch.float32] * 2,
        *[torch.float16] * 2,
    ]
    assert ours[1].running_mean.dtype == torch.float32


def test_o3_is_half_throughout() -> None:
    ours, losses = with_apex("O3")
    _, expected = plainly(autocast=True)

    assert {p.dtype for p in ours.parameters()} == {torch.float16}
    assert losses == pytest.approx(expected, rel=2e-2)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_combined_gradients_give_the_same_bits_in_fewer_launches(level: str) -> None:
    def trained(combine: bool) -> tuple[Any, int]:
        model = net()
        model, optimizer = amp.initialize(
            model, sgd(model.parameters()), opt_level=level, verbosity=0, combine_grad=combine
        )
        for x, y in batches(2):
            train_step(model, optimizer, x, y)
        before = C.launches()
        loss = model(next(batches(1))[0]).mean()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        amp.clip_grad_norm_(optimizer, 0.1)
        optimizer.step()
        return model, int(C.launches() - before)

    (plain, many), (combined, few) = trained(False), trained(True)
    assert few < many
    # the norm over one buffer adds in another order than that of norms
    for a, b in zip(plain.parameters(), combined.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_combined_gradients_lie_in_one_buffer_and_are_unscaled_in_one_launch() -> None:
    model = net()
    model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level="O2", verbosity=0, combine_grad=True)
    x, y = next(batches(1))
    train_step(model, optimizer, x, y)
    loss = nn.functional.cross_entropy(model(x), y)

    def unscaled() -> int:
        return sum(
            n
            for (op, *_), n, *_ in C.signatures()
            if op in ("sdaa::gather_grads", "aten::_amp_foreach_non_finite_check_and_unscale_")
        )

    before = unscaled()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    grads = [p.grad for p in amp.master_params(optimizer)]
    storages = {g.untyped_storage().data_ptr() for g in grads}

    assert unscaled() - before == 1
    assert len(storages) == 1
    assert {g.dtype for g in grads} == {torch.float32}
    expected = torch.nn.utils.get_total_norm(grads)
    assert amp.clip_grad_norm_(optimizer, 1e-3).item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.nn.utils.get_total_norm(grads).item() == pytest.approx(1e-3, rel=1e-2)


# ------------------------------------------------------------------------------------------------------- overflow


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("combine", [None, True])
def test_an_overflow_skips_the_step_and_is_printed(level: str, combine: Any, capsys: Any) -> None:
    model = net()
    model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level=level, combine_grad=combine)
    x, y = next(batches(1))
    train_step(model, optimizer, x, y)
    before, moments = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    capsys.readouterr()
    optimizer.zero_grad()
    with amp.scale_loss(model(x).sum() * INF, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    said = capsys.readouterr().out

    assert said == "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n"
    after = optimizer.state_dict()
    assert all(
        torch.equal(a, b)
        for (k, a), b in zip(before.items(), model.state_dict().values(), strict=True)
        if "running" not in k and "num" not in k
    )
    assert all(
        torch.equal(moments["state"][k]["momentum_buffer"], after["state"][k]["momentum_buffer"])
        for k in after["state"]
    )
    assert amp.state_dict() == {"loss_scaler0": {"loss_scale": 32768.0, "unskipped": 0}}
    assert train_step(model, optimizer, x, y) == _step_loss(before, model, x, y)


def _step_loss(state: Any, model: Any, x: Any, y: Any) -> float:
    """Return the loss with the earlier weights of a model."""
    other = copy.deepcopy(model)
    other.load_state_dict(state)
    return float(nn.functional.cross_entropy(other(x), y).item())


@pytest.mark.parametrize("scale", [128.0, "128.0", 128])
def test_a_static_scale_neither_grows_nor_skips(scale: Any) -> None:
    _, losses = with_apex("O2", loss_scale=scale)
    _, dynamic = with_apex("O2")

    assert losses == pytest.approx(dynamic, rel=1e-4)
    model = net()
    model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level="O1", loss_scale=scale, verbosity=0)
    with amp.scale_loss(model(next(batches(1))[0]).sum() * INF, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert not model[0].weight.isfinite().all()
    assert amp.state_dict()["loss_scaler0"]["loss_scale"] == 128.0


def test_a_scale_grows_and_falls_to_its_limits(monkeypatch: Any) -> None:
    monkeypatch.setattr("torch_sdaa.apex.scaler.WINDOW", 2)
    scaler = LossScaler("dynamic", 2.0**15, 2.0**17)
    good, bad = torch.ones(2, device="sdaa"), torch.full((2,), INF, device="sdaa")
    seen = []
    for grad in (good, good, good, good, bad, good, bad, bad, bad):
        scaler.unscale([grad.clone()])
        skip = scaler.update()
        seen.append((skip, scaler.scale))

    growing, falling = [2.0**16, 2.0**17, 2.0**17, 2.0**17], [2.0**16, 2.0**16, 2.0**15, 2.0**15, 2.0**15]
    assert seen == list(zip([False] * 4 + [True, False, True, True, True], growing + falling, strict=True))


# ---------------------------------------------------------------------------------------------- several of something


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
@pytest.mark.parametrize("combine", [None, True])
def test_two_losses_before_a_step_add_up(level: str, combine: Any) -> None:
    """Unscaled one by one, left scaled by the first, or combined into one loss: the same gradients."""

    def grads(how: str) -> list[Any]:
        model = net()[3:]
        model, optimizer = amp.initialize(
            model, sgd(model.parameters()), opt_level=level, verbosity=0, combine_grad=combine
        )
        x, z = (torch.full((2, 6, 4, 4), value, device="sdaa") for value in (0.5, 0.25))
        if how == "joined":
            with amp.scale_loss((model(x) + model(z)).sum() / 64, optimizer) as scaled:
                scaled.backward()
        else:
            with amp.scale_loss(model(x).sum() / 64, optimizer, delay_unscale=how == "delayed") as scaled:
                scaled.backward()
            with amp.scale_loss(model(z).sum() / 64, optimizer) as scaled:
                scaled.backward()
        found = [p.grad for p in amp.master_params(optimizer)]
        assert all(each.isfinite().all() and each.any() for each in found)
        return found

    joined = grads("joined")
    for how in ("one by one", "delayed"):
        assert all(torch.equal(a, b) for a, b in zip(grads(how), joined, strict=True))


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_two_models_two_optimizers_three_losses(level: str) -> None:
    """As in a GAN: the discriminator's overflow only skips its own steps."""
    models = [nn.Linear(4, 4).sdaa(), nn.Linear(4, 1).sdaa()]
    steps = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    [maker, judge], [first, second] = amp.initialize(models, steps, opt_level=level, num_losses=3, verbosity=0)
    x = torch.ones(2, 4, device="sdaa")
    before = [model.weight.detach().clone() for model in (maker, judge)]
    for loss_id, value in enumerate((1.0, INF)):
        with amp.scale_loss(judge(x).sum() / 64 * value, second, loss_id=loss_id) as scaled:
            scaled.backward()
    second.step()
    with amp.scale_loss(judge(maker(x)).sum() / 64, first, loss_id=2) as scaled:
        scaled.backward()
    first.step()

    assert [torch.equal(old, model.weight) for old, model in zip(before, (maker, judge), strict=True)] == [False, True]
    assert [each["loss_scale"] for each in amp.state_dict().values()] == [65536.0, 32768.0, 65536.0]


@pytest.mark.parametrize("combine", [None, True])
def test_a_model_on_two_devices(combine: Any) -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3).to("sdaa:0"), nn.Linear(3, 2).to("sdaa:1")

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x).to("sdaa:1"))

    model = Parts()
    optimizer = optimizers.SdaaFusedAdam(model.parameters(), 0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", verbosity=0, combine_grad=combine)
    before = [p.detach().clone() for p in model.parameters()]
    with amp.scale_loss(model(torch.ones(1, 3, device="sdaa:0")).sum() / 64, optimizer) as scaled:
        scaled.backward()
    norm = amp.clip_grad_norm_(optimizer, 1e-3)
    optimizer.step()

    assert norm > 1e-3
    assert torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]) > 0
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_an_optimizer_of_parts_and_unused_parameters() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)
            self.frozen = nn.Linear(3, 3).requires_grad_(False)

        def forward(self, x: Any) -> Any:
            return self.used(self.frozen(x))

    for combine in (False, True):
        model = Parts().sdaa()
        groups = [{"params": model.used.parameters(), "lr": 0.5}, {"params": [model.unused.weight]}]
        model, optimizer = amp.initialize(
            model, torch.optim.Adam(groups, 0.1, weight_decay=0.1), opt_level="O2", verbosity=0, combine_grad=combine
        )
        optimizer.add_param_group({"params": [model.unused.bias]})
        unused = model.unused.weight.detach().clone()
        with amp.scale_loss(model(torch.ones(1, 3, device="sdaa")).sum(), optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        assert torch.equal(unused, model.unused.weight)
        assert {p.dtype for p in amp.master_params(optimizer)} == {torch.float32}
        assert len(list(amp.master_params(optimizer))) == 4


@pytest.mark.parametrize("combine", [None, True])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_sparse_gradients(level: str, combine: Any) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1)

        def forward(self, numbers: Any) -> Any:
            return self.out(self.table(numbers))

    model = Words().sdaa()
    before = model.table.weight.detach().clone()
    model, optimizer = amp.initialize(
        model, torch.optim.SGD(model.parameters(), 0.5), opt_level=level, verbosity=0, combine_grad=combine
    )
    with amp.scale_loss(model(torch.tensor([1, 1, 2], device="sdaa")).sum() / 64, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    moved = (model.state_dict()["table.weight"] != before).any(1)

    assert moved.tolist() == [False, True, True, False, False]


# --------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_a_training_resumed_from_a_checkpoint_is_bit_identical(level: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("torch_sdaa.apex.scaler.WINDOW", 3)
    whole = net()
    whole, optimizer = amp.initialize(whole, sgd(whole.parameters()), opt_level=level, verbosity=0)
    expected = [train_step(whole, optimizer, x, y) for x, y in batches(6)]
    scale = amp.state_dict()

    half = net()
    half, optimizer = amp.initialize(half, sgd(half.parameters()), opt_level=level, verbosity=0)
    losses = [train_step(half, optimizer, x, y) for x, y in batches(2)]
    file = io.BytesIO()
    torch.save({"model": half.state_dict(), "optimizer": optimizer.state_dict(), "amp": amp.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, map_location="sdaa", weights_only=True)
    assert {v.dtype for v in state["model"].values() if v.is_floating_point()} == ({torch.float32})

    rest = nn.Sequential(*copy.deepcopy(net())).sdaa()
    nn.init.ones_(rest[0].weight)
    rest, optimizer = amp.initialize(rest, sgd(rest.parameters()), opt_level=level, verbosity=0)
    rest.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    amp.load_state_dict(state["amp"])
    losses += [train_step(rest, optimizer, x, y) for x, y in batches(4, first=2)]

    assert losses == expected
    assert same(rest, whole)
    assert amp.state_dict() == scale


def test_weights_that_are_set_by_hand_reach_the_master_weights() -> None:
    model = net()
    model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level="O2", verbosity=0)
    with torch.no_grad():
        model[0].weight.fill_(0.25)
    assert model.state_dict()["0.weight"].unique().tolist() == [0.25]
    model[4].load_state_dict({"weight": torch.zeros(5, 96), "bias": torch.ones(5)})  # a part of it
    x, y = next(batches(1))
    train_step(model, optimizer, x, y)

    assert (model[4].bias - 1).abs().max() < 0.1


def test_wrapped_for_several_processes_a_checkpoint_is_float32_too() -> None:
    model = net()
    model, _ = amp.initialize(model, sgd(model.parameters()), opt_level="O2", verbosity=0)
    outer = nn.ModuleDict({"module": model})
    state = outer.state_dict()
    outer.load_state_dict(state)

    assert {v.dtype for v in state.values() if v.is_floating_point()} == {torch.float32}


def test_another_number_of_losses_is_a_warning() -> None:
    with_apex("O1", steps=1, num_losses=2)
    state = amp.state_dict()
    with_apex("O1", steps=1)
    with pytest.warns(UserWarning, match=r"2 loss scales, .*1"):
        amp.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"'model' .*state of amp"):
        amp.load_state_dict({"model": {}})
