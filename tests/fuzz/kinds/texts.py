"""Text tables, question sets, rankings, prompts, tokenizers, texts on the command line."""

from __future__ import annotations

import copy
import csv
import functools
import importlib.util
import io
import json
import os
import random
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.kept_files import with_files
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.json_of import damaged_json, same_json
from tests.fuzz.makers.tokenizers_of import changed_tokenizer
from tests.fuzz.makers.values_of import change, odd_value
from tests.fuzz.names import NAMES, not_a_file_reason, odd_name

WARM = (
    "numpy",
    "onnx",
    "onnxruntime",
    "tokenizers",
    "engine",
    "engine.sdaa.engine",
    "utils.pipeline.cli",
    "utils.export.networks.small_tokenizers",
    "utils.tasks.text_classification",
    "utils.tasks.question_answering",
    "utils.tasks.text_generation.task",
    "utils.tasks.retrieval",
    "utils.tasks.sentence_similarity",
)

NLP = ROOT / "example" / "nlp"
ROWS = tuple(
    tuple(line.split("\t"))
    for line in (NLP / "language_id/data/val.tsv").read_text(encoding="utf-8").splitlines()[1:400:40]
)
STORIES = json.loads((NLP / "bert_qa/data/stories.json").read_text(encoding="utf-8"))["data"][0]["paragraphs"][:3]
SENTENCES = ("a man plays the guitar", "someone plays an instrument", "rain is wet", "dogs bark at cats", "dogs bark")


MOST_READ = 20_000
"""Input of the language model in bytes, at some thousand tokens per second."""


