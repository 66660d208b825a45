"""jobs.py: configurations made real: plan, train, evaluate, generate.

A configuration is a path of a JSON file, a dict of the same keys, or a Config. While a job runs, Ctrl-C asks it to stop: it
saves its checkpoint between two steps, and KeyboardInterrupt is raised when that is done. A second Ctrl-C does not wait."""

from __future__ import annotations

import ctypes
import html
import json
import math
import os
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence, TypedDict, Union, overload

from . import _header as header
from ._library import FOLDER, LOG, Handle, check, encode, fill, last_error, lib, log_callback, make, text_as_c, text_of
from ._whole import whole
from .engine import Memory, World
from .errors import Error, InputError, NoFitError, StopTraining, UsageError, error_of
from .events import EVENT_FUNCTION, End, Evaluation, Event, PlanEvent, Resumed, Saved, Step, read_event, read_json
from .progress import make_progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

Settings = Mapping[str, Any]


class Config:
    """A configuration: from a file, or from a dict of the same keys (docs/config.md); `settings` replaces single keys:

        Config("run.json", {"optimizer.params.lr": 1e-4})
        Config({"model": {"type": "gpt2", ...}, "steps": 100, ...})

    Paths in it are relative to the current folder."""

    def __init__(self, source: Union[str, os.PathLike[str], Mapping[str, Any]], settings: Settings | None = None) -> None:
        pointer = ctypes.c_void_p()
        self._assignments: list[str] = []
        if isinstance(source, Mapping):
            self._text: str | None = _json(source)
            self._path: str | None = None
            check(lib.sluice_config_parse(encode(self._text), None, ctypes.byref(pointer)))
        else:
            self._text, self._path = None, os.fspath(source)
            check(lib.sluice_config_load(encode(source), ctypes.byref(pointer)))
        self._handle = Handle(pointer.value, lib.sluice_config_destroy)
        self.set(settings or {})

    @classmethod
    def for_model(
        cls,
        model: str | os.PathLike[str],
        data: str | os.PathLike[str] | None = None,
        *,
        lora: bool = False,
        adapter: str | os.PathLike[str] | None = None,
        out: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
    ) -> Config:
        """A folder of a published model and a file to train on; everything else is chosen, as by `sluice train --model`
        (docs/finetune.md). `lora`: adapters instead of all weights. `adapter`: those of this folder. `out`: the folder of
        the result."""
        pointer = ctypes.c_void_p()
        check(lib.sluice_config_create(ctypes.byref(pointer)))
        made = cls.__new__(cls)
        made._assignments, made._text, made._path = [], None, None
        made._handle = Handle(pointer.value, lib.sluice_config_destroy)
        keys: dict[str, Any] = {"model.path": os.fspath(model)}
        if data is not None:
            keys["data.path"] = os.fspath(data)
        if lora:
            keys["lora.enabled"] = True
        if adapter is not None:
            keys["lora.path"] = os.fspath(adapter)
        if out is not None:
            keys["save"] = os.fspath(out).rstrip("/") + "/"
        made.set({**keys, **(settings or {})})
        return made

    def set(self, settings: Settings) -> None:
        """Replaces keys: {"optimizer.params.lr": 1e-4}."""
        self._assign([f"{key}={_json(value)}" for key, value in settings.items()])

    def _assign(self, assignments: Sequence[str]) -> None:
        for assignment in assignments:
            self._assignments.append(assignment)
            with self._handle as pointer:
                check(lib.sluice_config_set(pointer, encode(assignment)))

    def get(self, key: str) -> Any:
        """The value of a key after everything is resolved; "auto" where the plan decides."""
        room = ctypes.create_string_buffer(1 << 16)
        with self._handle as pointer:
            check(lib.sluice_config_get(pointer, encode(key), room, len(room)))
        return json.loads(room.value)

    def check(self) -> None:
        """Raises UsageError where the whole makes no sense."""
        with self._handle as pointer:
            check(lib.sluice_config_check(pointer, log_callback, None))

    def __str__(self) -> str:
        """Every key with its value."""
        with self._handle as pointer:
            return text_of(lambda file: lib.sluice_config_print(pointer, file))[1]

    def close(self) -> None:
        self._handle.close()

    def _with(self, settings: Settings) -> Config:
        """The same configuration with keys replaced; this one stays as it is. A file is read again."""
        pointer = ctypes.c_void_p()
        made = Config.__new__(Config)
        made._assignments, made._text, made._path = [], self._text, self._path
        if self._text is not None:
            check(lib.sluice_config_parse(encode(self._text), None, ctypes.byref(pointer)))
        elif self._path is not None:
            check(lib.sluice_config_load(encode(self._path), ctypes.byref(pointer)))
        else:
            check(lib.sluice_config_create(ctypes.byref(pointer)))
        made._handle = Handle(pointer.value, lib.sluice_config_destroy)
        made._assign(self._assignments)
        made.set(settings)
        return made

    def _arguments(self, folder: str) -> list[str]:
        """The same for the program."""
        made: list[str] = []
        if self._path is not None:
            made.append(self._path)
        elif self._text is not None:
            file = Path(folder) / "configuration.json"
            file.write_text(self._text, encoding="utf-8")
            made.append(str(file))
        for assignment in self._assignments:
            made += ["--set", assignment]
        return made


