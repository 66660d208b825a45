"""generate.py BUILD: sluice's generation beside transformers'. generate.py --record tests/fixtures/generate writes the fixtures.

Greedy text of small random GPT-2 and Llama folders, 200 tokens in fp32, token for token; and the rules of sampling beside the
logits processors of transformers, on random logits: the same tokens are left.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    from transformers import logging
except ImportError as missing:
    print(f"generate: {missing}")
    sys.exit(77)

logging.set_verbosity_error()
TOKENS = 200
PROMPTS = ["Hello", "The quick brown fox jumps over the lazy dog. ", "x"]


def write_tokenizer(folder):
    """One token a byte: what is compared is the model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.save(os.path.join(folder, "tokenizer.json"))
    return t


def make_models(small=False):
    torch.manual_seed(3)
    width, layers = (32, 2) if small else (64, 3)
    yield "gpt2", GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=300, n_embd=width, n_layer=layers, n_head=4, bos_token_id=None,
                   eos_token_id=None, initializer_range=0.3))
    yield "llama", LlamaForCausalLM(
        LlamaConfig(vocab_size=256, hidden_size=width, intermediate_size=5 * width // 2, num_hidden_layers=layers,
                    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=300, bos_token_id=None,
                    eos_token_id=None, initializer_range=0.3))


def greedy(model, ids):
    """transformers' own loop, without limits of its generation config."""
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS,
                             pad_token_id=0)
    return out[0, len(ids):].tolist()


def compare(build, name, model, folder):
    model.eval()
    model.save_pretrained(folder)
    tokenizer = write_tokenizer(folder)
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(prompts, "w") as f:
        for p in PROMPTS:
            f.write(json.dumps({"prompt": p}) + "\n")
    run = subprocess.run([os.path.join(build, "sluice"), "generate", "--model", folder, "--prompts", prompts, "--tokens",
                          str(TOKENS), "--temperature", "0", "--set", "model.context=300", "--quiet"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        print(f"{name}: sluice: {run.stderr}")
        return 1
    wrong = 0
    for p, line in zip(PROMPTS, run.stdout.splitlines()):
        reply = json.loads(line)
        want = tokenizer.decode(greedy(model, tokenizer.encode(p).ids))
        same = reply["text"] == want and reply["tokens"] == TOKENS
        wrong += not same
        print(f"{name}, {len(p)} tokens of prompt: {TOKENS} tokens {'agree' if same else 'DIFFER'}")
        if not same:
            print(" ", repr(want[:80]), "\n ", repr(reply["text"][:80]))
    return wrong


def record(folder):
    """The fixtures of tests/cli/generate_cli_test.c: small folders and what transformers writes for their prompts."""
    for name, model in make_models(small=True):
        here = os.path.join(folder, name)
        os.makedirs(here, exist_ok=True)
        model.eval()
        model.save_pretrained(here)
        tokenizer = write_tokenizer(here)
        with open(os.path.join(here, "prompts.jsonl"), "w") as f:
            for p in PROMPTS:
                f.write(json.dumps({"prompt": p}) + "\n")
        with open(os.path.join(here, "greedy.jsonl"), "w") as f:
            for p in PROMPTS:
                want = tokenizer.decode(greedy(model, tokenizer.encode(p).ids))
                f.write(json.dumps({"text": want}, ensure_ascii=False) + "\n")


def main():
    if sys.argv[1] == "--record":
        return record(sys.argv[2])
    build = os.path.abspath(sys.argv[1])
    wrong = 0
    for name, model in make_models():
        with tempfile.TemporaryDirectory() as folder:
            wrong += compare(build, name, model, folder)
    sys.exit(wrong != 0)


main()
