"""torch.func, forward derivatives, and operators of torch.nn.functional."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, func, nn

from tests.torch_sdaa.hard.check import agree, check, costly_check, network


@check
def func_transforms() -> None:
    def work(device: str) -> object:
        x = torch.arange(3.0).to(device)
        return [
            func.grad(lambda t: (t**3).sum())(x),
            func.hessian(lambda t: (t**3).prod())(x),
            func.jacrev(lambda t: t**2)(x),
            func.jacfwd(lambda t: t.sin())(x),
            func.vmap(torch.dot)(torch.ones(2, 3, device=device), x.expand(2, 3)),
            func.vjp(torch.sin, x)[1](x)[0],
        ]

    agree(work, "sdaa:0", "sdaa:2")


@costly_check
def gradients_of_each_sample() -> None:
    def work(device: str) -> object:
        model = network().eval().to(device)
        weights, buffers = dict(model.named_parameters()), dict(model.named_buffers())

        def loss(given: dict[str, Tensor], x: Tensor) -> Tensor:
            return func.functional_call(model, (given, buffers), (x[None],)).sum()  # type: ignore[no-any-return]

        return func.vmap(func.grad(loss), (None, 0))(weights, torch.randn(2, 3, 8, 8).to(device))

    agree(work)


@check
def vmap_draws_numbers() -> None:
    x = torch.zeros(3, 4, device="sdaa")
    different = func.vmap(lambda t: t + torch.rand_like(t), randomness="different")(x)
    assert different.device.type == "sdaa"
    assert not torch.equal(different[0], different[1])
    alike = func.vmap(lambda t: t + torch.rand(4, device="sdaa"), randomness="same")(x)
    assert torch.equal(alike[0], alike[1])


@check
def ensembles_by_stacked_weights() -> None:
    def work(device: str) -> object:
        models = [nn.Linear(3, 2).to(device) for _ in range(3)]
        weights, buffers = func.stack_module_state(models)
        x = torch.randn(5, 3).to(device)
        return func.vmap(lambda w, b: func.functional_call(models[0], (w, b), (x,)))(weights, buffers)

    agree(work)


@check
def forward_derivatives() -> None:
    def work(device: str) -> object:
        x = torch.linspace(0, 1, 3).to(device)
        both = func.jvp(lambda t: t.sin() * t, (x,), (torch.ones_like(x),))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x + 1)
            rate = torch.autograd.forward_ad.unpack_dual(dual.exp() * 2).tangent
        return [both, rate]

    agree(work)


@check
def losses_and_shapes() -> None:
    def work(device: str) -> object:
        scores = torch.randn(10, 2, 5).to(device).requires_grad_()
        labels = torch.ones(2, 3, dtype=torch.long, device=device)
        ctc = F.ctc_loss(scores.log_softmax(2), labels, torch.tensor([10, 10]), torch.tensor([3, 3]))
        x = torch.randn(1, 4, 6, 6).to(device).requires_grad_()
        grid = torch.rand(1, 3, 3, 2).to(device)
        parts = [
            F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False),
            F.interpolate(x, size=(3, 9), mode="bilinear", antialias=True),
            F.grid_sample(x, grid, align_corners=False),
            F.pixel_shuffle(x, 2),
            F.adaptive_avg_pool2d(x, (4, 5)),
            F.adaptive_max_pool2d(x, 2),
            F.unfold(x, 3),
            F.pad(x, (1, 2, 3, 1), mode="reflect"),
            F.group_norm(x, 2),
            F.instance_norm(x),
            F.local_response_norm(x, 3),
            F.embedding(torch.tensor([0, 2], device=device), x[0, 0]),
            F.conv_transpose2d(x, torch.ones(4, 2, 3, 3, device=device), stride=2),
            F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        ]
        loss = ctc + sum(part.square().mean() for part in parts)
        loss.backward()
        return [loss, parts, x.grad, scores.grad]

    agree(work, "sdaa:0", "sdaa:1")


@check
def convolutions_in_three_dimensions() -> None:
    def work(device: str) -> object:
        up, down = nn.ConvTranspose3d(1, 2, 2).to(device), nn.Conv3d(2, 3, 2, groups=1, dilation=2).to(device)
        y = down(up(torch.randn(1, 1, 3, 3, 3).to(device)))
        y.sum().backward()
        return [y, up.weight.grad, down.weight.grad]

    agree(work)


@check
def attention_trains() -> None:
    def work(device: str) -> object:
        q = torch.randn(1, 2, 5, 8).to(device).requires_grad_()
        block = nn.MultiheadAttention(8, 2, batch_first=True).to(device)
        plain = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        torch.manual_seed(1)
        dropped = F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
        hidden = torch.tensor([[False, False, True, True, True]], device=device)
        attended, weights = block(q[:, 0], q[:, 0], q[:, 0], key_padding_mask=hidden)
        (plain.sum() + dropped.square().sum() + attended.sum()).backward()
        return [plain, dropped, attended, weights, block.in_proj_weight.grad]

    agree(work)


@check
def a_transformer_layer_trains() -> None:
    def work(device: str) -> object:
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.1, "gelu", batch_first=True).to(device)
        x = torch.randn(2, 5, 16).to(device)
        torch.manual_seed(1)
        y = layer(x)
        y.square().sum().backward()
        with torch.no_grad():
            fast = layer.eval()(x)
        return [y, [p.grad for p in layer.parameters()], fast]

    agree(work, "sdaa:1")


@check
def linear_algebra_and_transforms() -> None:
    def work(device: str) -> object:
        a = torch.randn(4, 4).to(device).requires_grad_()
        positive = a @ a.T + 4 * torch.eye(4, device=device)
        values = [
            torch.linalg.eigvalsh(positive),
            torch.linalg.svdvals(a),
            torch.linalg.det(a),
            torch.linalg.cholesky(positive),
            torch.linalg.solve(positive, a),
            torch.linalg.qr(a)[1],
            torch.fft.rfft2(a).abs(),
            torch.fft.ifft(torch.fft.fft(a)).real,
            torch.special.erfinv(a.tanh() * 0.9),
            torch.special.gammaln(positive.diagonal()),
            torch.einsum("ij,kj->ik", a, a),
            torch.cumsum(a, 1).logsumexp(0),
        ]
        loss = sum(value.sum() for value in values)
        loss.backward()  # type: ignore[union-attr]
        return [values, a.grad]

    agree(work, "sdaa:0", "sdaa:3")


@check
def norms_of_weights() -> None:
    def work(device: str) -> object:
        first = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to(device)
        second = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).to(device)
        third = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)).to(device)
        y = third(second(first(torch.ones(1, 3, device=device))))
        y.sum().backward()
        return [y, [p.grad for m in (first, second, third) for p in m.parameters()]]

    agree(work)


@check
def pruned_weights() -> None:
    from torch.nn.utils import prune

    def work(device: str) -> object:
        layer = nn.Linear(4, 4).to(device)
        prune.l1_unstructured(layer, "weight", amount=0.5)
        layer(torch.ones(1, 4, device=device)).sum().backward()
        return [layer.weight_mask, layer.weight_orig.grad]

    agree(work)


@check
def statistics_of_synchronised_batch_norm() -> None:
    """The five operators of SyncBatchNorm, compared with batch norm of the same numbers on the CPU."""
    x = torch.randn(4, 3, 5, 5)
    weight, bias = torch.rand(3), torch.rand(3)
    grad = torch.randn(4, 3, 5, 5)
    there = [t.to("sdaa:1") for t in (x, weight, bias, grad)]
    mean, inverse = torch.batch_norm_stats(there[0], 1e-5)
    counts = torch.full((1,), 100.0, device="sdaa:1")
    running = torch.zeros(3, device="sdaa:1"), torch.ones(3, device="sdaa:1")
    mean, inverse = torch.batch_norm_gather_stats_with_counts(
        there[0], mean[None], inverse[None], *running, 0.1, 1e-5, counts
    )
    y = torch.batch_norm_elemt(there[0], there[1], there[2], mean, inverse, 1e-5)
    total, dot, weight_grad, bias_grad = torch.batch_norm_backward_reduce(
        there[3], there[0], mean, inverse, there[1], True, True, True
    )
    x_grad = torch.batch_norm_backward_elemt(there[3], there[0], mean, inverse, there[1], total, dot, counts.int())
    x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
    plain = torch.zeros(3), torch.ones(3)
    wanted = F.batch_norm(x, *plain, weight, bias, training=True)
    wanted.backward(grad)
    pairs = [(y, wanted), (x_grad, x.grad), (weight_grad, weight.grad), (bias_grad, bias.grad)]
    for got, expected in [*pairs, (running[0], plain[0]), (running[1], plain[1])]:
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


@check
def synchronised_batch_norm_of_one_process() -> None:
    """In one process it is batch norm. It does not train on the CPU, so the plain form is the reference."""

    def work(device: str) -> object:
        model = network().to(device)
        if device != "cpu":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        y = model(torch.randn(2, 3, 8, 8).to(device))
        y.square().sum().backward()
        return [y, [p.grad for p in model.parameters()], dict(model.named_buffers())]

    agree(work)
