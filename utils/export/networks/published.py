"""Names of published networks, checked without building one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean

_FORM = re.compile(r"(?:(torchvision|timm)[:/])?([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)?)")
LONGEST = 60
"""Maximum characters of a name."""


class Published(NamedTuple):
    """A published network.

    Attributes:
        package: ``torchvision`` or ``timm``. name: the package's name of the network. arch: the name as ``--arch`` of
            an export script takes it.
    """

    package: str
    name: str
    arch: str

    @property
    def packages(self) -> list[str]:
        """Lines of a ``requirements.txt`` for the export."""
        return ["torch>=2.9", "torchvision", *(["timm"] if self.package == "timm" else [])]


def published_classifier(text: str) -> Published:
    """Parse the name of a classification network: ``resnet18``, ``torchvision:resnet18`` or ``timm:resnet18.a1_in1k``.

    The name is looked up if the package is installed; otherwise the export reports an unknown name.

    Raises:
        ConfigError: the name has another form, or the package does not have it.
    """
    match = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        raise ConfigError(f"--arch {text!r} is not a network's name; write resnet18, torchvision:NAME or timm:NAME")
    package, name = match[1] or "torchvision", match[2]
    known = _known(package)
    if known and name not in known and name.partition(".")[0] not in known:
        raise ConfigError(f"--arch {text!r}: {package} has no classifier {name!r};{did_you_mean(name, known)} "
                          f"it has {len(known)}")  # fmt: skip
    return Published(package, name, name if package == "torchvision" else f"timm/{name}")


def _known(package: str) -> Sequence[str]:
    """Return the names of a package's classifiers; empty if it is not installed."""
    if find_spec("torch") is None or find_spec("torchvision") is None or find_spec(package) is None:
        return ()
    if package == "timm":
        from utils.export.networks.timm_models import import_timm

        names: Sequence[str] = import_timm().list_models()
        return names
    from utils.export.networks.torchvision_models import import_torchvision

    models = import_torchvision().models
    found: Sequence[str] = models.list_models(module=models)
    return found
