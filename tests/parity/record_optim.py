"""Records what PyTorch's and DeepSpeed's optimizers and schedules do, for tests/optim.

    python record_optim.py optim.json            (needs torch and deepspeed; nothing of sluice)
    python record_optim.py optim.json RMSprop    (needs torch: the trajectories of this kind anew, the rest stays)

Trajectories run in float64 from float32 inputs that both sides compute from a hash, so that the record is the mathematics and the
test measures sluice's rounding alone. SGD, Adagrad, Adam, AdamW and RMSprop are torch.optim itself. DeepSpeed's LAMB needs a GPU, its Lion a
compiler and float32, and LARS is in neither, so these three are restated below; where DeepSpeed's CPU Lion can be built, the
restatement is first checked against it. Schedules are DeepSpeed's classes, driven as its engine drives them: the rate of a training
step is what the optimizer holds when optimizer.step() runs, and scheduler.step() follows.
"""

import json
import logging
import math
import sys

import torch

STEPS = 20
SAMPLES = 8
PARAMETERS = [("a.scale", [1]), ("a.bias", [77]), ("a.weight", [25, 41]), ("b.weight", [50, 100])]


def hashed(seed, count):
    """count floats in [-1, 1), exact in float32: the same integer hash as in tests/optim."""
    i = torch.arange(count, dtype=torch.int64)
    mask = 0xFFFFFFFF
    h = (seed * 0x9E3779B1 + i * 0x85EBCA77) & mask
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & mask
    h = ((h ^ (h >> 15)) * 0x846CA68B) & mask
    h = h ^ (h >> 16)
    return (h >> 8).to(torch.float64) * 2.0**-23 - 1.0


def elements(dims):
    return math.prod(dims)


def initial(p):
    return hashed(p + 1, elements(PARAMETERS[p][1])) * 0.5


def gradient(t, p):
    return hashed(1000 + 8 * t + p, elements(PARAMETERS[p][1])) * 2.0**-(t % 3)


