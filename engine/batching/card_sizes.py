"""Conversion of ``input_size`` shapes with the batch of the whole card to the batch of one SPA."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from engine.signature import Dim, may_be_batch
from engine.spec import MAX_SPA, EngineSpec
from tecoinfer_modelzoo.errors import ConfigError
from tecoinfer_modelzoo.text import shape_text, user_stacklevel


def per_spa(spec: EngineSpec, declared: Sequence[Sequence[Dim]]) -> EngineSpec:
    """Return the spec with all shapes of ``input_size`` per SPA; raise ConfigError for several shares.

    Existing scripts give images per SPA and the corresponding text for the whole card. An input has the batch of the
    card if its first size is ``batch_size``, that of another input is a share of it, and the model (``declared`` shapes
    with symbols) has the same batch in both; a warning names it.
    """
    if spec.input_size is None or spec.batch_size == 1:
        return spec
    batch = spec.batch_size
    first = {i: (shape[0], declared[i][0]) for i, shape in enumerate(spec.input_size) if shape and declared[i]}
    shares = {i: (size, dim) for i, (size, dim) in first.items() if size and size < batch <= size * MAX_SPA}
    whole = {i: dim for i, (size, dim) in first.items() if size == batch and dim != batch}
    whole = {i: dim for i, dim in whole.items() if any(_same(dim, other) for _, other in shares.values())}
    mine = sorted({size for size, dim in shares.values() if any(_same(dim, other) for other in whole.values())})
    if not whole:
        return spec
    if len(mine) > 1:
        batches = f"{', '.join(map(str, mine))} and {batch}; give every input the batch of one SPA"
        raise ConfigError(f"{spec.ckpt}: input_size {_shown(spec.input_size)} has the batches {batches}")
    warnings.warn(
        f"{spec.ckpt}: input_size {_shown([spec.input_size[i] for i in whole])} has the batch of the whole card, the "
        f"other inputs that of one SPA; {mine[0]} is used",
        stacklevel=user_stacklevel(),
    )
    sizes = [(mine[0], *shape[1:]) if i in whole else shape for i, shape in enumerate(spec.input_size)]
    return replace(spec, input_size=tuple(sizes))


def mixed_batches_message(spec: EngineSpec) -> str | None:
    """Return a message if some shapes have the batch of the whole card and others a share; else ``None``."""
    sizes = [shape[0] for shape in spec.input_size or () if shape and shape[0]]
    shares = sorted({size for size in sizes if size < spec.batch_size <= size * MAX_SPA})
    if len(shares) != 1 or spec.batch_size not in sizes:
        return None
    return (
        f"input_size {_shown(spec.input_size or ())} has inputs of {shares[0]} and of {spec.batch_size} samples, which "
        f"the model does not combine; give every input the batch of one SPA, {shares[0]}"
    )


def _same(one: Dim, other: Dim) -> bool:
    """Return whether two declared first dimensions may be the same batch: equal, or both possibly a batch."""
    if one is not None and one == other:
        return True
    return may_be_batch(one) and may_be_batch(other)


def _shown(shapes: Sequence[Sequence[int | None]]) -> str:
    return ", ".join(map(shape_text, shapes))
