"""Settings of a model: a flag, a stored value, or a default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from utils.tasks import Model, Options


def setting_in_use(
    key: str,
    model: Model,
    options: Options | None,
    note: str,
    usual: Mapping[str, Any],
    valid: Callable[[str, Any], bool],
    what: str,
) -> Any:
    """Return the value of an export setting: the flag's, else the one stored under ``note``, else the default.

    Args:
        key: of the setting. model, options: of the run. note: key of the metadata. usual: defaults.
        valid: whether a stored value is valid, of key and value. what: description of valid values.

    Raises:
        ModelError: The metadata is not a JSON object, or the stored value is invalid.
    """
    given = getattr(options, key, None)
    if given is not None:
        return given
    value = model.notes(note).get(key, usual[key])
    if not valid(key, value):
        raise model.unusable(note, f"{key} {value!r} must be {what}")
    return value
