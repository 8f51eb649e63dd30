"""Rules for a model's README: the headings of the specification, and commands that can be run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from model_config.markdown_text import without_comments
from model_config.structure.flags import has_flag, instead, known_flags
from model_config.structure.source import MOST_FOUND, Broken, Folder, SourceFile, inside
from model_config.syntax import LONGEST_LINE
from tecoinfer_modelzoo.text import nearest

HEADINGS = (
    "## 1. 模型概述",
    "## 2. 快速开始",
    "### 2.1 基础环境安装",
    "### 2.2 安装第三方依赖",
    "### 2.3 获取ONNX文件",
    "### 2.4 获取数据集",
    "### 2.5 启动推理",
    "### 2.6 精度验证",
)
"""The headings below the title, from section 5 of the specification; the text may be in any language."""

LEAVES = [heading for heading in HEADINGS if not heading.startswith("## 2")]
"""The headings that must be followed by text."""

PLACEHOLDER = "算法名称"
"""The title in the specification's template."""

STEP_SECTIONS = {"export": HEADINGS[4], "single": HEADINGS[6], "multi": HEADINGS[6], "valid": HEADINGS[7]}
"""The section that shows the command of each step."""

DATA_SECTION = HEADINGS[5]

COMMAND_LANGUAGES = ("", "bash", "console", "sh", "shell")
FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*(\w*)")
HEADING = re.compile(r" {0,3}(#{1,6})(?:\s|$)")
NUMBER = re.compile(r"(?:#+ )?(\d+(?:\.\d+)?)\.?(?!\d)")
LINK = re.compile(r"\]\(\s*<?([^()\s<>]+)(?:[\s>][^()]*)?\)")
_LIKE = 200
"""Maximum characters of a heading that are compared."""

_MOST_COMMANDS = 1000
"""Maximum number of commands of a file that are checked."""

OPERATORS = re.compile(r"[;&|<>]+|\d?>+")
EXAMPLE_FOLDER = re.compile(r"(?:^|/)((?:contrib/)?example/[^/]+/[^/]+)/?$")


