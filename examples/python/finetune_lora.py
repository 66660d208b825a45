"""Teaches a folder of a language model a task by LoRA adapters, and merges them. The folder is made here, small; a published
one (Llama, Qwen, GPT-2 ...) goes the same way. Needs sluice alone."""
import json
import os
import random

import sluice

STEPS = int(os.environ.get("STEPS", "300"))
words = random.Random(1).sample([a + b + c for a in "bdgkmnprst" for b in "aeiou" for c in "bdgkmnprst"], 400)
with open("input.txt", "w") as text:
    text.write(" ".join(f"{word} {word.upper()}" for word in random.Random(2).choices(words, k=10000)))
with open("shout.jsonl", "w") as samples:
    for word in words[:300]:
        samples.write(json.dumps({"prompt": f"shout: {word}\n", "completion": f"{word.upper()}\n"}) + "\n")

base = {
    "model": {"type": "gpt2", "layers": 2, "heads": 2, "width": 64, "context": 64, "vocabulary": "bytes"},
    "data": {"type": "text", "path": "input.txt"},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-3}},
    "steps": STEPS, "train_batch_size": 8, "seed": 1, "save": "base/",
}  # fmt: skip
print(f"base: loss {sluice.train(base).loss:.3f}")

task = sluice.Config.for_model(
    "base", "shout.jsonl", lora=True, out="adapter",
    settings={"epochs": None, "steps": STEPS, "optimizer.params.lr": 5e-3, "lora.rank": 8},
)  # fmt: skip
print(sluice.plan(task).verdict)
print(f"adapter: loss {sluice.train(task).loss:.3f}")
print(sluice.merge("base", "adapter", "merged").splitlines()[-1])

asked = [f"shout: {word}\n" for word in words[300:340]]
bytes_in = {"data.type": "text", "data.unit": "bytes"}
replies = sluice.generate(sluice.Config.for_model("merged", settings=bytes_in), asked, tokens=6, temperature=0, stop=["\n"])
right = sum(reply == word.upper() for reply, word in zip(replies, words[300:]))
print(f"{right} of {len(asked)} words that are in no sample are answered exactly, such as {asked[0]!r} by {replies[0]!r}")
