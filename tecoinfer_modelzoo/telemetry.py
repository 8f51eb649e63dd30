"""Reports that other people's packages make of their use: off in this process and in all that it starts.

ONNX Runtime (seen in 1.31.1) writes a device id and a database of events below the home folder when it is imported, and
sends them to its vendor. Its switch and those of others are environment variables that are read when the package is
imported, so they are set with the first import of the zoo. ``TECO_TELEMETRY=1`` leaves everything as it is.
"""

from __future__ import annotations

import os

VARIABLE = "TECO_TELEMETRY"
"""Environment variable: ``1`` lets packages report as they do by themselves."""

SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
"""The packages' own switches, and their value for off; one that the user has set stays as it is."""


def allowed() -> bool:
    """Say whether the user lets packages report."""
    return os.environ.get(VARIABLE, "").strip() == "1"


def turn_off() -> None:
    """Set the switches that are not set, unless the user lets packages report."""
    if allowed():
        return
    for name, value in SWITCHES.items():
        if not os.environ.get(name):  # an empty one is none to the packages
            os.environ[name] = value
