"""Rules for Python and shell code, checked on the source without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from model_config.structure.readme import sections
from model_config.structure.source import SHOWN, Broken, SourceFile
from model_config.structure.syntax import aliases, at, called, dotted, imported

ABSOLUTE = re.compile(
    r"/(checkpoints?|data|datasets?|home|media|mnt|nfs|opt|root|share|srv|tmp|Users|var|workspace)/."
    r"|~/.|[C-Zc-z]:[\\/]\w\w"
)
"""Start of a path that exists on one machine only."""

ABSOLUTE_WORD = re.compile(rf"(?:^|[\s=\"'])({ABSOLUTE.pattern})")

DEBUGGERS = ("IPython", "debugpy", "ipdb", "pdb", "pudb", "pydevd", "remote_pdb", "rpdb")

NO_TLS = {
    "ssl._create_unverified_context": "use ssl.create_default_context()",
    "ssl._create_default_https_context": "do not change it",
    "ssl.CERT_NONE": "use ssl.CERT_REQUIRED",
    "urllib3.disable_warnings": "keep certificate verification enabled",
}
NO_TLS_KEYWORDS = ("check_hostname", "verify", "verify_ssl")
NO_TLS_SHELL = re.compile(
    r"--no-check-certificate|--trusted-host|sslVerify[= ]+(false|0)|GIT_SSL_NO_VERIFY|PYTHONHTTPSVERIFY=0"
)
NO_TLS_COMMANDS = (
    (re.compile(r"\bcurl\b"), re.compile(r"\s(-[a-jl-zA-Z]*k[a-zA-Z]*|--insecure)\b")),
    (re.compile(r"\b(curl|wget|git|pip3?|aria2c)\b"), re.compile(r"\s[\"']?http://(?!localhost|127\.)")),
)
"""A program, and an option that must not follow it in the same command."""

PLAIN_HTTP = re.compile(r"http://(?!localhost|127\.0\.0\.1|0\.0\.0\.0|www\.w3\.org)[^/\s]+/.")

NO_SHELL = "use subprocess.run with a list of arguments"
NO_PICKLE = "store arrays as .npz and the rest as JSON"
UNSAFE_CALLS = {
    "eval": "use ast.literal_eval, or a table of allowed values",
    "exec": "import the module instead",
    "os.system": NO_SHELL,
    "os.popen": NO_SHELL,
    "subprocess.getoutput": NO_SHELL,
    "subprocess.getstatusoutput": NO_SHELL,
    "pickle.load": NO_PICKLE,
    "pickle.loads": NO_PICKLE,
    "pickle.Unpickler": NO_PICKLE,
    "dill.load": NO_PICKLE,
    "joblib.load": NO_PICKLE,
    "pandas.read_pickle": NO_PICKLE,
    "yaml.unsafe_load": "use yaml.safe_load",
    "yaml.full_load": "use yaml.safe_load",
}

UNSAFE_LOADS = {
    "torch.load": ("weights_only", True, "add weights_only=True"),
    "numpy.load": ("allow_pickle", False, "remove allow_pickle"),
}
"""Calls that are safe if a keyword has a value: keyword, value, and fix; all default to false."""

_FALSE = ast.Constant(False)

DEVICE = re.compile(r"(cuda|gpu|npu|sdaa|xpu):\d+")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "SDAA_VISIBLE_DEVICES")


def check_syntax(source: SourceFile) -> Iterator[Broken]:
    """Python files can be parsed."""
    if source.syntax_error:
        line, reason = source.syntax_error
        yield source.broken(line, f"is not Python: {reason}", "correct the line")


def check_absolute(source: SourceFile) -> Iterator[Broken]:
    """No script names a path that only one machine has; docstrings and comments may."""
    for line, text in _texts(source):
        if ABSOLUTE.match(text):
            fix = "take it as a flag, or start from Path(__file__).resolve().parent"
            yield source.broken(line, f"absolute path {text[:SHOWN]!r}", fix)
    for line, text in _shell_lines(source):
        match = ABSOLUTE_WORD.search(text)
        if match:
            yield source.broken(line, f"absolute path {text[match.start(1) :].split()[0]!r}", "take it as an argument")


def _texts(source: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield every string except continuations: the right side of ``+``, the later parts of an f-string."""
    later = {id(piece) for joined in source.of(ast.JoinedStr) for piece in joined.values[1:]}
    later |= {id(sum_.right) for sum_ in source.of(ast.BinOp) if isinstance(sum_.op, ast.Add)}
    for node in source.of(ast.Constant):
        if isinstance(node.value, str) and id(node) not in later:
            yield node.lineno, node.value


def _shell_lines(source: SourceFile) -> Iterator[tuple[int, str]]:
    if source.suffix == ".sh":
        for line, text in enumerate(source.lines, start=1):
            yield line, re.sub(r"(^|\s)#.*", "", text)


def check_debug(source: SourceFile) -> Iterator[Broken]:
    """No breakpoints and no debuggers are left."""
    names = aliases(source)
    for node in source.nodes:
        for module in imported(node):
            if module.split(".")[0] in DEBUGGERS:
                yield source.broken(at(node), f"imports the debugger {module}", "remove it")
        name = called(node, names) if isinstance(node, ast.Call) else ""
        if name == "breakpoint" or name.endswith(".set_trace"):
            yield source.broken(at(node), f"{name}() stops in a debugger", "remove the call")


