"""More complete models for ``train_models``: detection, segmentation, video, flow, transformers and timm.

Each is made small and of random weights. What torchvision's compiled operators are needed for (RoI heads, and so
Faster and Mask R-CNN) is not here, as a torchvision without them can be installed beside a CPU's torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from utils.export.networks.torchvision_models import import_torchvision

Batches = Sequence[Sequence[Tensor]]
Made = tuple[nn.Module, Batches, Callable[..., Tensor]]
"""A model, a batch per step, and the function that returns the loss of the model and a batch."""

STEPS = 3


def images(size: int, count: int = 2) -> Batches:
    """Return images with labels of 10 classes."""
    return [(torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))) for _ in range(STEPS)]


def heads_loss(model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of a classifier's head, or the sum of its heads'."""
    scores = model(x)
    heads = [head for head in scores if head is not None] if isinstance(scores, tuple) else [scores]
    return torch.stack([F.cross_entropy(head, labels) for head in heads]).sum()


def inception() -> Made:
    """Inception v3 with its auxiliary head, which requires this image size in training."""
    model = import_torchvision().models.inception_v3(weights=None, num_classes=10, init_weights=False, aux_logits=True)
    return model, images(299), heads_loss


def detector(name: str) -> Made:
    """A detector of torchvision that trains on boxes only."""
    import_torchvision()
    from torchvision.models import detection

    options = {"min_size": 64, "max_size": 64} if name.startswith(("retinanet", "fcos")) else {}
    model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=4, **options)
    corners = torch.tensor([[4.0, 5.0, 40.0, 44.0], [10.0, 12.0, 60.0, 50.0], [1.0, 2.0, 20.0, 30.0]])
    batches = [(torch.rand(2, 3, 64, 64), corners + torch.rand(3, 4), torch.randint(1, 4, (3,))) for _ in range(STEPS)]

    def loss_of(model: nn.Module, x: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        targets = [{"boxes": boxes[:2], "labels": labels[:2]}, {"boxes": boxes[2:], "labels": labels[2:]}]
        return torch.stack(list(model(list(x), targets).values())).sum()

    return model.train(), batches, loss_of


def segmenter(name: str) -> Made:
    """A segmentation network, with its auxiliary head if it has one."""
    import_torchvision()
    from torchvision.models import segmentation

    build = getattr(segmentation, name)
    second = {"aux_loss": True} if "aux_loss" in inspect.signature(build).parameters else {}
    model = build(weights=None, weights_backbone=None, num_classes=5, **second)
    batches = [(torch.randn(2, 3, 64, 64), torch.randint(0, 5, (2, 64, 64))) for _ in range(STEPS)]

    def loss_of(model: nn.Module, x: Tensor, classes: Tensor) -> Tensor:
        return torch.stack([F.cross_entropy(out, classes) for out in model(x).values()]).sum()

    return model, batches, loss_of


def video(name: str) -> Made:
    """A network for sequences of eight images."""
    import_torchvision()
    from torchvision.models import video as networks

    model = getattr(networks, name)(weights=None, num_classes=10)
    batches = [(torch.randn(2, 3, 8, 32, 32), torch.randint(0, 10, (2,))) for _ in range(STEPS)]
    return model, batches, heads_loss


def flow() -> Made:
    """RAFT, which estimates the flow of each pixel: sampling from a grid, and a recurrent cell of convolutions."""
    import_torchvision()
    from torchvision.models.optical_flow import raft_small

    batches = [tuple(torch.rand(2, n, 128, 128) * 2 - 1 for n in (3, 3, 2)) for _ in range(STEPS)]

    def loss_of(model: nn.Module, first: Tensor, second: Tensor, moved: Tensor) -> Tensor:
        return torch.stack([(out - moved).abs().mean() for out in model(first, second, num_flow_updates=3)]).sum()

    return raft_small(weights=None), batches, loss_of


def language(family: str, **sizes: Any) -> Made:
    """A model of transformers that predicts words: the words are its labels, and the second row is padded."""
    import_torchvision()  # which transformers imports, and takes to be broken where its operators do not load
    import transformers

    config = getattr(transformers, f"{family}Config")(vocab_size=100, **sizes)
    kind = "ForConditionalGeneration" if config.is_encoder_decoder else "ForCausalLM"
    kind = {"GPT2": "LMHeadModel", "DistilBert": "ForMaskedLM"}.get(family, kind)
    model = getattr(transformers, f"{family}{kind}")(config).train()
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    batches = [(torch.randint(3, 100, (2, 12)), mask) for _ in range(STEPS)]

    def loss_of(model: nn.Module, words: Tensor, mask: Tensor) -> Tensor:
        loss: Tensor = model(input_ids=words, attention_mask=mask, labels=words).loss
        return loss

    return model, batches, loss_of


def timm_network(name: str, size: int, **options: Any) -> Made:
    """A classifier of timm."""
    import_torchvision()
    import timm

    model = timm.create_model(name, pretrained=False, num_classes=10, drop_rate=0.1, **options)
    return model.train(), images(size), heads_loss


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}

MORE: dict[str, Callable[[], Made]] = {
    "inception_v3": inception,
    "ssdlite320_mobilenet_v3_large": lambda: detector("ssdlite320_mobilenet_v3_large"),
    "retinanet_resnet50_fpn": lambda: detector("retinanet_resnet50_fpn"),
    "fcos_resnet50_fpn": lambda: detector("fcos_resnet50_fpn"),
    "deeplabv3_mobilenet_v3_large": lambda: segmenter("deeplabv3_mobilenet_v3_large"),
    "fcn_resnet50": lambda: segmenter("fcn_resnet50"),
    "lraspp_mobilenet_v3_large": lambda: segmenter("lraspp_mobilenet_v3_large"),
    "r3d_18": lambda: video("r3d_18"),
    "r2plus1d_18": lambda: video("r2plus1d_18"),
    "raft_small": flow,
    "GPT2": lambda: language("GPT2", n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "Llama": lambda: language("Llama", num_key_value_heads=2, **_SMALL),
    "Mixtral": lambda: language("Mixtral", num_key_value_heads=2, num_local_experts=4, **_SMALL),
    "T5": lambda: language("T5", **_T5),
    "Bart": lambda: language(
        "Bart", d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4
    ),
    "Mamba": lambda: language("Mamba", hidden_size=32, num_hidden_layers=2, state_size=8),
    "DistilBert": lambda: language("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "timm mobilenetv4_conv_small": lambda: timm_network("mobilenetv4_conv_small", 64),
    "timm deit_tiny_patch16_224": lambda: timm_network("deit_tiny_patch16_224", 32, img_size=32),
    "timm mixer_s32_224": lambda: timm_network("mixer_s32_224", 64, img_size=64),
    "timm resnest14d": lambda: timm_network("resnest14d", 64),
    "timm coatnet_pico_rw_224": lambda: timm_network("coatnet_pico_rw_224", 64, img_size=64),
}
"""Constructors of the models."""
