"""Telemetry of third-party packages: disabled in this process and its children.

ONNX Runtime (as of 1.31.1) writes a device id and an event database to the home folder on import, and sends them to its
vendor. Its switch, and those of other packages, are environment variables that are read on import; they are set by the
first import of the zoo. ``TECO_TELEMETRY=1`` leaves the environment unchanged.
"""

from __future__ import annotations

import os

VARIABLE = "TECO_TELEMETRY"
"""Environment variable: ``1`` allows telemetry."""

SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
"""Variables of the packages and their value for "off"; values set by the user are kept."""


def allowed() -> bool:
    """Return whether the user allows telemetry."""
    return os.environ.get(VARIABLE, "").strip() == "1"


def turn_off() -> None:
    """Set the unset switches, unless the user allows telemetry."""
    if allowed():
        return
    for name, value in SWITCHES.items():
        if not os.environ.get(name):  # the packages treat an empty value as unset
            os.environ[name] = value
