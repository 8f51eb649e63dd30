"""Complete networks compiled for the device.

``python -m tests.torch_sdaa.dynamo.compiled_models [--autocast DTYPE] [NAME ...]``

One forward and backward pass each, compiled and not, without dropout; prints partitions, what was left to the device,
and the distance of the gradients from those of float64 over that of the uncompiled pass. Where an activation is so near
0 that roundings decide its sign, one of both passes is far off by chance: up to three seeds are tried. Exit code 1
where a network does not compile, or is more than twice as far with each seed.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import transformers

import torch_sdaa
from torch_sdaa import dynamo

IMAGES = {
    "alexnet": 96,
    "convnext_tiny": 64,
    "densenet121": 64,
    "efficientnet_b0": 64,
    "googlenet": 96,
    "mnasnet0_5": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "regnet_y_400mf": 64,
    "resnext50_32x4d": 64,
    "shufflenet_v2_x1_0": 64,
    "squeezenet1_0": 64,
    "swin_t": 64,
    "vgg11_bn": 64,
    "vit_b_16": 64,
    "resnet18": 64,
    "resnet34": 64,
    "wide_resnet50_2": 64,
    "vgg11": 64,
    "mobilenet_v3_large": 64,
    "efficientnet_v2_s": 64,
    "convnext_small": 64,
    "swin_v2_t": 64,
    "maxvit_t": 224,
    "inception_v3": 299,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "vit_b_32": 64,
    "fcn_resnet50": 64,
    "deeplabv3_mobilenet_v3_large": 64,
    "r3d_18": 32,
}
"""Networks of torchvision, and the size of the image."""

_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


_WHISPER = {
    "vocab_size": 1000, "num_mel_bins": 16, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "max_source_positions": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
}  # fmt: skip


_WORDS = {"vocab_size": 1000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_PATCHES = {"image_size": 32, "patch_size": 8}
_SIDES = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
}  # fmt: skip


class _Pairs(torch.nn.Module):
    """A network of images and words, with fixed words."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = torch.arange(12, device=x.device).view(2, 6) + 5
        return self.model(input_ids=words, pixel_values=x).logits_per_image


class _BothSides(torch.nn.Module):
    """An encoder-decoder with the same words on both sides; with fixed words for a sound."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            words = torch.arange(12, device=x.device).view(2, 6)
            return self.model(input_features=x, decoder_input_ids=words).logits
        return self.model(input_ids=x, decoder_input_ids=x).logits


LANGUAGE: dict[str, Callable[[], torch.nn.Module]] = {
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**_SMALL)),
    "distilbert": lambda: transformers.DistilBertForMaskedLM(
        transformers.DistilBertConfig(dim=64, n_layers=2, n_heads=4, hidden_dim=128)
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4)),
    "roberta": lambda: transformers.RobertaForMaskedLM(transformers.RobertaConfig(**_SMALL)),
    "t5": lambda: transformers.T5EncoderModel(transformers.T5Config(d_model=64, d_ff=128, num_layers=2, num_heads=4)),
    "t5-full": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=64, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0)
    ),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**_WHISPER)),
    "vit": lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(**_SMALL, image_size=32, patch_size=8)
    ),
    "albert": lambda: transformers.AlbertForMaskedLM(transformers.AlbertConfig(**_SMALL, embedding_size=32)),
    "electra": lambda: transformers.ElectraForMaskedLM(transformers.ElectraConfig(**_SMALL, embedding_size=32)),
    "deberta-v2": lambda: transformers.DebertaV2ForMaskedLM(
        transformers.DebertaV2Config(**_SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8)
    ),
    "opt": lambda: transformers.OPTForCausalLM(
        transformers.OPTConfig(
            **_WORDS,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=128,
            word_embed_proj_dim=64,
        )
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**_WORDS, **_SIDES)),
    "pegasus": lambda: transformers.PegasusForConditionalGeneration(transformers.PegasusConfig(**_WORDS, **_SIDES)),
    "mpnet": lambda: transformers.MPNetForMaskedLM(transformers.MPNetConfig(**_SMALL)),
    "gpt_neox": lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**_SMALL, **_WORDS)),
    "bloom": lambda: transformers.BloomForCausalLM(
        transformers.BloomConfig(**_WORDS, hidden_size=64, n_layer=2, n_head=4)
    ),
    "mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**_SMALL, **_WORDS, num_key_value_heads=2)
    ),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_SMALL, **_WORDS, num_key_value_heads=2)),
    "phi": lambda: transformers.PhiForCausalLM(transformers.PhiConfig(**_SMALL, **_WORDS)),
    "gemma": lambda: transformers.GemmaForCausalLM(
        transformers.GemmaConfig(**_SMALL, **_WORDS, num_key_value_heads=1, head_dim=16)
    ),
    "longformer": lambda: transformers.LongformerForMaskedLM(
        transformers.LongformerConfig(**_SMALL, **_WORDS, attention_window=8)
    ),
    "xlnet": lambda: transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(**_WORDS, d_model=64, n_layer=2, n_head=4, d_inner=128)
    ),
    "convbert": lambda: transformers.ConvBertForMaskedLM(transformers.ConvBertConfig(**_SMALL, embedding_size=32)),
    "roberta-eager": lambda: transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(**_SMALL, attn_implementation="eager")
    ),
    "clip": lambda: _Pairs(
        transformers.CLIPModel(
            transformers.CLIPConfig(text_config={**_SMALL, **_WORDS}, vision_config={**_SMALL, **_PATCHES})
        )
    ),
    "segformer": lambda: transformers.SegformerForSemanticSegmentation(
        transformers.SegformerConfig(
            depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 32, 64], num_attention_heads=[1, 2, 2, 4]
        )
    ),
    "deit": lambda: transformers.DeiTForImageClassification(transformers.DeiTConfig(**_SMALL, **_PATCHES)),
    "swin": lambda: transformers.SwinForImageClassification(
        transformers.SwinConfig(
            image_size=32, patch_size=2, window_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4]
        )
    ),
    "wav2vec2": lambda: transformers.Wav2Vec2ForCTC(
        transformers.Wav2Vec2Config(
            **_SMALL,
            conv_dim=[32] * 3,
            conv_kernel=[10, 3, 3],
            conv_stride=[5, 2, 2],
            num_feat_extract_layers=3,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            mask_time_prob=0.0,
            layerdrop=0.0,
        )
    ),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SMALL, vocab_size=1000)),
}


def network(name: str, seed: int = 0) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a network with random weights and an input."""
    torch.manual_seed(seed)
    if name in IMAGES:
        import torchvision

        side = IMAGES[name]
        more: dict[str, Any] = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
        more |= {"init_weights": False} if name == "inception_v3" else {}
        more |= (
            {"image_size": side}
            if name.startswith("vit")
            else {"input_size": (side, side)}
            if name.startswith("maxvit")
            else {}
        )
        more |= {"weights_backbone": None} if name.startswith(("fcn", "deeplab")) else {}
        module = torchvision.models
        of = next(each for each in (module, module.segmentation, module.video) if hasattr(each, name))
        model = getattr(of, name)(**more)
        inputs = torch.randn(2, 3, *([4] if name == "r3d_18" else []), side, side)
        if name.startswith("vit"):  # it begins with zeros, which no gradient passes
            torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    else:
        model, inputs = LANGUAGE[name](), torch.randint(0, 1000, (2, 16))
        if name in ("vit", "deit", "swin", "clip", "segformer"):
            side = 64 if name == "segformer" else 32
            inputs = torch.randn(2, 3, side, side)
        if name == "wav2vec2":
            inputs = torch.randn(2, 1600)
        if name == "whisper":
            inputs = torch.randn(2, 16, 40)
        if name in ("whisper", "t5-full", "bart", "pegasus"):
            model = _BothSides(model)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        for rate in ("dropout", "activation_dropout", "dropout_rate"):
            if isinstance(getattr(module, rate, None), float):
                setattr(module, rate, 0.0)
    return model.train(), inputs


