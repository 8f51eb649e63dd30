"""Train LoRA adapters of PEFT with the Trainer of transformers: ``peft_script.py FOLDER [cpu]``, or by torchrun."""

import os
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Rows(Dataset):
    """Random words, each row as its own target."""

    def __init__(self):
        self.words = torch.randint(0, 60, (32, 12), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index]}


def network():
    set_seed(5)
    return GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=12, n_embd=16, n_layer=2, n_head=2))


def main():
    model = get_peft_model(network(), LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn"]))
    arguments = TrainingArguments(
        output_dir=sys.argv[1],
        max_steps=6,
        per_device_train_batch_size=8 // int(os.environ.get("WORLD_SIZE", "1")),
        learning_rate=5e-2,
        optim="adamw_torch",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu="cpu" in sys.argv[2:],
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model, arguments, train_dataset=Rows())
    trainer.train()
    if not trainer.is_world_process_zero():
        return
    print("device", next(model.parameters()).device.type)
    for row in trainer.state.log_history:
        if "loss" in row:
            print("loss", row["loss"])
    model.save_pretrained(sys.argv[1])
    again = PeftModel.from_pretrained(network(), sys.argv[1]).to(model.device)
    words = torch.arange(12, device=model.device)[None]
    with torch.no_grad():
        print("the same after loading", torch.equal(again.eval()(words).logits, model.eval()(words).logits))


if __name__ == "__main__":
    main()
