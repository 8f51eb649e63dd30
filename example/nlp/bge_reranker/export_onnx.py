"""Export a bge reranker (XLM-RoBERTa, one logit) to ONNX: <name>.onnx, <name>_dyn.onnx, <name>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.bert_encoder import Sizes
    from utils.export.networks.bert_heads import Classified
    from utils.export.scripts.sentences import Wanted, export_sentences

XLM = partial(Sizes, "xlm-roberta", places=514, types=1, pad=1, epsilon=1e-5)

WANTED = Wanted(
    make=partial(Classified, classes=1),
    archs={
        "bge_reranker_base": XLM(vocabulary=250002, width=768, layers=12, heads=12, inner=3072),
        "bge_reranker_large": XLM(vocabulary=250002, width=1024, layers=24, heads=16, inner=4096),
        "bge_reranker_tiny": XLM(vocabulary=250002, width=96, layers=2, heads=4, inner=192),
    },
)

if __name__ == "__main__":
    texts = HERE.parent / "minilm_retrieval/data/corpus.jsonl"
    cli.run(partial(export_sentences, __doc__, HERE, WANTED, texts))
