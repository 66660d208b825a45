#!/usr/bin/env python3
"""The fine-tuning of examples/bert-mrpc.json in transformers, for a comparison: mrpc-transformers.py MODEL DATA SEED.

Prints accuracy and F1 of the class 1 over dev.tsv after the last step."""
import csv
import sys
import time

import torch
from transformers import AutoTokenizer, BertForSequenceClassification, get_linear_schedule_with_warmup

model_path, data, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
CONTEXT, BATCH, EPOCHS, RATE = 72, 32, 2, 1e-4
torch.manual_seed(seed)
torch.set_num_threads(2)


def read(name, tokenizer):
    with open(f"{data}/{name}.tsv", encoding="utf-8-sig", newline="\n") as f:
        rows = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
    batch = tokenizer([r["#1 String"] for r in rows], [r["#2 String"] for r in rows], truncation="longest_first",
                      padding="max_length", max_length=CONTEXT, return_tensors="pt")
    batch["labels"] = torch.tensor([int(r["Quality"]) for r in rows])
    return batch


tokenizer = AutoTokenizer.from_pretrained(model_path)
train, dev = read("train", tokenizer), read("dev", tokenizer)
model = BertForSequenceClassification.from_pretrained(model_path, num_labels=2)
plain = [p for n, p in model.named_parameters() if p.dim() < 2]
decayed = [p for n, p in model.named_parameters() if p.dim() >= 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=RATE)
count = len(train["labels"])
steps = EPOCHS * count // BATCH
schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
order = torch.cat([torch.randperm(count) for _ in range(EPOCHS)])
start = time.time()
model.train()
for step in range(steps):
    rows = order[step * BATCH:(step + 1) * BATCH]
    loss = model(**{k: v[rows] for k, v in train.items()}).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if step % 20 == 0:
        print(f"step {step + 1}/{steps} loss {loss.item():.4f} {(time.time() - start) / (step + 1):.2f} s a step", flush=True)
model.eval()
with torch.no_grad():
    guess = torch.cat([model(**{k: v[i:i + 32] for k, v in dev.items()}).logits.argmax(1) for i in range(0, len(dev["labels"]), 32)])
truth = dev["labels"]
hits = int(((guess == 1) & (truth == 1)).sum())
f1 = 2 * hits / int((guess == 1).sum() + (truth == 1).sum())
print(f"seed {seed}: accuracy {float((guess == truth).float().mean()):.4f} f1 {f1:.4f} in {time.time() - start:.0f} s")