def check_tls(source: SourceFile) -> Iterator[Broken]:
    """Nothing is downloaded without an encrypted connection and a checked certificate."""
    yield from _check_certificates(source)
    fix = "use https, and no option that disables certificate verification"
    for line, text in _texts(source):
        if PLAIN_HTTP.match(text) or _is_open(text):
            yield source.broken(line, f"{text.strip()[:SHOWN]!r} is not protected by TLS", fix)
    for line, text in [*_shell_lines(source), *_code_lines(source)]:
        if _is_open(text):
            yield source.broken(line, f"{text.strip()[:SHOWN]!r} is not protected by TLS", fix)


def _is_open(text: str) -> bool:
    """Return whether a text has a command that downloads without a verified certificate."""
    if NO_TLS_SHELL.search(text):
        return True
    commands = re.split(r"[|;&]", text)
    return any(_follows(one, *pair) for one in commands for pair in NO_TLS_COMMANDS)


def _follows(command: str, program: re.Pattern[str], option: re.Pattern[str]) -> bool:
    found = program.search(command)
    return found is not None and option.search(command, found.end()) is not None


def _check_certificates(source: SourceFile) -> Iterator[Broken]:
    names = aliases(source)
    for node in source.nodes:
        name = dotted(node, names) if isinstance(node, (ast.Attribute, ast.Name)) else ""
        if name in NO_TLS:
            yield source.broken(at(node), f"{name} disables certificate verification", NO_TLS[name])
        off = _keywords_off(node) if isinstance(node, ast.Call) else _attributes_off(node)
        # The `verify` of PyTorch's exporter is unrelated: it runs the exported file.
        if off & set(NO_TLS_KEYWORDS) and not (isinstance(node, ast.Call) and "export" in called(node, names)):
            message = f"{source.line(at(node))!r} disables certificate verification"
            yield source.broken(at(node), message, "leave the option out")


def _keywords_off(call: ast.Call) -> set[str]:
    return {keyword.arg or "" for keyword in call.keywords if _is(keyword.value, False)}


def _attributes_off(node: ast.AST) -> set[str]:
    """Return the attributes that an assignment sets to False, such as ``verify`` of ``session.verify = False``."""
    if not isinstance(node, ast.Assign) or not _is(node.value, False):
        return set()
    return {target.attr for target in node.targets if isinstance(target, ast.Attribute)}


def _code_lines(source: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield the code lines of a Markdown file."""
    if source.suffix == ".md":
        for part in sections(source):
            prose = {line for line, _ in part.prose}
            yield from ((line, text) for line, text in part.lines if line not in prose)


def check_unsafe(source: SourceFile) -> Iterator[Broken]:
    """Nothing runs what it reads: no eval, no shell, no unpickling."""
    names = aliases(source)
    for call in source.of(ast.Call):
        danger = _danger(call, names)
        if danger is not None:
            yield source.broken(call.lineno, *danger)


def _danger(call: ast.Call, names: dict[str, str]) -> tuple[str, str] | None:
    """Return the reason why a call is unsafe and the fix; ``None`` for a safe call."""
    name = called(call, names)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in UNSAFE_CALLS:
        return f"calls {name}", UNSAFE_CALLS[name]
    if not _is(given.get("shell", _FALSE), False):
        return f"{name} runs a shell", "give a list of arguments, without shell=True"
    if name in UNSAFE_LOADS:
        keyword, safe, fix = UNSAFE_LOADS[name]
        return None if _is(given.get(keyword, _FALSE), safe) else (f"{name} can unpickle arbitrary objects", fix)
    if name == "yaml.load" and not any("Safe" in dotted(node, names) for node in [*call.args, *given.values()]):
        return "yaml.load can create arbitrary objects", "use yaml.safe_load"
    return None


def check_devices(source: SourceFile) -> Iterator[Broken]:
    """No script names one device of one machine, except as the default of a flag."""
    names = aliases(source)
    defaults = {id(keyword.value) for keyword in source.of(ast.keyword) if keyword.arg == "default"}
    fix = "take it as a flag, or leave it to the environment"
    for node in source.nodes:
        if _chooses_device(node, names, defaults):
            yield source.broken(at(node), f"{source.line(at(node))!r} chooses a device", fix)


def _chooses_device(node: ast.AST, names: dict[str, str], defaults: set[int]) -> bool:
    """Return whether a node names a device, sets the visible devices, or passes a device number to a function."""
    if isinstance(node, ast.Constant):
        return id(node) not in defaults and bool(DEVICE.fullmatch(str(node.value)))
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant) and bool(_items(node) & set(VISIBLE))
    return isinstance(node, ast.Call) and _names_device(node, called(node, names))


def _names_device(call: ast.Call, name: str) -> bool:
    last = call.func.attr if isinstance(call.func, ast.Attribute) else name
    takes_number = last in ("cuda", "sdaa", "set_device") or name == "torch.device"
    given = [arg for arg in call.args if takes_number] + [key.value for key in call.keywords if key.arg == "device_id"]
    return any(isinstance(arg, ast.Constant) and type(arg.value) is int for arg in given)


def _items(assignment: ast.Assign) -> set[str]:
    """Return the subscripts that are assigned, such as ``X`` of ``os.environ["X"] = "0"``."""
    keys = [target.slice for target in assignment.targets if isinstance(target, ast.Subscript)]
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