def sampled(x):
    n = x.numel()
    k = min(n, SAMPLES)
    return [float(x[j * (n - 1) // (k - 1) if k > 1 else 0]) for j in range(k)]


def projection(x):
    """One number in which every element counts."""
    return float((x * hashed(77, x.numel())).sum())


class Lamb(torch.optim.Optimizer):
    """deepspeed.ops.lamb.FusedLamb, restated from its kernel: eps_mode 1, bias correction on."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, max_coeff=10.0, min_coeff=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_coeff=max_coeff, min_coeff=min_coeff))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                update = state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"]) + group["weight_decay"] * p
                w, u = p.norm(), update.norm()
                coeff = 1.0
                if w != 0 and u != 0:
                    coeff = min(max(float(w / u), group["min_coeff"]), group["max_coeff"])
                size = group["lr"] * math.sqrt(1 - beta2**state["step"]) / (1 - beta1**state["step"])
                p.sub_(size * coeff * update)


class Lars(torch.optim.Optimizer):
    """You, Gitman, Ginsburg 2017, algorithm 1: the rate is inside the momentum."""

    def __init__(self, params, lr=1e-3, momentum=0.9, weight_decay=0.0, trust=0.001):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                w, g = p.norm(), p.grad.norm()
                local = 1.0
                if w != 0 and g != 0:
                    local = group["trust"] * w / (g + group["weight_decay"] * w)
                d = group["lr"] * local * (p.grad + group["weight_decay"] * p)
                if group["momentum"] != 0:
                    state = self.state[p]
                    if not state:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    d = state["momentum_buffer"].mul_(group["momentum"]).add_(d)
                p.sub_(d)


class Lion(torch.optim.Optimizer):
    """deepspeed.ops.lion."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                c = beta1 * state["exp_avg"] + (1 - beta1) * p.grad
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * c.sign())
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)


# Per kind: constructor, its state in sluice's slot order, and how sluice's fields are named there.
KINDS = {
    "SGD": (torch.optim.SGD, ["momentum_buffer"], {}),
    "Adagrad": (torch.optim.Adagrad, ["sum"], {"epsilon": "eps"}),
    "Adam": (torch.optim.Adam, ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"], {"epsilon": "eps"}),
    "AdamW": (torch.optim.AdamW, ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"], {"epsilon": "eps"}),
    "LAMB": (Lamb, ["exp_avg", "exp_avg_sq"], {"epsilon": "eps", "min_trust": "min_coeff", "max_trust": "max_coeff"}),
    "LARS": (Lars, ["momentum_buffer"], {}),
    "Lion": (Lion, ["exp_avg"], {}),
    "RMSprop": (torch.optim.RMSprop, ["square_avg", "momentum_buffer", "grad_avg"], {"epsilon": "eps", "beta2": "alpha"}),
}

NO_DECAY_FIRST = [dict(pattern="no_decay", lr_scale=1.0, weight_decay=-1.0)]
TWO_GROUPS = [dict(pattern="*.bias", lr_scale=2.0, weight_decay=0.0), dict(pattern="b.*", lr_scale=0.5, weight_decay=0.3)]

CASES = [
    # name, kind, sluice's fields that differ from the defaults, clip, groups
    ("sgd", "SGD", dict(lr=0.1), 0, []),
    ("sgd with decay", "SGD", dict(lr=0.1, weight_decay=0.01), 0, []),
    ("sgd momentum", "SGD", dict(lr=0.05, momentum=0.9), 0, []),
    ("sgd dampening", "SGD", dict(lr=0.05, momentum=0.8, dampening=0.5, weight_decay=0.02), 0, []),
    ("sgd nesterov", "SGD", dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.02), 0, []),
    ("sgd nesterov clipped in groups", "SGD", dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1), 15, TWO_GROUPS),
    ("adagrad", "Adagrad", dict(), 0, []),
    ("adagrad clipped with decay", "Adagrad", dict(lr=0.05, weight_decay=0.1, epsilon=1e-6), 15, []),
    ("adam", "Adam", dict(), 0, []),
    ("adam with decay", "Adam", dict(lr=0.01, weight_decay=0.1), 0, []),
    ("adam amsgrad", "Adam", dict(lr=0.01, amsgrad=True, weight_decay=0.05, beta1=0.8, beta2=0.9), 0, []),
    ("adam clipped", "Adam", dict(lr=0.01, epsilon=1e-6), 15, []),
    ("adamw", "AdamW", dict(), 0, []),
    ("adamw amsgrad", "AdamW", dict(lr=0.01, amsgrad=True, weight_decay=0.2, beta2=0.9), 0, []),
    ("adamw clipped", "AdamW", dict(lr=0.01, beta1=0.8, beta2=0.95, epsilon=1e-6), 15, []),
    ("adamw without decay on norms and biases", "AdamW", dict(lr=0.01, weight_decay=0.3), 0, NO_DECAY_FIRST),
    ("adamw clipped in groups", "AdamW", dict(lr=0.01, weight_decay=0.1), 15, TWO_GROUPS),
    ("lamb", "LAMB", dict(lr=0.01), 0, []),
    ("lamb clipped with decay", "LAMB", dict(lr=0.01, weight_decay=0.1), 15, []),
    ("lamb in groups", "LAMB", dict(lr=0.02, weight_decay=0.01), 0, TWO_GROUPS),
    ("lamb at its bounds", "LAMB", dict(lr=0.01, min_trust=0.25, max_trust=0.3), 0, []),
    ("lars", "LARS", dict(lr=1.0), 0, []),
    ("lars clipped with decay", "LARS", dict(lr=2.0, weight_decay=0.01, trust=0.02), 15, []),
    ("lars without momentum in groups", "LARS", dict(lr=5.0, momentum=0.0, weight_decay=0.05), 0, TWO_GROUPS),
    ("lion", "Lion", dict(), 0, []),
    ("lion clipped with decay", "Lion", dict(lr=0.01, weight_decay=0.1, beta1=0.95, beta2=0.98), 15, []),
    ("rmsprop", "RMSprop", dict(), 0, []),
    ("rmsprop clipped with decay", "RMSprop", dict(lr=0.005, beta2=0.9, epsilon=1e-6, weight_decay=0.1), 15, []),
    ("rmsprop momentum in groups", "RMSprop", dict(lr=0.005, momentum=0.9, weight_decay=0.1), 0, TWO_GROUPS),
    ("rmsprop centered", "RMSprop", dict(lr=0.005, centered=True), 0, []),
    ("rmsprop centered momentum", "RMSprop", dict(lr=0.002, beta2=0.95, momentum=0.8, centered=True, weight_decay=0.05), 15, []),
]


def constructor_arguments(kind, fields):
    names = KINDS[kind][2]
    arguments = {names.get(k, k): v for k, v in fields.items() if k in names or k not in ("beta1", "beta2")}
    if "beta2" not in names and ("beta1" in fields or "beta2" in fields):
        arguments["betas"] = (fields.get("beta1", 0.9), fields.get("beta2", 0.999))
    return arguments


def make_groups(parameters, kind, arguments, groups):
    """torch's parameter groups from sluice's: the first pattern that matches takes a parameter."""
    import fnmatch
    probe = KINDS[kind][0]([torch.zeros(1, dtype=torch.float64)], **arguments)
    lr, decay = probe.defaults["lr"], probe.defaults["weight_decay"]
    made = [dict(params=[]) for _ in range(len(groups) + 1)]
    for (name, dims), p in zip(PARAMETERS, parameters):
        taken = len(groups)
        for i, g in enumerate(groups):
            if len(dims) < 2 if g["pattern"] == "no_decay" else fnmatch.fnmatchcase(name, g["pattern"]):
                taken = i
                break
        made[taken]["params"].append(p)
    for g, m in zip(groups, made):
        inherited = 0.0 if g["pattern"] == "no_decay" else decay
        m.update(lr=lr * g["lr_scale"], weight_decay=inherited if g["weight_decay"] < 0 else g["weight_decay"])
    return [m for m in made if m["params"]]


def trajectory(name, kind, fields, clip, groups, schedule=None):
    parameters = [torch.nn.Parameter(initial(p)) for p in range(len(PARAMETERS))]
    arguments = constructor_arguments(kind, fields)
    optimizer = KINDS[kind][0](make_groups(parameters, kind, arguments, groups), **arguments)
    scheduler = schedule(optimizer) if schedule else None
    norms, first = [], None
    for t in range(1, STEPS + 1):
        for i, p in enumerate(parameters):
            p.grad = gradient(t, i)
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, clip if clip > 0 else math.inf)))
        optimizer.step()
        if scheduler:
            scheduler.step()
        if t == 1:
            first = [sampled(p.detach()) for p in parameters]
    slots = [s for s in KINDS[kind][1] if s in optimizer.state[parameters[0]] and optimizer.state[parameters[0]][s] is not None]
    state = [[optimizer.state[p][s].detach() for p in parameters] for s in slots]
    return dict(
        name=name, kind=kind, fields=fields, clip=clip, groups=groups, norms=norms, first=first,
        last=[sampled(p.detach()) for p in parameters], last_projection=[projection(p.detach()) for p in parameters],
        slots=slots, state=[[sampled(x) for x in s] for s in state], state_projection=[[projection(x) for x in s] for s in state])


