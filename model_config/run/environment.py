"""Environment of a process that runs contributed code: only listed variables, so that it contains no secrets.

The scripts of a pull request can print their environment, and reports show their output. So they only receive the
variables listed here and those that ``--env NAME`` adds.
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
        *SWITCHES,  # variables for packages that a step imports before the zoo
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
"""Variables that are passed on if they are set."""

FAMILIES = (
    *("LC_", "XDG_", "PYTHON", "MALLOC_", "TORCH_SDAA_", "CUDA_", "NVIDIA_", "NCCL_", "SDAA_"),
    *("OMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "VECLIB_", "TBB_", "OMPI_", "PMIX_", "PRTE_"),
)
"""Prefixes of variables that are also passed on, in addition to those of the zoo (``engine.variables``)."""

ADDRESSES = (
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "npm_config_registry", "NPM_CONFIG_REGISTRY"),
)
"""Variables of `teco fetch`; passed on unless they contain account credentials (``name@host``)."""

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
"""Names that look like secrets; passed on with ``--env`` only, whatever their prefix."""

_ACCOUNT = re.compile(r"://[^/@]*@")
"""Values with account credentials; passed on with ``--env`` only."""

_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(64 * _GIB)}
"""Makes glibc reuse freed memory: releasing and faulting it in again dominated the time of large networks."""


def handed_on(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables of this process that contributed code receives.

    Args:
        more: additional names, from ``--env``.
    """
    zoo = variables()
    return {name: value for name, value in os.environ.items() if name in more or _is_named(name, value, zoo)}


def _is_named(name: str, value: str, zoo: Mapping[str, str]) -> bool:
    if _SECRET.search(name) or _ACCOUNT.search(value):
        return False
    return name in NAMES or name in zoo or name.startswith(FAMILIES) or (name in ADDRESSES and "@" not in value)


def check_names(names: Sequence[str]) -> None:
    """Check that variables can be passed on.

    Raises:
        ConfigError: a variable is not set, or is one that the check itself sets.
    """
    for name in names:
        if name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
            raise ConfigError(f"--env {name}: the check sets it itself; leave it out")
        if name not in os.environ:
            raise ConfigError(f"--env {name}: this environment variable is not set; set it, or leave it out")


def environment_of(tree: Path, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the whole environment of a step that runs in a tree.

    Args:
        tree: copy of the repository. more: as in :func:`handed_on`.
    """
    found = {**_KEEP_MEMORY, **handed_on(more)}
    found |= {
        # `contrib/` has no `engine` package, so scripts there find it by the path.
        "PYTHONPATH": python_path(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # so that the log of a killed step is complete
    }
    for name in ("TECO_CACHE_DIR", "TECO_FETCH_DIR"):
        if place := found.get(name):
            found[name] = os.path.abspath(place)  # the step starts in another folder
    return found
