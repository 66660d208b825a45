#!/usr/bin/env python3
"""generate.py [--check]: writes the parts of the Python package that repeat include/sluice.h.

    sluice/_header.py    its structs, enums and functions for ctypes
    sluice/_ops.py       its builders as methods of Graph and Tensor
    sluice/_settings.py  the settings of engines and optimizers as types

With --check nothing is written: it ends with 1 where a file is not what would be written. Needs Python alone.

The header is read by its own conventions: a comment stands before what it explains or behind it on the same line,
structs and enums are typedefs, and public functions begin with SLUICE_API. What the header cannot say, such as which
arguments a Python caller may leave out, is in the tables below."""

from __future__ import annotations

import keyword
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = HERE.parent / "include" / "sluice.h"
FOLDER = HERE / "sluice"

# ---- what the header does not say ----

# Builders under the name they have in Python. Where the header has a function with more arguments than an older one, the
# newer one takes the plain name.
RENAMED = {
    "sluice_cross_entropy_smoothed": "cross_entropy",
    "sluice_linear_cross_entropy_with": "linear_cross_entropy",
    "sluice_rms_norm_offset": "rms_norm",
    "sluice_attention_with": "attention",
    "sluice_rotary_with": "rotary",
}
# Builders that have no method of their own: the ones above do the same, or graph.py writes them by hand.
LEFT_OUT = {
    "sluice_cross_entropy", "sluice_cross_entropy_capped", "sluice_linear_cross_entropy", "sluice_rms_norm",
    "sluice_linear_cross_entropy_capped", "sluice_linear_cross_entropy_smoothed", "sluice_attention",
    "sluice_attention_packed", "sluice_rotary",
    "sluice_input", "sluice_parameter", "sluice_transpose",
}  # fmt: skip
# Order of arguments in Python, where optional ones stand before others in C.
REORDERED = {
    "sluice_linear_cross_entropy_with": ["x", "weight", "targets", "bias", "ignore_index", "softcap", "smoothing"],
}
# Values that may be SLUICE_NONE: None in Python, and the default.
OPTIONAL_VALUES = {
    "sluice_linear_with": {"bias"}, "sluice_conv2d": {"bias"}, "sluice_layer_norm": {"bias"},
    "sluice_rotary_with": {"positions"}, "sluice_attention_with": {"k", "v", "positions"},
    "sluice_linear_cross_entropy_with": {"bias"}, "sluice_bce_with_logits": {"weight"}, "sluice_gru": {"lengths"},
}  # fmt: skip
# Defaults of the other arguments, by name.
DEFAULTS = {
    "epsilon": "1e-5", "ignore_index": "-100", "softcap": "0.0", "smoothing": "0.0", "offset": "0.0", "in_out": "False",
    "transpose_a": "False", "transpose_b": "False", "exact": "True", "mean": "False", "reverse": "False", "blank": "0",
    "zero_infinity": "False",
}  # fmt: skip
# Fields of sluice_options that Engine takes as arguments of its own, or not at all.
NOT_SETTINGS = {"size", "optimizer", "log", "log_user", "world", "small_norm_nodes", "partition_weights", "loss_scale"}

# ---- reading the header ----


@dataclass
class Variable:
    """A field, an argument or a typedef'd thing: `type` as C writes it before the name, spaces single."""

    type: str
    name: str
    length: str = ""  # of an array
    arguments: list[Variable] | None = None  # a pointer to a function that returns `type`
    comment: str = ""


@dataclass
class Function:
    name: str
    returns: str
    arguments: list[Variable]
    comment: str


@dataclass
class Header:
    constants: dict[str, int] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    structs: dict[str, list[Variable]] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    callbacks: dict[str, Variable] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)


