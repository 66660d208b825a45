#!/usr/bin/env python3
"""Writes src/format/tokenizer_unicode_tables.h: what the tokenizers need to know of every code point.

usage: scripts/unicode_tables.py > src/format/tokenizer_unicode_tables.h

Token ids must be those of the Hugging Face tokenizers package, whose parts follow different versions of Unicode: its
regular expressions one, its normalisation another, BERT's rules a third. So the tables are asked from the package itself,
code point by code point; Python's unicodedata only names the candidates (combining classes, canonical pairs).
Run by a developer when the reference changes; never at build time."""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
              "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"]
FLAGS = ["WHITE", "WORD", "BERT_PUNCTUATION", "NUMERIC", "STRIPPED_MARK", "BERT_MARK", "BERT_CONTROL", "NFC_INERT"]


def matches(pattern):
    """Code points that the reference's regular expressions match with `pattern`."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for start in range(0, len(CODES), 4096):
        block = CODES[start:start + 4096]
        left = set()
        for piece, _ in splitter.pre_tokenize_str("".join(map(chr, block))):
            left.update(map(ord, piece))
        found.update(c for c in block if c not in left)
    return found


def isolated(splitter):
    return {c for c in CODES if len(splitter.pre_tokenize_str("a" + chr(c) + "b")) == 3}


def removed(normalizer):
    return {c for c in CODES if normalizer.normalize_str(chr(c)) == ""}


def bert(**on):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    options.update(on)
    return normalizers.BertNormalizer(**options)


FORMS = {form: getattr(normalizers, form)() for form in ("NFC", "NFD", "NFKD")}


def form(name, text):
    return FORMS[name].normalize_str(text)


def combining_classes():
    """Classes as the reference orders by them: a mark that it never moves has class 0 there."""
    classes = {}
    for c in CODES:
        k = unicodedata.combining(chr(c))
        if k == 0:
            continue
        after, before = "\u0334" + chr(c), chr(c) + "\u0334"          # U+0334 has class 1
        high_after, high_before = chr(c) + "\u0345", "\u0345" + chr(c)  # U+0345 has class 240
        moves = form("NFD", "a" + before) == "a" + form("NFD", after) if k > 1 else False
        moves = moves or (k < 240 and form("NFD", "a" + high_before) == "a" + form("NFD", high_after))
        if moves:
            classes[c] = k
    return classes


def decompositions():
    canonical, compatible = {}, {}
    for c in CODES:
        if 0xAC00 <= c < 0xAC00 + 11172:
            continue  # Hangul is computed
        d, k = form("NFD", chr(c)), form("NFKD", chr(c))
        if d != chr(c):
            canonical[c] = [ord(x) for x in d]
        if k != d:
            compatible[c] = [ord(x) for x in k]
    return canonical, compatible


def compositions():
    pairs = {}
    for c in CODES:
        d = unicodedata.decomposition(chr(c))
        if not d or d.startswith("<") or " " not in d:
            continue
        a, b = (int(x, 16) for x in d.split())
        if form("NFC", chr(a) + chr(b)) == chr(c):
            pairs[(a, b)] = c
    return pairs


def lower_cases():
    lower = normalizers.Lowercase()
    single, several = [], []
    for c in CODES:
        t = [ord(x) for x in lower.normalize_str(chr(c))]
        if t == [c]:
            continue
        if len(t) == 1:
            single.append((c, t[0] - c))
        else:
            several.append((c, t))
    assert several == [(0x130, [0x69, 0x307])], several
    runs = []  # first, last, step, delta
    for c, delta in single:
        if runs and runs[-1][3] == delta and (
                (runs[-1][0] == runs[-1][1] and c - runs[-1][1] in (1, 2)) or c - runs[-1][1] == runs[-1][2]):
            runs[-1][2] = c - runs[-1][1]
            runs[-1][1] = c
        else:
            runs.append([c, c, 1, delta])
    return runs


def property_runs(pairs, classes):
    category = {}
    for name in CATEGORIES[1:]:
        if name != "Cs":
            for c in matches("\\p{%s}" % name):
                category[c] = CATEGORIES.index(name)
    seconds = {b for _, b in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    inert = {c for c in CODES if form("NFC", chr(c)) == chr(c)} - seconds - set(classes)
    control = {c for c in removed(bert(clean_text=True)) if c not in (0, 0xFFFD)}
    sets = [matches(r"\s"), matches(r"\w"), isolated(pre_tokenizers.Punctuation()), isolated(pre_tokenizers.Digits()),
            removed(normalizers.StripAccents()), removed(bert(strip_accents=True)), control, inert]
    runs, before = [], None
    for c in range(0x110000):
        value = category.get(c, 0)
        for bit, members in enumerate(sets):
            value |= (c in members) << (5 + bit)
        if value != before:
            runs.append((c, value))
            before = value
    return runs


def class_runs(classes):
    runs = []
    for c in sorted(classes):
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == classes[c]:
            runs[-1][1] = c
        else:
            runs.append([c, c, classes[c]])
    return runs


def rows(name, kind, items, comment):
    print("/* %s */" % comment)
    print("static const %s %s[] = {" % (kind, name))
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 118:
            print(line)
            line = "   "
        line += " " + item + ","
    print(line)
    print("};\n")


def decomposition_rows(name, table, comment):
    """Sorted code points with the place and length of their expansion in one array of code points."""
    places, text = [], []
    for c in sorted(table):
        places.append("{ 0x%x, %d, %d }" % (c, len(text), len(table[c])))
        text += table[c]
    rows(name, "sl_unicode_expansion", places, comment)
    rows(name + "_text", "uint32_t", ["0x%x" % c for c in text], "What they become.")


def main():
    pairs, classes = compositions(), combining_classes()
    canonical, compatible = decompositions()
    print("/* tokenizer_unicode_tables.h: generated by scripts/unicode_tables.py from tokenizers %s; do not edit. */"
          % tokenizers.__version__)
    print("/* clang-format off */\n#ifndef SL_FORMAT_TOKENIZER_UNICODE_TABLES_H\n#define SL_FORMAT_TOKENIZER_UNICODE_TABLES_H\n")
    print('#include "format/tokenizer_unicode.h"\n')
    rows("property_runs", "sl_unicode_run", ["{ 0x%x, 0x%x }" % r for r in property_runs(pairs, classes)],
         "Category (5 bits) and flags from each code point on, up to the next row's.")
    rows("class_runs", "sl_unicode_class", ["{ 0x%x, 0x%x, %d }" % tuple(r) for r in class_runs(classes)],
         "Canonical combining classes other than 0: first, last, class.")
    rows("lower_runs", "sl_unicode_lower", ["{ 0x%x, 0x%x, %d, %d }" % tuple(r) for r in lower_cases()],
         "Lower case: first, last, step, what is added. U+0130 becomes two and is not here.")
    rows("composed_pairs", "sl_unicode_pair", ["{ 0x%x, 0x%x, 0x%x }" % (a, b, pairs[(a, b)]) for a, b in sorted(pairs)],
         "Canonical compositions, sorted by both; Hangul is computed.")
    decomposition_rows("canonical", canonical, "Whole canonical decompositions; Hangul is computed.")
    decomposition_rows("compatible", compatible, "Whole compatibility decompositions, where they differ from the canonical ones.")
    print("#endif")


if __name__ == "__main__":
    sys.exit(main())
