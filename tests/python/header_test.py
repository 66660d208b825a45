"""header_test.py: the ctypes layer is the header's, by text and by what a compiler says of it."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from helpers import ROOT, InFolder
from sluice import _header as header
from sluice import _ops as ops
from sluice import UsageError
from sluice._library import lib

sys.path.insert(0, str(ROOT / "python"))
import generate  # noqa: E402

STRUCTS = {n: c for n, c in vars(header).items() if isinstance(c, type) and hasattr(c, "_fields_")}
ENUMS = {n: c for n, c in vars(header).items() if n.startswith("sluice_") and hasattr(c, "__members__")}


def probe() -> str:
    """A C program that prints sizes, offsets and values, a line each."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "sluice.h"', "int main(void)", "{"]
    for name, struct in STRUCTS.items():
        lines.append(f'    printf("sizeof {name} %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            lines.append(f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
    for enum in ENUMS.values():
        lines += [f'    printf("{value} %d\\n", (int){value});' for value in enum.__members__]
    constants = [n for n, v in vars(header).items() if n.startswith("SLUICE_") and isinstance(v, int)]
    lines += [f'    printf("{name} %d\\n", (int){name});' for name in constants]
    return "\n".join([*lines, "    return 0;", "}", ""])


def here() -> list[str]:
    """What the generated layer says, in the order of the probe."""
    lines: list[str] = []
    for name, struct in STRUCTS.items():
        lines.append(f"sizeof {name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            d = getattr(struct, field)
            lines.append(f"{name}.{field} {d.offset} {d.size}")
    for enum in ENUMS.values():
        lines += [f"{value} {int(number)}" for value, number in enum.__members__.items()]
    lines += [f"{n} {v}" for n, v in vars(header).items() if n.startswith("SLUICE_") and isinstance(v, int)]
    return lines


class Header(InFolder):
    def test_the_generated_files_are_what_the_header_says(self) -> None:
        for path, text in generate.files().items():
            self.assertEqual(path.read_text(encoding="utf-8"), text, f"{path.name}: run python/generate.py")

    def test_sizes_offsets_and_values_are_those_of_the_compiler(self) -> None:
        self.assertGreater(len(STRUCTS), 15)
        self.assertGreater(len(ENUMS), 10)
        Path("probe.c").write_text(probe())
        cc = os.environ.get("SLUICE_CC", "cc")
        subprocess.run([cc, "-std=c11", "-I", str(ROOT / "include"), "probe.c", "-o", "probe"], check=True)
        said = subprocess.run(["./probe"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        self.assertEqual(here(), said)

    def test_every_public_function_is_declared_and_in_the_library(self) -> None:
        text = (ROOT / "include" / "sluice.h").read_text()
        declared = re.findall(r"^SLUICE_API [^;]*?\b(sluice_\w+)\(", text, re.M)
        self.assertEqual(sorted(header.FUNCTIONS), sorted(declared))
        for name in declared:
            self.assertEqual(len(getattr(lib, name).argtypes), len(header.FUNCTIONS[name][1]), name)

    def test_a_whole_number_beyond_its_field_or_argument_is_refused_by_name_and_bounds(self) -> None:
        # By sizes alone, beside _whole.py: what is no text, pointer or floating-point number is a whole one.
        signed = {"c_int": 32, "c_int32": 32, "c_int64": 64, "c_long": 64}
        unsigned = {"c_uint": 32, "c_uint32": 32, "c_uint64": 64, "c_ulong": 64, "c_size_t": 64, "c_ubyte": 8}
        kinds = {getattr(ctypes, n): (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for n, b in signed.items()}
        kinds.update({getattr(ctypes, n): (0, 2**b - 1) for n, b in unsigned.items()})
        numbers = 0
        for name, struct in STRUCTS.items():
            for field, kind in struct._fields_:
                if kind not in kinds:
                    continue
                least, most = kinds[kind]
                made = struct()
                for good in (least, most):
                    setattr(made, field, good)
                    self.assertEqual(getattr(made, field), good, f"{name}.{field}")
                for bad in (least - 1, most + 1, 2**64 + 1, -(2**64)):
                    with self.assertRaises(UsageError, msg=f"{name}.{field}") as raised:
                        setattr(made, field, bad)
                    told = f"{field}: {bad} is out of range: it takes a whole number from {least} to {most}"
                    self.assertEqual(str(raised.exception), told)
                self.assertEqual(getattr(made, field), most, f"{name}.{field}")
                for wrong in (1.0, "1", None):
                    with self.assertRaisesRegex(UsageError, f"^{field}: .* is of the wrong type", msg=name):
                        setattr(made, field, wrong)
                numbers += 1
        for name, (_, arguments) in header.FUNCTIONS.items():
            for i, (argument, kind) in enumerate(arguments):
                if kind not in kinds:
                    continue
                least, most = kinds[kind]
                for bad in (least - 1, most + 1, 2**64 + 1):
                    given = [0 if k in kinds else False if k is ctypes.c_bool else None for _, k in arguments]
                    given[i] = bad
                    with self.assertRaises(UsageError, msg=name) as raised:
                        getattr(lib, name)(*given)  # refused before anything of the library runs
                    self.assertIn(f"{argument}: {bad} is out of range: it takes", str(raised.exception))
                    self.assertIn(f"from {least} to {most}", str(raised.exception))
                numbers += 1
        self.assertGreater(numbers, 250)

    def test_a_truth_is_no_text_and_no_number(self) -> None:
        options = header.sluice_options()
        for good in (True, False, 1, 0):
            options.evaluation = good
            self.assertEqual(options.evaluation, bool(good))
        for bad in ("false", 2, 1.0, None, b"", -1):
            with self.assertRaisesRegex(UsageError, "^evaluation: .* is of the wrong type: it takes True or False"):
                options.evaluation = bad

    def test_every_builder_is_a_method_or_has_another_that_does_the_same(self) -> None:
        h = generate.read_header((ROOT / "include" / "sluice.h").read_text())
        by_hand = {"sluice_input", "sluice_parameter", "sluice_transpose"}
        made = {generate.RENAMED.get(f.name, f.name.removeprefix("sluice_")) for f in generate.builders(h)}
        self.assertGreater(len(made), 40)
        for f in h.functions:
            if f.returns != "sluice_value" or f.name in by_hand:
                continue
            name = generate.RENAMED.get(f.name, f.name.removeprefix("sluice_"))
            plain = re.sub(r"_(capped|smoothed|packed)$", "", name)
            self.assertTrue(hasattr(ops.GraphOps, plain), f.name)

    def test_a_header_that_changes_changes_the_layer(self) -> None:
        text = (ROOT / "include" / "sluice.h").read_text()
        before = generate.write_header(generate.read_header(text))
        grown = text.replace("    int rank", "    int extra, rank").replace("int stage; ", "int extra; int stage; ")
        self.assertNotEqual(grown, text)
        self.assertNotEqual(generate.write_header(generate.read_header(grown)), before)


if __name__ == "__main__":
    unittest.main()