def _json(value: Any) -> str:
    def plain(x: Any) -> Any:
        if isinstance(x, os.PathLike):
            return os.fspath(x)
        if hasattr(x, "item"):  # a number of NumPy
            return x.item()
        raise TypeError(f"{type(x).__name__} cannot be in a configuration")

    try:
        return json.dumps(value, default=plain, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise UsageError(f"configuration: {e}") from None


ConfigLike = Union[str, "os.PathLike[str]", Mapping[str, Any], Config]


def _config(source: ConfigLike, settings: Settings | None) -> Config:
    if isinstance(source, Config):
        return source._with(settings) if settings else source
    return Config(source, settings)


# ---- stopping ----


class _Requests:
    """What the library polls while a job runs, and the signals that set it, as in the program. Outside of the main thread
    Python lets nobody catch signals; then only callbacks can ask."""

    def __init__(self) -> None:
        self.stop = ctypes.c_int(0)
        self.save = ctypes.c_int(0)
        self.signal = 0
        self.forward: Callable[[int], None] | None = None  # ranks that are processes of their own are told as well
        self._before: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> _Requests:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            now = signal.getsignal(number)
            # Of the others, handlers that somebody else has set stay. What is ignored stays so, as nohup wants it.
            if now == signal.SIG_DFL or (number == signal.SIGINT and now not in (None, signal.SIG_IGN)):
                self._before[number] = signal.signal(number, self._on_stop)
        if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            self._before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_save)
        self._watch()
        return self

    def _watch(self) -> None:
        """Python runs its handlers between two of its own instructions, which may be minutes away while the library
        computes. The number of a signal goes into a pipe at once, so a thread that waits there sees it first."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self._wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._pipe = (reader, writer)

        def wait() -> None:
            while True:
                numbers = os.read(reader, 64)
                if not numbers or 0 in numbers:
                    return
                for number in numbers:
                    if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) and number in self._before:
                        self.stop.value = number

        self._watcher = threading.Thread(target=wait, name="sluice signals", daemon=True)
        self._watcher.start()

    def _on_stop(self, number: int, frame: Any) -> None:
        if self.signal and number != signal.SIGHUP:  # whoever asks a second time means it
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.signal = number
        self.stop.value = number
        if self.forward is not None:
            self.forward(number)

    def _on_save(self, number: int, frame: Any) -> None:
        self.save.value = 1
        if self.forward is not None:
            self.forward(number)

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.write(self._pipe[1], b"\0")
            if self._watcher is not None:
                self._watcher.join()
            os.close(self._pipe[0])
            os.close(self._pipe[1])
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def finish(self, status: int, message: str, failure: BaseException | None) -> None:
        """Raises what a job that ended like this has to raise, if anything: what a callback raised, KeyboardInterrupt of
        Ctrl-C, or the status."""
        if failure is not None and not isinstance(failure, StopTraining):
            raise failure
        if status == header.sluice_status.SLUICE_ERR_STOPPED:
            if failure is not None:
                return
            if self.signal == signal.SIGINT:
                raise KeyboardInterrupt(message)
        if status != header.sluice_status.SLUICE_OK:
            raise error_of(status, message)


# ---- one job ----


@dataclass
class _Job:
    """A call of sluice_job_*: options, callbacks, and what came back."""

    config: Config
    take: Callable[[Event], None]  # told every event
    tell: Callable[[Event], None] = lambda event: None  # the caller's callbacks, until one fails
    failure: BaseException | None = None

    def run(self, function: Any, fields: Mapping[str, Any], file_field: str | None = None) -> tuple[int, str, str]:
        """Status, message and what was written. KeyboardInterrupt and the exceptions of callbacks are raised by
        `requests.finish`."""
        options = make(header.sluice_job_options)
        for name, value in fields.items():
            setattr(options, name, value)

        def on_event(_user: Any, pointer: Any) -> None:
            try:
                made = read_event(pointer.contents)
                if made is not None:
                    self.take(made)
                    if self.failure is None:
                        self.tell(made)
            except BaseException as e:  # it must not pass through C
                self.failure = e
                requests.stop.value = signal.SIGTERM

        callback = EVENT_FUNCTION(on_event)
        options.event = ctypes.cast(callback, type(options.event))
        options.log = log_callback
        with _Requests() as requests:
            options.stop = ctypes.pointer(requests.stop)
            options.save_request = ctypes.pointer(requests.save)

            def call(file: int | None) -> int:
                if file_field is not None:
                    setattr(options, file_field, file)
                with self.config._handle as pointer:
                    return int(function(pointer, ctypes.byref(options)))

            if file_field is None:
                status, text = call(None), ""
            else:
                status, text = text_of(call)
            message = last_error() if status else ""
        self.requests = requests
        return status, message, text

    requests: _Requests = field(default_factory=_Requests)


# What a caller cannot set by name: callbacks and files are the package's.
_OWN_FIELDS = (
    "size", "event", "user", "plan_out", "out", "json", "stop", "save_request", "log", "log_user", "in", "world",
)  # fmt: skip


def _more_fields(function: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of sluice_job_options by their names, texts as C takes them."""
    options = header.sluice_job_options()
    fill(options, more, function, _OWN_FIELDS)
    return {k: text_as_c(options, k, v) for k, v in more.items() if v is not None}


