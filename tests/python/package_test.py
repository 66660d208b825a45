"""package_test.py: what is installed: the wheel's files, types, and the examples."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import unittest
import zipfile
from pathlib import Path

import sluice
from helpers import BUILD, ROOT, InFolder, need

sys.path.insert(0, str(ROOT / "python"))
import build_sluice  # noqa: E402

EXAMPLES = ROOT / "examples" / "python"


def run_example(name: str, **environment: str) -> str:
    everything = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=everything
    )
    if done.returncode != 0:
        raise AssertionError(f"{name} ended with {done.returncode}: {done.stdout}")
    return done.stdout


class Package(InFolder):
    def test_the_wheel_has_everything_with_its_hash(self) -> None:
        name = build_sluice.pack(Path("."), BUILD)
        version = sluice.version()
        self.assertRegex(name, rf"^sluice-{re.escape(version)}-py3-none-(many)?linux_[\w]+\.whl$")
        with zipfile.ZipFile(name) as wheel:
            info = f"sluice-{version}.dist-info"
            record = list(csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())))
            self.assertEqual([r[0] for r in record], wheel.namelist())
            for file, digest, size in record[:-1]:
                content = wheel.read(file)
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), (f"sha256={found}", str(len(content))), file)
            for path in (ROOT / "python" / "sluice").glob("*.py"):
                self.assertEqual(wheel.read(f"sluice/{path.name}"), path.read_bytes())
            for file in ("sluice/py.typed", "sluice/lib/libsluice.so", f"{info}/licenses/LICENSE"):
                self.assertIn(file, wheel.namelist())
            for file in ("sluice/bin/sluice", f"sluice-{version}.data/scripts/sluice"):
                self.assertEqual(wheel.getinfo(file).external_attr >> 16 & 0o777, 0o755, file)
            self.assertIn(f"\nVersion: {version}\n", wheel.read(f"{info}/METADATA").decode())
            self.assertIn("libjansson.so.4", " ".join(wheel.namelist()))
        self.assertEqual(build_sluice.version(), version)

    def test_a_wheel_is_for_the_oldest_glibc_that_its_files_need(self) -> None:
        stage = Path("stage")
        build_sluice.collect(BUILD, stage)
        asked = {"NEEDED libm.so.6": "manylinux_2_29", "NEEDED libfoo.so.1": "linux_"}
        for line, start in asked.items():
            build_sluice._run, kept = lambda _c, text=line: f"  {text}\n  0x0 0x00 05 GLIBC_2.29\n", build_sluice._run  # type: ignore[misc]
            try:
                self.assertTrue(build_sluice.platform_tag(stage).startswith(start), line)
            finally:
                build_sluice._run = kept

    def test_the_program_of_the_package_takes_the_place_of_python(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        for arguments, status, text in ((["--version"], 0, f"sluice {sluice.version()}\n"), (["plan"], 2, "")):
            done = subprocess.run(
                [sys.executable, "-m", "sluice", *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            )  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (status, text))

    def test_a_library_that_is_not_there_is_named(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SLUICE_LIBRARY": "/nowhere/libsluice.so"}
        done = subprocess.run([sys.executable, "-c", "import sluice"], stderr=subprocess.PIPE, text=True, env=environment)
        self.assertIn("ImportError: libsluice is not here: /nowhere/libsluice.so", done.stderr)

    def test_the_package_is_typed_throughout(self) -> None:
        need("mypy", "types are checked by mypy")
        files = [ROOT / "python" / name for name in ("sluice", "generate.py", "build_sluice.py")]
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", *map(str, files)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)

    # ---- examples ----

    def test_every_example_has_a_test(self) -> None:
        here = Path(__file__).read_text()
        for path in EXAMPLES.glob("*.py"):
            self.assertIn(f'run_example("{path.name}"', here)

    def test_twenty_lines_train_save_and_resume(self) -> None:
        self.assertLessEqual(len((EXAMPLES / "train_save_resume.py").read_text().splitlines()), 20)
        out = run_example("train_save_resume.py")
        found = re.search(r"saved at step 30, ended at step 60 with loss [\d.]+, weights (\w{16})", out)
        self.assertIsNotNone(found, out)
        # Its second run goes on from the checkpoint; a run without any ends with the same weights.
        self.assertTrue(Path("checkpoints/step-60").is_dir())
        Path("checkpoints").rename("before")
        text = (EXAMPLES / "train_save_resume.py").read_text().replace("step.step == 30", "False")
        Path("whole.py").write_text(text.replace("__file__", repr(str(EXAMPLES / "train_save_resume.py"))).replace("resume=True", 'settings={"checkpoint.path": ""}'))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        whole = subprocess.run([sys.executable, "whole.py"], stdout=subprocess.PIPE, text=True, env=environment, check=True)
        self.assertIn(found.group(1) if found else "", whole.stdout)

    def test_the_sweep_of_plans_says_what_fits(self) -> None:
        lines = run_example("plan_sweep.py").splitlines()
        self.assertEqual(len(lines), 7)
        self.assertIn("does not fit", lines[1])
        self.assertIn("GiB on the device", lines[-1])

    def test_the_example_of_lora_fine_tunes_and_merges_a_folder(self) -> None:
        out = run_example("finetune_lora.py", STEPS="30")
        self.assertRegex(out, r"adapter: loss [\d.]+\nmerged: 28 tensors, of which the adapter changed 8\n")
        self.assertRegex(out, r"\d+ of 40 words")
        self.assertTrue(Path("adapter/adapter_config.json").exists())
        self.assertTrue(Path("merged/model.safetensors").exists())

    def test_the_examples_with_numpy_run(self) -> None:
        need("numpy", "arrays of NumPy")
        out = run_example("own_network.py")
        found = re.search(r"([\d.]+) % right", out)
        self.assertGreater(float(found.group(1)) if found else 0, 95, out)


if __name__ == "__main__":
    unittest.main()
