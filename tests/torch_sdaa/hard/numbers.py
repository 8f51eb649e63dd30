"""Random numbers: each device has a generator, and the CPU's is not changed."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from tests.torch_sdaa.hard.check import DEVICES, agree, check, refused, same


@check
def a_generator_of_a_device() -> None:
    generator = torch.Generator(device="sdaa:1").manual_seed(3)
    assert generator.device == torch.device("sdaa:1")
    first = torch.randn(4, device="sdaa:1", generator=generator)
    generator.manual_seed(3)
    same(torch.randn(4, device="sdaa:1", generator=generator), first)


@check
def seeds_and_states() -> None:
    torch.manual_seed(7)
    first = torch.randn(4, device="sdaa")
    torch.manual_seed(7)
    same(torch.randn(4, device="sdaa"), first)
    torch.sdaa.manual_seed(1)
    torch.sdaa.manual_seed_all(1)
    assert torch.sdaa.initial_seed() == 1
    state = torch.sdaa.get_rng_state(0)
    first = torch.rand(3, device="sdaa:0")
    torch.sdaa.set_rng_state(state, 0)
    same(torch.rand(3, device="sdaa:0"), first)


@check
def states_of_all_devices() -> None:
    states = torch.sdaa.get_rng_state_all()
    assert len(states) == torch.sdaa.device_count()
    first = [torch.rand(3, device=device) for device in DEVICES]
    torch.sdaa.set_rng_state_all(states)
    same([torch.rand(3, device=device) for device in DEVICES], first)


@check
def the_cpus_numbers_are_left_alone() -> None:
    torch.manual_seed(7)
    torch.randn(4, device="sdaa")
    first = torch.randn(3)
    torch.manual_seed(7)
    same(torch.randn(3), first)


@check
def dropout_draws_from_its_devices_generator() -> None:
    torch.manual_seed(7)
    F.dropout(torch.ones(64, device="sdaa"))
    first, there = torch.randn(3), torch.rand(3, device="sdaa")
    torch.manual_seed(7)
    same(torch.randn(3), first)
    assert not torch.equal(torch.rand(3, device="sdaa").cpu(), there.cpu())


@check
def devices_draw_on_their_own() -> None:
    torch.manual_seed(5)
    torch.rand(100, device="sdaa:0")
    second = torch.rand(3, device="sdaa:1")
    torch.manual_seed(5)
    same(torch.rand(3, device="sdaa:1"), second)


@check
def fork_rng_brings_the_state_back() -> None:
    torch.manual_seed(0)
    first = torch.rand(2, device="sdaa:0")
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0], device_type="sdaa"):
        torch.rand(9, device="sdaa:0")
    same(torch.rand(2, device="sdaa:0"), first)


@check
def every_random_operator_follows_the_seed() -> None:
    def draw(device: str) -> list[object]:
        x = torch.rand(8).to(device)
        torch.manual_seed(1)  # the device's generator has drawn nothing for x, the CPU's has
        return [
            torch.bernoulli(x),
            torch.multinomial(x, 3),
            torch.randperm(5, device=device),
            torch.randint(0, 5, (3,), device=device),
            torch.normal(0.0, 1.0, (3,), device=device),
            torch.poisson(x * 9),
            torch.rand_like(x),
            torch.randn_like(x),
            F.dropout(x, 0.5),
            F.rrelu(x - 0.5, training=True),
            F.gumbel_softmax(x.view(2, 4)),
            x.clone().normal_(),
            x.clone().exponential_(),
            x.clone().uniform_(-1, 1),
            x.clone().cauchy_(),
            x.clone().log_normal_(),
            x.clone().geometric_(0.3),
            x.clone().random_(10),
            x.clone().bernoulli_(0.5),
        ]

    agree(draw, *DEVICES)


@check
def a_generator_of_another_device_is_refused() -> None:
    refused(lambda: torch.randn(2, device="sdaa:0", generator=torch.Generator()), "generator")


@check
def a_device_begins_where_the_cpu_is() -> None:
    """Values created on the CPU and then trained on a device are those of a training on the CPU."""

    def work(device: str) -> list[torch.Tensor]:
        x = torch.randn(64).to(device)
        return [x, F.dropout(x), torch.randn(9, device=device), torch.empty(9, device=device).bernoulli_(0.5)]

    agree(work, *DEVICES)


@check
def a_device_that_is_seeded_by_itself_begins_at_its_seed() -> None:
    for seed in (torch.sdaa.manual_seed, torch.sdaa.manual_seed_all, torch.sdaa.default_generators[0].manual_seed):
        torch.manual_seed(7)
        seed(7)
        first = torch.randn(4, device="sdaa:0")
        torch.manual_seed(7)
        torch.randn(3)
        seed(7)
        same(torch.randn(4, device="sdaa:0"), first)
    torch.manual_seed(7)
    state = torch.sdaa.get_rng_state(0)
    torch.randn(3)
    same(torch.randn(4, device="sdaa:0"), first)
    torch.sdaa.set_rng_state(state, 0)
    same(torch.randn(4, device="sdaa:0"), first)