# ---- plan ----


@dataclass(frozen=True)
class Plan:
    """What a run would need, without running it. Where it does not fit, `fits` is False, `verdict` says what is missing and
    what would help, and the numbers are 0 or NaN."""

    fits: bool
    verdict: str
    text: str
    memory: Memory = Memory(0, 0, 0)
    overhead_bytes: int = 0
    step_seconds: float = math.nan
    parameters: int = 0
    ranks: int = 0
    stage: int = 0
    tokens_per_second: float = math.nan
    mfu: float = math.nan
    event: PlanEvent | None = None

    def __str__(self) -> str:
        return self.text or self.verdict

    def __repr__(self) -> str:
        return f"<Plan: {self.verdict}>"

    def _repr_html_(self) -> str:
        if not self.fits:
            return f"<b>does not fit</b><pre>{html.escape(self.verdict)}</pre>"
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td style='text-align:right'>{html.escape(value)}</td></tr>"
            for name, value in (
                ("parameters", f"{self.parameters:,}"),
                ("device memory", _bytes(self.memory.device)),
                ("host memory", _bytes(self.memory.host)),
                ("disk", _bytes(self.memory.disk)),
                ("outside the arenas", _bytes(self.overhead_bytes)),
                ("expected step", f"{self.step_seconds:.4g} s"),
            )
        )
        return f"<table>{rows}</table><details><summary>plan</summary><pre>{html.escape(self.text)}</pre></details>"


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} B" if unit == "B" else f"{n:.2f} {unit}"
        n /= 1024
    return ""


