"""The same text through sluice, the tokenizers package and tiktoken, on one core, in one run.

    bench/tokenizer.py BUILD [VOCABULARY-FOLDER] [TEXT]

By default GPT-2's vocabulary (vocab.json, merges.txt) and Shakespeare below SLUICE_DATA, or ../shared/data beside the source.
Each is timed in turn, five rounds, in seconds of the core, and its best round counts."""
import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]
ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SLUICE_DATA", ROOT.parent / "shared" / "data"))
ROUNDS = 5
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_characters():
    own = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = [b for b in range(256) if b not in own]
    return {**{chr(b): b for b in own}, **{chr(256 + i): b for i, b in enumerate(others)}}


def packages(folder):
    made = {}
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers
        t = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made["tokenizers"] = lambda text: t.encode(text).ids
    except ImportError as missing:
        print(f"tokenizers: {missing}")
    try:
        import tiktoken
        back = byte_characters()
        ranks = {bytes(back[c] for c in k): v for k, v in json.loads((folder / "vocab.json").read_text()).items() if k != "<|endoftext|>"}
        e = tiktoken.Encoding("gpt2-here", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
        made["tiktoken"] = lambda text: e.encode_ordinary(text)
    except ImportError as missing:
        print(f"tiktoken: {missing}")
    return made


def ours(build, folder, path):
    """MB/s with a fresh cache and with a warm one, as bench_tokenizer measured them."""
    lines = subprocess.run([str(build / "bench_tokenizer"), str(folder), str(path)], capture_output=True, text=True, check=True).stdout
    return [float(line.split("MB/s")[0].split()[-1]) for line in lines.splitlines() if line.startswith("encode")]


def main():
    build = Path(sys.argv[1])
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else DATA / "gpt2-bpe"
    path = Path(sys.argv[3]) if len(sys.argv) > 3 else DATA / "shakespeare" / "input.txt"
    text = path.read_text()
    size = len(text.encode()) / 1e6
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    found = packages(folder)
    best = {"sluice": 0.0, "sluice, warm cache": 0.0, **{name: 0.0 for name in found}}
    ids = {}
    for _ in range(ROUNDS):
        cold, warm = ours(build, folder, path)
        best["sluice"], best["sluice, warm cache"] = max(best["sluice"], cold), max(best["sluice, warm cache"], warm)
        for name, encode in found.items():
            start = time.process_time()
            ids[name] = encode(text)
            best[name] = max(best[name], size / (time.process_time() - start))
    print(f"{path.name}, {size:.2f} MB, one core, load {os.getloadavg()[0]:.1f}")
    for name, rate in best.items():
        same = ""
        if name in ids:
            digest = hashlib.sha256(struct.pack("<%dH" % len(ids[name]), *ids[name])).hexdigest()[:16]
            same = f"  {len(ids[name])} ids, sha256 {digest}"
        print(f"  {name:20} {rate:8.2f} MB/s{same}")


if __name__ == "__main__":
    main()
