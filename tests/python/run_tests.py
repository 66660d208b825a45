#!/usr/bin/env python3
"""run_tests.py [--each] [--after NAME] [NAME-PART...]: the tests of the Python package, told as tests/test.c tells its own.

A test is a method test_NAME of a case in *_test.py; NAME states one fact. What a machine may lack is a need: it calls
need("numpy", "why"), and tests/expected-skips lists it."""

from __future__ import annotations

import importlib
import signal
import sys
import time
import traceback
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]


def cases() -> list[unittest.TestCase]:
    found: list[unittest.TestCase] = []
    for path in sorted(HERE.glob("*_test.py")):
        module = importlib.import_module(path.stem)
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            found += list(suite)  # type: ignore[arg-type]
    return found


class Outcome(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.skip = ""

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.skip = reason


def run(case: unittest.TestCase, name: str, each: bool) -> str:
    if each:
        print(f"#test run {name}", flush=True)
    start, outcome = time.monotonic(), Outcome()
    case.run(outcome)
    problems = [text for _, text in outcome.failures + outcome.errors]
    verdict = "failed" if problems else "skipped" if outcome.skip else "passed"
    for text in problems:
        print(text)
    if verdict == "failed":
        print(f"FAILED {name}")
    elif verdict == "skipped" and not each:
        print(f"skipped: {name}: {outcome.skip}")
    if each:
        print(f"#test {verdict} {time.monotonic() - start:.3f} {name} {outcome.skip}".rstrip(), flush=True)
    return verdict


def heed_signals() -> None:
    """Whoever started this may have had them ignored (nohup; a shell's background jobs), which children inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def main() -> int:
    heed_signals()
    each, after, parts = False, "", []
    arguments = iter(sys.argv[1:])
    for a in arguments:
        if a == "--each":
            each = True
        elif a == "--after":
            after = next(arguments)
        else:
            parts.append(a)
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases():
        name = case.id().rsplit(".", 1)[1].removeprefix("test_")
        if after:
            after = "" if name == after else after
            continue
        if not parts or any(p in name for p in parts):
            count[run(case, name, each)] += 1
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(1)