MOST_CONTINUED = 100
"""Maximum prompts at a hundred tokens each; a thousand take half a minute, the limit."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    hows = (_table, _same, _questions, _pairs, _retrieval, _prompts, _tokenizer, _typed, _huge)
    how = rng.choices(hows, (5, 2, 3, 3, 3, 2, 4, 2, 0.3))[0]
    return with_files(rng, folder, how(rng, folder))


def _words(model: str, script: str, *more: str) -> tuple[str, ...]:
    file = f"example_{script}.py" if script == "valid" else f"example_{script}_batch.py"
    return str(NLP / model / file), "--target", "onnx", *more


def _script(rng: random.Random) -> str:
    return rng.choice(("multi", "valid", "valid"))


@functools.cache
def _vectors() -> bytes:
    """Return the small sentence model of the tests."""
    found = importlib.util.spec_from_file_location("word_vectors", ROOT / "tests/utils/tasks/word_vectors.py")
    module = importlib.util.module_from_spec(found)  # type: ignore[arg-type]
    found.loader.exec_module(module)  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        return bytes(module.word_vectors(Path(folder, "m.onnx")).read_bytes())


def _model(folder: Path) -> str:
    path = folder / "vectors.onnx"
    path.write_bytes(_vectors())
    return str(path)


# ------------------------------------------------------------------------------------------------------------ tables


def _table(rng: random.Random, folder: Path) -> Case:
    rows = [list(row) for row in ROWS]
    names, done = ["text", "label"], []
    for _ in range(rng.randint(0, 3)):
        row, at = rng.randrange(len(rows)), rng.randrange(2)
        rows[row][at : at + 1] = rng.choice(([_odd_text(rng)], [], [_odd_text(rng), "more"], [""]))
        done.append(f"row {row}: {str(rows[row])[:80]!r}")
    ending = rng.choice((".tsv", ".csv", ".jsonl", ".json", ".txt"))
    if rng.random() < 0.15:
        names = rng.choice((["text", "text"], ["a", "b"], ["text"], [""], ["text", "label\x1b[31m"], ["label", "text"]))
    content = _written(rng, ending, names, rows)
    if ending.startswith(".json"):
        content, what = damaged_json(rng, content) if rng.random() < 0.6 else (content, "")
    else:
        content, what = _broken_table(rng, content) if rng.random() < 0.7 else (content, "")
    name = odd_name(rng, ending) if rng.random() < 0.15 else f"table{ending}"
    given = _placed(rng, folder / "data", name, content)
    flags: tuple[str, ...] = ()
    if rng.random() < 0.2:
        some = (
            ("--columns", "text", "label"),
            ("--encoding", rng.choice(("utf-7", "hex", "cp037", "utf-16", "idna", ""))),
        )
        flags = rng.choice((*some, ("--text_column", "nothing"), ("--quoted",), ("--label_order", "1,0,7")))
    what = "; ".join([*done, what, " ".join(flags)])
    return Case(_words("language_id", _script(rng), "--data_path", given, *flags), what)


def _odd_text(rng: random.Random) -> str:
    texts = (
        *NAMES,
        "",
        " ",
        "\0",
        "a\0b",
        "x " * 50_000,
        '"',
        'an open "quote',
        "a\rb",
        "a\x0bb\x0cc\x85d\u2028e",
        "9" * 5000,
    )
    return rng.choice((*texts, "English", "Klingon", "-1", "7", "1e400", "\u0600" * 3000, "z" * 3000))


def _written(rng: random.Random, ending: str, names: list[str], rows: list[list[str]]) -> bytes:
    """Return rows as a table, invalid ones unchanged."""
    if ending == ".txt":
        text = "\n".join(row[0] if row else "" for row in rows)
    elif ending == ".tsv":
        text = "\n".join("\t".join(row) for row in [names, *rows])
    elif ending == ".csv":
        out = io.StringIO()
        csv.writer(out, quoting=rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)), lineterminator="\n").writerows(
            [names, *rows]
        )
        text = out.getvalue()
    else:
        entries: list[dict[str, Any]] = [dict(zip(names, row, strict=False)) for row in rows]
        for _ in range(rng.randint(0, 2)):
            rng.choice(entries)[rng.choice(names)] = odd_value(rng)
        written = [same_json(rng, entry) for entry in entries]
        text = "\n".join(written) if ending == ".jsonl" else f"[{','.join(written)}]"
    return text.encode("utf-8", "surrogatepass" if ending.startswith(".json") else "surrogateescape")


def _broken_table(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    between = rng.choice((b",", b"\t"))
    breaks: dict[str, bytes] = {
        "an open quote": content.replace(b"\n", b'\n"', 1),
        "a quote within": content.replace(between, b'"' + between, 1),
        "a field of 200 000": content + b"\n" + b"x" * 200_000 + between + b"English",
        "a quoted field of 200 000": content + b'\n"' + b"x" * 200_000 + b'"' + between + b"English",
        "NUL": content.replace(b"e", b"\0", 2),
        "bare CR": content.replace(b"\n", b"\r"),
        "CRCRLF": content.replace(b"\n", b"\r\r\n"),
        "UTF-16": content.decode("utf-8", "replace").encode("utf-16"),
        "UTF-32, cut": content.decode("utf-8", "replace").encode("utf-32")[:-3],
        "not UTF-8": content.replace(b"a", b"\xff", 3),
        "the names alone": content.partition(b"\n")[0],
        "empty": b"",
        "5000 columns": b"\n".join(line + between * 5000 for line in content.split(b"\n")),
        "1000 bad lines": content + b"\nno field" * 1000,
        "ESC": content.replace(b"e", b"\x1b[31m", 2),
    }
    what = rng.choice((*breaks, "bytes", "bytes", "bytes"))
    return mutated(content, rng) if what == "bytes" else (breaks[what], what)


def _placed(rng: random.Random, folder: Path, name: str, content: bytes) -> str:
    """Write a file, or another object, into a folder, and return the value of --data_path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    if rng.random() < 0.05:
        not_a_file_reason(rng, path)
        return str(path)
    path.write_bytes(content)
    if rng.random() < 0.1:
        not_a_file_reason(rng, folder / f"none{path.suffix}")
    return str(path) if rng.random() < 0.7 else str(folder)


