"""A BERT of one's own, trained on masked tokens: tied embeddings, no decay for biases, linear warm-up, dict batches."""
import argparse
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

VOCAB, PAD, CLS, MASK = 60, 0, 1, 2


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


class SelfAttention(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        b, t, h = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(h // self.heads)
        scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        context = self.dropout(scores.softmax(-1)) @ v
        return self.output(context.transpose(1, 2).reshape(b, t, h))


class Layer(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.attention = SelfAttention(hidden, heads, dropout)
        self.LayerNorm1, self.LayerNorm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.LayerNorm1(x + self.dropout(self.attention(x, mask)))
        return self.LayerNorm2(x + self.dropout(self.mlp(x)))


class BertForMaskedLM(nn.Module):
    def __init__(self, hidden=32, heads=4, layers=2, length=24, dropout=0.1):
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCAB, hidden, padding_idx=PAD), nn.Embedding(length, hidden)
        self.register_buffer("position_ids", torch.arange(length).unsqueeze(0))
        self.layers = nn.ModuleList(Layer(hidden, heads, dropout) for _ in range(layers))
        self.decoder = nn.Linear(hidden, VOCAB)
        self.decoder.weight = self.words.weight

    @property
    def device(self):
        return next(self.parameters()).device

    def forward(self, input_ids, attention_mask, labels=None):
        x = self.words(input_ids) + self.positions(self.position_ids[:, : input_ids.size(1)])
        for layer in self.layers:
            x = layer(x, attention_mask)
        logits = self.decoder(x)
        if labels is None:
            return {"logits": logits}
        loss = F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}


def collate(lines, rng):
    width = max(map(len, lines))
    ids = torch.tensor([line + [PAD] * (width - len(line)) for line in lines])
    chosen = torch.from_numpy(rng.random(ids.shape) < 0.2) & (ids > MASK)
    labels = ids.masked_fill(~chosen, -100)
    return {"input_ids": ids.masked_fill(chosen, MASK), "attention_mask": ids != PAD, "labels": labels}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=12)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    args = parser.parse_args()
    set_seed(21)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    n_gpu = torch.cuda.device_count()
    model = BertForMaskedLM()
    model.to(device)
    no_decay = ("bias", "LayerNorm")
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(x in n for x in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if any(x in n for x in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.learning_rate, eps=1e-8)
    warmup = 3
    scheduler = LambdaLR(optimizer, lambda s: (s + 1) / warmup if s < warmup else max(0, 1 - s / args.max_steps))
    scaler = torch.cuda.amp.GradScaler() if args.fp16 else None
    rng = np.random.default_rng(4)
    model.train()
    for step in range(args.max_steps):
        starts = rng.integers(3, 40, 16)
        lines = [[CLS] + [int(3 + (s + 2 * i) % (VOCAB - 3)) for i in range(8 + s % 12)] for s in starts]
        batch = {k: v.to(device) for k, v in collate(lines, rng).items()}
        if scaler:
            with torch.cuda.amp.autocast():
                loss = model(**batch)["loss"]
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        else:
            loss = model(**batch)["loss"]
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        scheduler.step()
        model.zero_grad()
        print({"step": step, "loss": loss.item()})
    assert model.decoder.weight is model.words.weight and model.device.type == device.type
    if n_gpu:
        torch.save({"rng": torch.cuda.get_rng_state_all(), "args": args}, "bert_masked.pt")


if __name__ == "__main__":
    main()
