"""Profile on the simulated card, with the cost model of target ``sdaa``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine import EngineSpec
from engine.passes import PassOptions
from engine.sdaa import CardDescription, Kernel, Layout, Lowered, ShardCost, load_card, lowered, price, spa_count
from toolkit.graph.inputs import Shapes, input_shapes
from toolkit.profile.bottlenecks import find_bottlenecks, fusion, kinds_of_shape
from toolkit.profile.record import Launch, Profile, WhatIf, unique
from toolkit.profile.sizes import checked_inputs


def prepare(spec: EngineSpec, shapes: Shapes | None = None, compare: bool = True) -> Lowered:
    """Load a model, bind the shapes of one shard, and run the passes; raise TecoInferError if either is invalid.

    Args:
        spec: with the ``batch_size`` of the whole card. shapes: of inputs by name, for one shard.
        compare: verify the passes with random input.
    """
    from engine.onnx import load_model

    options = PassOptions.load(spec.pass_path)
    original = load_model(spec.ckpt)
    checked_inputs(original, shapes or {})
    batch = -(-spec.batch_size // spa_count(spec))
    full = input_shapes(original, batch, shapes)
    first = next(iter(full.values()), (batch,))
    size = first[0] if first else batch
    return lowered(original, options, full, float16=spec.dtype != "float32", batch=size, compare=compare)


def profile_card(spec: EngineSpec, shapes: Shapes | None = None) -> Profile:
    """Return the profile of one shard on one SPA, with simulated times."""
    return profile_prepared(spec, prepare(spec, shapes))


def profile_prepared(spec: EngineSpec, loaded: Lowered, saved: Mapping[str, float] | None = None) -> Profile:
    """Return the profile of a prepared model; ``saved``: seconds saved by rewrite rules, by operator."""
    from toolkit.graph.nodes import module_of

    card = load_card()
    layout = card.layout(loaded.options.layout)
    half = loaded.half
    cost = price(loaded.work, card, layout)
    modules = {node.name: module_of(node) for node in loaded.original.graph.node}
    names = unique(kernel.name for kernel in cost.kernels)
    steps = tuple(
        _step(name, kernel, seconds, layout, 1.0 if half and not kernel.float32 else card.float32_rate, modules)
        for name, kernel, seconds in zip(names, cost.kernels, cost.kernel_seconds, strict=True)
    )
    found = Profile(
        model=spec.ckpt.name,
        target="sdaa",
        simulated=True,
        device=f"simulated {card.name}, one SPA, layout {loaded.options.layout}",
        dtype="float16" if half else "float32",
        batch=loaded.batch,
        pass_file=spec.pass_path.name if spec.pass_path else "",
        inputs=loaded.inputs,
        peak_flops=layout.compute_tflop_s * 1e12 * (1.0 if half else card.float32_rate),
        bandwidth=layout.memory_gb_s * 1e9,
        steps=steps,
        copy_in=cost.copy_in,
        copy_out=cost.copy_out,
        call=cost.copy_in + cost.compute + cost.copy_out,
        notes=_notes(card, cost),
    )
    shape = kinds_of_shape(loaded.original, loaded.model, cost.unknown)
    found = replace(found, what_if=_what_if(found, loaded, card))
    return replace(found, bottlenecks=find_bottlenecks(found, shape, saved))


def _step(name: str, kernel: Kernel, seconds: float, layout: Layout, rate: float, modules: Mapping[str, str]) -> Launch:
    arithmetic = kernel.flops / (layout.compute_tflop_s * 1e12 * rate)
    traffic = (kernel.read + kernel.written) / (layout.memory_gb_s * 1e9)
    roof = max(arithmetic, traffic)
    bound = "launch" if seconds - roof > roof else "compute" if arithmetic > traffic else "memory"
    return Launch(
        name=name,
        op_type=kernel.op_type,
        nodes=kernel.nodes,
        module=next((modules[node] for node in kernel.nodes if modules.get(node)), ""),
        seconds=seconds,
        flops=kernel.flops,
        bytes=kernel.read + kernel.written,
        roof=roof,
        bound=bound if kernel.known else "unknown",
        float32=kernel.float32,
    )


def _notes(card: CardDescription, cost: ShardCost) -> tuple[str, ...]:
    notes = [f"all times are simulated by the cost model of {card.source.name}; the roof is that of the layout"]
    if cost.unknown:
        few = ", ".join(cost.unknown[:3]) + (", ..." if len(cost.unknown) > 3 else "")
        notes.append(f"{len(cost.unknown)} kernels have data-dependent sizes ({few}): only their launch is counted")
    return tuple(notes)


def _what_if(found: Profile, loaded: Lowered, card: CardDescription) -> tuple[WhatIf, ...]:
    """Return the time in other layouts, with fused elementwise kernels, and without launches."""
    others = [name for name in card.layouts if name != loaded.options.layout]
    layouts = [WhatIf(f"layout {name}", price(loaded.work, card, card.layout(name)).compute) for name in others]
    return (*layouts, *fusion(found), WhatIf("no launch cost (the roof)", sum(step.roof for step in found.steps)))
