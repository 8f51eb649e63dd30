"""Advice for each bottleneck, as printed."""

from __future__ import annotations

SLOW, COPIES, GAPS, RECOMPILATION = "slow operator", "copies", "framework gaps", "recompilation"
"""The four classic bottlenecks."""

FLOAT64 = "compute it in float32 (.float(), dtype=torch.float32): such cards have no float64"
MEMORY = (
    "reduce its memory traffic: smaller intermediate tensors, an equivalent without them (a matrix product instead of "
    "a broadcast), or float16 (torch.autocast('sdaa'))"
)
PRODUCT = (
    "compute more per read of the weights: a larger batch, one product instead of several; or a smaller layer, or "
    "float16 (torch.autocast('sdaa'))"
)
TABLE = (
    "use nn.Embedding(sparse=True) with SGD, Adagrad or SparseAdam: its gradient then has only the rows that were "
    "looked up, not the whole table"
)
PARTS = (
    "take all parts at once (unbind, split, one index_select): the gradient of each indexed part has the size of the "
    "whole tensor"
)
CHAIN = (
    "replace the chain by one operator (nn.GELU, nn.LayerNorm instead of the formula), or use torch.compile, which "
    "fuses it into one kernel; or float16 (torch.autocast('sdaa'))"
)
ATTENTION = (
    "use torch.nn.functional.scaled_dot_product_attention (or nn.MultiheadAttention with need_weights=False): one "
    "operator, which does not store the attention matrix"
)
COMPUTE_LOWER = "replace it by a cheaper equivalent, or reduce its work: it has a lower precision already"
COMPUTE = "replace it by a cheaper equivalent, or compute it in float16 (torch.autocast('sdaa'))"
UPDATE = "update less often: a larger batch, or gradients of several batches for one step"
READS = "keep it on the device: sum tensors there, and read them every few steps (.item(), .cpu() wait for the device)"
OWN_READS = (
    "this optimizer reads values on the host to decide: use fewer inner iterations (max_iter), or another optimizer "
    "(Adam, SGD); in your own optimizer, keep the decision on the device (torch.where)"
)
WAITS = "move the call out of the loop: reading a value waits for it anyway"
DECIDES = "the shape of its result depends on values, so the host waits: use torch.where or a mask of fixed shape"
UPLOADS = (
    "copy whole batches once (stack on the host), pinned, ahead, and during computation: PreLoader of "
    "torch_sdaa.contrib.optimized_lib, or pin_memory=True and .to(device, non_blocking=True) on a separate stream"
)
BETWEEN = "keep tensors that are used together on one device"
CONTIGUOUS = "avoid the copy: keep one layout and dtype instead of permuting, transposing or casting back and forth"
LOOPS = (
    "compute whole tensors at once instead of the loop (stack, then one matrix product or sum; torch._foreach_ for "
    "lists of parameters), or use torch.compile"
)
RECURRENT = (
    "PyTorch runs this layer step by step, with a few small launches each: torch.compile fuses them into one, and a "
    "larger batch needs fewer"
)
SIBLINGS = (
    "compute modules that read the same operand at once: one module with all their weights (one Linear for all heads, "
    "groups= of a convolution, torch.func.stack_module_state with vmap), or torch.compile"
)
_FUSED = frozenset(("Adam", "AdamW", "SGD", "Adagrad"))
"""Optimizers of ``torch.optim`` with an argument ``fused``."""

_FOREACH = frozenset(("Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"))
"""Other optimizers of ``torch.optim`` with an argument ``foreach``."""


def at_once(optimizer: str) -> str:
    """Return the advice for an optimizer that updates tensors one by one; ``optimizer``: its class, "" if unknown."""
    others = "Adam, AdamW, SGD or Adagrad with fused=True"
    if optimizer in _FOREACH:
        way = f"foreach=True ({optimizer} has no fused form), or {others}"
    elif optimizer in _FUSED or not optimizer:
        way = "foreach=True or fused=True, or SdaaFusedAdam, SdaaFusedSGD and others of apex.optimizers"
    else:
        way = f"{others}; or write the step of {optimizer} with torch._foreach_ operators on lists of tensors"
    return f"update all tensors in one launch: {way}"


SHAPES = "keep shapes fixed: pad to a few sizes, drop_last=True in the DataLoader, masks instead of selected rows"
DYNAMIC = "torch.compile(dynamic=True)"
GUARDS = f"{DYNAMIC}, or keep the shapes, numbers or options given in the reason fixed"
CONSTANTS = (
    "keep the value given in the reason the same in every step, or pass it as a tensor: Python values are compiled in"
)
