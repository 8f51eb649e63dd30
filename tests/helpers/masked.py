"""Graphs of attention with a mask, as written by exporters, and inputs of two lengths."""

from __future__ import annotations

import numpy as np

HEAD = "g (float[2, 4, 8] q, float[2, 4, 8] k, int64[2, 4] m) => (float[2, 4, 8] y)"
CONSTANTS = """<float zero = {0.0}, float one = {1.0}, float low = {-3.4e38}, float high = {3.4e38},
float none = {-inf}, float by = {0.5}, float steep = {300.0}, int64 diagonal = {1}, int64[3] shape = {2, 4, 4},
int64[1] axis = {1}, int64[1] start = {0}, int64[1] end = {4}, int64[1] last = {2}>"""
SCORES = "t = Transpose <perm = [0, 2, 1]> (k) raw = MatMul(q, t) s = Mul(raw, by)"
STEEP = SCORES.replace("raw = MatMul(q, t)", "u = Mul(q, steep) v = Mul(t, steep) raw = MatMul(u, v)")
"""Scores beyond float16, stored after the scale, which is fused with them unless a mask is in between."""

ATTENDS = "p = Softmax <axis = -1> (x) o = MatMul(p, k) y = Add(o, q)"
KEEP = "keep = Cast <to = 9> (m) kept = Unsqueeze(keep, axis)"

MASKS = {
    "where": f"{KEEP} b = Where(kept, zero, low) x = Add(s, b)",
    "where, minus infinity": f"{KEEP} x = Where(kept, s, none)",
    "expanded": f"{KEEP} c = Where(kept, zero, low) b = Expand(c, shape) x = Add(b, s)",
    "before the scale": f"{KEEP} b = Where(kept, zero, low) t2 = Add(raw, b) x = Mul(t2, by)",
    "subtracted": f"{KEEP} b = Where(kept, zero, high) x = Sub(s, b)",
    "in parts": f"{KEEP} c = Where(kept, zero, low) d = Slice(c, start, end, last) e = Concat <axis = 2> (d) "
    "f = Cast <to = 1> (e) b = Min(f, zero) x = Add(s, b)",
    "causal": "f = Expand(low, shape) b = Trilu <upper = 1> (f, diagonal) x = Add(s, b)",
    "clipped": f"{KEEP} b = Where(kept, zero, low) c = Clip(b, low) x = Add(s, c)",
    "compared": f"{KEEP} b = Where(kept, zero, low) e = Equal(b, zero) x = Where(e, s, low)",
    "softmax in steps": f"{KEEP} b = Where(kept, zero, low) w = Add(s, b) r = ReduceMax <axes = [2]> (w) "
    "d = Sub(w, r) n = Exp(d) l = ReduceSum(n, last) p = Div(n, l) o = MatMul(p, k) y = Add(o, q)",
}
"""Variants of masking: from the scores s to x, and once a whole softmax."""


def graph(mask: str, scores: str = SCORES) -> str:
    """Return the text of a graph with a variant of masking."""
    body = MASKS.get(mask, mask)
    ending = "" if "y = " in body else ATTENDS
    return f"{HEAD} {CONSTANTS} {{ {scores} {body} {ending} }}"


def inputs(length: int = 2) -> dict[str, np.ndarray]:
    """Return q, k and the mask of two sentences: one of four tokens, one of ``length``."""
    q, k = np.random.default_rng(0).normal(size=(2, 2, 4, 8)).astype(np.float32)
    return {"q": q, "k": k, "m": np.int64([[1, 1, 1, 1], [1] * length + [0] * (4 - length)])}
