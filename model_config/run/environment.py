"""The environment of a process that runs contributed code: named variables, so that no secret of the check is in it.

A pull request's scripts can print their environment, and reports show what they print. So they get what is listed here
and what ``--env NAME`` adds, and never the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine import ConfigError
from engine.host import variables
from tecoinfer_modelzoo import python_path
from tecoinfer_modelzoo.telemetry import SWITCHES

_GIB = 2**30

NAMES = frozenset(
    (
        *SWITCHES,  # packages that a step imports before the zoo
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("TERM", "COLUMNS", "LINES", "NO_COLOR", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "GLIBC_TUNABLES", "GOMP_CPU_AFFINITY"),
        *("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"),
        *("TORCH_HOME", "HF_HOME", "HF_HUB_OFFLINE"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("PIP_CONFIG_FILE", "PIP_CERT", "PIP_NO_INDEX", "PIP_FIND_LINKS", "npm_config_userconfig"),
        *("SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE"),
    )
)
"""Variables that are handed on where they are set."""

FAMILIES = (
    *("LC_", "XDG_", "PYTHON", "MALLOC_", "TORCH_SDAA_", "CUDA_", "NVIDIA_", "NCCL_", "SDAA_"),
    *("OMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "VECLIB_", "TBB_", "OMPI_", "PMIX_", "PRTE_"),
)
"""Variables whose names begin like this are handed on too, beside those of the zoo (``engine.variables``)."""

ADDRESSES = (
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "npm_config_registry", "NPM_CONFIG_REGISTRY"),
)
"""Variables that `teco fetch` needs; handed on where they hold no name and password of an account (``name@host``)."""

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
"""A name that looks like a secret's is handed on by ``--env`` only, whatever family it belongs to."""

_ACCOUNT = re.compile(r"://[^/@]*@")
"""A value with the name and password of an account is handed on by ``--env`` only as well."""

_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(64 * _GIB)}
"""Has glibc use freed memory again: to give it back and fault it in took most of the time of large networks."""


def handed_on(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables of this process that contributed code gets.

    Args:
        more: further names, as ``--env`` gives them.
    """
    zoo = variables()
    return {name: value for name, value in os.environ.items() if name in more or _is_named(name, value, zoo)}


def _is_named(name: str, value: str, zoo: Mapping[str, str]) -> bool:
    if _SECRET.search(name) or _ACCOUNT.search(value):
        return False
    return name in NAMES or name in zoo or name.startswith(FAMILIES) or (name in ADDRESSES and "@" not in value)


def check_names(names: Sequence[str]) -> None:
    """Refuse names that cannot be handed on.

    Raises:
        ConfigError: one is not set, or is one that the check sets itself.
    """
    for name in names:
        if name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
            raise ConfigError(f"--env {name}: the check sets it itself; leave it out")
        if name not in os.environ:
            raise ConfigError(f"--env {name}: there is no such environment variable; set it, or leave it out")


def environment_of(tree: Path, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the whole environment of a step that runs in a tree.

    Args:
        tree: looks like the repository. more: as in :func:`handed_on`.
    """
    found = {**_KEEP_MEMORY, **handed_on(more)}
    found |= {
        # `contrib/` has no engine of its own, so scripts there find it by the path.
        "PYTHONPATH": python_path(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # so that the log of a killed step holds all it printed
    }
    for name in ("TECO_CACHE_DIR", "TECO_FETCH_DIR"):
        if place := found.get(name):
            found[name] = os.path.abspath(place)  # the step starts in another folder
    return found
