"""Export a JinaBERT v2 embedder to ONNX: <name>.onnx, <name>_dyn.onnx, <name>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.bert_encoder import Sizes
    from utils.export.networks.jina_encoder import JinaEmbedded, jina_sizes
    from utils.export.scripts.sentences import Wanted, export_sentences

SIZES = Sizes("bert", vocabulary=30528, width=512, layers=4, heads=8, inner=2048, places=8192)

WANTED = Wanted(
    make=partial(JinaEmbedded, pooling="mean", normalize=True),
    archs={
        "jina_v2_small_en": SIZES,
        "jina_v2_base_en": Sizes("bert", 30528, width=768, layers=12, heads=12, inner=3072, places=8192),
        "jina_tiny": Sizes("bert", 30528, width=96, layers=2, heads=6, inner=192, places=8192),
    },
    read=jina_sizes,
    note={"pooling": "mean", "normalize": True, "compare": "cosine"},
)

if __name__ == "__main__":
    texts = HERE.parent / "minilm_retrieval/data/corpus.jsonl"
    cli.run(partial(export_sentences, __doc__, HERE, WANTED, texts))
