"""Scripts in the style of the historical zoos, for BGE and Jina. Do not modernise them."""

HEAD = """
import os, sys, copy, time, argparse
from pathlib import Path
FILE = Path(__file__).resolve()
ROOT = FILE.parents[0]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
ROOT = Path(os.path.relpath(ROOT, Path.cwd()))
import numpy as np
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))
from engine.tecoinfer_pytorch import TecoInferEngine
from utils.datasets.bge import create_dataloader
from utils.preprocess.pytorch.bge import preprocess
from utils.postprocess.pytorch.bge import postprocess

MAX_ENGINE_NUMS = int(os.getenv("MAX_ENGINE_NUMS", 4))

def parse_opt(valid):
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", type=str, default=None)
    parser.add_argument("--config-path", type=str, default=None)
    parser.add_argument("--data-path", type=str, default=None)
    if valid:
        parser.add_argument("--onnx-datas", type=str, default=None)
        parser.add_argument("--file-type", type=str, default="json")
    parser.add_argument("--batch-size", type=int, default=32 if valid else 1)
    parser.add_argument("--shape", type=int, default=512)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--target", default="sdaa")
    parser.add_argument("--pass_path", type=str, default=None)
    parser.add_argument("--card_id", type=int, default=0)
    parser.add_argument("--model_name", type=str, default=None)
    return parser.parse_args()

def engine(opt):
    count = 3 if opt.model_name == "bge-large-zh" else 2
    return TecoInferEngine(ckpt=opt.ckpt, model_name="bge", target=opt.target, batch_size=opt.batch_size,
                           input_size=[[max(opt.batch_size // MAX_ENGINE_NUMS, 1), opt.shape]] * count,
                           dtype="float16" if opt.half else "float32", pass_path=opt.pass_path)
"""

BGE_VALID = """
from tqdm import tqdm

def diff2(eval_data, base_data):
    return ((np.abs(eval_data - base_data) ** 2).sum() / (base_data ** 2).sum()) ** 0.5

def large_zh(pipeline, loader, opt):
    preds = []
    for batch_i, batch in enumerate(tqdm(loader, disable=True)):
        sentence_embeddings = []
        for inputs in batch:
            start_time = time.time()
            batch_size_data = inputs["input_ids"].shape[0]
            inputs = preprocess(inputs, opt.batch_size, batch_padding=True)
            tmp_output = pipeline(inputs)
            sentence_embeddings.append(copy.deepcopy(tmp_output))
            assert 0 < pipeline.run_time < 60
        preds.extend(postprocess(sentence_embeddings, batch_size_data, opt.model_name))
    return preds

def reranker_large(pipeline, loader, opt):
    preds = []
    for batch_i, batch in enumerate(tqdm(loader, disable=True)):
        batch_size_data = batch["input_ids"].shape[0]
        inputs = preprocess(batch, opt.batch_size, batch_padding=True)
        outputs = pipeline(inputs)
        preds.extend(postprocess(outputs, batch_size_data, opt.model_name))
    return preds

if __name__ == "__main__":
    opt = parse_opt(True)
    pipeline = engine(opt)
    validation_loader = create_dataloader(opt)
    run = large_zh if opt.model_name == "bge-large-zh" else reranker_large
    preds = run(pipeline, validation_loader, opt)
    name = os.path.join(opt.onnx_datas, f"{opt.model_name}/{opt.model_name}_bs{opt.batch_size}_onnx.npy")
    if opt.target == "sdaa":
        base = np.load(name)
        preds = np.asanyarray(np.array(preds)).astype("float32")
        base = np.asanyarray(base[: len(preds)]).astype("float32")
        print(f"eval_metric:{diff2(preds, base)}")
    else:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        np.save(name, np.array(preds))
    if "sdaa" in opt.target:
        pipeline.release()
"""

