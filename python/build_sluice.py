#!/usr/bin/env python3
"""build_sluice.py: makes a wheel or a source archive of sluice, as pip asks for them (PEP 517).

`pip install .`, `pip wheel .` and `make wheel` end here. cmake and a C compiler build the library and the program; what these
need of other libraries (jansson, xxhash, zlib, libpng, libjpeg, liburing, libsndfile and its own) is put beside them, so that the wheel
runs where nothing is installed. Files find each other by an RPATH of $ORIGIN, which serves the libraries of libraries as
well. The wheel's tag says the oldest glibc it runs on, read from the files themselves.

Settings of pip (-C name=value) or of the environment:
    cmake-args   SLUICE_CMAKE_ARGS    more options of cmake: "-DSLUICE_MPI=ON -DSLUICE_CUDA=OFF"
    build-dir    SLUICE_WHEEL_BUILD   the build folder, kept from build to build (build-wheel)
Options of CMakeLists.txt hold, but hwloc and MPI are off unless asked for: they belong to the machine, not to a wheel."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional

ROOT = Path(__file__).resolve().parent.parent
NAME = "sluice"
# What every Linux of the tag's glibc has: never bundled.
SYSTEM = re.compile(r"(linux-vdso|ld-linux[-\w]*|libc|libm|libdl|libpthread|librt|libgcc_s)\.so(\.\d+)*")
# A fixed time, so that the same files make the same archive.
TIME = (2020, 1, 1, 0, 0, 0)
SCRIPT = '''#!python
"""The program of the package, in place of this process. The package itself is not imported."""
import importlib.util
import os
import sys

spec = importlib.util.find_spec("sluice")
if spec is None or not spec.submodule_search_locations:
    sys.exit("sluice: the package is not installed in this Python")
os.execv(os.path.join(spec.submodule_search_locations[0], "bin", "sluice"), ["sluice", *sys.argv[1:]])
'''

Settings = Optional[Dict[str, Any]]


def version() -> str:
    header = (ROOT / "include" / "sluice.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define SLUICE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.M))


def metadata() -> str:
    return (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version()}\n"
        "Summary: Trains neural networks larger than the memory of the device that computes them\n"
        "License-File: LICENSE\nRequires-Python: >=3.9\nProvides-Extra: numpy\n"
        'Requires-Dist: numpy; extra == "numpy"\nClassifier: Operating System :: POSIX :: Linux\n'
        "Classifier: Programming Language :: Python :: 3\nClassifier: Typing :: Typed\n"
        "Description-Content-Type: text/markdown\n\n" + (ROOT / "README.md").read_text(encoding="utf-8")
    )


# ---- the native parts ----


def _run(command: List[str]) -> str:
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is missing; `make deps` installs what the build needs on Debian") from None
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise SystemExit(f"{command[0]} ended with {done.returncode}; `make deps` installs what the build needs on Debian")
    return done.stdout


def _setting(settings: Settings, name: str, variable: str, fallback: str) -> str:
    value = (settings or {}).get(name, os.environ.get(variable, fallback))
    return " ".join(value) if isinstance(value, list) else value


def build(settings: Settings) -> Path:
    """Builds library, program and, where there is a CUDA compiler, the CUDA plugin; returns the build folder."""
    folder = Path(_setting(settings, "build-dir", "SLUICE_WHEEL_BUILD", str(ROOT / "build-wheel"))).absolute()
    rpath = "-Wl,--disable-new-dtags"  # an RPATH counts for the libraries that a library needs; a RUNPATH does not
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
    if shutil.which("ninja") and not (folder / "Makefile").exists():
        command += ["-G", "Ninja"]
    command += ["-DSLUICE_HWLOC=OFF", "-DSLUICE_MPI=OFF", "-DCMAKE_INSTALL_LIBDIR=lib"]
    command += ["-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN;$ORIGIN/../lib"]
    command += [f"-DCMAKE_SHARED_LINKER_FLAGS={rpath}", f"-DCMAKE_EXE_LINKER_FLAGS={rpath}"]
    _run(command + shlex.split(_setting(settings, "cmake-args", "SLUICE_CMAKE_ARGS", "")))
    cache = (folder / "CMakeCache.txt").read_text()
    # Ninja takes "sluice" for the file of that name, which is the program.
    targets = ["libsluice.so" if "CMAKE_GENERATOR:INTERNAL=Ninja" in cache else "sluice", "sluice_program"]
    if re.search(r"^CMAKE_CUDA_COMPILER:\w+=/", cache, re.M):
        targets.append("sluice_cuda")
    if re.search(r"^SLUICE_MPI:BOOL=ON", cache, re.M) and re.search(r"^MPI_C_HEADER_DIR:PATH=/", cache, re.M):
        targets.append("sluice_mpi")
    jobs = str(len(os.sched_getaffinity(0)))
    _run(["cmake", "--build", str(folder), "-j", jobs, "--target", *targets])
    return folder


def needed(path: Path) -> Dict[str, str]:
    """Every library that a file needs, and those that these need: name and path."""
    found: Dict[str, str] = {}
    for line in _run(["ldd", str(path)]).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match and match.group(2) == "not":
            raise SystemExit(f"{path} needs {match.group(1)}, which is not here")
        if match:
            found[match.group(1)] = match.group(2)
    return found


def collect(built: Path, stage: Path) -> List[Path]:
    """Puts the native files of the package into stage/lib and stage/bin; returns where bundled libraries came from."""
    (stage / "lib").mkdir(parents=True)
    (stage / "bin").mkdir()
    parts = {
        f"libsluice.so.{version()}": "lib/libsluice.so",
        "sluice": "bin/sluice",
        "libsluice_cuda.so": "lib/libsluice_cuda.so",
        "libsluice_mpi.so": "lib/libsluice_mpi.so",
    }
    foreign: Dict[str, Path] = {}
    for source, target in parts.items():
        if (built / source).exists():
            shutil.copy(built / source, stage / target)
            # MPI has to be the machine's own, which its launcher belongs to.
            if source != "libsluice_mpi.so":
                foreign.update((n, Path(p)) for n, p in needed(built / source).items() if not SYSTEM.fullmatch(n))
        elif source not in ("libsluice_cuda.so", "libsluice_mpi.so"):
            raise SystemExit(f"{built / source} was not built")
    for name, path in foreign.items():
        shutil.copy(path, stage / "lib" / name)
    for path in [*(stage / "lib").iterdir(), stage / "bin" / "sluice"]:
        path.chmod(0o755)
        if shutil.which("strip"):
            _run(["strip", "--strip-unneeded", str(path)])
    return list(foreign.values())


def platform_tag(stage: Path) -> str:
    """manylinux of the oldest glibc that all files run on, where they need nothing else of the system; else this one's."""
    machine = platform.machine()
    inside = {p.name for p in (stage / "lib").iterdir()}
    newest = (2, 17)
    for path in [*(stage / "lib").iterdir(), stage / "bin" / "sluice"]:
        head = _run(["objdump", "-p", str(path)])
        for name in re.findall(r"^\s*NEEDED\s+(\S+)", head, re.M):
            if name not in inside and not SYSTEM.fullmatch(name):
                print(f"{path.name} needs {name} of the system: the wheel is for machines that have it", file=sys.stderr)
                return f"linux_{machine}"
        for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", head):
            newest = max(newest, (int(major), int(minor)))
    if platform.libc_ver()[0] != "glibc":
        return f"linux_{machine}"
    return f"manylinux_{newest[0]}_{newest[1]}_{machine}"


