"""Train a small BERT with the Trainer of transformers: ``python trainer_script.py FOLDER [cpu] [FLAG]``, or by torchrun.

Written as for CUDA: nothing in it names a device.
"""

import os
import sys

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Sentences(Dataset):
    """Random words; the label is whether the first is in the lower half of the vocabulary."""

    def __init__(self):
        self.words = torch.randint(0, 60, (48, 12), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": (words[0] < 30).long()}


def sharding(flags):
    """Return settings that shard the model, in the versions of FSDP, or the optimizer, with DeepSpeed."""
    settings = {"transformer_layer_cls_to_wrap": ["BertLayer"]}
    if "fsdp1" in flags:
        settings |= {"fsdp_version": 1, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    if "fsdp1" in flags or "fsdp2" in flags:
        return {"fsdp": True, "fsdp_config": settings}
    if "deepspeed" in flags:
        sizes = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
        return {"deepspeed": {"zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True} | sizes}
    return {}


def main():
    set_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=60, max_position_embeddings=12, **sizes))
    arguments = TrainingArguments(
        output_dir=sys.argv[1],
        max_steps=6,
        per_device_train_batch_size=8 // int(os.environ.get("WORLD_SIZE", "1")),
        learning_rate=1e-2,
        optim="adamw_torch",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu="cpu" in sys.argv[2:],
        dataloader_pin_memory=False,
        **{flag: flag in sys.argv[2:] for flag in ("bf16", "fp16", "torch_compile")},
        **sharding(sys.argv[2:]),
    )
    trainer = Trainer(model, arguments, train_dataset=Sentences())
    trainer.train()
    if trainer.is_world_process_zero():
        print("device", next(model.parameters()).device.type, arguments.n_gpu)
        for row in trainer.state.log_history:
            if "loss" in row:
                print("loss", row["loss"])


if __name__ == "__main__":
    main()
