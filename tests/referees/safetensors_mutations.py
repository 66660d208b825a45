"""Which safetensors files are accepted: sluice against the reference package, on 10,000 mutated files.

Nothing that the reference refuses is accepted. What it accepts is accepted too, except where sluice is stricter on purpose: the
cases of STRICTER, each known by its message (docs/formats.md lists them).

    safetensors_mutations.py BUILD [COUNT] [SEED]
"""
import collections
import json
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

try:
    import safetensors
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

STRICTER = {
    "white space before the header's '{'": r"the header does not begin with '\{'",
    "something other than spaces behind the header's '}'": r"only spaces may follow the closing '\}'",
    "a tensor's name twice": r"the name is given twice",
    "a metadata key twice": r"__metadata__: key .* is given twice",
    "__metadata__ that is null": r"__metadata__ is not an object",
    "a description that is an array": r"its description is not an object",
    "a NUL in a name or in metadata": r"contains a NUL",
    "a name of more than 1024 bytes": r"the name has more than 1024 bytes",
    "more than 8 dimensions": r"shape has more than 8 dimensions",
    "a dimension of 2^63 or more": r"is 2\^63 or more",
    "a type that nothing here reads": r'unknown dtype "(F4|F6_E2M3|F6_E3M2|F8_E8M0|F8_E4M3FNUZ|F8_E5M2FNUZ|C64|C128)"',
    "nesting deeper than 64": r"nested",
}
TYPES = ["BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64", "F4",
         "F8_E8M0", "C64", "f32", "F31", ""]
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "U64": 8,
         "C64": 8, "F8_E8M0": 1}
NUMBERS = ["0", "1", "2", "4", "8", "-1", "-0", "1.0", "1e0", "01", "4294967296", "9223372036854775807", "9223372036854775808",
           "18446744073709551615", "18446744073709551616", "null", "true", '"1"', "[]", "{}"]
PIECES = ['"', "{", "}", "[", "]", ",", ":", " ", "\n", "\t", "\0", "\\", "\\u0000", "\\ud800", "\\ud83d\\ude00", "null", "true", "\xe9",
          "\\x", "/", "\\/", "1", "-", ".", "e", '"__metadata__":{"a":"b"},', '"__metadata__":null,', '"x":1,', '"x":' + "[" * 70 + "]" * 70 + ","]


def make(random):
    """A good file: a list of (name, type, shape) and its bytes."""
    tensors, at, header = [], 0, {}
    if random.random() < 0.6:
        header["__metadata__"] = {"format": "pt", **({"k" * random.randint(1, 5): "v"} if random.random() < 0.5 else {})}
    for i in range(random.randint(0, 4)):
        kind = random.choice(TYPES[:15])
        shape = [random.randint(0, 3) for _ in range(random.randint(0, 9 if random.random() < 0.1 else 3))]
        size = SIZES.get(kind, 4)
        for n in shape:
            size *= n
        name = random.choice(["a", "b.weight", "h.0.c", "é"] if random.random() < 0.95 else ["x" * 1030, "", "q\n", "\0"])
        name += str(i) if random.random() < 0.9 else ""
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=random.random() < 0.5, separators=random.choice([(",", ":"), (", ", ": ")]))
    return text.encode(), bytes(random.getrandbits(8) for _ in range(at))