def licenses(sources: List[Path]) -> Dict[str, bytes]:
    """Texts that come with bundled libraries, where Debian's package manager knows them."""
    found: Dict[str, bytes] = {}
    for path in sources:
        for spelled in (path, path.resolve(), Path(str(path.resolve()).removeprefix("/usr"))):
            asked = subprocess.run(["dpkg", "-S", str(spelled)], capture_output=True, text=True) if shutil.which("dpkg") else None
            if asked is None or asked.returncode != 0:
                continue
            package = asked.stdout.split(":")[0]
            text = Path("/usr/share/doc") / package / "copyright"
            if text.exists():
                found[package] = text.read_bytes()
            break
    return found


# ---- archives ----


class Wheel:
    """A wheel being written: files, and RECORD behind them."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self._record: List[List[str]] = []

    def add(self, name: str, content: bytes, executable: bool = False) -> None:
        entry = zipfile.ZipInfo(name, TIME)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self._zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self._record.append([name, f"sha256={digest}", str(len(content))])

    def finish(self, info: str) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*self._record, [f"{info}/RECORD", "", ""]])
        self.add(f"{info}/RECORD", text.getvalue().encode())
        self._zip.close()


def _info_files(tag: str, extra: Dict[str, bytes]) -> Dict[str, bytes]:
    wheel = f"Wheel-Version: 1.0\nGenerator: build_sluice {version()}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    made = {"METADATA": metadata().encode(), "WHEEL": wheel.encode(), "licenses/LICENSE": (ROOT / "LICENSE").read_bytes()}
    made.update({f"licenses/{name}.txt": text for name, text in extra.items()})
    return made


def pack(directory: Path, built: Path) -> str:
    """A wheel of the files that `built` has; its name."""
    with tempfile.TemporaryDirectory(prefix="sluice-wheel-") as folder:
        stage = Path(folder)
        foreign = collect(built, stage)
        tag = f"py3-none-{platform_tag(stage)}"
        name = f"{NAME}-{version()}-{tag}.whl"
        info = f"{NAME}-{version()}.dist-info"
        wheel = Wheel(directory / name)
        package = ROOT / "python" / NAME
        for path in sorted([*package.glob("*.py"), package / "py.typed"]):
            wheel.add(f"{NAME}/{path.name}", path.read_bytes())
        for path in sorted(p for p in stage.rglob("*") if p.is_file()):
            wheel.add(f"{NAME}/{path.relative_to(stage)}", path.read_bytes(), True)
        wheel.add(f"{NAME}-{version()}.data/scripts/sluice", SCRIPT.encode(), True)
        for file, content in _info_files(tag, licenses(foreign)).items():
            wheel.add(f"{info}/{file}", content)
        wheel.finish(info)
    return name


# ---- what pip calls ----


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None) -> str:
    return pack(Path(wheel_directory), build(config_settings))


def _sources() -> List[Path]:
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
        return sorted(p for n in listed.decode().split("\0") if n and (p := ROOT / n).is_file())
    return sorted(p for p in ROOT.rglob("*") if p.is_file() and not p.relative_to(ROOT).parts[0].startswith("build"))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    base = f"{NAME}-{version()}"
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in _sources():
            archive.add(path, f"{base}/{path.relative_to(ROOT)}", recursive=False)
        text = metadata().encode()
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return f"{base}.tar.gz"


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ".").absolute()
    target.mkdir(parents=True, exist_ok=True)
    print(target / build_wheel(str(target)))
