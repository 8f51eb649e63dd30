"""Export a bge embedder (BERT, its first token) to ONNX: <name>.onnx, <name>_dyn.onnx, <name>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.tasks.common.embedding import BGE_QUERY

with needed(__file__):
    from utils.export.networks.bert_encoder import Sizes
    from utils.export.networks.bert_heads import Embedded
    from utils.export.scripts.sentences import Wanted, export_sentences

WANTED = Wanted(
    make=partial(Embedded, pooling="cls", normalize=True),
    archs={
        "bge_small_en": Sizes("bert", vocabulary=30522, width=384, layers=12, heads=12, inner=1536),
        "bge_base_en": Sizes("bert", vocabulary=30522, width=768, layers=12, heads=12, inner=3072),
        "bge_large_en": Sizes("bert", vocabulary=30522, width=1024, layers=24, heads=16, inner=4096),
        "bge_tiny": Sizes("bert", vocabulary=30522, width=96, layers=2, heads=4, inner=192),
    },
    note={"pooling": "cls", "normalize": True, "compare": "cosine", "query_prefix": BGE_QUERY},
)

if __name__ == "__main__":
    texts = HERE.parent / "minilm_retrieval/data/corpus.jsonl"
    cli.run(partial(export_sentences, __doc__, HERE, WANTED, texts))