def gradients(model: Any, inputs: torch.Tensor, half: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Return the gradients of one pass, on the host."""
    with torch.autocast("sdaa", dtype=half, enabled=half is not None):
        made = model(inputs)
        loss = sum((each if each.dtype is torch.float64 else each.float()).square().mean() for each in _results(made))
    loss.backward()
    return {name: p.grad.detach().cpu().double() for name, p in model.named_parameters() if p.grad is not None}


def _results(made: Any) -> list[torch.Tensor]:
    """Return the values to train by: all of a dictionary or of auxiliary heads, else the first result."""
    if isinstance(made, torch.Tensor):
        return [made]
    if type(made) is OrderedDict:
        return list(made.values())
    return list(made) if type(made).__name__ == "InceptionOutputs" else [made[0]]


def away(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """Return the distance from the exact gradients relative to their norm."""
    found = {name.removeprefix("_orig_mod."): value for name, value in found.items()}
    apart = sum(float(((found[name] - exact[name]) ** 2).sum()) for name in exact)
    return float((apart / sum(float((each**2).sum()) for each in exact.values())) ** 0.5)


def checked(name: str, seed: int, half: torch.dtype | None) -> bool:
    """Compile one network, print its line, and return whether it is as near to float64 as the uncompiled one."""
    model, inputs = network(name, seed)
    device = torch.device("sdaa:0")
    plain = gradients(copy.deepcopy(model).to(device), inputs.to(device), half)
    torch.compiler.reset()
    dynamo.clear()
    began = time.perf_counter()
    compiled = gradients(torch.compile(copy.deepcopy(model).to(device), backend="sdaa"), inputs.to(device), half)
    seconds = time.perf_counter() - began
    exact = gradients(copy.deepcopy(model).double(), inputs.double() if inputs.is_floating_point() else inputs)
    report = dynamo.report()
    parts = [f"{graph.stage} {len(graph.partitions)}" for graph in report.graphs]
    left = [f"{each.op} x{each.count} ({each.reason})" for each in report.fallbacks]
    left += [str(each) for each in report.graph_breaks]
    ratio = away(compiled, exact) / max(away(plain, exact), 1e-300)
    said(
        f"{name}: {', '.join(parts)}; left: {'; '.join(left) or 'nothing'}; error {ratio:.2f}; {seconds:.0f} s",
    )
    return ratio <= 2


def said(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """Check each of the given networks, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--autocast", choices=("float16", "bfloat16"), help="both passes under autocast")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args(words)
    half = getattr(torch, given.autocast) if given.autocast else None
    wrong = []
    for name in given.names or [*IMAGES, *LANGUAGE]:
        try:
            if not any(checked(name, seed, half) for seed in range(3)):
                wrong.append(name)
        except Exception as error:  # noqa: BLE001 -- the others are still checked
            wrong.append(name)
            said(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:300]}")
    said(f"wrong: {', '.join(wrong)}" if wrong else f"all compile ({torch_sdaa.__name__})")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
