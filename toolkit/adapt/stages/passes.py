"""Rewrite rules that save time on the simulated card and keep the metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine import EngineSpec
from toolkit.adapt.running import data_words, model_file, task_request
from toolkit.adapt.stage import Stage
from toolkit.adapt.stages.card import gate
from toolkit.adapt.work import Outcome, Work
from toolkit.profile.card import prepare
from toolkit.profile.sizes import sizes_of
from toolkit.profile.suggest import Suggestion, suggest, write_pass

FOLDER, FILE = "passes", "rules_pass.py"

LEAST = 0.01
"""Share of the simulated time that rules have to save; less is not worth a pass file."""


class SuggestPasses(Stage):
    """Try the rules of ``teco profile --suggest``, and keep them if the gate passes with them."""

    name, title, optional = "passes", "rewrite rules", True
    needs = ("take_in", "export", "task", "data", "onnx", "sdaa")

    def run(self, work: Work) -> Outcome:
        """Return the chosen rules and the pass file that has them, together with the float32 nodes."""
        from engine.onnx import load_model
        from engine.sdaa import spa_count
        from toolkit.fix.opening import SampleRequest

        spec = EngineSpec(model_file(work), work.request.batch, dtype="float16")
        asked, dims = task_request(work)
        wanted = SampleRequest(data_words(work), work.request.batch, None, {}, dims, asked)
        sizes = sizes_of(load_model(spec.ckpt), spec.ckpt, -(-spec.batch_size // spa_count(spec)), wanted)
        loaded = prepare(spec, sizes.shapes)
        found = suggest(loaded)
        facts = _facts(found)
        if not found.chosen or facts["saved"] < LEAST:
            return Outcome(f"no rule saves {LEAST:.0%} of the simulated {found.before * 1e3:.3g} ms of a shard", facts)
        path = work.folder / FOLDER / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        write_pass(path, found, loaded)
        rules = ", ".join(facts["rules"])
        price = f"{found.before * 1e3:.3g} to {found.after * 1e3:.3g} ms of a shard (simulated)"
        judged = gate(work, path, path.parent)
        if judged.verdict not in ("passes", "fixed"):
            return Outcome(f"{rules} save {facts['saved']:.1%}, but the gate fails with them: left out", facts, [path])
        used = judged.pass_file if judged.verdict == "fixed" and judged.pass_file is not None else path
        facts["pass"] = used.relative_to(work.folder).as_posix()
        return Outcome(f"{rules}: {price}; the gate passes", facts, [used])


def _facts(found: Suggestion) -> dict[str, Any]:
    return {
        "rules": [gain.rule for gain in found.chosen],
        "before_ms": found.before * 1e3,
        "after_ms": found.after * 1e3,
        "saved": (found.before - found.after) / found.before if found.before else 0.0,
        "pass": "",
    }


def used_pass(work: Work) -> Path | None:
    """Return the pass file of the case: that with rewrite rules, else that of the float32 nodes; ``None``: none."""
    for stage in ("passes", "sdaa"):
        place = str(work.facts(stage).get("pass", ""))
        if place:
            return work.folder / place
    return None