def mutate_text(text, random):
    """Changes that keep the text close to a header, so that each rule is met."""
    text = text.decode("utf-8", "surrogateescape")
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        kind = random.randrange(9)
        if kind == 0 and (found := list(re.finditer(r"\d+", text))):
            m = random.choice(found)
            text = text[:m.start()] + random.choice(NUMBERS + [str(int(m.group()) + random.choice([-4, -1, 1, 4]))]) + text[m.end():]
        elif kind == 1 and (found := list(re.finditer(r'"dtype": ?"[^"]*"', text))):
            m = random.choice(found)
            text = text[:m.start()] + f'"dtype":"{random.choice(TYPES)}"' + text[m.end():]
        elif kind == 2:
            at = random.randint(0, len(text))
            text = text[:at] + random.choice(PIECES) + text[at:]
        elif kind == 3 and text:
            at = random.randrange(len(text))
            text = text[:at] + text[at + random.randint(1, 4):]
        elif kind == 4 and (found := list(re.finditer(r'"[^"]*": ?(\{[^{}]*\}|\[[^\[\]]*\]|"[^"]*")', text))):
            m = random.choice(found)  # a member twice
            text = text[:m.start()] + m.group() + "," + text[m.start():]
        elif kind == 5 and (found := list(re.finditer(r'"[^"]*": ?(\{[^{}]*\}|\[[^\[\]]*\]|"[^"]*"),?', text))):
            m = random.choice(found)  # a member left out
            text = text[:m.start()] + text[m.end():]
        elif kind == 6:
            text = random.choice([" ", "\n", "\ufeff", ""]) + text + random.choice([" ", "\n", "\t", "x", "  "])
        elif kind == 7 and (found := list(re.finditer(r'\{"dtype": ?("[^"]*"), ?"shape": ?(\[[^\]]*\]), ?"data_offsets": ?(\[[^\]]*\])\}', text))):
            m = random.choice(found)
            text = text[:m.start()] + f"[{m[1]},{m[2]},{m[3]}]" + text[m.end():]
        elif kind == 8 and text:
            at = random.randrange(len(text))
            text = text[:at] + chr(random.randrange(128)) + text[at + 1:]
    return text.encode("utf-8", "surrogateescape")


def mutated(random):
    text, data = make(random)
    kind = random.random()
    if kind < 0.75:
        text = mutate_text(text, random)
    whole = struct.pack("<Q", len(text)) + text + data
    if 0.7 < kind < 0.8:  # data or length
        whole = random.choice([whole[:-1], whole + b"\0", whole[:random.randint(0, len(whole))],
                               struct.pack("<Q", random.choice([0, 1, len(text) - 1 if text else 0, len(text) + 1, 2**40, 2**64 - 1])) + whole[8:]])
    elif 0.8 < kind < 0.9 and whole:  # any byte
        whole = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            whole[random.randrange(len(whole))] = random.getrandbits(8)
        whole = bytes(whole)
    return whole


def has_name_twice(whole):
    """The reference keeps the last of them and never looks at the others, which may be wrong in any other way."""
    def pairs(items):
        names = [name for name, _ in items]
        twice.append(len(names) != len(set(names)))
    twice = []
    try:
        json.loads(whole[8:8 + struct.unpack("<Q", whole[:8])[0]], object_pairs_hook=pairs)
    except Exception:
        return False
    return any(twice)


def reference_accepts(whole):
    try:
        safetensors.deserialize(whole)
        return True
    except Exception:
        return False


build = Path(sys.argv[1]).resolve()
count = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
source = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
files = [mutated(source) for _ in range(count)]
answers = subprocess.run([str(build / "open_safetensors")], input=b"".join(struct.pack("<I", len(f)) + f for f in files),
                         capture_output=True, check=True).stdout.decode().splitlines()
assert len(answers) == count, (len(answers), count)
table, faults = collections.Counter(), 0
for whole, answer in zip(files, answers):
    theirs, ours = reference_accepts(whole), answer == "ok"
    if ours == theirs:
        table["both accept" if ours else "both refuse"] += 1
        continue
    reason = next((name for name, pattern in STRICTER.items() if theirs and re.search(pattern, answer)), None)
    if reason is None and theirs and has_name_twice(whole):
        reason = "a tensor's name twice"
    if reason is None:
        faults += 1
        print(f"FAILED: the reference {'accepts' if theirs else 'refuses'}, sluice says {answer!r}: {whole[:400]!r}")
    table[f"stricter: {reason}"] += 1
for name, n in sorted(table.items()):
    print(f"  {n:6} {name}")
print(f"safetensors {safetensors.__version__}: {count} files, {faults} disagreements that are not listed")
sys.exit(faults > 0)
