"""CartPole with images as observations: the latest four frames, grey, 84 x 84 pixels, uint8, the oldest first.

Scripts of this folder open it with ``--env frames:CartPoleFrames-v0``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array
from utils.environments import gymnasium

NAME, SIDE, STACKED = "CartPoleFrames-v0", 84, 4


def shrunk(image: Array) -> Array:
    """Return an image (H x W x 3, uint8) in grey, 84 x 84."""
    grey = Image.fromarray(image).convert("L")
    return np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX))


def made(**options: Any) -> Any:
    """Return the environment with a fixed render mode."""
    gym = gymnasium()
    pole = gym.make("CartPole-v1", render_mode="rgb_array", disable_env_checker=True)
    space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    seen = gym.wrappers.TransformObservation(gym.wrappers.AddRenderObservation(pole), shrunk, space)
    return gym.wrappers.FrameStackObservation(seen, STACKED)


if NAME not in gymnasium().registry:
    gymnasium().register(id=NAME, entry_point=made, max_episode_steps=500)
