#!/usr/bin/env python3
"""Twelve steps of fine-tuning on MRPC in transformers, to be compared number by number: mrpc-steps.py MODEL DATA OUT.

Leaves the model with the head that it begins with in the folder OUT, and OUT/steps.json, with which `sluice train` takes the same steps: the first
rows of train.tsv in their order, 8 a step, without dropout, at a constant rate. Prints loss and gradient norm of each step.
"""
import csv
import json
import os
import shutil
import sys

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

STEPS, BATCH, CONTEXT, RATE, DECAY = 12, 8, 64, 1e-4, 0.01


def write_config(data, out):
    config = {
        "model": {"path": os.path.abspath(out), "head": "classifier", "context": CONTEXT, "dropout": 0},
        "data": {"type": "glue", "path": os.path.abspath(data), "shuffle": False},
        "steps": STEPS, "train_batch_size": BATCH, "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": DECAY},
                      "groups": [{"match": "no_decay", "weight_decay": 0}]},
    }
    with open(os.path.join(out, "steps.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


def main():
    source, data, out = sys.argv[1:]
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = BertForSequenceClassification.from_pretrained(source, num_labels=2, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    model.save_pretrained(out)
    shutil.copy(os.path.join(source, "tokenizer.json"), out)
    write_config(data, out)
    with open(os.path.join(data, "train.tsv"), encoding="utf-8-sig", newline="\n") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:STEPS * BATCH]
    batch = tokenizer([r["#1 String"] for r in rows], [r["#2 String"] for r in rows], truncation="longest_first",
                      padding="max_length", max_length=CONTEXT, return_tensors="pt")
    batch["labels"] = torch.tensor([int(r["Quality"]) for r in rows])
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    model.train()
    for step in range(STEPS):
        loss = model(**{k: v[step * BATCH:(step + 1) * BATCH] for k, v in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step + 1}: loss {loss.item():.6f} norm {norm.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
