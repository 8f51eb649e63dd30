"""A training script for the tests of the gate: one weight vector, a few milliseconds, standard library only.

Its first argument selects a fault.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
import time

parser = argparse.ArgumentParser()
for name in ("--wrong", "--device", "--losses"):
    parser.add_argument(name, default="")
parser.add_argument("--seed", type=int)
parser.add_argument("--noise", type=float, default=0.0)
args = parser.parse_args()
wrong = "" if args.device == "cpu" and args.wrong not in ("nan everywhere", "seed", "hang") else args.wrong
elsewhere = args.device != "cpu"
draw, noise = random.Random(0 if wrong == "seed" else args.seed), random.Random(1)

if wrong == "crash":
    raise ValueError("the card is on fire")
if wrong == "hang":
    time.sleep(60)
if wrong == "nothing":
    raise SystemExit(0)


def half(value: float) -> float:
    """Round to float16."""
    return float(struct.unpack("<e", struct.pack("<e", value))[0])


points = [([draw.gauss(0, 1) for _ in range(4)], draw.gauss(0, 0.5)) for _ in range(200)]
rows = [(x, 1.0 if sum(x) + shift > 0 else 0.0) for x, shift in points]
weights = [0.0] * 4
where = "cpu" if wrong == "device" else f"{args.device}:0" if elsewhere else "cpu"
lines = ["not json"] if wrong == "no json" else [json.dumps({"device": where, "seed": args.seed})]


def guess(x: list[float]) -> float:
    return 1 / (1 + math.exp(-sum(a * b for a, b in zip(weights, x, strict=True))))


for step in range(30):
    batch = draw.sample(rows[:100], 10)
    loss = -sum(math.log(max(1e-9, guess(x) if y else 1 - guess(x))) for x, y in batch) / 10
    lines.append(json.dumps({"step": step, "loss": math.nan if wrong.startswith("nan") and step == 7 else loss}))
    weights = [w + 0.5 * sum((y - guess(x)) * x[i] for x, y in batch) / 10 for i, w in enumerate(weights)]
    if elsewhere:
        weights = [w * (1 + noise.gauss(0, args.noise)) for w in weights]
    if wrong == "float16":
        weights = [half(w) for w in weights]
    if wrong == "forgets":
        weights = [w * 0.3 - 0.2 for w in weights]

if args.losses and wrong != "no losses":
    with open(args.losses, "w", encoding="utf-8") as file:
        file.write("\n".join(lines if wrong != "head alone" else lines[:1]) + "\n")
print("Some words first.")  # noqa: T201
if wrong != "no metric":
    metric = sum(-math.log(max(1e-9, guess(x) if y else 1 - guess(x))) for x, y in rows[100:]) / 100
    print(f"eval_metric {metric:.9f}")  # noqa: T201
