"""Tokenizers against the Hugging Face package, token for token and back.

    tokenizer_parity.py BUILD [KIND...]   every kind, or those whose names contain one of the words
    tokenizer_parity.py BUILD --record    also writes the small ones to tests/fixtures/tokenizers for the test without Python

Vocabularies are trained here, in the forms that transformers 4 and 5 write. Texts: Shakespeare and MRPC where SLUICE_DATA
(or ../shared/data beside the source) has them, the project's own source, and 10,000 random strings for each kind. Each text is
encoded with and without special tokens and with special tokens as plain text, and decoded at once, without special tokens,
and one by one.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SLUICE_DATA", ROOT.parent / "shared" / "data"))
FIXTURES = ROOT / "tests" / "fixtures" / "tokenizers"
STRINGS = 10000
ADD_SPECIAL, PLAIN, SKIP_SPECIAL = 1, 2, 1

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN_MARKS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
              r"\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = ["[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]


# ---- Vocabularies ----

def corpus():
    text = []
    for path in sorted((ROOT / "src").rglob("*.[ch]"))[:60] + sorted((ROOT / "docs").glob("*.md")):
        text.append(path.read_text(errors="ignore"))
    shakespeare = DATA / "shakespeare" / "input.txt"
    if shakespeare.exists():
        text.append(shakespeare.read_text()[:200000])
    rng = random.Random(5)
    text += [random_string(rng, specials=False) for _ in range(3000)]
    return [line for part in text for line in part.splitlines(keepends=True)]


def token(content, id, special=True, normalized=False, **on):
    row = dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=normalized, special=special)
    row.update(on)
    return row


def template(before, after, ids):
    single = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before]
    single += [{"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": t, "type_id": 0}} for t in after]
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in before + after}}


def spaced(merges):
    return [" ".join(m) if isinstance(m, list) else m for m in merges]


def byte_level(lines, size, splits, normalizer=None, prefix=False):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizer
    parts = [pre_tokenizers.Split(Regex(s), "isolated") for s in splits]
    parts.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=not splits))
    t.pre_tokenizer = pre_tokenizers.Sequence(parts) if splits else parts[0]
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(t.to_str())


def add_tokens(d, contents, **on):
    first = max(d["model"]["vocab"].values()) + 1
    first = max([first] + [a["id"] + 1 for a in d["added_tokens"]])
    for c in contents:
        known = d["model"]["vocab"].get(c)
        d["added_tokens"].append(token(c, first if known is None else known, **on))
        first += known is None
    return {a["content"]: a["id"] for a in d["added_tokens"]}


def gpt2_like(lines, size):
    d = byte_level(lines, size, [])
    d["model"]["merges"] = spaced(d["model"]["merges"])  # as version 4 wrote them
    add_tokens(d, ["<|endoftext|>"])
    return d


def gpt2_prefix(lines, size):
    d = byte_level(lines, size, [], prefix=True)
    ids = add_tokens(d, ["<s>", "</s>"])
    add_tokens(d, ["<mask>"], lstrip=True)
    d["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]],
                           "trim_offsets": True, "add_prefix_space": True}
    return d


def llama3_like(lines, size):
    d = byte_level(lines, size, [LLAMA3])
    d["model"]["ignore_merges"] = True
    d["model"]["merges"] = d["model"]["merges"][::2]  # tokens that merges do not reach: only ignore_merges finds them
    reachable = set(pre_tokenizers.ByteLevel.alphabet())
    kept = []
    for a, b in d["model"]["merges"]:
        if a in reachable and b in reachable:
            reachable.add(a + b)
        kept.append([a, b])
    d["model"]["merges"] = kept
    ids = add_tokens(d, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    d["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        template(["<|begin_of_text|>"], [], ids)]}
    return d


def qwen_like(lines, size):
    d = byte_level(lines, size, [QWEN], normalizers.NFC())
    add_tokens(d, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    add_tokens(d, ["<tool_call>", "</tool_call>", "<think>"], special=False)
    add_tokens(d, ["Ång", "cafe\u0301"], special=False, normalized=True)
    return d


def split_like(pattern):
    def make(lines, size):
        d = byte_level(lines, size, [pattern])
        add_tokens(d, ["<|endoftext|>"])
        return d
    return make


def removed_inverted(lines, size):
    d = byte_level(lines, size, [LLAMA3])
    d["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed", invert=True)
    return d


def deepseek_like(lines, size):
    d = byte_level(lines, size, DEEPSEEK)
    d["pre_tokenizer"]["pretokenizers"].insert(5, {"type": "Digits", "individual_digits": True})
    d["normalizer"] = {"type": "Sequence", "normalizers": []}
    add_tokens(d, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    return d


def starcoder_like(lines, size):
    d = byte_level(lines, size, [])
    d["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, d["pre_tokenizer"]]}
    add_tokens(d, ["<|endoftext|>", "<fim_prefix>"])
    return d


def sentencepiece(lines, size, all_splits):
    """A vocabulary of words that begin with a space symbol, with bytes; merges trained, or all splits of every token by score, as
    transformers makes them from SentencePiece models."""
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    bytes_ = ["<0x%02X>" % b for b in range(256)]
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=400, special_tokens=["<unk>", "<s>", "</s>"] + bytes_))
    d = json.loads(t.to_str())
    d["added_tokens"] = [a for a in d["added_tokens"] if a["content"] not in bytes_]
    vocab = d["model"]["vocab"]
    for run in ("▁▁", "▁▁▁", "▁▁▁▁"):  # SentencePiece's runs of spaces
        vocab.setdefault(run, max(vocab.values()) + 1)
    if all_splits:
        d["model"]["merges"] = [[w[:i], w[i:]] for w, _ in sorted(vocab.items(), key=lambda item: item[1])
                                for i in range(1, len(w)) if w[:i] in vocab and w[i:] in vocab and w not in bytes_]
    else:
        d["model"]["merges"] += [["▁", "▁"], ["▁▁", "▁"], ["▁▁", "▁▁"]]
    d["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    d["pre_tokenizer"] = None
    return d


def llama2_v4(lines, size):
    d = sentencepiece(lines, size, True)
    d["model"]["merges"] = spaced(d["model"]["merges"])
    d["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    d["post_processor"] = template(["<s>"], [], d["model"]["vocab"])
    return d


def llama2_v5(lines, size):
    d = sentencepiece(lines, size, False)
    d["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    d["post_processor"] = template(["<s>"], ["</s>"], d["model"]["vocab"])
    add_tokens(d, ["[INST]", "[/INST]"], special=False, normalized=True)
    return d


def gemma_like(lines, size):
    d = sentencepiece(lines, size, True)
    d["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    d["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    d["decoder"]["decoders"].pop()
    add_tokens(d, ["\n\n", "\n\n\n", "<start_of_turn>", "<end_of_turn>"], special=False)
    add_tokens(d, ["▁▁▁▁▁"], special=False, normalized=True)
    d["post_processor"] = template(["<s>"], [], d["model"]["vocab"])
    return d


def no_bytes(lines, size):
    """Characters without bytes and without fusing: every unknown character is a token."""
    d = sentencepiece(lines, size, False)
    d["model"].update(byte_fallback=False, fuse_unk=False)
    d["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    d["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return d


def dropping(lines, size):
    """Neither bytes nor an unknown token: such characters vanish, and their neighbours may merge."""
    d = no_bytes(lines, size)
    d["model"]["unk_token"] = None
    d["decoder"] = None
    return d


def bert_like(lower):
    def make(lines, size):
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer(lowercase=lower)
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        t.decoder = decoders.WordPiece()
        t.train_from_iterator(lines, trainers.WordPieceTrainer(
            vocab_size=size, show_progress=False, limit_alphabet=800, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
        d = json.loads(t.to_str())
        if lower:
            d["post_processor"] = template(["[CLS]"], ["[SEP]"], d["model"]["vocab"])
        else:
            v = d["model"]["vocab"]
            d["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", v["[SEP]"]], "cls": ["[CLS]", v["[CLS]"]]}
            for a in d["added_tokens"]:
                a["lstrip"] = a["content"] == "[MASK]"
        return d
    return make


def chain(normalizer, pre_tokenizer):
    """WordPiece behind other components."""
    def make(lines, size):
        d = bert_like(False)(lines, size)
        d["normalizer"], d["pre_tokenizer"] = normalizer, pre_tokenizer
        for content, on in (("Rome", dict(single_word=True)), ("the", dict(rstrip=True)), ("Ünit", dict(lstrip=True))):
            add_tokens(d, [content], special=False, normalized=True, **on)
        return d
    return make


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


KINDS = {
    "gpt2-v4": gpt2_like,
    "gpt2-prefix-roberta": gpt2_prefix,
    "llama3": llama3_like,
    "qwen2": qwen_like,
    "qwen-marks": split_like(QWEN_MARKS),
    "o200k": split_like(O200K),
    "gpt2-split": split_like(GPT2),
    "removed-inverted": removed_inverted,
    "deepseek": deepseek_like,
    "starcoder": starcoder_like,
    "llama2-v4": llama2_v4,
    "llama2-v5": llama2_v5,
    "gemma": gemma_like,
    "no-bytes": no_bytes,
    "dropping": dropping,
    "bert-uncased": bert_like(True),
    "bert-cased": bert_like(False),
    "nfkc-lower-whitespace": chain(
        sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}),
        {"type": "Whitespace"}),
    "nfkd-accents-punctuation": chain(
        sequence("normalizers", {"type": "NFKD"}, {"type": "StripAccents"}),
        sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Contiguous"})),
    "nfd-digits": chain({"type": "NFD"}, sequence("pretokenizers", {"type": "Digits", "individual_digits": False},
                                                  {"type": "Punctuation", "behavior": "MergedWithNext"},
                                                  {"type": "CharDelimiterSplit", "delimiter": " "})),
    "regex-replace": chain({"type": "Replace", "pattern": {"Regex": r"\s{2,}|[aeiou]{1,3}(?=n)"}, "content": " "},
                           {"type": "Split", "pattern": {"Regex": r"\w+|[^\w\s]+"}, "behavior": "MergedWithPrevious", "invert": False}),
}


# ---- Texts ----

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " \t\n\r", " ", "   \n", "'\"!?.,;:-_()[]{}<>/\\@#$%^&*+=|~`",
    "àéîõüçñÅØßſİıŉǅ", "абвгдЖЗИЙЁ", "αβγΣσςΩΆ", "漢字仮名交文。、「」", "かなカナｶﾞﾊﾟー", "한국어각힣", "\u1100\u1161\u11a8\u1112\u1175",
    "\u0301\u0323\u0308\u0327\u0345\u05b0\u0e38", "עבריתّ", "हिन्दीक्षि", "ไทยภาษา", "👍🏽👨‍👩‍👧🇩🇪❤️", "²³½Ⅷ٣४๓①㊿𝟘", "\u00a0\u2003\u2028\u3000\u200b\u200d\ufeff\u0085\x1c",
    "ﬁﬀ㎏℃Ａｚ", "▁▁ ", "Ġ ĊÄ", "\x00\x01\x7f\x80\ufffd", "𐍈𝒜𠀀\U0001e900\U000e0100",
]
WORDS = ["the", " the", " Rome", "Rome", "ROME's", "don't", "I'LL", "we've", "can'ſ", "'re", "cafe\u0301", "café", "  indent", "\n\n", "\r\n",
         "1234567", "3.14", "x = y", "</s>", "<s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "[MASK]", " [MASK]", "[CLS]", "[UNK]",
         "<mask>", "  <mask>", "<think>", "<|begin_of_text|>", "[INST]", "<start_of_turn>", "<0x0A>", "naïve", "Ång", "A\u030ang", "do not", "Ünit"]


def random_code(rng):
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(0x110000)])
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def random_string(rng, specials=True):
    parts = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 13])):
        kind = rng.random()
        if kind < 0.55:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.choice([1, 1, 2, 3, 5, 9]))))
        elif kind < 0.7 and specials:
            parts.append(rng.choice(WORDS))
        elif kind < 0.8:
            parts.append(rng.choice(rng.choice(ALPHABETS)) * rng.choice([2, 3, 7, 30, 90]))
        else:
            parts.append("".join(random_code(rng) for _ in range(rng.choice([1, 2, 4]))))
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def long_strings(rng):
    """Pieces longer than any scan by hand: only the queue of merges sees them."""
    letters = "abtheromeandin"
    return ["a" * 5000, " " * 3001 + "x", "\u0301" * 2000, "ab" * 3000, "\n" * 999, "7" * 1000, "▁" * 1500, "é" * 2000, "漢" * 1000, "no" * 40 + "\u0323\u0301" * 800,
            "".join(rng.choice(letters) for _ in range(20000)), "".join(rng.choice("ab") for _ in range(9000)),
            "".join(rng.choice("the ") for _ in range(9000))]


def texts():
    named = {}
    for path in [DATA / "shakespeare" / "input.txt"] + sorted((DATA / "mrpc").glob("*.tsv")):
        if path.exists():
            named[path.name] = path.read_bytes().decode("utf-8", "replace")
    if not named:
        print(f"no Shakespeare and no MRPC in {DATA}: set SLUICE_DATA")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "*.c", "*.h", "*.md", "*.py"], capture_output=True, text=True)
    source = "".join((ROOT / f).read_text(errors="replace") for f in listed.stdout.split()[:400] if "unicode_tables" not in f)
    named["source"] = source[:1500000]
    return named


# ---- The two sides ----

class Ours:
    def __init__(self, build, path):
        self.process = subprocess.Popen([str(build / "tokenize_texts"), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, requests):
        """requests: (letter, flags, bytes); answers are bytes. Writes and reads in parts, so that neither pipe fills up."""
        answers = []
        for letter, flags, count, data in requests:
            self.process.stdin.write(letter + bytes([flags]) + struct.pack("<I", count) + data)
            self.process.stdin.flush()
            head = self.process.stdout.read(4)
            if len(head) < 4:
                raise SystemExit(f"tokenize_texts ended: {self.process.wait()}")
            size = struct.unpack("<I", head)[0] * (4 if letter == b"E" else 1)
            answers.append(self.process.stdout.read(size))
        return answers

    def encode(self, strings, flags):
        made = self.ask((b"E", flags, len(b), b) for b in (s.encode() for s in strings))
        return [list(struct.unpack("<%di" % (len(a) // 4), a)) for a in made]

    def decode(self, lists, flags, letter=b"D"):
        return [a.decode(errors="strict") for a in self.ask((letter, flags, len(l), struct.pack("<%di" % len(l), *l)) for l in lists)]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def differ(kind, what, inputs, expected, found):
    wrong = [i for i in range(len(inputs)) if expected[i] != found[i]]
    for i in wrong[:3]:
        at = next((k for k, (a, b) in enumerate(zip(expected[i], found[i])) if a != b), min(len(expected[i]), len(found[i])))
        print(f"{kind}: {what}: {str(inputs[i])[:120]!r}\n   at {at}: reference {expected[i][max(0, at - 3):at + 8]!r}, ours {found[i][max(0, at - 3):at + 8]!r}")
    return len(wrong)


def stream_ok(whole, streamed):
    return [w if s == w or "\ufffd" in w else s for w, s in zip(whole, streamed)]


def compare(kind, reference, ours, strings):
    wrong = 0
    modes = [("encode", 0), ("encode with special tokens", ADD_SPECIAL), ("encode plain", PLAIN)]
    lists = None
    for what, flags in modes:
        reference.encode_special_tokens = bool(flags & PLAIN)
        expected = [e.ids for e in reference.encode_batch(strings, add_special_tokens=bool(flags & ADD_SPECIAL))]
        found = ours.encode(strings, flags)
        wrong += differ(kind, what, strings, expected, found)
        if flags == ADD_SPECIAL:
            lists = expected
    reference.encode_special_tokens = False
    for what, flags, skip in (("decode", 0, False), ("decode without special tokens", SKIP_SPECIAL, True)):
        expected = reference.decode_batch(lists, skip_special_tokens=skip)
        wrong += differ(kind, what, lists, expected, ours.decode(lists, flags))
        short = [l if len(l) < 3000 else l[:3000] for l in lists]
        whole = ours.decode(short, flags)
        wrong += differ(kind, what + ", one by one", short, whole, stream_ok(whole, ours.decode(short, flags, b"S")))
    rng = random.Random(77)
    size = reference.get_vocab_size()
    odd = [[rng.randrange(size + 5) for _ in range(rng.randrange(12))] for _ in range(2000)]
    wrong += differ(kind, "decode of random ids", odd, reference.decode_batch(odd, skip_special_tokens=False), ours.decode(odd, 0))
    return wrong


def real_gpt2():
    folder = DATA / "gpt2-bpe"
    if not folder.exists():
        return None, None
    t = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|endoftext|>"])
    return t, folder


def check(kind, reference, path, build, strings):
    ours = Ours(build, path)
    wrong = compare(kind, reference, ours, strings)
    ours.close()
    print(f"{kind:26} {len(strings):6} texts, {sum(map(len, strings)):8} characters, {reference.get_vocab_size():6} tokens: "
          f"{'same' if wrong == 0 else str(wrong) + ' DIFFER'}", flush=True)
    return wrong


def sides(build, root, lines):
    """add_bos_token and add_eos_token of tokenizer_config.json, beside vocab.json and merges.txt and beside tokenizer.json."""
    try:
        from transformers import AutoTokenizer
    except ImportError as missing:
        print(f"sides: skipped: {missing}")
        return 0
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=400, special_tokens=["<|endoftext|>", "<s>", "</s>"],
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    configs = [{}, {"add_bos_token": True}, {"add_eos_token": True}, {"add_bos_token": True, "bos_token": None},
               dict(names, add_bos_token=True), dict(names, add_bos_token=True, add_eos_token=True)]
    wrong = 0
    for number, (whole, kind, config) in enumerate((w, k, c) for w in (False, True) for k in ("gpt2", "qwen2", "llama") for c in configs
                                                   if w or k == "gpt2"):  # a pair is no tokenizer of another kind
        folder = root / f"sides{number}"
        folder.mkdir()
        if whole:
            t.save(str(folder / "tokenizer.json"))
        else:
            (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
            (folder / "merges.txt").write_text("\n".join(["#version: 0.2"] + [" ".join(m) for m in model["merges"]]) + "\n")
        name = {"gpt2": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer", "llama": "LlamaTokenizer"}[kind]
        (folder / "tokenizer_config.json").write_text(json.dumps(dict(config, tokenizer_class=name)))
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        ours = Ours(build, folder)
        expected = [AutoTokenizer.from_pretrained(folder)(s).input_ids for s in WORDS[:5]]
        wrong += differ("sides", f"{kind} {config}", WORDS[:5], expected, ours.encode(WORDS[:5], ADD_SPECIAL))
        ours.close()
    print(f"{'sides':26} {number + 1:6} folders: {'same' if wrong == 0 else str(wrong) + ' DIFFER'}", flush=True)
    return wrong


def record(made):
    """Small vocabularies, some texts and what the reference makes of them: lines of JSON."""
    FIXTURES.mkdir(parents=True, exist_ok=True)
    rng = random.Random(99)
    strings = WORDS + [s for s in (random_string(rng) for _ in range(140)) if len(s) < 60] + ["", "a" * 100, " " * 60 + "x"]
    for kind, d in made.items():
        reference = Tokenizer.from_str(json.dumps(d))
        (FIXTURES / f"{kind}.json").write_text(json.dumps(d, ensure_ascii=True, separators=(",", ":")) + "\n")
        lines = []
        for s in strings:
            ids = reference.encode(s, add_special_tokens=False).ids
            special = reference.encode(s, add_special_tokens=True).ids
            reference.encode_special_tokens = True
            plain = reference.encode(s, add_special_tokens=False).ids
            reference.encode_special_tokens = False
            row = {"text": s, "ids": ids, "decoded": reference.decode(ids, skip_special_tokens=True)}
            if special != ids:
                row["special"] = special
            if plain != ids:
                row["plain"] = plain
            lines.append(json.dumps(row, separators=(",", ":")))
        (FIXTURES / f"{kind}.jsonl").write_text("\n".join(lines) + "\n")


def main():
    build = Path(sys.argv[1]).resolve()
    recording = "--record" in sys.argv
    words = [w for w in sys.argv[2:] if not w.startswith("--")]
    rng = random.Random(1)
    lines = corpus()
    if recording:
        small = {k: v for k, v in KINDS.items() if k in ("gpt2-v4", "llama3", "qwen2", "llama2-v4", "llama2-v5", "gemma", "bert-uncased",
                                                         "o200k", "nfkc-lower-whitespace", "gpt2-prefix-roberta", "no-bytes")}
        record({k: make(lines, 420 if "gpt2" in k or k in ("llama3", "qwen2", "o200k") else 700) for k, make in small.items()})
        return 0
    named = list(texts().values())
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        reference, path = real_gpt2()
        if reference is not None and (not words or any(w in "gpt2" for w in words)):
            wrong += check("gpt2", reference, path, build, named + long_strings(rng) + [random_string(rng) for _ in range(STRINGS)])
        if not words or any(w in "sides" for w in words):
            wrong += sides(build, Path(folder), lines)
        for kind, make in KINDS.items():
            if words and not any(w in kind for w in words):
                continue
            long = [t[:50000] for t in named] if kind == "deepseek" else named  # six passes: the reference takes minutes
            strings = long + long_strings(rng) + [random_string(rng) for _ in range(STRINGS)]
            file = Path(folder) / f"{kind}.json"
            file.write_text(json.dumps(make(lines, 3000), ensure_ascii=False))
            wrong += check(kind, Tokenizer.from_file(str(file)), file, build, strings)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
