"""A small random encoder of sentences with the inputs of BGE's and Jina's exports, and its tokenizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16

LAYER = """
    words = Gather(table, input_ids)
    placed = Add(words, places)
    zero_one = Cast <to = 1> (attention_mask)
    off = Sub(one, zero_one)
    far = Mul(off, least)
    bias = Unsqueeze(far, axis)
    query = MatMul(placed, wq)
    key = MatMul(placed, wk)
    value = MatMul(placed, wv)
    turned = Transpose <perm = [0, 2, 1]> (key)
    looks = MatMul(query, turned)
    known = Add(looks, bias)
    shares = Softmax <axis = 2> (known)
    seen = MatMul(shares, value)
    added = Add(placed, seen)
    last_hidden_state = Tanh(added)
"""
"""One layer of attention over token and place; masked tokens are ignored."""

TYPED = (
    "placed = Add(words, places)",
    "kinds = Gather(types, token_type_ids)\n    typed = Add(words, kinds)\n    placed = Add(typed, places)",
)
"""Replaced nodes of a model with token types."""

FIRST = "sentence_embedding = Gather <axis = 1> (last_hidden_state, zero)"
SCORE = "first = Gather <axis = 1> (last_hidden_state, zero)\n    logits = MatMul(first, wide)"

KINDS = {
    "bge-large-zh": (3, "", ["last_hidden_state"]),
    "bge-m3": (2, FIRST, ["last_hidden_state", "sentence_embedding"]),
    "bge-reranker-large": (2, SCORE, ["logits"]),
}
"""Inputs, nodes after the layer, and outputs by script."""


def write_encoder(path: Path, kind: str, vocabulary: int, length: int) -> Path:
    """Write a model: int64 inputs [batch, length], weights that differ from kind to kind."""
    count, tail, outputs = KINDS[kind]
    chance = np.random.default_rng(len(kind))
    body = f"{LAYER}\n    {tail}\n"
    body = body.replace(*TYPED) if count == 3 else body
    weights = {
        "table": chance.normal(size=(vocabulary, WIDTH)),
        "types": chance.normal(size=(2, WIDTH)),
        "places": chance.normal(size=(1, length, WIDTH)) * 0.3,
        "wq": chance.normal(size=(WIDTH, WIDTH)) * 0.2,
        "wk": chance.normal(size=(WIDTH, WIDTH)) * 0.2,
        "wv": chance.normal(size=(WIDTH, WIDTH)) * 0.4,
        "wide": chance.normal(size=(WIDTH, 1)) * 2,
        "one": np.ones(()),
        "least": np.array(-1e4),
    }
    tensors = [
        numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items() if name in body
    ]
    tensors += [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in (("zero", 0), ("axis", [1]))
        if name in body
    ]
    names = ["input_ids", "attention_mask", "token_type_ids"][:count]
    nodes = onnx.parser.parse_graph(f"g (float[1] unused) => (float[1] unused2) {{ {body} }}").node
    shapes = {
        "last_hidden_state": ["batch", length, WIDTH],
        "sentence_embedding": ["batch", WIDTH],
        "logits": ["batch", 1],
    }
    graph = helper.make_graph(
        list(nodes),
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length]) for name in names],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def write_bert_folder(folder: Path, texts: list[str]) -> int:
    """Write a WordPiece tokenizer over the letters of texts, as transformers lays it out; return its size."""
    from tokenizers import BertWordPieceTokenizer

    letters = sorted({letter for text in texts for letter in text.lower()} - {" "})
    words = sorted({word for text in texts for word in text.lower().split() if word.isalpha()})[::2]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{one}" for one in letters), *words]
    tokens = list(dict.fromkeys(tokens))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": true}')
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    return len(tokens)


def write_roberta_folder(folder: Path, texts: list[str]) -> int:
    """Write a byte-level BPE with RoBERTa's special tokens, trained on texts; return its size."""
    from tokenizers import ByteLevelBPETokenizer, processors

    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(texts, vocab_size=400, special_tokens=special, show_progress=False)
    trained.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    folder.mkdir(parents=True, exist_ok=True)
    trained.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "RobertaTokenizer", "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", '
        '"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}'
    )
    return trained.get_vocab_size()
