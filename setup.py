"""The optional C extensions, and the documentation in the wheel; everything else is in pyproject.toml.

The pages of docs/ become tecoinfer_modelzoo/docs/ in the wheel, to which messages refer there; their links to files
that are not in the wheel become text. Without a compiler the installation goes on without the extensions. From Python
3.11 on, one file serves all later versions (the stable ABI has had the buffer protocol since then); free-threaded
Python has no stable ABI yet.
"""

import os
import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

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


_LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
_FENCE = re.compile(r"(^ *(`{3,}).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)


def page_in_wheel(page: Path, build: Path) -> str:
    """Return the text of a page of docs/ for its place in the wheel, a folder below that of the repository's root.

    A link to a file in ``build``, the content of the wheel, is adapted; one to another file becomes its text and path.
    Code blocks are unchanged.
    """
    folder = build / "tecoinfer_modelzoo" / page.parent

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        name = os.path.normpath(page.parent / target)
        if re.match(r"[a-z]+:", target) or re.match(r"docs/.*\.(md|png|svg|yaml)$", name):
            return found[0]
        if (build / name).exists():
            return f"[{text}]({os.path.relpath(build / name, folder)}{anchor})"
        return text if name.endswith(text.strip("`")) else f"{text} (`{name}`)"

    parts = _FENCE.split(page.read_text(encoding="utf-8"))  # text, block, its fence, text, ...
    return "".join(_LINK.sub(link, part) if k % 3 == 0 else part * (k % 3 == 1) for k, part in enumerate(parts))


class BuildWithDocs(build_py):
    """Also copies the pages and their images; an editable installation reads them where they are."""

    def run(self) -> None:
        """Copy the packages, then the pages."""
        super().run()
        if not self.editable_mode:
            for source, target in self._pages().items():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target)
                if target.endswith(".md"):
                    Path(target).write_text(page_in_wheel(Path(source), Path(self.build_lib)), encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the files that are written."""
        pages = [] if self.editable_mode else [*self._pages().values()]
        return [*super().get_outputs(include_bytecode), *pages]

    def _pages(self) -> dict[str, str]:
        files = [file for end in ("md", "png", "svg", "yaml") for file in sorted(Path("docs").rglob(f"*.{end}"))]
        return {str(file): str(Path(self.build_lib, "tecoinfer_modelzoo", file)) for file in files}


setup(
    cmdclass={"build_py": BuildWithDocs},
    ext_modules=[extension("_kernels"), extension("_sums")],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