def check_lion_against_deepspeed():
    """Returns what to write about it; raises where the restatement is wrong."""
    try:
        from deepspeed.ops.lion import DeepSpeedCPULion
        theirs = torch.nn.Parameter(initial(3).float())
        optimizer = DeepSpeedCPULion([theirs], lr=0.01, betas=(0.95, 0.98), weight_decay=0.1)
    except Exception as error:  # no compiler, no build: the record says so
        return "not checked: %s" % type(error).__name__
    ours = torch.nn.Parameter(initial(3))
    reference = Lion([ours], lr=0.01, betas=(0.95, 0.98), weight_decay=0.1)
    for t in range(1, STEPS + 1):
        ours.grad, theirs.grad = gradient(t, 3), gradient(t, 3).float()
        reference.step()
        optimizer.step()
    difference = float((ours.detach() - theirs.detach().double()).abs().max())
    if difference > 1e-6:
        raise SystemExit("Lion differs from DeepSpeed's by %g" % difference)
    return "within %.1e of DeepSpeedCPULion" % difference


def adam_with(scheduler_class, **params):
    return lambda optimizer: scheduler_class(optimizer, **params)


def sequence(kind, base_lr, steps, params):
    """Rate and beta1 that the optimizer holds at each training step."""
    from deepspeed.runtime import lr_schedules
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([p], lr=base_lr, betas=(0.9, 0.999))
    scheduler = getattr(lr_schedules, kind)(optimizer, **params)
    rates, momenta = [], []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["betas"][0])
        p.grad = torch.zeros(1)
        optimizer.step()
        scheduler.step()
    cycled = kind == "OneCycle" and params.get("cycle_momentum", True)
    return dict(kind=kind, base_lr=base_lr, params=params, lr=rates, momentum=momenta if cycled else [])