def plan(
    config: ConfigLike,
    *,
    ranks: int = 0,
    machine: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    **more: Any,
) -> Plan:
    """Memory, transfers and expected time of a run. `ranks`: for so many; `machine`: a file that describes a machine that is
    not here. A run that does not fit is an answer, not an exception. `more`: other fields of sluice_job_options in the
    header that plans take, by name."""
    seen: list[PlanEvent] = []
    job = _Job(_config(config, settings), lambda e: seen.append(e) if isinstance(e, PlanEvent) else None)
    fields = {"ranks": ranks, "machine": encode(machine) if machine is not None else None, **_more_fields("plan", more)}
    status, message, text = job.run(lib.sluice_job_plan, fields, "out")
    try:
        job.requests.finish(status, message, job.failure)
    except NoFitError as refusal:
        return Plan(False, str(refusal), "")
    p = seen[-1]
    return Plan(
        True, text.splitlines()[0] if text else "fits", text, p.peak_bytes, p.overhead_bytes, p.step_seconds,
        p.parameters, p.ranks, p.stage, p.tokens_per_second, p.mfu, p,
    )  # fmt: skip


# ---- train ----


@dataclass(repr=False)
class Run:
    """A run that is over, or was stopped by StopTraining."""

    steps: int = 0
    loss: float = math.nan  # of the newest step
    stopped: bool = False
    resumed_from: int = 0
    plan: PlanEvent | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    end: End | None = None

    @property
    def weights_sha256(self) -> str:
        return self.end.weights_sha256 if self.end is not None else ""

    @property
    def state_sha256(self) -> str:
        return self.end.state_sha256 if self.end is not None else ""

    @property
    def peak(self) -> Memory:
        return self.end.peak_bytes if self.end is not None else Memory(0, 0, 0)

    def __repr__(self) -> str:
        """One line: what was seen of every step and evaluation is in the fields."""
        told = [f"{self.steps} steps", f"loss {self.loss:.6g}"]
        if self.resumed_from:
            told.insert(1, f"resumed from {self.resumed_from}")
        if self.evaluations:
            told.append(f"validation loss {self.evaluations[-1].loss:.6g}")
        if self.saved:
            told.append(f"saved {self.saved[-1].path}")
        return f"<Run: {', '.join(told)}{', stopped' if self.stopped else ''}>"

    def take(self, event: Event) -> None:
        if isinstance(event, Step):
            self.steps, self.loss = event.step, event.loss
        elif isinstance(event, PlanEvent):
            self.plan = event
        elif isinstance(event, Resumed):
            self.resumed_from = self.steps = event.step
        elif isinstance(event, Evaluation):
            self.evaluations.append(event)
        elif isinstance(event, Saved):
            self.saved.append(event)
        elif isinstance(event, End):
            self.end = event
            self.steps = event.steps