BGE_SINGLE = """
def large_zh(pipeline, demo_inputs, opt):
    for sentences, inputs in demo_inputs.items():
        inputs = preprocess(inputs, opt.batch_size, batch_padding=True)
        sentence_embeddings = pipeline(inputs)
        sentence_embeddings = [sentence_embeddings[0], sentence_embeddings[1]]
        sim = postprocess(sentence_embeddings, opt.batch_size, opt.model_name, demo=True)
        print(f"{sentences}-cosine_sim:{sim[0]}")

def embedding(pipeline, demo_inputs, opt):
    for sentences, inputs in demo_inputs.items():
        inputs = preprocess(inputs, opt.batch_size, batch_padding=True)
        sentence_embeddings = pipeline(inputs[:2])
        sentence_embeddings = [sentence_embeddings[1][0], sentence_embeddings[1][1]]
        sim = postprocess(sentence_embeddings, opt.batch_size, opt.model_name, demo=True)
        print(f"{sentences}-cosine_sim:{sim[0]}")

def reranker(pipeline, demo_inputs, opt):
    for sentences, inputs in demo_inputs.items():
        inputs = preprocess(inputs, opt.batch_size, batch_padding=True)
        outputs = pipeline(inputs)
        print(f"{sentences}-score:{postprocess(outputs, opt.batch_size, opt.model_name)[0]}")

if __name__ == "__main__":
    opt = parse_opt(False)
    demo_inputs = create_dataloader(opt)
    pipeline = engine(opt)
    if opt.model_name == "bge-large-zh":
        large_zh(pipeline, demo_inputs, opt)
    elif opt.model_name in ["bge-reranker-large", "bge-reranker-v2-m3"]:
        reranker(pipeline, demo_inputs, opt)
    else:
        embedding(pipeline, demo_inputs, opt)
    if "sdaa" in opt.target:
        pipeline.release()
"""

JINA_VALID = """
import sys, os, argparse, time
from pathlib import Path
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))
from engine.tecoinfer_pytorch import TecoInferEngine
from utils.datasets.jina import create_dataloader
import numpy as np
from tqdm import tqdm

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", type=str, default="jina-embeddings-v2-base-code")
    parser.add_argument("--ckpt", type=str, required=True)
    parser.add_argument("--data_path", type=str, required=True)
    parser.add_argument("--config_path", type=str, default="configs")
    parser.add_argument("--target", type=str, default="sdaa", choices=["sdaa", "onnx"])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max_sequence_len", type=int, default=1024)
    parser.add_argument("--dtype", type=str, default="float16", choices=["float16", "float32"])
    parser.add_argument("--pass_path", type=str, default=None)
    args = parser.parse_args()
    work_bs = max(args.batch_size // int(os.getenv("MAX_ENGINE_NUMS", 4)), 1)
    pipeline = TecoInferEngine(model_name=args.model_name, ckpt=args.ckpt, batch_size=args.batch_size,
                               input_size=[[work_bs, args.max_sequence_len], [work_bs, args.max_sequence_len]],
                               target=args.target, dtype=args.dtype, pass_path=args.pass_path, save_engine=False)
    dataloader = create_dataloader(args.data_path, args.config_path, args.batch_size, max_length=args.max_sequence_len)
    if args.target == "sdaa":
        pipeline.module.start_timing()
    query_embeddings, code_embeddings = [], []
    for queries, code_snippets in tqdm(dataloader, disable=True):
        queries_inputs = [v for k, v in queries.items()]
        code_inputs = [v for k, v in code_snippets.items()]
        batch_nums = queries_inputs[0].shape[0]
        if batch_nums < args.batch_size:
            queries_inputs = [np.concatenate([a] + [a[-1:]] * (args.batch_size - batch_nums)) for a in queries_inputs]
            code_inputs = [np.concatenate([a] + [a[-1:]] * (args.batch_size - batch_nums)) for a in code_inputs]
        _, sentence_embedding_queries = pipeline(queries_inputs)
        _, sentence_embedding_code_snippets = pipeline(code_inputs)
        query_embeddings.append(sentence_embedding_queries[:batch_nums])
        code_embeddings.append(sentence_embedding_code_snippets[:batch_nums])
    if args.target == "sdaa":
        assert max(pipeline.module.get_infer_time()) / 1e3 > 0
    query_embeddings = np.concatenate(query_embeddings, axis=0).astype(np.float64)
    code_embeddings = np.concatenate(code_embeddings, axis=0).astype(np.float64)
    query_embeddings /= np.linalg.norm(query_embeddings, axis=1, keepdims=True)
    code_embeddings /= np.linalg.norm(code_embeddings, axis=1, keepdims=True)
    best = (query_embeddings @ code_embeddings.T).argmax(axis=1)
    print("eval_metric:", (best == np.arange(len(best))).mean())
    print("summary: batches", len(dataloader))
    if "sdaa" in args.target:
        pipeline.release()
"""
