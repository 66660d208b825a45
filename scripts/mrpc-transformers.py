#!/usr/bin/env python3
"""The fine-tuning of examples/bert-mrpc.json in transformers, for a comparison.

mrpc-transformers.py MODEL DATA SEED [--attention-dropout P] [--dropout P] [--epochs N] [--context N]

Batch, length, rates of every step, weight decay, clipping and truncation are those of the example. Dropout on the attention weights is 0
unless it is given, because sluice has none there. Prints accuracy and F1 of the class 1 over dev.tsv after the last step.
"""
import argparse
import csv
import math
import time

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

BATCH, RATE, WARMUP, DECAY = 32, 1e-4, 0.1, 0.01


def read(path, tokenizer, context):
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    batch = tokenizer([r["#1 String"] for r in rows], [r["#2 String"] for r in rows], truncation="longest_first",
                      padding="max_length", max_length=context, return_tensors="pt")
    batch["labels"] = torch.tensor([int(r["Quality"]) for r in rows])
    return batch


def part(batch, rows):
    return {name: values[rows] for name, values in batch.items()}


def rate_at(steps):
    """DeepSpeed's WarmupDecayLR: the first two steps have the rate of its step 0."""
    warmup = math.ceil(WARMUP * steps)

    def factor(step):
        done = max(0, step - 1)
        return done / warmup if done < warmup else (steps - done) / (steps - warmup)
    return factor


def train(model, batch, epochs, seed):
    count = len(batch["labels"])
    steps = math.ceil(epochs * count / BATCH)
    numbers = torch.Generator().manual_seed(seed)
    order = torch.cat([torch.randperm(count, generator=numbers) for _ in range(epochs + 1)])
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_at(steps))
    model.train()
    for step in range(steps):
        loss = model(**part(batch, order[step * BATCH:(step + 1) * BATCH])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (step + 1) % 23 == 0:
            print(f"step {step + 1}/{steps} loss {loss.item():.4f}", flush=True)


def judge(model, batch):
    model.eval()
    truth = batch["labels"]
    with torch.no_grad():
        guess = torch.cat([model(**part(batch, slice(i, i + BATCH))).logits.argmax(1) for i in range(0, len(truth), BATCH)])
    hits = int(((guess == 1) & (truth == 1)).sum())
    return float((guess == truth).float().mean()), 2 * hits / int((guess == 1).sum() + (truth == 1).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("seed", type=int)
    parser.add_argument("--attention-dropout", type=float, default=0.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--context", type=int, default=72)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    sets = [read(f"{options.data}/{name}.tsv", tokenizer, options.context) for name in ("train", "dev")]
    model = BertForSequenceClassification.from_pretrained(options.model, num_labels=2, hidden_dropout_prob=options.dropout,
                                                          attention_probs_dropout_prob=options.attention_dropout)
    start = time.time()
    train(model, sets[0], options.epochs, options.seed)
    seconds = time.time() - start
    accuracy, f1 = judge(model, sets[1])
    print(f"seed {options.seed} dropout {options.dropout} attention {options.attention_dropout}: "
          f"accuracy {accuracy:.4f} f1 {f1:.4f} in {seconds:.0f} s")


if __name__ == "__main__":
    main()
