"""Point clouds of eight kinds of bodies, drawn at random: 64 points of a surface, turned, stretched and noisy."""

from __future__ import annotations

import numpy as np

from engine import Array

POINTS = 64
LABELS = ("ball", "box", "cylinder", "cone", "ring", "disc", "spiral", "two balls")

NOISE = 0.04
"""Standard deviation of a coordinate, of bodies about 2 wide."""


def clouds(count: int, chance: np.random.Generator) -> tuple[Array, Array]:
    """Return clouds, count x 64 x 3 float32, and their classes, int64; a body is turned at random about every axis."""
    labels = chance.integers(len(LABELS), size=count)
    angle, height = chance.uniform(0, 2 * np.pi, (count, POINTS)), chance.uniform(-1, 1, (count, POINTS))
    around = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=-1)
    sphere = chance.normal(size=(count, POINTS, 3))
    sphere /= np.linalg.norm(sphere, axis=-1, keepdims=True)
    upright = np.array([0.0, 0.0, 1.0]) * height[..., None]
    bodies = (
        sphere,
        sphere / np.abs(sphere).max(axis=-1, keepdims=True),
        around * 0.7 + upright,
        around * (0.5 - 0.5 * height[..., None]) + upright,
        around + 0.3 * sphere,
        around * np.sqrt(chance.uniform(0, 1, (count, POINTS, 1))),
        0.7 * np.stack([np.cos(2 * np.pi * height), np.sin(2 * np.pi * height), height / 0.7], axis=-1),
        0.5 * sphere + 0.6 * np.sign(upright),
    )
    chosen = np.stack(bodies)[labels, np.arange(count)] * chance.uniform(0.75, 1.25, (count, 1, 3))
    turns = np.linalg.qr(chance.normal(size=(count, 3, 3)))[0]
    turned = np.einsum("npi,nij->npj", chosen, turns) + chance.normal(0, NOISE, chosen.shape)
    return turned.astype(np.float32), labels


def held_out() -> tuple[Array, Array]:
    """Return 400 clouds for the evaluation; training draws others."""
    return clouds(400, np.random.default_rng(2024))