def _same(rng: random.Random, folder: Path) -> Case:
    """Write equivalent rows in another form."""
    ending = rng.choice((".tsv", ".csv", ".jsonl", ".json"))
    if ending == ".tsv":
        text = "\n".join("\t".join(row) for row in [("text", "label"), *ROWS])
    elif ending == ".csv":
        out = io.StringIO()
        quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
        csv.writer(out, quoting=quoting, lineterminator="\n").writerows([("text", "label"), *ROWS])
        text = out.getvalue()
    else:
        rows = [same_json(rng, {"text": row[0], "label": row[1], "other": odd_value(rng)}) for row in ROWS]
        rows = [re.sub(r"\\ud[89a-f]\w\w|[\ud800-\udfff]", "", row) for row in rows]
        text = "\n".join(rows) if ending == ".jsonl" else "[" + rng.choice((",", " ,\n\n")).join(rows) + "]"
    if rng.random() < 0.3 and ending != ".json":
        text = text.replace("\n", "\n\n")
    if rng.random() < 0.5:
        text = text.replace("\n", "\r\n")
    encoding = rng.choice(("utf-8", "utf-8-sig", "utf-16", "utf-32"))
    path = folder / f"same{ending}"
    path.write_bytes(text.encode(encoding))
    return Case(_words("language_id", "valid", "--data_path", str(path)), f"the same rows, {encoding}", judge=_as_known)


KNOWN = "eval_metric 0.8"


def _as_known(outcome: Outcome) -> str | None:
    lost = outcome.code != 0 or not re.search(f"^{KNOWN}", outcome.out, re.MULTILINE)
    return f"the same rows: exit code {outcome.code}: {(outcome.err + outcome.out)[-200:]}" if lost else None


# ------------------------------------------------------------------------------------- questions, sentences, rankings


def _questions(rng: random.Random, folder: Path) -> Case:
    paragraphs: Any = copy.deepcopy(STORIES)
    form, ending = rng.choice(("squad", "flat", "cmrc")), ".json"
    if form == "flat":
        questions = [(p["context"], q) for p in paragraphs for q in p["qas"]]
        whole: Any = [
            {"context": c, "question": q["question"], "answers": q["answers"], "id": q["id"]} for c, q in questions
        ]
        ending = rng.choice((".json", ".jsonl"))
    elif form == "cmrc":
        whole = [
            {
                "context_id": i,
                "context_text": one["context"],
                "qas": [{"query_id": q["id"], "query_text": q["question"], "answers": []} for q in one["qas"]],
            }
            for i, one in enumerate(paragraphs)
        ]
    else:
        whole = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
    done = [change(whole, rng) for _ in range(rng.randint(0, 4))]
    lines = [same_json(rng, one) for one in whole] if ending == ".jsonl" else [same_json(rng, whole)]
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.4:
        content, what = damaged_json(rng, content)
        done.append(what)
    given = _placed(rng, folder / "data", f"stories{ending}", content)
    return Case(_words("bert_qa", _script(rng), "--data_path", given), f"{form}: {'; '.join(done)}")


def _pairs(rng: random.Random, folder: Path) -> Case:
    rows = [[rng.choice(SENTENCES), rng.choice(SENTENCES), str(rng.randint(0, 5))] for _ in range(4)]
    names, name = ["sentence1", "sentence2", "score"], rng.choice(("pairs.tsv", "pairs.csv", "pairs.jsonl", "s.txt"))
    if rng.random() < 0.7:
        value = rng.choice(("nan", "inf", "1e400", "-1", "", "x", "1_0", "9" * 5000, "\u0664", _odd_text(rng)))
        rows[rng.randrange(4)][rng.randrange(3)] = value
    ending = Path(name).suffix
    content = _written(rng, ending, names, rows)
    if rng.random() < 0.25:  # STS benchmark's own files have tabs and no names
        name, lines = "sts-dev.csv", ["\t".join(("g", "f", "y", "o", row[2], *row[:2])) for row in rows]
        content = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:  # SICK's have names, and blanks where nothing is
        name, lines = "SICK.txt", ["\t".join(("1", *row, "NEUTRAL")) for row in rows]
        head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        content = "\n".join([head, *lines]).encode("utf-8", "surrogatepass")
    what = name
    if rng.random() < 0.5:
        content, what = (damaged_json if ending == ".jsonl" else _broken_table)(rng, content)
    given = _placed(rng, folder / "data", name, content)
    flags = (
        ("--columns", *rng.choice((("sentence1",), ("a", "b"), ("sentence1", "sentence1"))))
        if rng.random() < 0.1
        else ()
    )
    words = ("--ckpt", _model(folder), "--data_path", given, *flags)
    return Case(_words("minilm_sentences", _script(rng), *words), f"{name}: {what}")


