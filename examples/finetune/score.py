"""score.py FOLDER WORDS: the score of scripts/finetune-demo, computed by transformers from a folder that sluice wrote.

Greedy replies to "shout: word" for each line of WORDS. No part of sluice: it shows that the folders open elsewhere.
"""
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, words = sys.argv[1], open(sys.argv[2]).read().split()
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
right = 0
for word in words:
    ids = tokenizer(f"shout: {word}\n", return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=10, do_sample=False, pad_token_id=0)
    reply = tokenizer.decode(out[0, ids.shape[1] :]).split("\n")[0]
    right += reply == word.upper()
print(f"   {folder:<12} {right:3d} of {len(words)} held-out words, transformers")