def train(
    config: ConfigLike,
    *,
    resume: bool = False,
    on_step: Callable[[Step], Any] | None = None,
    on_event: Callable[[Event], Any] | None = None,
    progress: bool | None = None,
    ranks: int = 1,
    world: World | None = None,
    machine: str | os.PathLike[str] | None = None,
    trace: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    **more: Any,
) -> Run:
    """Trains as `sluice train` does, to the same bits, and returns when the run is over.

    `on_step` gets every Step, `on_event` all that happens. What they raise ends the run after a checkpoint and is raised
    here; StopTraining ends it as well, and the Run is returned. Ctrl-C saves and raises KeyboardInterrupt.
    `progress`: None draws on terminals and in notebooks; False never. `ranks` above 1 starts as many processes on this
    machine; under mpirun give `world=World()`. `more`: other fields of sluice_job_options in the header that training takes,
    by name."""
    ranks = whole("train: ranks", ranks, ctypes.c_int, 1)
    made = _config(config, settings)
    run = Run()
    drawn = make_progress(progress)

    def tell(event: Event) -> None:
        if drawn is not None:
            drawn.tell(event)
        if on_event is not None:
            on_event(event)
        if on_step is not None and isinstance(event, Step):
            on_step(event)

    try:
        if ranks > 1:
            if world is not None:
                raise UsageError("train: give ranks or world, not both")
            _train_in_processes(made, run, tell, ranks, {"resume": resume, "machine": machine, "trace": trace, **more})
            return run
        job = _Job(made, run.take, tell)
        fields: dict[str, Any] = {"resume": resume, **_more_fields("train", more)}
        if machine is not None:
            fields["machine"] = encode(machine)
        if trace is not None:
            fields["trace"] = encode(trace)
        if world is not None:
            fields["world"] = world._handle._pointer
        status, message, _ = job.run(lib.sluice_job_train, fields)
        run.stopped = status == header.sluice_status.SLUICE_ERR_STOPPED
        job.requests.finish(status, message, job.failure)
        return run
    finally:
        if drawn is not None:
            drawn.close()


# ---- ranks as processes ----


