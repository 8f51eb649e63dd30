"""Parts of networks and training loops with fewer launches than the functions they replace, and the same values.

Guides for such cards have them at ``torch.contrib.npu.optimized_lib``; the optimizers are those of ``apex.optimizers``.
"""

from tecoinfer_modelzoo.text import did_you_mean
from torch_sdaa.apex.optimizers import Lamb, SdaaFusedAdadelta, SdaaFusedAdam, SdaaFusedLamb, SdaaFusedSGD
from torch_sdaa.contrib.optimized_lib.boxes import Found, fast_rcnn_inference_single_image, pairwise_iou
from torch_sdaa.contrib.optimized_lib.preloader import PreLoader
from torch_sdaa.contrib.optimized_lib.shuffle import ChannelShuffle

__all__ = [
    "ChannelShuffle",
    "Found",
    "Lamb",
    "PreLoader",
    "SdaaFusedAdadelta",
    "SdaaFusedAdam",
    "SdaaFusedLamb",
    "SdaaFusedSGD",
    "fast_rcnn_inference_single_image",
    "pairwise_iou",
]


def __getattr__(name: str) -> object:
    hint = did_you_mean(name, __all__) or f" it has {', '.join(__all__)}"
    raise AttributeError(f"torch_sdaa.contrib.optimized_lib has no {name!r};{hint}")