def _retrieval(rng: random.Random, folder: Path) -> Case:
    data = folder / "data"
    (data / "qrels").mkdir(parents=True)
    corpus: list[Any] = [{"_id": f"p{i}", "title": "t", "text": text} for i, text in enumerate(SENTENCES)]
    queries: list[Any] = [{"_id": f"q{i}", "text": text} for i, text in enumerate(SENTENCES[:3])]
    done = []
    for rows in (corpus, queries):
        if rng.random() < 0.4:
            done.append(change(rows, rng))
    files = {
        name: "\n".join(same_json(rng, row) for row in rows).encode("utf-8", "surrogatepass")
        for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries))
    }
    if rng.random() < 0.3:
        files["collection.tsv"] = "\n".join(f"p{i}\t{text}" for i, text in enumerate(SENTENCES)).encode()
        del files["corpus.jsonl"]
    lines = [rng.choice(("query-id\tcorpus-id\tscore", "q0 0 p0 1")), "q0\tp1\t2", "q1\tp2\t1", "q2\tp0\t1"]
    odd = (
        "q0 p0 nan",
        "q0 p0 " + "9" * 5000,
        "q9 p0 1",
        "q0 p9 1",
        "q0",
        "q0 p1 -2147483649",
        "a b c d e",
        "q0 p1 \u0664",
    )
    files["qrels/test.tsv"] = "\n".join([*lines, rng.choice(odd), _odd_text(rng)]).encode("utf-8", "surrogateescape")
    run = ["q0 Q0 p1 1 0.5 r", "q1 Q0 p2 1 nan r", "q1 Q0 p0 1 inf r", "q0 Q0 p0", "q0 Q0 p0 1 1e400 r"]
    more: list[str] = []
    if rng.random() < 0.3:
        files["run.txt"] = "\n".join(run).encode()
        more = [f"candidates={data / 'run.txt'}"]
    for name in list(files):
        if rng.random() < 0.3:
            damage = damaged_json if name.endswith("jsonl") else _broken_table
            files[name], what = damage(rng, files[name])
            done.append(f"{name}: {what}")
    for name, content in files.items():
        if rng.random() < 0.04:
            done.append(not_a_file_reason(rng, data / name))
        else:
            (data / name).write_bytes(content)
    given = [str(data)]
    if rng.random() < 0.3 or more:
        known = {"queries": "queries.jsonl", "qrels": "qrels/test.tsv", "corpus": "corpus.jsonl"}
        given = [f"{key}={data / name}" for key, name in known.items()] + more
    words = ("--ckpt", f"embedder={_model(folder)}", "--data_path", *given)
    script = _script(rng)
    if script == "multi" and rng.random() < 0.3:
        words += ("--text", _typed_text(rng))
    return Case(_words("minilm_retrieval", script, *words), "; ".join(done))


