"""Folders that sluice writes go through llama.cpp's convert_hf_to_gguf.py, for every family: the file holds as many weights as
the folder, with the same numbers.

    SLUICE_LLAMA_CPP=FOLDER llama_cpp.py BUILD        FOLDER: llama.cpp's source

A folder of a published model has the tokenizer that the converter knows; here GPT-2's stands for it where the converter takes it
(SLUICE_GPT2_BPE: its vocab.json and merges.txt), and a SentencePiece model made on the spot where it wants one.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ.get("SLUICE_LLAMA_CPP", "/nowhere"))
if not (SOURCE / "convert_hf_to_gguf.py").is_file():
    print("SKIP: SLUICE_LLAMA_CPP does not name llama.cpp's source")
    sys.exit(77)
sys.path.insert(0, str(SOURCE / "gguf-py"))
try:
    import gguf
    import numpy as np
    import sentencepiece
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

BUILD = Path(sys.argv[1]).resolve()
BPE = Path(os.environ.get("SLUICE_GPT2_BPE", "/nowhere"))
TEXT = "".join(p.read_text() for p in sorted((Path(__file__).resolve().parents[2] / "docs").glob("*.md")))
PAIR = ["gpt2", "llama", "qwen3", "gemma3_text"]
SENTENCEPIECE = ["mistral", "phi3", "gemma", "gemma2"]


def train(folder, family, vocabulary, tokenizer):
    data = {"type": "text", "path": "text.txt", "tokenizer": str(tokenizer)} if tokenizer else {"type": "random_tokens", "samples": 8}
    config = {"model": {"type": family, "layers": 2, "width": 64, "heads": 4, "context": 64, "feed_forward": 128,
                        "vocabulary": vocabulary}, "data": data, "steps": 1, "train_batch_size": 2, "save": family + "/",
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    (folder / "c.json").write_text(json.dumps(config))
    subprocess.run([BUILD / "sluice", "train", "c.json", "--quiet"], cwd=folder, check=True)


def convert(folder, family):
    out = folder / (family + ".gguf")
    done = subprocess.run([sys.executable, SOURCE / "convert_hf_to_gguf.py", folder / family, "--outtype", "f32", "--outfile", out],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE / "gguf-py")})
    if done.returncode != 0:
        print(f"FAILED {family}: {done.stderr[-300:]}")
        return False
    there = sum(t.n_elements for t in gguf.GGUFReader(out).tensors)
    weights = load_file(folder / family / "model.safetensors")
    ours = sum(w.size for w in weights.values())
    table = next(t for t in gguf.GGUFReader(out).tensors if t.name == "token_embd.weight")
    embedding = next(w for name, w in weights.items() if name.endswith(("embed_tokens.weight", "wte.weight")))
    same = np.array_equal(np.asarray(table.data).reshape(embedding.shape), embedding)
    print(f"{family:12s} {there} weights, {'the same embedding' if same else 'ANOTHER EMBEDDING'}")
    if there != ours:
        print(f"FAILED {family}: {ours} weights in the folder")
    return same and there == ours


def main():
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "text.txt").write_text(TEXT)
        sentencepiece.SentencePieceTrainer.train(input=str(folder / "text.txt"), model_prefix=str(folder / "sp"), vocab_size=512,
                                                 model_type="bpe", byte_fallback=True, minloglevel=2)
        for family in PAIR if (BPE / "vocab.json").is_file() else []:
            train(folder, family, 50257, BPE)
            good &= convert(folder, family)
        for family in SENTENCEPIECE:
            train(folder, family, 512, None)
            shutil.copy(folder / "sp.model", folder / family / "tokenizer.model")
            good &= convert(folder, family)
    sys.exit(0 if good else 1)


main()