@dataclass(slots=True)
class Section:
    """A heading and its content up to the next: numbered lines, those outside code, and shell commands."""

    line: int
    heading: str
    lines: list[tuple[int, str]] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)
    commands: list[tuple[int, list[str]]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether the section has no content except comments."""
        return not without_comments("\n".join(text for _, text in self.lines)).strip()


_read: WeakKeyDictionary[SourceFile, list[Section]] = WeakKeyDictionary()


def sections(source: SourceFile) -> list[Section]:
    """Split a Markdown file at its headings; the first section is the text before the first heading. Cached."""
    if source not in _read:
        _read[source] = _split(source)
    return _read[source]


def _split(source: SourceFile) -> list[Section]:
    reader = _Reader()
    for number, text in enumerate(source.lines, start=1):
        reader.read(number, text)
    return reader.found


class _Reader:
    """Line-by-line Markdown reader; its state is the open code block and the open multi-line command."""

    def __init__(self) -> None:
        self.found = [Section(0, "")]
        self.fence, self.language = "", ""
        self.command, self.first = "", 0
        self.count = 0

    def read(self, number: int, text: str) -> None:
        """Read the next line; line numbers start at 1."""
        mark, heading = FENCE.match(text), HEADING.match(text)
        if mark and self._turns(mark):
            self.fence, self.language = ("" if self.fence else mark[1]), mark[2].lower()
            self.command = ""
        elif self.fence:
            self._code(number, text)
        elif heading:
            self.found.append(Section(number, f"{heading[1]} {_title(text[heading.end() :])}".strip()))
            return
        else:
            self.found[-1].prose.append((number, text))
        self.found[-1].lines.append((number, text))

    def _turns(self, mark: re.Match[str]) -> bool:
        """Return whether a fence begins or ends a code block, in contrast to a fence inside it."""
        return not self.fence or (mark[1].startswith(self.fence) and not mark[2])

    def _code(self, number: int, text: str) -> None:
        if self.language not in COMMAND_LANGUAGES:
            return
        self.first = self.first if self.command else number
        if len(self.command) <= LONGEST_LINE:  # a longer line is not a command
            self.command += text.removesuffix("\\")
        if not text.endswith("\\"):
            if self.command and len(self.command) <= LONGEST_LINE and self.count < _MOST_COMMANDS:
                commands = [(self.first, command) for command in _commands(self.command)]
                self.count += len(commands)
                self.found[-1].commands += commands
            self.command = ""


def _title(text: str) -> str:
    """Return the text of a heading without closing hashes."""
    text = text.strip()
    bare = text.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else text


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command in a line of shell."""
    line = line.strip().removeprefix("$ ")
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # an unbalanced quote: output, or an error that the shell will report
        words = line.split()
    command: list[str] = []
    for word in [*words, ";"]:
        if not OPERATORS.fullmatch(word):
            command.append(word)
        elif command:
            yield command
            command = []


def script_of(command: list[str]) -> tuple[str, list[str]]:
    """Return the script that a command runs, and its arguments; an empty name if it runs none."""
    runner = next((i for i, word in enumerate(command) if re.fullmatch(r"(python[\d.]*|bash|sh)", word)), None)
    if runner is None:
        return "", []
    words = command[runner + 1 :]
    while words and words[0].startswith("-"):
        if words[0] in ("-m", "-c"):
            return "", []
        words = words[1:]
    return (words[0], words[1:]) if words and words[0].endswith((".py", ".sh")) else ("", [])


def check_headings(folder: Folder) -> Iterator[Broken]:
    """Every heading of the specification occurs once, spelt the same; other headings are ``####`` or deeper."""
    readme = folder.readme
    if not readme.text.strip():
        return
    found = [part for part in sections(readme) if re.match(r"#{1,3} |#{1,3}$", part.heading)]
    yield from _check_title(readme, found)
    yield from _check_given(readme, [part for part in found if part.heading.startswith("##")])


def _check_given(readme: SourceFile, found: list[Section]) -> Iterator[Broken]:
    """Check that each heading of the specification occurs exactly once, and no other heading does."""
    others = [part for part in found if part.heading not in HEADINGS]
    for wanted in HEADINGS:
        same = [part.line for part in found if part.heading == wanted]
        for line in same[1:]:
            yield readme.broken(line, f"heading {wanted!r} is repeated", "keep one of the two")
        if not same:
            yield _missing(readme, wanted, others)
    for part in others:
        fix = "use '####' or deeper for headings of your own"
        yield readme.broken(part.line, f"heading {part.heading!r} is not one of the specification's", fix)


def _missing(readme: SourceFile, wanted: str, others: list[Section]) -> Broken:
    """Report a heading as missing, or as misspelt if a similar one is among the others."""
    near = _near(wanted, others)
    if near is None:
        return readme.broken(0, f"heading {wanted!r} is missing", "add it with its text, spelt like this")
    others.remove(near)
    return readme.broken(near.line, f"heading {near.heading!r} is misspelt", f"write {wanted!r}")


def _check_title(readme: SourceFile, found: list[Section]) -> Iterator[Broken]:
    titles = [part for part in found if not part.heading.startswith("##")]
    fix = "start the file with '# ' and the model's name"
    if not titles:
        yield readme.broken(0, "the title is missing", fix)
    elif titles[0] is not found[0] or titles[0].heading in ("#", f"# {PLACEHOLDER}"):
        yield readme.broken(titles[0].line, f"{titles[0].heading!r} is not a title", fix)
    for again in titles[1:]:
        yield readme.broken(again.line, f"{again.heading!r} is a second title", "use '####' for a heading of your own")


def _near(wanted: str, found: list[Section]) -> Section | None:
    """Return the misspelt variant of a heading: the one with the same number, else the most similar one."""
    number = NUMBER.match(wanted)
    for part in found:
        mine = NUMBER.match(part.heading)
        if number and mine and mine[1] == number[1]:
            return part
    close = nearest(wanted, [part.heading[:_LIKE] for part in found[:MOST_FOUND]])
    return next((part for part in found if part.heading == close), None)


def check_order(folder: Folder) -> Iterator[Broken]:
    """The headings stand in the specification's order."""
    latest, first = -1, {part.heading: part for part in reversed(sections(folder.readme))}
    for part in sorted(first.values(), key=lambda part: part.line):
        place = HEADINGS.index(part.heading) if part.heading in HEADINGS else latest
        if place < latest:
            after = HEADINGS[latest]
            yield folder.readme.broken(part.line, f"{part.heading!r} stands after {after!r}", "move it up to its place")
        latest = max(latest, place)


def check_sections(folder: Folder) -> Iterator[Broken]:
    """There is text under each heading of the specification."""
    readme = folder.readme
    if readme.size is not None and not readme.text.strip():
        yield readme.broken(0, "the file is empty", "write the sections the specification asks for")
    for parts in _chapters(readme):
        if parts[0].heading in LEAVES and all(part.empty for part in parts):
            fix = "write it as section 5 of the specification says"
            yield readme.broken(parts[0].line, f"the text under {parts[0].heading!r} is missing", fix)


def check_steps(folder: Folder) -> Iterator[Broken]:
    """The sections 2.3, 2.5 and 2.6 show the command of each step that the case runs."""
    found = {parts[0].heading: parts for parts in _chapters(folder.readme)}
    for step in folder.case.steps:
        parts = found.get(STEP_SECTIONS[step.name], [])
        run = {os.path.basename(script_of(words)[0]) for part in parts for _, words in part.commands}
        if os.path.basename(step.run_file) not in run and not all(part.empty for part in parts):
            message = f"{parts[0].heading!r} has no command that runs {step.run_file!r}"
            yield folder.readme.broken(parts[0].line, message, f"add a block with 'python {step.run_file} ...'")


def _chapters(readme: SourceFile) -> Iterator[list[Section]]:
    """Yield each section of the specification with its subsections."""
    parts: list[Section] = []
    for part in [*sections(readme), Section(0, HEADINGS[0])]:
        if parts and part.heading in HEADINGS:
            yield parts
            parts = []
        parts.append(part)


def check_commands(folder: Folder) -> Iterator[Broken]:
    """Commands name scripts that exist, flags those scripts have, and, after ``cd``, this folder."""
    for part in sections(folder.readme):
        for line, command in part.commands:
            if command[0] == "cd" and len(command) > 1:
                yield from _check_cd(folder, line, command[1])
            script, arguments = script_of(command)
            if script:
                yield from _check_command(folder, line, script, arguments)


def _check_cd(folder: Folder, line: int, target: str) -> Iterator[Broken]:
    match = EXAMPLE_FOLDER.search(target)
    if match and not folder.run_dir.endswith(match[1]):
        yield folder.readme.broken(line, f"'cd {target}' leads to another model", f"write 'cd {folder.run_dir}'")


def _check_command(folder: Folder, line: int, script: str, arguments: list[str]) -> Iterator[Broken]:
    places = [folder.path / script, folder.root / script]
    if not any(os.path.isfile(place) and inside(place, folder.root) for place in places):
        yield folder.readme.broken(line, f"script {script!r} does not exist", "correct the name, or add the script")
        return
    source = folder.find(script)
    flags = known_flags(source, folder) if source else None
    for word in arguments:
        flag = word.split("=")[0]
        if flags is not None and re.fullmatch(r"--[A-Za-z][\w-]*", flag) and not has_flag(flag, flags):
            yield folder.readme.broken(line, f"{script} has no flag {flag}", instead(flag, flags))


OPEN = re.compile(r"\s*[-*+] \[ \] (.+)")
"""An item of a task list that is not done."""


def check_open(folder: Folder) -> Iterator[Broken]:
    """No item of a task list is open: ``- [ ]`` is a question to the contributor."""
    for part in sections(folder.readme):
        for line, text in part.prose:
            if found := OPEN.fullmatch(text):
                yield folder.readme.broken(line, f"is open: {found[1]}", "answer it in the text, and remove the item")


def check_links(source: SourceFile) -> Iterator[Broken]:
    """Links in Markdown lead to files of the repository that exist; those to the web are not followed."""
    if source.suffix != ".md":
        return
    for part in sections(source):
        for line, text in part.prose:
            for target in LINK.findall(re.sub(r"`[^`]*`", "", text)):
                yield from _check_link(source, line, target)


def _check_link(source: SourceFile, line: int, target: str) -> Iterator[Broken]:
    name = unquote(target.split("#")[0])
    if not name or re.match(r"[a-zA-Z][a-zA-Z+.-]*:", target) or "\0" in name:
        return
    place = Path(os.path.normpath(source.path.parent / name))
    if not inside(place, source.root):
        yield source.broken(line, f"link {target!r} leaves the repository", "link to a file in it, or to the web")
    elif not os.path.exists(place):
        yield source.broken(line, f"link {target!r} leads to a missing file", "correct the path, or add the file")
