"""Drawing of an episode: it is replayed with the same seed and actions, and rendered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from engine import ConfigError
from utils.environments import close_environment, facts_of, make_environment, of_environment
from utils.postprocess.image.film import film_strip, save_gif
from utils.tasks.policy_rollout.rollout import EpisodeResult

MOMENTS, FRAMES = 8, 100
"""Maximum numbers of images of a strip and of a GIF, at evenly spaced steps."""


def save_film(environment: str, seed: int, lane: EpisodeResult, text: str, form: str, folder: Path) -> Path:
    """Draw an episode and return the file.

    Args:
        environment: its name. seed: of the episode. lane: its result. text: written below a strip.
        form: ``strip`` (a PNG) or ``gif``. folder: of the file.

    Raises:
        ConfigError: The environment cannot be rendered, or is not deterministic.
    """
    from utils.draw import save_drawn

    most = MOMENTS if form == "strip" else FRAMES
    places = np.unique(np.linspace(0, lane.steps, min(most, lane.steps + 1)).astype(int)).tolist()
    frames, returns, rate = _replayed(environment, seed, lane, places)
    stem = f"{re.sub(r'[^A-Za-z0-9_-]+', '_', environment)}_seed_{seed}"
    if form == "gif":
        between = lane.steps / max(1, len(places) - 1)  # steps between images
        return save_gif(frames, max(20, round(1000 * between / rate)), folder / f"{stem}.gif")
    captions = [f"step {place}, return {total:g}" for place, total in zip(places, returns, strict=True)]
    lines = [f"{environment}, seed {seed}: {text}"]
    return save_drawn(Path(stem), lines, folder, film_strip(frames, captions))


def _replayed(
    name: str, seed: int, lane: EpisodeResult, places: Sequence[int]
) -> tuple[list[Image.Image], list[float], float]:
    """Return the images after the steps ``places``, the return up to each, and the steps per second."""
    if not facts_of(name).drawn:
        raise _undrawn(name)
    environment = make_environment(name, drawn=True)
    frames, returns, total, wanted = list[Image.Image](), list[float](), 0.0, set(places)
    try:
        with of_environment(
            lambda why: ConfigError(f"--save: {name} cannot be drawn ({why}); leave out --save for it")
        ):
            environment.reset(seed=seed)
            for step in range(lane.steps + 1):
                if step in wanted:
                    frames.append(_image(environment.render(), name))
                    returns.append(total)
                if step < lane.steps:
                    action = lane.actions[step]
                    total += float(environment.step(int(action) if action.ndim == 0 else action.copy())[1])
            rate = float(environment.metadata.get("render_fps") or 30)
    finally:
        close_environment(environment)
    if not np.isclose(total, lane.total, rtol=1e-9, atol=1e-9):
        raise ConfigError(
            f"--save: {name} is not deterministic: seed {seed} with the same actions has the return {total:g}, before "
            f"{lane.total:g}; its results cannot be reproduced"
        )
    return frames, returns, rate


def _image(found: object, name: str) -> Image.Image:
    if not isinstance(found, np.ndarray) or found.ndim != 3 or found.dtype != np.uint8:
        raise _undrawn(name)
    return Image.fromarray(found)


def _undrawn(name: str) -> ConfigError:
    return ConfigError(f"--save: {name} does not support the render mode rgb_array; leave out --save for it")