SCHEDULES = [
    ("WarmupLR", 0.01, 30, dict(warmup_num_steps=10)),
    ("WarmupLR", 0.01, 30, dict(warmup_num_steps=10, warmup_type="linear", warmup_min_lr=0.001, warmup_max_lr=0.02)),
    ("WarmupLR", 0.01, 6, dict(warmup_num_steps=1)),
    ("WarmupLR", 0.01, 12, dict()),
    ("WarmupDecayLR", 0.01, 40, dict(total_num_steps=30, warmup_num_steps=10)),
    ("WarmupDecayLR", 0.01, 40, dict(total_num_steps=30, warmup_num_steps=7, warmup_type="linear", warmup_max_lr=0.03, warmup_min_lr=0.002)),
    ("WarmupDecayLR", 0.01, 16, dict(total_num_steps=5, warmup_num_steps=10)),
    ("WarmupCosineLR", 0.01, 40, dict(total_num_steps=30, warmup_num_steps=10)),
    ("WarmupCosineLR", 0.01, 40, dict(total_num_steps=30, warmup_num_steps=5, warmup_type="linear", warmup_min_ratio=0.1, cos_min_ratio=0.05)),
    ("WarmupCosineLR", 0.01, 16, dict(total_num_steps=8, warmup_num_steps=10)),
    ("LRRangeTest", 0.01, 30, dict(lr_range_test_min_lr=1e-4, lr_range_test_step_size=5, lr_range_test_step_rate=2.0)),
    ("LRRangeTest", 0.01, 30, dict(lr_range_test_step_size=7, lr_range_test_staircase=True)),
    ("OneCycle", 0.01, 40, dict(cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=8)),
    ("OneCycle", 0.01, 60, dict(cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=8, cycle_second_step_size=13,
                                decay_step_size=4, decay_lr_rate=0.5, decay_mom_rate=0.01, cycle_min_mom=0.7, cycle_max_mom=0.95)),
    ("OneCycle", 0.01, 40, dict(cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=10, cycle_second_step_size=15,
                                cycle_first_stair_count=3, cycle_second_stair_count=5, cycle_momentum=False)),
    ("OneCycle", 0.01, 40, dict(cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=9, cycle_first_stair_count=4)),
]

LOSSES = [5.0, 4.0, 3.9999, 3.9998, 3.9, 3.95, 3.94, 3.93, 3.92, 3.8, 3.81, 3.82, 3.83, 3.84, 3.85, 3.86, 3.87, 3.88, 3.89, 3.9,
          3.0, 3.1, 3.2, math.nan, 3.3, 3.4, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9]
PLATEAUS = [
    (0.1, dict()),
    (0.1, dict(patience=2, factor=0.5)),
    (0.1, dict(patience=1, factor=0.3, cooldown=3, threshold=0.05, threshold_mode="abs")),
    (0.1, dict(patience=0, factor=0.1, min_lr=0.0007)),
    (1e-7, dict(patience=0, factor=0.5)),
]


def plateau(base_lr, params):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base_lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **params)
    rates = []
    for loss in LOSSES:
        scheduler.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    return dict(base_lr=base_lr, params=params, lr=rates)


def compact(x):
    """Numbers to 12 digits: a thousand times finer than any comparison made with them."""
    if isinstance(x, float):
        return None if math.isnan(x) else float("%.12g" % x)
    if isinstance(x, dict):
        return {k: compact(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [compact(v) for v in x]
    return x


def main(path):
    import deepspeed
    from deepspeed.runtime.lr_schedules import OneCycle
    from deepspeed.utils import logger
    logger.setLevel(logging.ERROR)
    cycle = dict(cycle_min_lr=0.002, cycle_max_lr=0.02, cycle_first_step_size=6, cycle_second_step_size=9, decay_step_size=2,
                 decay_lr_rate=0.5)
    cycled = trajectory("adamw in one cycle", "AdamW", dict(), 0, [], adam_with(OneCycle, **cycle))
    cycled["schedule"] = cycle
    record = dict(
        made_with=dict(torch=torch.__version__, deepspeed=deepspeed.__version__, lion=check_lion_against_deepspeed()),
        parameters=[dict(name=n, dims=d) for n, d in PARAMETERS], steps=STEPS, samples=SAMPLES,
        trajectories=[trajectory(*case) for case in CASES] + [cycled],
        schedules=[sequence(*s) for s in SCHEDULES], losses=LOSSES, plateaus=[plateau(*p) for p in PLATEAUS])
    write(record, path)


def renew(kind, path):
    """The trajectories of one kind in a record that exists; the others stay as they are."""
    with open(path) as file:
        record = json.load(file)
    kept = [t for t in record["trajectories"] if t["kind"] != kind or "schedule" in t]
    record["trajectories"] = kept + [trajectory(*case) for case in CASES if case[1] == kind]
    record["made_with"][kind] = "torch " + torch.__version__
    write(record, path)


def write(record, path):
    lines = []
    for key, value in compact(record).items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join("  " + json.dumps(v) for v in value)
            lines.append("%s: [\n%s\n]" % (json.dumps(key), rows))
        else:
            lines.append("%s: %s" % (json.dumps(key), json.dumps(value)))
    with open(path, "w") as out:  # not standard output: DeepSpeed writes there too
        out.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        renew(sys.argv[2], sys.argv[1])
    else:
        main(sys.argv[1])