def _prompts(rng: random.Random, folder: Path) -> Case:
    lines = ["The module", "If you want to", "When an exception", _odd_text(rng)]
    script = _script(rng)
    name = "prompts.txt" if script == "multi" else rng.choice(("pages.jsonl", "pages.txt", "pages.csv"))
    content = _written(rng, Path(name).suffix, ["text", "page"], [[line, "p"] for line in lines])
    what = f"{lines[-1][:60]!r}"
    if rng.random() < 0.5:
        content, more = (damaged_json if name.endswith("jsonl") else _broken_table)(rng, content)
        what += more
    most = rng.choice(("2", "0", "-1", "100"))
    if most == "100" and content.count(b"\n") > MOST_CONTINUED:
        most = "2"
    flags = ("--max_new_tokens", most) if script == "multi" else ()
    given = _placed(rng, folder / "data", name, content[:MOST_READ])
    return Case(_words("tiny_gpt", script, "--data_path", given, *flags), what)


# ------------------------------------------------------------------------------------------- tokenizers, typed texts


@functools.cache
def _described(model: str) -> str:
    return (NLP / model / "tokenizer.json").read_text(encoding="utf-8")


def _tokenizer(rng: random.Random, folder: Path) -> Case:
    model = rng.choice(("language_id", "language_id", "tiny_gpt"))
    whole = json.loads(_described(model))
    done = [changed_tokenizer(rng, whole) for _ in range(rng.randint(0, 3))]
    content = json.dumps(whole, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        content, what = damaged_json(rng, content)
        done.append(what)
    path = folder / "tokenizer.json"
    if rng.random() < 0.15:  # a BERT's folder: a table of tokens, and what is said of them beside it
        path = folder / "vocab.txt"
        content = rng.choice((b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", b"", b"\xff\n", b"a\na\n", b"[UNK]\n" * 9000, b"\0"))
        (folder / "tokenizer_config.json").write_bytes(damaged_json(rng, b'{"do_lower_case": true}')[0])
        done.append("vocab.txt")
    if rng.random() < 0.05:
        done.append(not_a_file_reason(rng, path))
    else:
        path.write_bytes(content)
    (folder / "texts.txt").write_text("The module\nThat agent is aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n")
    given = str(rng.choice((path, folder)))
    words = _words(model, "multi", "--tokenizer", given, "--data_path", str(folder / "texts.txt"))
    return Case(words + (("--max_new_tokens", "2") if model == "tiny_gpt" else ()), f"{model}: {'; '.join(done)}")


def _typed_text(rng: random.Random) -> str:
    """Return a text that a command line can have: no NUL, at most 128 KB, other bytes as half characters."""
    text = rng.choice(
        (*NAMES, "", " ", "\u00a0", "x " * 60_000, "\u0600" * 3000, "\U0001f600" * 9000, "a\rb", "-", "--", "\ufffe")
    )
    return text.replace("\0", "")


def _typed(rng: random.Random, folder: Path) -> Case:
    model = rng.choice(("language_id", "tiny_gpt", "bert_qa", "minilm_sentences"))
    texts = [_typed_text(rng) for _ in range(rng.choice((1, 1, 2)))]
    words: tuple[str, ...] = ("--text", *texts)
    if model == "bert_qa":
        words = ("--text", texts[0], "--pair", texts[-1])
    if model == "tiny_gpt":
        words = ("--text", *(text[:MOST_READ] for text in texts))
        words += ("--max_new_tokens", "2", "--stop", _typed_text(rng))
    if model == "minilm_sentences":
        words += ("--ckpt", _model(folder))
    return Case(_words(model, rng.choice(("single", "multi")), *words), f"{[text[:40] for text in texts]}")


def _huge(rng: random.Random, folder: Path) -> Case:
    """Write a sparse file of 10 GB as table, question set or tokenizer."""
    model, name = rng.choice(
        (
            ("language_id", "a.tsv"),
            ("language_id", "a.json"),
            ("bert_qa", "a.json"),
            ("tiny_gpt", "a.txt"),
            ("", "a.tsv"),
        )
    )
    path = folder / name
    path.write_bytes(b"text\tlabel\n")
    os.truncate(path, 10 << 30)
    words = _words("language_id", "multi", "--tokenizer", str(path))
    return Case(
        _words(model, "multi", "--data_path", str(path)) if model else words, f"{model} {name}: a hole of 10 GB"
    )