def program() -> str:
    """The program `sluice` of this package, or the one in PATH."""
    named = os.environ.get("SLUICE_PROGRAM")
    inside = FOLDER / "bin" / "sluice"
    return named or (str(inside) if inside.exists() else "sluice")


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def _train_in_processes(
    config: Config,
    run: Run,
    tell: Callable[[Event], None],
    ranks: int,
    options: Mapping[str, Any],
) -> None:
    """The program starts and watches the ranks; its lines become events. Threads of this process, such as NumPy's, rule
    out starting them here."""
    failure: BaseException | None = None
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        arguments = [program(), "train", *config._arguments(folder), "--json", "--ranks", str(ranks)]
        for name, value in options.items():
            option = "--" + name.replace("_", "-")
            if value is True:
                arguments.append(option)
            elif value is not None and value is not False:
                arguments += [option, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace", dir=folder)
        steps = _planned_steps(config)
        with errors, _Requests() as requests:
            process = subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
            requests.forward = process.send_signal
            with process:
                for line in _lines(process):
                    event = read_json(line, steps)
                    if event is None:
                        continue
                    run.take(event)
                    try:
                        if failure is None:
                            tell(event)
                    except BaseException as e:
                        failure = e
                        process.send_signal(signal.SIGTERM)
            errors.seek(0)
            message = _messages(errors.read())
    status = process.returncode
    run.stopped = status == header.sluice_status.SLUICE_ERR_STOPPED
    requests.finish(status if status >= 0 else 1, message or f"the program ended with status {status}", failure)


def _planned_steps(config: Config) -> int:
    """Of a run that is counted in steps; 0 where epochs decide."""
    try:
        found = config.get("steps")
    except Error:
        return 0
    return found if isinstance(found, int) else 0


def _messages(text: str) -> str:
    """Notes go to the log; the rest is what went wrong."""
    wrong: list[str] = []
    for line in text.splitlines():
        plain = line.removeprefix("sluice: ")
        if plain.startswith("warning: "):
            LOG.warning("%s", plain.removeprefix("warning: "))
        elif plain.startswith(("note: ", "chosen: ")):
            LOG.info("%s", plain.removeprefix("note: "))
        else:
            wrong.append(plain)
    return "\n".join(wrong)


# ---- evaluate, generate ----


def evaluate(
    config: ConfigLike,
    *,
    weights: str | os.PathLike[str] | None = None,
    best: bool = False,
    predictions: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
) -> Evaluation:
    """How good trained weights are on the validation data. `weights`: a safetensors file; None: the newest checkpoint, with
    `best` the best one, or what the configuration's "save" names. `predictions`: a .csv or .jsonl file to write."""
    seen: list[Evaluation] = []
    job = _Job(_config(config, settings), lambda e: seen.append(e) if isinstance(e, Evaluation) else None)
    fields: dict[str, Any] = {"best": best, "json": True}
    if weights is not None:
        fields["weights"] = encode(weights)
    if predictions is not None:
        fields["predictions"] = encode(predictions)
    status, message, _ = job.run(lib.sluice_job_eval, fields, "out")
    job.requests.finish(status, message, job.failure)
    return seen[-1]


class Sampling(TypedDict, total=False):
    """How generate writes. What is left out is as the model's folder has it, or the program's default."""

    tokens: int  # of a reply at most; 100
    temperature: float  # 0: the most likely token
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    stop: Sequence[str]  # texts that end a reply and are not part of it
    chat: bool  # prompts are what a user says, written as the model's chat template has it
    system: str  # chat: what stands before the conversation
    weights: Union[str, "os.PathLike[str]"]  # a safetensors file; else the newest checkpoint, or what "save" names
    best: bool  # the best checkpoint, not the newest
    settings: Settings  # keys of the configuration


_FROM_FOLDER = {
    "temperature": header.SLUICE_FOLDER_TEMPERATURE,
    "top_k": header.SLUICE_FOLDER_TOP_K,
    "top_p": header.SLUICE_FOLDER_TOP_P,
    "min_p": header.SLUICE_FOLDER_MIN_P,
    "repetition_penalty": header.SLUICE_FOLDER_REPETITION_PENALTY,
}


def _sampling_fields(given: Sampling) -> dict[str, Any]:
    known = [k for k in Sampling.__annotations__ if k != "settings"]
    unknown = [k for k in given if k not in Sampling.__annotations__]
    if unknown:
        raise UsageError(f"generate: there is no option {unknown[0]!r}; there are {', '.join(known)}, settings")
    fields: dict[str, Any] = {"tokens": 100}
    for name, value in given.items():
        if name in ("settings", "stop"):
            continue
        fields[name] = encode(value) if isinstance(value, (str, os.PathLike)) else value
    fields["from_folder"] = sum(bit for name, bit in _FROM_FOLDER.items() if name not in given)
    stop = given.get("stop", ())
    if stop:
        texts = (ctypes.c_char_p * len(stop))(*(encode(s) for s in stop))
        fields["stops"] = ctypes.cast(texts, ctypes.POINTER(ctypes.c_char_p))
        fields["stop_count"] = len(stop)
    return fields


@overload
def generate(config: ConfigLike, prompt: str, **sampling: Unpack[Sampling]) -> str: ...


@overload
def generate(config: ConfigLike, prompt: list[str] | tuple[str, ...], **sampling: Unpack[Sampling]) -> list[str]: ...


def generate(
    config: ConfigLike, prompt: str | list[str] | tuple[str, ...], **sampling: Unpack[Sampling]
) -> str | list[str]:
    """Text of a language model: a string for one prompt, a list for several. Options are those of Sampling."""
    fields = _sampling_fields(sampling)
    job = _Job(_config(config, sampling.get("settings")), lambda event: None)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        file = Path(folder) / "prompts.jsonl"
        file.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts), encoding="utf-8")
        fields["prompts"] = encode(file)
        status, message, text = job.run(lib.sluice_job_generate, fields, "out")
    job.requests.finish(status, message, job.failure)
    replies = [str(json.loads(line).get("text", "")) for line in text.splitlines() if line.startswith("{")]
    if len(replies) != len(prompts):
        raise InputError(f"{len(replies)} replies to {len(prompts)} prompts: {text[:200]!r}")
    return replies[0] if isinstance(prompt, str) else replies
