"""__main__.py: `sluice ...` and `python -m sluice ...` are the program of the package; it replaces this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "bin" / "sluice"


def main() -> None:
    named = os.environ.get("SLUICE_PROGRAM")
    path = named or str(PROGRAM)
    try:
        os.execv(path, ["sluice", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"sluice: {path}: {e.strerror}; install the package anew, or name the program in SLUICE_PROGRAM")


if __name__ == "__main__":
    main()
