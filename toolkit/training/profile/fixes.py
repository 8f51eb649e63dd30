"""What helps against each bottleneck, in the words that are said."""

from __future__ import annotations

SLOW, COPIES, GAPS, RECOMPILATION = "slow operator", "copies", "framework gaps", "recompilation"
"""The four classic bottlenecks."""

FLOAT64 = "compute it in float32 (.float(), dtype=torch.float32): such cards have no float64"
MEMORY = (
    "let it move less: smaller intermediate tensors, an equivalent that makes none (a matrix product in place of a "
    "broadcast), or float16 (torch.autocast('sdaa'))"
)
PRODUCT = (
    "let each read of the weights do more: a larger batch, one product in place of several; or a smaller layer, or "
    "float16 (torch.autocast('sdaa'))"
)
TABLE = (
    "take nn.Embedding(sparse=True), with SGD, Adagrad or SparseAdam: its gradient then has the rows that were looked "
    "up, not the whole table"
)
PARTS = (
    "take all parts at once (unbind, split, one index_select): the gradient of each that is taken by an index is a "
    "tensor of the whole"
)
CHAIN = (
    "take one operator for the chain of them (nn.GELU, nn.LayerNorm for its formula), or torch.compile: it makes one "
    "kernel of it; or float16 (torch.autocast('sdaa'))"
)
ATTENTION = (
    "take torch.nn.functional.scaled_dot_product_attention (or nn.MultiheadAttention with need_weights=False): one "
    "operator, which keeps no table of all with all"
)
COMPUTE_LOWER = "replace it by a cheaper equivalent, or give it less to do: it is in a lower precision already"
COMPUTE = "replace it by a cheaper equivalent, or compute it in float16 (torch.autocast('sdaa'))"
UPDATE_AT_ONCE = (
    "let one launch step all tensors and read each once: fused=True, or SdaaFusedAdam, SdaaFusedSGD and their like of "
    "apex.optimizers; or fewer updates: a larger batch, gradients of several batches for one step"
)
UPDATE = "a larger batch, or gradients of several batches for one step, share each update"
READS = (
    "keep it on the device: sum tensors there, and read them once in many steps (.item(), .cpu() wait for the device)"
)
OWN_READS = (
    "this optimizer decides on the host by what it reads: fewer of its inner iterations (max_iter), or one that does "
    "not (Adam, SGD); in an optimizer of your own, keep the decision on the device (torch.where)"
)
WAITS = "take the call out of the loop: reading a value waits by itself"
DECIDES = "its result has a shape that follows from values, so the host waits: use torch.where or a mask of fixed shape"
UPLOADS = (
    "move whole batches, once (stack on the host), pinned and ahead, beside computing: PreLoader of "
    "torch_sdaa.contrib.optimized_lib, or pin_memory=True and .to(device, non_blocking=True) on a stream of its own"
)
BETWEEN = "keep what works together on one device"
CONTIGUOUS = (
    "avoid the copy: keep one layout and dtype, and compute rather than permute, transpose or cast back and forth"
)
LOOPS = (
    "compute whole tensors at once in place of the loop (stack, then one matrix product or sum; torch._foreach_ for "
    "lists of parameters), or use torch.compile"
)
RECURRENT = (
    "PyTorch runs this layer step by step, a few small launches each: torch.compile makes one launch of them, and a "
    "larger batch shares them"
)
SIBLINGS = (
    "compute modules that take the same operand at once: one module of all their weights (one Linear for all heads, "
    "groups= of a convolution, torch.func.stack_module_state with vmap), or torch.compile"
)
OPTIMIZER = (
    "let one launch step all tensors: foreach=True or fused=True, or SdaaFusedAdam, SdaaFusedSGD and their like of "
    "apex.optimizers"
)
SHAPES = "keep shapes fixed: pad to a few sizes, drop_last=True in the DataLoader, masks in place of selected rows"
DYNAMIC = "torch.compile(dynamic=True)"
GUARDS = f"{DYNAMIC}, or keep what the reason names fixed: shapes, numbers and options of the function"
CONSTANTS = (
    "keep what the reason names the same in every step, or hand it over as a tensor: what Python holds is compiled in"
)
