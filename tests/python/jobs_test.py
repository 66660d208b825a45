"""jobs_test.py: plan, train, evaluate and generate do what the program does; signals, callbacks, ranks, progress."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import sluice
from helpers import ROOT, InFolder, text_config
from sluice import events

# Trains in a process of its own and prints what happens, for tests that send signals.
CHILD = """
import json, sys, time
import sluice
def tell(s):
    print("step", s.step, flush=True)
    time.sleep(0.05)
try:
    run = sluice.train(json.load(open("run.json")), on_step=tell, ranks=int(sys.argv[1]))
    print("done", run.weights_sha256)
except KeyboardInterrupt as e:
    print("interrupted:", e)
except sluice.Stopped as e:
    print("stopped:", e)
"""


def program_run(config: dict[str, Any], *options: str) -> list[dict[str, Any]]:
    """The events of the program for the same configuration."""
    Path("program.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sluice.program(), "train", "program.json", "--json", *options], stdout=subprocess.PIPE, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def without_times(event: Any) -> dict[str, Any]:
    given = event if isinstance(event, dict) else vars(event)
    untimed = ("seconds", "tokens_per_second", "mfu", "data_seconds", "event", "steps", "overhead_bytes", "step_seconds")
    made = {k: v for k, v in given.items() if k not in untimed}
    return json.loads(json.dumps(made).replace("NaN", "null"))  # type: ignore[no-any-return]


class Jobs(InFolder):
    def test_a_plan_has_numbers_and_a_verdict(self) -> None:
        p = sluice.plan(text_config())
        self.assertTrue(p.fits)
        self.assertGreater(p.memory.device, 100000)
        self.assertGreater(p.step_seconds, 0)
        self.assertIn("memory at the fullest moment", p.text)
        self.assertEqual(str(p), p.text)
        self.assertIn(p.verdict, p.text)
        page = p._repr_html_()
        self.assertIn("device memory", page)
        self.assertIn("<details>", page)
        several = sluice.plan(text_config(), ranks=2, settings={"zero_optimization.stage": 3})
        self.assertEqual((several.ranks, several.stage), (2, 3))
        with self.assertRaisesRegex(sluice.UsageError, "plan: there is no setting 'machines'; did you mean 'machine'"):
            sluice.plan(text_config(), machines="dgx.json")
        with self.assertRaisesRegex(sluice.Error, "nowhere-machine.json"):
            sluice.plan(text_config(), machine="nowhere-machine.json")

    def test_what_does_not_fit_is_an_answer_of_plan_and_an_exception_of_train(self) -> None:
        p = sluice.plan(text_config(), settings={"memory.device": "20KiB"})
        self.assertFalse(p.fits)
        self.assertIn("does not fit", p.verdict)
        self.assertIn("What would help", p._repr_html_())
        with self.assertRaises(sluice.NoFitError):
            sluice.train(text_config(), settings={"memory.device": "20KiB"})

    def test_a_run_from_python_is_the_programs_to_the_bit_and_in_every_event(self) -> None:
        config = text_config(evaluate={"every": 6, "batches": 2})
        told: list[sluice.Event] = []
        run = sluice.train({**config, "checkpoint": {"path": "a", "every": 4}}, on_event=told.append)
        program = program_run({**config, "checkpoint": {"path": "a", "every": 4}}, "--set", "checkpoint.path=b")
        self.assertEqual(run.weights_sha256, program[-1]["weights_sha256"])
        self.assertEqual(run.state_sha256, program[-1]["state_sha256"])
        names = {c: n for n, c in events._NAMES.items()}
        for kind in ("plan", "step", "eval", "saved", "end"):
            here = [without_times(e) for e in told if names.get(type(e)) == kind]
            there = [without_times(events.read_json(e, 12)) for e in program if e["event"] == kind]
            text = json.dumps(here).replace('"a/step', '"b/step')
            self.assertEqual(json.loads(text), there)
        self.assertEqual((run.steps, len(run.evaluations), len(run.saved)), (12, 3, 3))
        self.assertEqual(run.peak, run.plan.peak_bytes if run.plan else None)
        self.assertTrue(math.isfinite(run.loss))

    def test_a_configuration_may_be_a_file_a_dict_or_an_object_with_settings(self) -> None:
        config = text_config(steps=3)
        Path("run.json").write_text(json.dumps(config))
        hashes = {
            sluice.train(source, settings=settings).weights_sha256
            for source, settings in (
                ("run.json", {"checkpoint.path": "a"}),
                (Path("run.json"), {"checkpoint": {"path": "b"}}),
                (config, {"checkpoint.path": Path("c")}),
                (sluice.Config("run.json", {"checkpoint.path": ""}), None),
                ({**config, "steps": 9}, {"steps": 3, "checkpoint.path": ""}),
            )
        }
        self.assertEqual(len(hashes), 1)
        c = sluice.Config(config, {"optimizer.params.lr": 0.5})
        self.assertEqual(c.get("optimizer.params.lr"), 0.5)
        c.check()
        self.assertIn("optimizer", str(c))

    def test_settings_of_a_call_leave_the_config_object_as_it_is(self) -> None:
        config = text_config(steps=3, checkpoint={"path": ""})
        Path("run.json").write_text(json.dumps(config))
        expected = sluice.train(config, settings={"seed": 11}).weights_sha256
        for c in (sluice.Config(config), sluice.Config("run.json", {"optimizer.params.lr": 1e-3})):
            self.assertEqual(sluice.train(c, settings={"seed": 11}).weights_sha256, expected)
            self.assertEqual(c.get("seed"), 7)
            self.assertNotEqual(sluice.train(c).weights_sha256, expected)
            again = sluice.train(c, settings={"seed": 11, "zero_optimization.stage": 1}, ranks=2)
            self.assertEqual(again.weights_sha256, expected)
        chosen = sluice.Config.for_model(ROOT / "tests/fixtures/families/qwen3-biases-tied", "input.txt", settings={"seed": 5})
        other = chosen._with({"steps": 9})
        self.assertEqual(other._assignments, [*chosen._assignments, "steps=9"])
        with self.assertRaisesRegex(sluice.UsageError, 'unknown key "stepz"'):
            sluice.plan(sluice.Config(config), settings={"stepz": 1})

    def test_numbers_that_no_option_of_a_job_holds_are_refused(self) -> None:
        config = text_config()
        calls: list[tuple[Any, str]] = [
            (lambda: sluice.train(config, ranks=-1), "train: ranks: -1 is out of range: it takes a whole number from 1 to 2147483647"),
            (lambda: sluice.train(config, ranks=0), "train: ranks: 0 is out of range"),
            (lambda: sluice.train(config, ranks=2**33), "train: ranks: 8589934592 is out of range"),
            (lambda: sluice.plan(config, ranks=2**33), "ranks: 8589934592 is out of range"),
            (lambda: sluice.plan(config, ranks=-1), "ranks is -1, must be 0 or more"),
            (lambda: sluice.plan(config, gpus=2**32 + 1), "plan: gpus: 4294967297 is out of range"),
            (lambda: sluice.generate(config, "a", tokens=2**64), "tokens: 18446744073709551616 is out of range"),
            (lambda: sluice.generate(config, "a", top_k=2**40), "top_k: 1099511627776 is out of range"),
            (lambda: sluice.export("checkpoints", "out", shard_bytes=-1), "export: shard_bytes: -1 is out of range"),
            (lambda: sluice.tokenize("folder", ["input.txt"], threads=2**32), "tokenize: threads: 4294967296 is out of range"),
        ]
        for call, message in calls:
            with self.assertRaises(sluice.UsageError, msg=message) as raised:
                call()
            self.assertIn(message, str(raised.exception))
        self.assertFalse(Path("checkpoints").exists())

    def test_a_run_is_shown_in_one_short_line(self) -> None:
        run = sluice.train(text_config(steps=40, evaluate={"every": 1, "batches": 1}, checkpoint={"path": "c", "every": 1}))
        self.assertEqual((len(run.evaluations), len(run.saved)), (41, 40))
        self.assertRegex(repr(run), r"^<Run: 40 steps, loss [\d.]+, validation loss [\d.]+, saved c/step-40>$")

    def test_mistakes_are_exceptions_with_the_librarys_message(self) -> None:
        config = text_config()
        with self.assertRaisesRegex(sluice.UsageError, '^configuration: unknown key "stepz"; did you mean "steps"'):
            sluice.train({**config, "stepz": 1})
        with self.assertRaisesRegex(sluice.InputError, "nowhere.txt"):
            sluice.train(config, settings={"data.path": "nowhere.txt"})
        with self.assertRaisesRegex(sluice.InputError, "nowhere.txt"):
            sluice.train(config, settings={"data.path": "nowhere.txt"}, ranks=2)
        with self.assertRaisesRegex(sluice.UsageError, "nowhere.json"):
            sluice.plan("nowhere.json")
        with self.assertRaisesRegex(sluice.UsageError, "object cannot be in a configuration"):
            sluice.plan({**config, "seed": object()})
        with self.assertRaises(sluice.Error) as raised:
            sluice.verify("nowhere.safetensors")
        self.assertEqual(raised.exception.status, 4)
        for wrong in (sluice.UsageError, sluice.NumbersError, sluice.NoMemoryError):
            self.assertTrue(issubclass(wrong, sluice.Error))

    def test_two_ranks_end_with_the_bits_of_one(self) -> None:
        config = text_config()
        steps: list[int] = []
        one = sluice.train(config, settings={"checkpoint.path": ""})
        two = sluice.train(
            config,
            ranks=2,
            on_step=lambda s: steps.append(s.step),
            settings={"checkpoint.path": "", "zero_optimization.stage": 3},
            trace=Path("trace.json"),
        )
        self.assertTrue(Path("trace.json").exists())
        self.assertEqual(two.weights_sha256, one.weights_sha256)
        self.assertEqual(steps, list(range(1, 13)))
        self.assertEqual(two.plan.ranks if two.plan else 0, 2)

    # ---- stopping ----

    def test_stopping_in_a_callback_saves_and_returns_or_raises(self) -> None:
        whole = sluice.train(text_config(), settings={"checkpoint.path": ""})

        def stop_at_five(s: sluice.Step) -> None:
            if s.step == 5:
                raise sluice.StopTraining

        def fail(s: sluice.Step) -> None:
            raise ZeroDivisionError("of the caller")

        def fail_at_seven(s: sluice.Step) -> None:
            if s.step == 7:
                fail(s)

        run = sluice.train(text_config(), on_step=stop_at_five)
        self.assertTrue(run.stopped)
        self.assertEqual((run.steps, run.saved[-1].step), (5, 5))
        with self.assertRaisesRegex(ZeroDivisionError, "of the caller"):
            sluice.train(text_config(), resume=True, on_step=fail_at_seven)
        again = sluice.train(text_config(), resume=True)
        self.assertEqual(again.resumed_from, 7)
        self.assertEqual(again.weights_sha256, whole.weights_sha256)

        many = text_config(steps=20000, checkpoint={"path": "of-ranks"})
        run = sluice.train(many, on_step=stop_at_five, ranks=2)
        self.assertTrue(run.stopped)
        self.assertTrue(5 <= run.saved[-1].step < 20000)
        with self.assertRaisesRegex(ZeroDivisionError, "of the caller"):
            sluice.train(many, resume=True, on_step=fail, ranks=2)

    def interrupt(self, number: int, ranks: int) -> str:
        """Trains in a child, sends it the signal after its third step, and gives what it printed then."""
        Path("run.json").write_text(json.dumps(text_config(steps=200)))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        command = [sys.executable, "-c", CHILD, str(ranks)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("step 3"):
                    child.send_signal(number)
                    break
            rest = child.stdout.read()
        self.assertEqual(child.returncode, 0, rest)
        return rest.splitlines()[-1]

    def test_ctrl_c_saves_and_raises_keyboard_interrupt(self) -> None:
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                last = self.interrupt(signal.SIGINT, ranks)
                self.assertIn("interrupted: stopped by a signal after step", last)
                step = int(last.split("after step ")[1].split()[0].strip(",;"))
                self.assertTrue(Path(f"checkpoints/step-{step}").is_dir(), last)
                run = sluice.train("run.json", resume=True, settings={"steps": step + 2})
                self.assertEqual((run.resumed_from, run.steps), (step, step + 2))
                for folder in Path("checkpoints").iterdir():
                    subprocess.run(["rm", "-r", str(folder)], check=True)

    def test_sigterm_saves_and_raises_stopped(self) -> None:
        self.assertIn("stopped: stopped by a signal after step", self.interrupt(signal.SIGTERM, 1))
        self.assertTrue(any(Path("checkpoints").iterdir()))

    def test_a_signal_reaches_the_library_while_it_computes(self) -> None:
        """Nothing of Python runs between the signal and the poll: the flag is set all the same."""
        import hashlib

        from sluice import jobs

        times: dict[str, float] = {}

        def look(requests: Any) -> None:
            begun = time.monotonic()
            os.kill(os.getpid(), signal.SIGTERM)
            while not requests.stop.value and "computed" not in times and time.monotonic() - begun < 60:
                time.sleep(0.001)
            times["seen"] = time.monotonic()

        with jobs._Requests() as requests:
            watcher = threading.Timer(0.02, look, (requests,))
            watcher.start()
            hashlib.pbkdf2_hmac("sha256", b"one long call", b"without the lock", 2_000_000)
            times["computed"] = time.monotonic()
            watcher.join()
            seen = requests.stop.value
        self.assertLess(times["seen"], times["computed"])
        self.assertEqual(seen, signal.SIGTERM)
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
        self.assertEqual(signal.set_wakeup_fd(-1), -1)

    def test_handlers_are_as_they_were_and_other_threads_train_without_them(self) -> None:
        before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)}
        found: list[str] = []
        config = text_config(steps=3)
        thread = threading.Thread(
            target=lambda: found.append(sluice.train(config, settings={"checkpoint.path": ""}).weights_sha256)
        )
        thread.start()
        thread.join()
        here = sluice.train(config, settings={"checkpoint.path": ""}).weights_sha256
        self.assertEqual(found, [here])
        self.assertEqual(before, {n: signal.getsignal(n) for n in before})

    # ---- after training ----

    def test_trained_weights_are_evaluated_and_write_text(self) -> None:
        config = text_config(steps=40, save="model.safetensors")
        sluice.train(config)
        e = sluice.evaluate(config, weights="model.safetensors")
        self.assertLess(e.loss, 5)
        self.assertAlmostEqual(e.perplexity, math.exp(e.loss), places=3)
        self.assertEqual(e.weights, "model.safetensors")
        text = sluice.generate(config, "sluice ", tokens=20, temperature=0)
        self.assertEqual(len(text), 20)
        both = sluice.generate(config, ["sluice ", "water "], tokens=20, temperature=0)
        self.assertEqual((both[0], len(both)), (text, 2))
        seeded = {sluice.generate(config, "a", tokens=30, temperature=1.0, seed=s) for s in (1, 1, 2)}
        self.assertEqual(len(seeded), 2)
        with self.assertRaisesRegex(sluice.UsageError, "there is no option 'heat'; there are tokens, temperature"):
            sluice.generate(config, "a", heat=1.0)  # type: ignore[call-overload]
        self.assertNotIn("t", sluice.generate(config, "wa", tokens=30, temperature=0, stop=["t"]))

    def test_a_prompt_without_tokens_is_an_error_and_no_end_of_the_process(self) -> None:
        shutil.copytree(ROOT / "tests/fixtures/generate/gpt2", "model")
        tokenizer = json.loads(Path("model/tokenizer.json").read_text())
        tokenizer["pre_tokenizer"] = {"type": "Whitespace"}
        Path("model/tokenizer.json").write_text(json.dumps(tokenizer))
        c = sluice.Config.for_model("model")
        with self.assertRaisesRegex(sluice.InputError, "prompt 2, \" \", has no tokens"):
            sluice.generate(c, ["a", " "], tokens=3)
        self.assertEqual(len(sluice.generate(c, ["a", "b"], tokens=3)), 2)

    def test_files_are_inspected_verified_and_exported(self) -> None:
        sluice.train(text_config(steps=4))
        found = sluice.inspect("checkpoints")
        self.assertIn("step-4", json.dumps(found))
        self.assertTrue(sluice.verify("checkpoints/step-4"))
        sluice.export("checkpoints", "weights.safetensors", dtype="bf16")
        self.assertIn("BF16", json.dumps(sluice.inspect("weights.safetensors")).upper())
        data = bytearray(Path("weights.safetensors").read_bytes())
        Path("broken.safetensors").write_bytes(data[:100])
        with self.assertRaises(sluice.InputError):
            sluice.verify("broken.safetensors")
        self.assertIn("cpu", sluice.devices())
        bags = sluice.Array((4,), "i32")
        bags.buffer[:] = memoryview(b"".join(n.to_bytes(4, "little") for n in (0, 0, 2, 2))).cast("i")
        self.assertEqual(sluice.bag_ends(bags, 3).tolist(), [2, 2, 4])

    def test_notes_of_the_library_go_to_pythons_log(self) -> None:
        with self.assertLogs("sluice", logging.WARNING) as log:
            sluice.train(text_config(steps=2), settings={"evaluate.every": 5, "data.validation": 0})
        self.assertIn("validation", "\n".join(log.output))

    # ---- progress ----

    def test_a_terminal_gets_one_line_that_changes(self) -> None:
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        with mock.patch("sys.stderr", terminal):
            sluice.train(text_config(evaluate={"every": 6, "batches": 1}))
        text = terminal.getvalue()
        self.assertIn("\rstep 12/12  loss ", text)
        self.assertIn("validation loss", text)
        self.assertIn("saved checkpoints/step-4", text)
        silent = io.StringIO()
        with mock.patch("sys.stderr", silent):
            sluice.train(text_config(steps=2), settings={"checkpoint.path": ""})
        self.assertEqual(silent.getvalue(), "")

    def test_a_notebook_gets_one_output_that_is_replaced(self) -> None:
        pages: list[str] = []

        class Handle:
            def update(self, page: Any) -> None:
                pages.append(page._repr_html_())

        def display(page: Any, display_id: bool) -> Handle:
            pages.append(page._repr_html_())
            return Handle()

        ipython = types.ModuleType("IPython")
        shell = type("ZMQInteractiveShell", (), {})()
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        shown = types.ModuleType("IPython.display")
        shown.display = display  # type: ignore[attr-defined]
        with mock.patch.dict(sys.modules, {"IPython": ipython, "IPython.display": shown}):
            sluice.train(text_config())
        self.assertIn("step 12/12", pages[-1])
        self.assertIn("<progress value='1.0000'", pages[-1])


if __name__ == "__main__":
    unittest.main()
