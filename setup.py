"""The optional C extensions; everything else is in pyproject.toml.

Without a compiler the installation goes on without them. From Python 3.11 on, one file serves all later
versions (the stable ABI has had the buffer protocol since then); free-threaded Python has no stable ABI yet.
"""

import sys
import sysconfig

from setuptools import Extension, setup

STABLE_ABI = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")


def extension(name: str) -> Extension:
    """Return the extension of one C file."""
    return Extension(
        f"tecoinfer_modelzoo.native.{name}",
        [f"tecoinfer_modelzoo/native/{name}.c"],
        # without contraction: fused multiplications and additions would give other weights than Pillow's
        extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fvisibility=hidden"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
        py_limited_api=STABLE_ABI,
        optional=True,
    )


setup(
    ext_modules=[extension("_kernels"), extension("_sums")],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
