"""engine_test.py: engines: the same bits as in C, memory of the caller, errors, threads, lifetimes."""

from __future__ import annotations

import array
import ctypes
import gc
import math
import os
import signal
import subprocess
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import sluice
from helpers import BUILD, InFolder, floats, ints, need, small_batch, small_graph


def resident_kib() -> int:
    """What the process holds, without what the C library keeps of freed memory: that comes and goes by megabytes."""
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def addresses(engine: sluice.Engine, batch: dict[str, Any]) -> dict[str, int]:
    """What the library is handed."""
    made, _ = engine._batch(batch)
    return {made.arrays[i].name.decode(): made.arrays[i].data for i in range(made.count)}


class OnDevice:
    """An array that is not in host memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("nobody may ask for it")


class Engines(InFolder):
    def test_the_example_in_c_and_the_same_in_python_write_the_same_file(self) -> None:
        libc = ctypes.CDLL(None)
        libc.srand(1)
        most = 2147483647

        def normal() -> float:
            u, v = (libc.rand() + 1.0) / (most + 1.0), libc.rand() / (most + 1.0)
            return math.sqrt(-2 * math.log(u)) * math.cos(6.283185307179586 * v)

        x = array.array("f", (normal() for _ in range(1000)))
        y = array.array("f", (normal() for _ in range(100)))
        g = sluice.Graph()
        inputs, target = g.input("x", (10, 10)), g.input("y", (10, 1))
        g.loss = inputs.linear(5, "fc1").linear(3, "fc2").linear(1, "fc3").mse(target)
        with sluice.Engine(g, sluice.SGD(lr=0.001)) as e:
            for step in range(100):
                first = step * 10 % 100
                rows = memoryview(x)[first * 10 : first * 10 + 100].cast("B").cast("f", (10, 10))
                e.train_step({"x": rows, "y": memoryview(y)[first : first + 10].cast("B").cast("f", (10, 1))})
            e.save("python.safetensors")
        subprocess.run([str(BUILD / "own_model")], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(Path("python.safetensors").read_bytes(), Path("own_model.safetensors").read_bytes())

    def test_training_saving_and_resuming_go_on_to_the_same_bits(self) -> None:
        batches = [small_batch(seed=i) for i in range(20)]
        with sluice.Engine(small_graph(), sluice.AdamW(lr=0.01)) as e:
            losses = [e.train_step(b) for b in batches]
            whole = e.hashes()
            self.assertEqual(e.planned_peak, e.observed_peak)
            self.assertIn("parameters", e.plan)
        self.assertTrue(all(math.isfinite(x) for x in losses))
        with sluice.Engine(small_graph(), sluice.AdamW(lr=0.01)) as e:
            self.assertEqual(e.resume("checkpoints"), 0)
            for b in batches[:12]:
                e.train_step(b)
            e.save_checkpoint("checkpoints")
        with sluice.Engine(small_graph(), sluice.AdamW(lr=0.01)) as e:
            self.assertEqual(e.resume("checkpoints"), 12)
            for b in batches[12:]:
                e.forward(b)
                e.backward()
                e.step()
            self.assertEqual(e.hashes(), whole)
            self.assertEqual(e.step_count, 20)

    def test_settings_of_the_header_are_taken_by_name(self) -> None:
        settings: list[dict[str, Any]] = [
            {"optimizer_state": "host"},
            {"precision": "bf16", "states": "compact"},
            {"precision": "f16", "loss_scale": {"initial_power": 8}},
            {"activations": "recompute", "levels": 1, "seed": 3},
        ]
        for s in settings:
            with sluice.Engine(small_graph(), sluice.Adam(lr=0.01), device="cpu", **s) as e:
                self.assertTrue(math.isfinite(e.train_step(small_batch())), s)
        with sluice.Engine(small_graph(), accumulation_steps=2) as e:
            e.train_step(small_batch(seed=1), small_batch(seed=2))
            with self.assertRaisesRegex(sluice.UsageError, "predict: the engine was created without options.evaluation"):
                e.predict(small_batch())
            with self.assertRaisesRegex(sluice.UsageError, "a step takes 2 micro-batches"):
                e.train_step(small_batch())
        for kind in ("SGD", "Adagrad", "Adam", "AdamW", "LAMB", "LARS", "Lion", "RMSprop"):
            with sluice.Engine(small_graph(), getattr(sluice, kind)(lr=0.01)) as e:
                e.train_step(small_batch())
        for bad, message in (
            ({"precision": "f8"}, "precision: 'f8' is not one of f32, i32, bf16, f16"),
            ({"gradient_cliping": 1.0}, "did you mean 'gradient_clipping'"),
            ({"stage": "three"}, "stage: 'three' is of the wrong type"),
            ({"stage": 7}, "stage"),
        ):
            with self.assertRaises(sluice.UsageError) as raised:
                sluice.Engine(small_graph(), **bad)  # type: ignore[arg-type]
            self.assertIn(message, str(raised.exception))
        with self.assertRaisesRegex(sluice.UsageError, "did you mean 'momentum'"):
            sluice.SGD(momentun=0.9)  # type: ignore[call-arg]
        with self.assertRaisesRegex(sluice.UsageError, "'sgdd' is not one of sgd"):
            sluice.Optimizer("sgdd")

    def test_what_does_not_fit_is_refused_before_the_first_step(self) -> None:
        with self.assertRaises(sluice.NoFitError) as raised:
            sluice.Engine(small_graph(), device_bytes=1000, host_bytes=1000)
        self.assertEqual(raised.exception.status, 3)
        self.assertIn("does not fit", str(raised.exception))

    # ---- memory ----

    def test_batches_are_read_where_they_lie(self) -> None:
        with sluice.Engine(small_graph()) as e:
            own = small_batch()
            self.assertEqual(addresses(e, own), {"x": own["x"].address, "label": own["label"].address})
            x, label = array.array("f", bytes(8 * 6 * 4)), array.array("i", bytes(8 * 4))
            batch = {"x": memoryview(x).cast("B").cast("f", (8, 6)), "label": label}
            found = addresses(e, batch)
            self.assertEqual(found, {"x": x.buffer_info()[0], "label": label.buffer_info()[0]})
            read_only = {"x": memoryview(bytes(8 * 6 * 4)).cast("f", (8, 6)), "label": label}
            self.assertTrue(math.isfinite(e.train_step(read_only)))

    def test_arrays_of_numpy_are_read_and_written_where_they_lie(self) -> None:
        need("numpy", "arrays of NumPy")
        import numpy as np

        source = np.random.default_rng(1)
        batch = {"x": source.normal(size=(8, 6)).astype("float32"), "label": np.arange(8, dtype="int32") % 3}
        with sluice.Engine(small_graph(), evaluation=True) as e:
            expected = {name: a.__array_interface__["data"][0] for name, a in batch.items()}
            self.assertEqual(addresses(e, batch), expected)
            e.train_step(batch)
            out = np.zeros((8, 3), "float32")
            before = out.__array_interface__["data"][0]
            self.assertIs(e.predict(batch, out=out), out)
            self.assertEqual(out.__array_interface__["data"][0], before)
            fresh = e.predict(batch)
            self.assertEqual(np.asarray(fresh).__array_interface__["data"][0], fresh.address)
            np.testing.assert_array_equal(fresh.numpy(), out)
            np.testing.assert_array_equal(np.from_dlpack(fresh), out)
            with self.assertRaisesRegex(sluice.UsageError, "is float64, f32"):
                e.train_step({**batch, "x": batch["x"].astype("float64")})
            with self.assertRaisesRegex(sluice.UsageError, "not contiguous"):
                e.train_step({**batch, "x": np.asfortranarray(batch["x"])})
            for kind in ("int64", "uint64", "uint32", "int16", "uint16", "int8", "uint8"):
                self.assertEqual(e.evaluate({**batch, "label": batch["label"].astype(kind)}), e.evaluate(batch), kind)
            for kind in ("float64", "bool", "complex64", ">i8"):
                with self.assertRaisesRegex(sluice.UsageError, "i32 .8. is needed", msg=kind):
                    e.evaluate({**batch, "label": batch["label"].astype(kind)})
            w = e["fc1.weight"].numpy()
            e["fc1.weight"] = w * np.float32(2)
            np.testing.assert_array_equal(e["fc1.weight"].numpy(), w * 2)
            b = e["fc1.bias"].numpy()
            hidden = np.maximum(batch["x"] @ (w * 2).T + b, 0)
            logits = hidden @ e["fc2.weight"].numpy().T + e["fc2.bias"].numpy()
            np.testing.assert_allclose(e.predict(batch).numpy(), logits, rtol=1e-4, atol=1e-5)

    def test_tensors_of_pytorch_pass_by_dlpack_without_copies(self) -> None:
        need("torch", "tensors of PyTorch")
        import torch

        torch.manual_seed(1)
        batch = {"x": torch.randn(8, 6), "label": torch.arange(8, dtype=torch.int32) % 3}
        with sluice.Engine(small_graph(), evaluation=True) as e:
            self.assertEqual(addresses(e, batch), {name: t.data_ptr() for name, t in batch.items()})
            e.train_step(batch)
            fresh = e.predict(batch)
            self.assertEqual(torch.from_dlpack(fresh).data_ptr(), fresh.address)
            out = torch.zeros(8, 3)
            pointer = out.data_ptr()
            e.predict(batch, out=out)
            self.assertEqual(out.data_ptr(), pointer)
            self.assertTrue(torch.equal(torch.from_dlpack(fresh), out))
            hidden = torch.relu(torch.nn.functional.linear(batch["x"], *(torch.from_dlpack(e[f"fc1.{p}"]) for p in ("weight", "bias"))))
            logits = torch.nn.functional.linear(hidden, *(torch.from_dlpack(e[f"fc2.{p}"]) for p in ("weight", "bias")))
            self.assertTrue(torch.allclose(logits, out, rtol=1e-4, atol=1e-5))
            tensor = torch.from_dlpack(e["fc1.weight"])  # outlives the Array it came from
            gc.collect()
            self.assertTrue(torch.isfinite(tensor).all())
            with self.assertRaisesRegex(sluice.UsageError, "input 'x'.*grad"):
                e.train_step({**batch, "x": torch.randn(8, 6, requires_grad=True)})
            self.assertEqual(e.evaluate({**batch, "label": torch.arange(8) % 3}), e.evaluate(batch))
            with self.assertRaisesRegex(sluice.UsageError, "is int64, f32"):
                e.train_step({**batch, "x": torch.arange(48).reshape(8, 6)})
            with self.assertRaisesRegex(sluice.UsageError, "not contiguous"):
                e.train_step({**batch, "x": torch.randn(6, 8).t()})

    def test_memory_given_out_by_dlpack_is_freed_with_its_last_user(self) -> None:
        from sluice import arrays

        before = len(arrays._exported)
        capsule = floats(4).__dlpack__()
        self.assertEqual(len(arrays._exported), before + 1)
        del capsule
        gc.collect()
        self.assertEqual(len(arrays._exported), before)
        with self.assertRaises(BufferError):
            floats(4).__dlpack__(copy=True)

    def test_arrays_that_do_not_fit_are_refused_in_one_message(self) -> None:
        good = small_batch()
        doubles = memoryview(array.array("d", bytes(8 * 48))).cast("B").cast("d", (8, 6))
        strided = memoryview(array.array("i", bytes(4 * 16)))[::2]
        cases: list[tuple[dict[str, Any], str]] = [
            ({"x": doubles}, "input 'x': the array is format 'd', f32 [8, 6] is needed"),
            ({"x": floats(9, 6)}, "input 'x': the array has shape [9, 6], f32 [8, 6] is needed"),
            ({"label": strided}, "input 'label': the array is not contiguous"),
            ({"x": OnDevice()}, "input 'x': the array is on cuda:1; f32 [8, 6] is needed in host memory"),
            ({"x": [1.0, 2.0]}, "input 'x': list is no array"),
            ({"label": floats(8)}, "input 'label': the array is f32, i32 [8] is needed"),
            ({"extra": floats(1)}, "the batch has 'extra', which the graph has not"),
        ]
        with sluice.Engine(small_graph(), evaluation=True) as e:
            for change, message in cases:
                with self.assertRaises(sluice.UsageError) as raised:
                    e.train_step({**good, **change})
                self.assertIn(message, str(raised.exception))
            with self.assertRaisesRegex(sluice.UsageError, "the batch lacks 'label'"):
                e.train_step({"x": good["x"]})
            with self.assertRaisesRegex(sluice.UsageError, "out: the array is read-only"):
                e.predict(good, out=memoryview(bytes(8 * 3 * 4)).cast("f", (8, 3)))
            with self.assertRaisesRegex(sluice.UsageError, "there is no parameter 'fc9.weight'"):
                e["fc9.weight"]
            with self.assertRaisesRegex(sluice.UsageError, r"has shape \[2\], f32 \[16\] is needed"):
                e["fc1.bias"] = floats(2)
            bad = ints(8)
            bad.buffer[3] = 99
            with self.assertRaises(sluice.InputError) as wrong:
                e.train_step({**good, "label": bad})
            self.assertIn("99", str(wrong.exception))
            self.assertEqual(e.step_count, 0)
            self.assertTrue(math.isfinite(e.train_step(good)))

    def test_whole_numbers_of_other_widths_are_copied_where_each_fits(self) -> None:
        label = [0, 2, 1, 0, 1, 2, 2, 0]
        good = {**small_batch(), "label": array.array("i", label)}
        with sluice.Engine(small_graph(), evaluation=True) as e:
            loss = e.evaluate(good)
            for code in "bBhHIlLqQ":
                self.assertEqual(e.evaluate({**good, "label": array.array(code, label)}), loss, code)
            for value in (2**31, -(2**31) - 1, 2**62, 2**32 + 1):
                wide = array.array("q", [*label[:5], value, *label[6:]])
                message = f"^input 'label': the array is int64, and number 5 of it, {value}, does not fit in i32$"
                with self.assertRaisesRegex(sluice.UsageError, message):
                    e.train_step({**good, "label": wide})
            with self.assertRaisesRegex(sluice.UsageError, r"has shape \[7\], i32 \[8\] is needed"):
                e.train_step({**good, "label": array.array("q", label[:7])})
            with self.assertRaisesRegex(sluice.UsageError, "not contiguous"):
                e.train_step({**good, "label": memoryview(array.array("q", label * 2))[::2]})
            with self.assertRaisesRegex(sluice.UsageError, "is int64, f32"):
                e.predict(good, out=array.array("q", label * 3))
            x, rows = floats(8, 6), array.array("q", label)
            found = []
            for labels in (array.array("i", label), rows):
                with sluice.Engine(small_graph()) as fresh, sluice.Data.from_arrays({"x": x, "label": labels}) as data:
                    if labels is rows:
                        rows[0] = 1  # the data set has its own copy
                        gc.collect()
                    fresh.fit(data, 3)
                    found.append(fresh.hashes())
            self.assertEqual(found[0], found[1])

    def test_numbers_that_no_setting_holds_are_refused(self) -> None:
        for name, value in (
            ("accumulation_steps", 2**32 + 1), ("stage", 2**32), ("levels", 2**40), ("threads", 2**32 + 1), ("seed", -1),
            ("checkpoints", 2**33), ("partition_block", 2**64 + 5), ("delay_warmup", 2**64), ("prefetch_layers", 2**32 - 1),
            ("device_bytes", 2**64 + 1000), ("host_bytes", -1),
        ):  # fmt: skip
            with self.assertRaisesRegex(sluice.UsageError, f"^Engine: {name}: {value} is out of range: it takes a whole number from"):
                sluice.Engine(small_graph(), **{name: value})  # type: ignore[arg-type]
        with self.assertRaisesRegex(sluice.UsageError, "^loss_scale: window: 4294967296 is out of range"):
            sluice.Engine(small_graph(), loss_scale={"window": 2**32})
        g = small_graph()
        x = g.input("more", (4, 8))
        for call, message in (
            (lambda: x.linear(2**64 + 5, "fc"), "linear: features: 18446744073709551621 is out of range"),
            (lambda: x.split(2**32, 0, 1), "split: axis: 4294967296 is out of range"),
            (lambda: x.reshape((2**64 + 4, 8)), "shape: 18446744073709551620 is out of range"),
            (lambda: x.transpose((2**32 + 1, 0)), "transpose: order: 4294967297 is out of range"),
            (lambda: x.attention(heads=2**33), "heads: 8589934592 is out of range"),
        ):
            with self.assertRaises(sluice.UsageError, msg=message) as raised:
                call()
            self.assertIn(message, str(raised.exception))
        with self.assertRaisesRegex(sluice.UsageError, "data_from_arrays: seed: -1 is out of range"):
            sluice.Data.from_arrays({"x": floats(8, 6)}, seed=-1)
        with sluice.Engine(small_graph()) as e:
            data = sluice.Data.from_arrays(small_batch())
            with self.assertRaisesRegex(sluice.UsageError, "^fit: steps: -1 is out of range: it takes a whole number from 0"):
                e.fit(data, -1)
            with self.assertRaisesRegex(sluice.UsageError, "^fit: steps: 2.5 is of the wrong type"):
                e.fit(data, 2.5)  # type: ignore[arg-type]
            with self.assertRaisesRegex(sluice.UsageError, "^set_targets: counts: -1 is out of range"):
                e.set_targets([-1])
            self.assertEqual(e.step_count, 0)
            self.assertTrue(math.isnan(e.fit(data, 0)))

    # ---- data ----

    def test_data_sets_of_arrays_and_of_functions_train_alike(self) -> None:
        x, label = floats(32, 6), ints(32)

        def fill(index: int, buffers: dict[str, sluice.Array]) -> None:
            row = index * 8 % 32
            buffers["x"].buffer[:] = x.buffer[row * 6 : row * 6 + 48]
            buffers["label"].buffer[:] = label.buffer[row : row + 8]

        def give(index: int, buffers: dict[str, sluice.Array]) -> dict[str, Any]:
            row = index * 8 % 32
            part = memoryview(x.buffer[row * 6 : row * 6 + 48]).cast("B").cast("f", (8, 6))
            return {"x": part, "label": label.buffer[row : row + 8]}

        found = []
        for kind in ("arrays", "function", "returned"):
            g = small_graph()
            with sluice.Engine(g, sluice.Adam(lr=0.01)) as e:
                data = (
                    sluice.Data.from_arrays({"x": x, "label": label}, shuffle=False)
                    if kind == "arrays"
                    else sluice.Data.from_function(g, fill if kind == "function" else give)
                )
                with data:
                    seen: list[float] = []
                    loss = e.fit(data, 7, on_step=lambda _e, at: seen.append(at))
                    self.assertEqual((len(seen), seen[-1]), (7, loss))
                    found.append(e.hashes())
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_what_a_data_function_raises_comes_out_of_fit(self) -> None:
        g = small_graph()
        with sluice.Engine(g) as e:

            def broken(index: int, buffers: dict[str, sluice.Array]) -> None:
                raise KeyError("no such row")

            def calls_back(index: int, buffers: dict[str, sluice.Array]) -> None:
                e.train_step(small_batch())

            with self.assertRaisesRegex(KeyError, "no such row"):
                e.fit(sluice.Data.from_function(g, broken), 2)
            with self.assertRaisesRegex(sluice.UsageError, "in use by the call that has called you"):
                e.fit(sluice.Data.from_function(g, calls_back), 2)
            with self.assertRaisesRegex(sluice.UsageError, "rows of f32"):
                e.fit(sluice.Data.from_arrays({"x": floats(8, 5), "label": ints(8)}), 1)
            with self.assertRaisesRegex(sluice.UsageError, "one number of rows"):
                sluice.Data.from_arrays({"x": floats(8, 5), "label": ints(7)})
            self.assertEqual(e.step_count, 0)
            e.train_step(small_batch())

    # ---- threads and lifetimes ----

    def test_other_threads_run_while_a_step_computes(self) -> None:
        g = sluice.Graph()
        x = g.input("x", (256, 1024))
        g.loss = x.linear(2048, "a").relu().linear(1024, "b").mse(x)
        batch = {"x": floats(256, 1024)}
        ticks: list[float] = []
        over = threading.Event()

        def tick() -> None:
            while not over.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)

        with sluice.Engine(g, threads=1) as e:
            e.train_step(batch)
            thread = threading.Thread(target=tick)
            thread.start()
            begun = time.monotonic()
            while time.monotonic() - begun < 0.4:
                e.train_step(batch)
            over.set()
            thread.join()
        # Steps take tens of milliseconds: with the lock held there would be one tick for each.
        self.assertGreater(len(ticks), 50)

    def test_two_threads_train_an_engine_each_and_share_one(self) -> None:
        expected = {}
        for seed in (1, 2):
            with sluice.Engine(small_graph()) as e:
                for _ in range(20):
                    e.train_step(small_batch(seed=seed))
                expected[seed] = e.hashes()
        found: dict[int, sluice.Hashes] = {}
        shared = sluice.Engine(small_graph())

        def work(seed: int) -> None:
            with sluice.Engine(small_graph()) as e:
                for _ in range(20):
                    e.train_step(small_batch(seed=seed))
                    shared.train_step(small_batch(seed=seed))
                found[seed] = e.hashes()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, expected)
        self.assertEqual(shared.step_count, 40)
        shared.close()

    def test_closed_objects_say_so_and_may_close_in_any_order(self) -> None:
        g = small_graph()
        e = sluice.Engine(g)
        g.close()
        e.train_step(small_batch())  # the graph lives until its engine is closed
        e.close()
        e.close()
        with self.assertRaisesRegex(sluice.UsageError, "this object is closed"):
            e.train_step(small_batch())
        with self.assertRaisesRegex(sluice.UsageError, "this object is closed"):
            g.parameters
        second = sluice.Graph()
        with self.assertRaises(sluice.UsageError):
            sluice.Engine(second)
        second.close()

    def test_a_forked_process_closes_its_copy_of_an_engine_at_once(self) -> None:
        for threads in (1, 2):
            g = small_graph()
            with sluice.Engine(g, threads=threads, optimizer_state="host") as e:
                e.train_step(small_batch())
                child = os.fork()
                if child == 0:
                    signal.alarm(20)  # a close that waits for a thread of the parent waits forever
                    try:
                        e.train_step(small_batch())
                    except sluice.UsageError as wrong:
                        e.close()
                        g.close()
                        os._exit(0 if "the engine is of process" in str(wrong) else 2)
                    finally:
                        os._exit(1)
                _, status = os.waitpid(child, 0)
                self.assertEqual(status, 0, f"{threads} threads")
                self.assertTrue(math.isfinite(e.train_step(small_batch())))

    def test_a_thousand_engines_leave_nothing_behind(self) -> None:
        def one() -> None:
            g = small_graph()
            e = sluice.Engine(g)
            e.train_step(small_batch())
            e["fc1.weight"].tolist()
            sluice.Data.from_arrays(small_batch())

        for _ in range(100):
            one()
        before = resident_kib()
        for _ in range(1000):
            one()
        self.assertLess(resident_kib() - before, 512)  # half a KiB each


    def test_a_graph_and_an_engine_that_know_each_other_are_freed_together(self) -> None:
        destroyed: list[str] = []
        g = small_graph()
        e = sluice.Engine(g)
        for name, handle in (("graph", g._handle), ("engine", e._handle)):
            free = handle._destroy
            handle._destroy = lambda p, n=name, f=free: (destroyed.append(n), f(p))  # type: ignore[misc]
        g.cycle = e  # type: ignore[attr-defined]
        del handle, g, e
        gc.collect()
        self.assertEqual(destroyed, ["engine", "graph"])


if __name__ == "__main__":
    unittest.main()