def plain(comment: str) -> str:
    """The text of a comment, in one line."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment[2:-2].splitlines()]
    return " ".join(" ".join(lines).split())


def chunks(text: str) -> list[tuple[str, str]]:
    """Declarations with their comments: the one right before, or the one behind on the same line."""
    out: list[tuple[str, str]] = []
    pattern = re.compile(r"\s*(?:(/\*.*?\*/)|(#(?:\\\n|/\*.*?\*/|[^\n])*)|(extern \"C\" \{|static inline [^}]*\}|\}))", re.S)
    at, comment, comment_end = 0, "", -1
    while at < len(text):
        match = pattern.match(text, at)
        if match and match.group(1):
            start = match.start(1)
            if out and "\n" not in text[at:start]:
                out[-1] = (out[-1][0], plain(match.group(1)))
            else:
                comment, comment_end = plain(match.group(1)), match.end()
            at = match.end()
        elif match:
            if match.group(2) and match.group(2).startswith("#define"):
                out.append((match.group(2), ""))
            at = match.end()
        else:
            end, depth = at, 0
            while end < len(text) and not (text[end] == ";" and depth == 0):
                if text.startswith("/*", end):
                    end = text.index("*/", end) + 1
                depth += (text[end] == "{") - (text[end] == "}")
                end += 1
            declaration = text[at:end].strip()
            between = text[comment_end : at + len(text[at:end]) - len(text[at:end].lstrip())]
            if declaration:
                out.append((declaration, comment if comment_end >= 0 and between.count("\n") <= 1 else ""))
            at, comment_end = end + 1, -1
    return out


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def split_top(text: str, separator: str) -> list[str]:
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == separator and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    parts.append(text[last:])
    return [p.strip() for p in parts if p.strip()]


def variable(text: str) -> Variable:
    text = " ".join(text.split())
    match = re.fullmatch(r"(.+?)\(\*(\w*)\)\((.*)\)", text)
    if match:
        return Variable(match.group(1).strip(), match.group(2), arguments=arguments(match.group(3)))
    match = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[(\w*)\])?", text)
    if not match:
        raise SystemExit(f"{HEADER}: what is {text!r}?")
    return Variable(" ".join(match.group(1).split()), match.group(2), match.group(3) or "")


def arguments(text: str) -> list[Variable]:
    return [] if text.strip() in ("", "void") else [variable(a) for a in split_top(text, ",")]


def fields(body: str) -> list[Variable]:
    """Fields of a struct; those of one line share its type and its comment."""
    out: list[Variable] = []
    for declaration, comment in chunks(body):
        first, *more = split_top(without_comments(declaration), ",")
        made = [variable(first)]
        base = re.sub(r"[\s*]*$", "", made[0].type)
        for name in more:
            stars = "*" * name.count("*")
            made.append(Variable(f"{base} {stars}".strip(), name.strip("* ")))
        for v in made:
            v.comment = comment
        out += made
    return out


def enum_values(body: str) -> dict[str, int]:
    values: dict[str, int] = {}
    after = 0
    for entry in split_top(without_comments(body), ","):
        name, _, value = (part.strip() for part in entry.partition("="))
        after = int(value, 0) if value else after
        values[name] = after
        after += 1
    return values


def read_header(text: str) -> Header:
    h = Header()
    for declaration, comment in chunks(text):
        code = " ".join(without_comments(declaration).split())
        if match := re.fullmatch(r"#define (SLUICE_\w+) (\d+)", code):
            h.constants[match.group(1)] = int(match.group(2))
        elif code.startswith("#define"):
            continue  # the include guard, SLUICE_API, SLUICE_NONE
        elif match := re.fullmatch(r"(?:typedef )?enum ?\w* ?\{(.*)\} ?(\w*)", declaration, re.S):
            values = enum_values(match.group(1))
            if match.group(2):
                h.enums[match.group(2)] = values
            else:
                h.constants.update(values)
        elif match := re.fullmatch(r"typedef struct \w+ \{(.*)\} (\w+)", declaration, re.S):
            h.structs[match.group(2)] = fields(match.group(1))
        elif match := re.fullmatch(r"typedef struct \w+ (\w+)", code):
            h.opaque.append(match.group(1))
        elif match := re.fullmatch(r"typedef (\w+) (\w+)", code):
            h.aliases[match.group(2)] = match.group(1)
        elif code.startswith("typedef"):
            made = variable(code[len("typedef ") :])
            h.callbacks[made.name] = made
        elif match := re.fullmatch(r"SLUICE_API (.*?[\s*])(\w+)\((.*)\)", code):
            h.functions.append(Function(match.group(2), match.group(1).strip(), arguments(match.group(3)), comment))
        else:
            raise SystemExit(f"{HEADER}: what is {code[:80]!r}?")
    return h


# ---- types ----

SCALARS = {
    "int": "c_int", "unsigned": "c_uint", "int32_t": "c_int32", "int64_t": "c_int64", "uint64_t": "c_uint64",
    "size_t": "c_size_t", "float": "c_float", "double": "c_double", "bool": "c_bool", "char": "c_char",
    "unsigned char": "c_ubyte",
}  # fmt: skip
PYTHON = {"c_float": "float", "c_double": "float", "c_bool": "bool", "c_char_p": "bytes | None"}


class Types:
    def __init__(self, header: Header) -> None:
        self.h = header

    def plain(self, name: str) -> str | None:
        """The ctypes class of what is no pointer."""
        name = name.replace("const ", "").strip()
        name = self.h.aliases.get(name, name)
        if name in SCALARS:
            return "ctypes." + SCALARS[name]
        if name in self.h.enums:
            return "ctypes.c_int"
        if name in self.h.structs or name in self.h.callbacks:
            return name
        return None

    def of(self, v: Variable, argument: bool) -> str:
        if v.arguments is not None:
            return self.callback(v)
        base = v.type.replace("const", "").replace("*", "").strip()
        stars = v.type.count("*")
        if v.length:
            if not argument:
                return f"{self.plain(base)} * {self.h.constants.get(v.length, v.length)}"
            stars += 1
        if stars == 0:
            made = self.plain(base)
            if made is None:
                raise SystemExit(f"{HEADER}: no type for {v.type} {v.name}")
            return made
        if base == "char":
            return "ctypes.c_char_p" if stars == 1 else "ctypes.POINTER(ctypes.c_char_p)"
        # Of data the address is enough: it comes from arrays that are not of ctypes.
        inner = None if base in ("void", "float", "FILE") or base in self.h.opaque else self.plain(base)
        if inner is None:
            return "ctypes.c_void_p" if stars == 1 else "ctypes.POINTER(ctypes.c_void_p)"
        return f"ctypes.POINTER({inner})" if stars == 1 else f"ctypes.POINTER(ctypes.POINTER({inner}))"

    def callback(self, v: Variable) -> str:
        returns = "None" if v.type == "void" else self.plain(v.type)
        inner = [self.of(a, True) for a in v.arguments or []]
        return f"ctypes.CFUNCTYPE({', '.join([returns or 'None', *inner])})"

    def annotation(self, v: Variable) -> str:
        """What a field of a struct reads as."""
        made = self.of(v, False)
        name = made.removeprefix("ctypes.")
        if name in PYTHON:
            return PYTHON[name]
        if name.startswith("c_") and name != "c_void_p" and "*" not in made:
            return "int"
        return made if made in self.h.structs else "Any"


def words(enum: str, values: dict[str, int]) -> dict[str, int]:
    """The values of an enum as Python writes them: SLUICE_PLACE_HOST of sluice_place is "host"."""
    kept = {k: v for k, v in values.items() if not k.endswith("_COUNT")}
    names = [k.split("_") for k in kept]
    shared = 0
    while len(names) > 1 and all(len(n) > shared + 1 for n in names) and len({n[shared] for n in names}) == 1:
        shared += 1
    return {"_".join(k.split("_")[shared:]).lower(): v for k, v in kept.items()}


# ---- writing ----

MARK = '"""{what}\n\nWritten by python/generate.py from include/sluice.h: change these, not this file."""\n'


def write_header(h: Header) -> str:
    t = Types(h)
    out = [MARK.format(what="_header.py: include/sluice.h for ctypes."), "from __future__ import annotations\n"]
    out += ["import ctypes\nfrom enum import IntEnum\nfrom typing import Any\n\nfrom ._whole import Struct\n"]
    out += [f"{name} = {value}" for name, value in h.constants.items()] + ["SLUICE_NONE = -1\n"]
    for enum, values in h.enums.items():
        out += [f"\nclass {enum}(IntEnum):"] + [f"    {name} = {value}" for name, value in values.items()] + [""]
    out.append("")
    structs = dict(h.structs)
    callbacks = dict(h.callbacks)
    for name, made in callbacks.items():
        if not any(s in t.callback(made) for s in structs):
            out.append(f"{name} = {t.callback(made)}")
    for name, members in structs.items():
        out += [f"\n\nclass {name}(Struct):"]
        out += [f"    {m.name}: {t.annotation(m)}" for m in members if not keyword.iskeyword(m.name)]
    out.append("")
    for name, members in structs.items():
        out += [f"\n{name}._fields_ = ["] + [f'    ("{m.name}", {t.of(m, False)}),' for m in members] + ["]"]
    out += ["\n# Function: what it returns, and its arguments by name.", "FUNCTIONS: dict[str, tuple[Any, list[tuple[str, Any]]]] = {"]
    for f in h.functions:
        returns = "None" if f.returns == "void" else t.of(Variable(f.returns, ""), True)
        taken = ", ".join(f'("{a.name}", {t.of(a, True)})' for a in f.arguments)
        out.append(f'    "{f.name}": ({returns}, [{taken}]),')
    return "\n".join(out) + "\n}\n"


def docstring(comment: str, indent: str, before: str = "") -> list[str]:
    text = before + re.sub(r"\bsluice_(\w+)", r"\1", comment.replace("SLUICE_NONE", "None"))
    text = re.sub(r"SLUICE_(ERR_\w+|[A-Z]\w*)", r"\1", text)
    if not text:
        return []
    if not text.endswith((".", ")")):
        text += "."
    if re.match(r"[a-z]{3,}( [a-z]|\.$)", text):
        text = text[0].upper() + text[1:]
    lines = textwrap.wrap(text, 116 - len(indent))
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""']
    return [f'{indent}"""{lines[0]}', *(indent + line for line in lines[1:-1]), f'{indent}{lines[-1]}"""']


@dataclass
class Parameter:
    """An argument of a Python method, and what it becomes in the call."""

    name: str
    annotation: str
    call: str
    default: str = ""
    keyword: bool = False


SIMPLE = {"int": "int", "int64_t": "int", "int32_t": "int", "float": "float", "bool": "bool", "const char *": "str"}


def option_parameters(struct: str, h: Header) -> list[Parameter]:
    """Fields of a struct of options as keywords; `x_h` and `x_w` are one."""
    out: list[Parameter] = []
    for m in h.structs[struct]:
        if m.name == "size":
            continue
        if m.name.endswith("_w"):
            continue
        name = m.name.removesuffix("_h")
        if name != m.name:
            annotation = "Pair"
        elif m.type in h.enums:
            annotation = "Literal[" + ", ".join(f'"{w}"' for w in words(m.type, h.enums[m.type])) + "]"
        elif m.type == "sluice_value":
            annotation = "Tensor"
        else:
            annotation = SIMPLE[m.type]
        out.append(Parameter(name, annotation + " | None", f"{m.name}={name}", "None", True))
    return out


def parameters(f: Function, h: Header) -> tuple[list[Parameter], str]:
    """Of a builder, without the graph; and the options it makes first, "" where it has none."""
    out: list[Parameter] = []
    options = ""
    rest = f.arguments[1:]
    i = 0
    while i < len(rest):
        a = rest[i]
        if a.name == "rank" and i + 1 < len(rest) and rest[i + 1].name == "dims":
            out.append(Parameter("shape", "Sequence[int]", "*dims(shape)"))
            i += 1
        elif a.type == "const sluice_value *":
            out.append(Parameter(a.name, "Sequence[Tensor]", f"*self._values({a.name})"))
            i += 1
        elif a.type == "sluice_value":
            none = a.name in OPTIONAL_VALUES.get(f.name, set())
            out.append(Parameter(a.name, "Tensor | None" if none else "Tensor", a.name, "None" if none else ""))
        elif a.name == "options":
            struct = a.type.replace("const ", "").replace("*", "").strip()
            more = option_parameters(struct, h)
            options = f"options = self._options(header.{struct}, {', '.join(p.call for p in more)})"
            out.append(Parameter("options", "", "options"))
            out += more
        elif a.type in SIMPLE:
            out.append(Parameter(a.name, SIMPLE[a.type], a.name, DEFAULTS.get(a.name, "")))
        else:
            raise SystemExit(f"{HEADER}: {f.name}: no Python type for {a.type} {a.name}")
        i += 1
    return out, options


def signature(shown: list[Parameter]) -> str:
    parts = ["self"]
    star = False
    for p in shown:
        if p.keyword and not star:
            parts.append("*")
            star = True
        parts.append(f"{p.name}: {p.annotation}" + (f" = {p.default}" if p.default else ""))
    return ", ".join(parts)


def wrapped(text: str, indent: str) -> str:
    """`text`, a definition or a call, in lines of at most 120 characters: what is in its outer brackets on lines of its own."""
    if len(text) <= 120:
        return text
    name, _, rest = text.partition("(")
    inner, _, tail = rest.rpartition(")")
    lines = [indent + "   "]
    for part in split_top(inner, ","):
        if len(lines[-1]) + len(part) + 2 > 118:
            lines.append(indent + "   ")
        lines[-1] += f" {part},"
    return "\n".join([name + "(", *lines, indent + ")" + tail])


def method(head: str, body: list[str]) -> list[str]:
    return [wrapped("    " + head, "    "), *(wrapped(line, "        ") for line in body), ""]


def builders(h: Header) -> list[Function]:
    made = [f for f in h.functions if f.returns == "sluice_value" and f.name not in LEFT_OUT]
    return [f for f in made if f.arguments and f.arguments[0].type == "sluice_graph *"]


def write_ops(h: Header) -> str:
    out = [MARK.format(what="_ops.py: the builders of the header as methods of Graph and of Tensor.")]
    out += ["from __future__ import annotations\n"]
    out += ["from typing import TYPE_CHECKING, Any, Literal, Sequence, Tuple, Union\n"]
    out += ["from . import _header as header\nfrom ._library import dims\n"]
    out += ["if TYPE_CHECKING:\n    from .graph import Graph, Tensor\n"]
    out += ["# One number for both directions, or (height, width).\nPair = Union[int, Tuple[int, int]]\n"]
    graph: list[str] = []
    tensor: list[str] = []
    for f in builders(h):
        name = RENAMED.get(f.name, f.name.removeprefix("sluice_"))
        made, options = parameters(f, h)
        shown = [p for p in made if p.name != "options"]
        if f.name in REORDERED:
            shown = [next(p for p in shown if p.name == n) for n in REORDERED[f.name]]
        call = ", ".join([f'"{f.name}"', *(p.call for p in made if not p.keyword)])
        plain_name = next((g.comment for g in h.functions if g.name == "sluice_" + name), "")
        comment = f.comment if f.name not in RENAMED else " ".join(c for c in (plain_name, f.comment) if c)
        body = docstring(comment, "        ")
        if options:
            body.append("        " + options)
        body.append(f"        return self._op({call})")
        graph += method(f"def {name}({signature(shown)}) -> Tensor:", body)
        if shown and shown[0].annotation == "Tensor":
            passed = [p.name if not p.keyword else f"{p.name}={p.name}" for p in shown[1:]]
            call = f"return self.graph.{name}({', '.join(['self._tensor()', *passed])})"
            short = [f'        """As Graph.{name}."""', "        " + call]
            tensor += method(f"def {name}({signature(shown[1:])}) -> Tensor:", short)
    out += ["\nclass GraphOps:", '    """Builders: each adds an operation to the graph and returns its result."""\n']
    out += ["    def _op(self, function: str, *arguments: Any) -> Tensor:\n        raise NotImplementedError\n"]
    out += ["    def _values(self, tensors: Sequence[Tensor]) -> tuple[Any, int]:\n        raise NotImplementedError\n"]
    out += ["    def _options(self, struct: Any, **fields: Any) -> Any:\n        raise NotImplementedError\n"]
    out += graph
    out += ["\nclass TensorOps:", '    """The same builders as methods of their first operand."""\n']
    out += ["    graph: Graph\n", "    def _tensor(self) -> Tensor:\n        raise NotImplementedError\n"]
    return "\n".join(out + tensor).rstrip("\n") + "\n"


def setting_type(m: Variable, h: Header) -> str:
    if m.type in h.enums:
        return "Literal[" + ", ".join(f'"{w}"' for w in words(m.type, h.enums[m.type])) + "]"
    if m.type in h.structs:
        return m.type.removeprefix("sluice_").title().replace("_", "") + "Settings"
    simple = {"double": "float", "float": "float", "bool": "bool", "const char *": "str"}
    if m.type not in simple and m.type not in ("int", "int64_t", "uint64_t"):
        raise SystemExit(f"{HEADER}: no setting type for {m.type} {m.name}")
    return simple.get(m.type, "int")


def typed_dict(name: str, doc: str, members: list[Variable], h: Header) -> list[str]:
    out = [f"\nclass {name}(TypedDict, total=False):", f'    """{doc}"""\n']
    told = ""
    for m in members:
        comment = re.sub(r"SLUICE_(ERR_\w+|\w+)", r"\1", m.comment).replace("sluice_", "")
        if comment and comment != told:
            out += textwrap.wrap(comment, 114, initial_indent="    # ", subsequent_indent="    # ")
        told = comment
        out.append(f"    {m.name}: {setting_type(m, h)}")
    return out + [""]


def write_settings(h: Header) -> str:
    out = [MARK.format(what="_settings.py: what engines and optimizers can be told, as types.")]
    out += ["from __future__ import annotations\n", "from typing import Dict, Literal, TypedDict\n"]
    out += ["# What each enum of the header is called in Python.", "WORDS: Dict[str, Dict[str, int]] = {"]
    for enum, values in h.enums.items():
        if enum not in ("sluice_status", "sluice_event_kind"):
            out.append(f'    "{enum}": {{{", ".join(f"{chr(34)}{w}{chr(34)}: {v}" for w, v in words(enum, values).items())}}},')
    out += ["}", "# Field of a struct: its enum.", "ENUM_FIELDS: Dict[str, Dict[str, str]] = {"]
    for struct, members in h.structs.items():
        found = {m.name: m.type for m in members if m.type in h.enums}
        if found:
            out.append(f'    "{struct}": {{{", ".join(f"{chr(34)}{k}{chr(34)}: {chr(34)}{v}{chr(34)}" for k, v in found.items())}}},')
    out += ["}\n"]
    out += ["DType = " + setting_type(Variable("sluice_dtype", ""), h)]
    out += ["Device = " + setting_type(Variable("sluice_device", ""), h)]
    out += ["InitKind = " + setting_type(Variable("sluice_init_kind", ""), h) + "\n"]
    kinds = words("sluice_optimizer_kind", h.enums["sluice_optimizer_kind"])
    scale = [m for m in h.structs["sluice_loss_scale"]]
    optimizer = [m for m in h.structs["sluice_optimizer"] if m.name not in ("size", "kind")]
    engine = [m for m in h.structs["sluice_options"] if m.name not in NOT_SETTINGS]
    out += typed_dict("LossScale", "Loss scaling of fp16, as DeepSpeed's.", scale, h)
    out += typed_dict("OptimizerSettings", "What is left out has the default of PyTorch and DeepSpeed.", optimizer, h)
    out += typed_dict("EngineSettings", "What is left out has the library's default.", engine, h)
    out += ["\n# Names of optimizers, for Optimizer(kind).", f"OPTIMIZERS = {list(kinds)!r}".replace("'", '"')]
    return "\n".join(out) + "\n"


def files() -> dict[Path, str]:
    h = read_header(HEADER.read_text(encoding="utf-8"))
    return {
        FOLDER / "_header.py": write_header(h),
        FOLDER / "_ops.py": write_ops(h),
        FOLDER / "_settings.py": write_settings(h),
    }


def main() -> int:
    stale = [p for p, text in files().items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(HERE.parent)} is not what include/sluice.h says: run python/generate.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(files()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
