"""A model with Grounding DINO's four inputs and one output that detects: the committed digit detector.

Its classes are the tokens of the caption: a token that is a word of ``WORDS[d]`` gets the detector's score of
digit ``d``, every other one next to nothing, and what the attention mask leaves out nothing at all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support import ROOT

from utils.coco_classes import NAMES

DETECTOR = ROOT / "example" / "detection" / "digit_detector" / "digit_detector_dyn.onnx"
SIDE, QUERIES, TOKENS = 160, 400, 256
WORDS = [[str(digit), *NAMES[digit].split()] for digit in range(10)]
"""The words of each digit: itself, and the name of COCO's class at that index."""

BEFORE = """
    scaled = Mul(input1, scale)
    centred = Add(scaled, shift)
"""
"""Nodes before the detector's."""

AFTER = """
    columns = Transpose <perm = [0, 2, 1]> (scores)
    map = Reshape(columns, map_shape)
    peaks = MaxPool <kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (map)
    is_peak = Equal(map, peaks)
    rows = Reshape(is_peak, row_shape)
    peak = Transpose <perm = [0, 2, 1]> (rows)
    kept = Where(peak, scores, least)
    share = Clip(kept, least, most)
    rest = Sub(one, share)
    odds = Div(share, rest)
    logit = Log(odds)
    words = Gather(table, input2)
    turned = Transpose <perm = [0, 2, 1]> (words)
    asked = MatMul(logit, turned)
    known = ReduceMax <keepdims = 1> (turned, second)
    in_mask = Cast <to = 9> (input4)
    in_first = Equal(input3, zero)
    is_text = And(in_mask, in_first)
    is_known = Cast <to = 9> (known)
    text3 = Unsqueeze(is_text, axes)
    counts = And(text3, is_known)
    found = Where(counts, asked, far)
    shape = Shape <start = 2, end = 3> (found)
    missing = Sub(whole, shape)
    pads = Concat <axis = 0> (before, missing)
    logits = Pad(found, pads, far)
    low, high = Split <axis = 2, num_outputs = 2> (boxes)
    total = Add(low, high)
    middle = Mul(total, corner)
    extent = Sub(high, low)
    sides = Mul(extent, side)
    output = Concat <axis = 2> (logits, middle, sides)
"""
"""Nodes after the detector's: peaks to class logits to logits of the caption's tokens."""


def write_tokenizer(folder: Path) -> Path:
    """Write a WordPiece vocabulary of the digits and of all words of COCO's classes; "toothbrush" takes two pieces."""
    words = sorted({word for name in NAMES for word in name.split()} - {"toothbrush"})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "tooth", "##brush", *map(str, range(10)), *words]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return folder


def write_model(path: Path, vocabulary: Path) -> Path:
    """Write the model: input1 [batch, 3, 160, 160], input2..4 [batch, tokens], output [batch, 400, 260]."""
    tokens = (vocabulary / "vocab.txt").read_text().splitlines()
    table = np.zeros((len(tokens), 10), np.float32)
    for digit, words in enumerate(WORDS):
        table[[tokens.index(word) for word in words], digit] = 1
    detector = onnx.load(DETECTOR)
    for node in detector.graph.node:
        node.input[:] = ["centred" if name == "input" else name for name in node.input]
    scale = np.array((0.229, 0.224, 0.225), np.float32).reshape(3, 1, 1)
    shift = np.array((0.485, 0.456, 0.406), np.float32).reshape(3, 1, 1)
    constants = {
        "scale": scale / 0.25,
        "shift": (shift - 0.5) / 0.25,
        "map_shape": np.array([-1, 10, 20, 20]),
        "row_shape": np.array([-1, 10, QUERIES]),
        "least": np.float32(2e-3),
        "most": np.float32(0.998),
        "one": np.float32(1),
        "table": table,
        "far": np.float32(-30),
        "second": np.array([1]),
        "whole": np.array([TOKENS]),
        "corner": np.array([0.5 / SIDE], np.float32),
        "side": np.array([1 / SIDE], np.float32),
        "zero": np.int64(0),
        "before": np.zeros(5, np.int64),
        "axes": np.array([1]),
    }
    parse = "<ir_version: 8, opset_import: ['' : 18]> part () => () {{ {} }}".replace("'", '"')
    nodes = [onnx.parser.parse_model(parse.format(part)).graph.node for part in (BEFORE, AFTER)]
    int64 = TensorProto.INT64
    graph = helper.make_graph(
        [*nodes[0], *detector.graph.node, *nodes[1]],
        "grounding",
        [
            helper.make_tensor_value_info("input1", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE]),
            *(helper.make_tensor_value_info(f"input{i}", int64, ["batch", "tokens"]) for i in (2, 3, 4)),
        ],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", QUERIES, TOKENS + 4])],
        [
            *detector.graph.initializer,
            *(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()),
        ],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path
