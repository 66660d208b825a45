"""send_test.py: TensorBoard's files of a run arrive at Weights & Biases and at Comet as they are, told to modules that stand for
theirs."""

from __future__ import annotations

import contextlib
import io
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

import sluice
from helpers import InFolder, text_config
from sluice import send


class Service(types.ModuleType):
    """Keeps what it is told, and stands for both services' modules and for a run of theirs."""

    def __init__(self) -> None:
        super().__init__("service")
        self.told: dict[int, dict[str, float]] = {}
        self.begun: dict[str, Any] = {}
        self.parameters: Any = None
        self.ended = 0
        self.Experiment = self.OfflineExperiment = self.init

    def init(self, **given: Any) -> Service:
        self.begun = given
        self.parameters = given.get("config")
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.told[step] = values

    log_metrics = log

    def set_name(self, name: str) -> None:
        self.begun["name"] = name

    def log_parameters(self, values: Any) -> None:
        self.parameters = values

    def log_tensorboard_folder(self, folder: str) -> None:
        self.begun["folder"] = folder

    def finish(self) -> None:
        self.ended += 1

    end = finish


class Send(InFolder):
    def run_of(self, **more: Any) -> dict[int, float]:
        """Trains with TensorBoard's files in logs/a; the loss of every step."""
        losses: dict[int, float] = {}
        config = {**text_config(), "tensorboard": {"enabled": True, "output_path": "logs", "job_name": "a"}, **more}
        sluice.train(config, on_step=lambda s: losses.__setitem__(s.step, s.loss))
        return losses

    def say(self, *arguments: str) -> tuple[int, str]:
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            status = send.main(list(arguments))
        return status, error.getvalue()

    def test_every_step_and_the_configuration_arrive(self) -> None:
        losses = self.run_of()
        for module, name in (("wandb", "wandb"), ("comet_ml", "comet")):
            there = Service()
            with mock.patch.dict(sys.modules, {module: there}):
                self.assertEqual(self.say(name, "logs/a", "--project", "p", "--offline"), (0, ""))
            trained = {step: values["loss/train"] for step, values in there.told.items() if "loss/train" in values}
            self.assertEqual(set(trained), set(losses))
            for step, loss in losses.items():
                self.assertAlmostEqual(trained[step], loss, delta=1e-6 * abs(loss))  # the files have 32 bits of each
            self.assertEqual(there.parameters["model"]["type"], "gpt2")
            self.assertEqual((there.begun["name"], there.ended), ("a", 1))
            self.assertFalse([t for v in there.told.values() for t in v if t.startswith("Train/Samples/")])

    def test_a_file_that_a_kill_cut_off_gives_what_is_whole(self) -> None:
        losses = self.run_of()
        (path,) = Path("logs/a").glob("events.out.tfevents.*")
        path.write_bytes(path.read_bytes()[:-5])
        there = Service()
        with mock.patch.dict(sys.modules, {"wandb": there}):
            self.assertEqual(self.say("wandb", "logs/a"), (0, ""))
        self.assertGreaterEqual(len(there.told), len(losses) - 1)

    def test_what_is_missing_is_one_message(self) -> None:
        status, error = self.say("wandb", "nowhere")
        self.assertEqual((status, error.count("\n")), (4, 1))
        self.assertIn("nowhere: there is no TensorBoard file", error)
        Path("logs").mkdir()
        Path("logs/events.out.tfevents.1").write_bytes(b"")
        with mock.patch.dict(sys.modules, {"comet_ml": None}):
            status, error = self.say("comet", "logs")
        self.assertEqual((status, error.count("\n")), (4, 1))
        self.assertIn("pip install comet_ml", error)
