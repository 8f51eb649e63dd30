"""Graph optimization: options of pass files, their application, and rewrite rules with predicted gains."""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.passes.options import (
        FLOAT32_OPS as FLOAT32_OPS,
        NORMALISATION_OPS as NORMALISATION_OPS,
        PassOptions as PassOptions,
    )
    from engine.passes.rules import RULES as RULES, rewrite as rewrite
    from engine.passes.rules.gain import (
        Gain as Gain,
        choose as choose,
        compute_cost as compute_cost,
        predict as predict,
    )
    from engine.passes.runner import apply_passes as apply_passes

_HOMES = {
    "engine.passes.options": "FLOAT32_OPS NORMALISATION_OPS PassOptions",
    "engine.passes.runner": "apply_passes",
    "engine.passes.rules": "RULES rewrite",
    "engine.passes.rules.gain": "Gain choose compute_cost predict",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
