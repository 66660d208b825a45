#!/usr/bin/env python3
"""Writes tests/fixtures/metrics/metric_cases.h: samples, and what scikit-learn makes of them.

    python scripts/metric_fixture.py > tests/fixtures/metrics/metric_cases.h
"""
import numpy as np
import sklearn
from sklearn import metrics as m

SAMPLES = 60
rng = np.random.default_rng(16)


def array(kind, name, values):
    flat = np.asarray(values).ravel()
    text = ", ".join(repr(float(x)) + "F" if kind == "float" else str(x) for x in flat)
    print(f"static const {kind} {name}[{flat.size}] = {{ {text} }};")


def number(name, value):
    print(f"static const double {name} = {float(value)!r};")


def softmax(z):
    e = np.exp(z.astype(np.float64) - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def classes(prefix, count, present):
    target = rng.integers(0, present, SAMPLES).astype(np.int32)
    logits = rng.normal(size=(SAMPLES, count)).astype(np.float32)
    logits[np.arange(SAMPLES), target] += 1.2
    logits = np.round(logits * 4) / 4  # equal scores, and classes as likely as others
    logits = logits.astype(np.float32)
    found = logits.argmax(1)
    array("float", f"{prefix}_logits", logits)
    array("int32_t", f"{prefix}_targets", target)
    number(f"{prefix}_accuracy", m.accuracy_score(target, found))
    number(f"{prefix}_log_loss", m.log_loss(target, softmax(logits), labels=range(count)))
    for name, score in (("precision", m.precision_score), ("recall", m.recall_score), ("f1", m.f1_score)):
        number(f"{prefix}_{name}_macro", score(target, found, average="macro", zero_division=0))
        array("double", f"{prefix}_{name}_each",
              score(target, found, average=None, labels=range(count), zero_division=0))
        if count == 2:
            number(f"{prefix}_{name}", score(target, found))
    if count == 2:
        number(f"{prefix}_auc", m.roc_auc_score(target, logits[:, 1] - logits[:, 0]))
    array("int", f"{prefix}_confusion", m.confusion_matrix(target, found, labels=range(count)))


def values():
    # a mean far above the spread: the variance is what little the squares leave
    target = (1000 + rng.normal(size=(SAMPLES, 3)) * [0.05, 1, 20]).astype(np.float32)
    value = (target + rng.normal(size=target.shape) * 0.02).astype(np.float32)
    array("float", "value_values", value)
    array("float", "value_targets", target)
    value, target = value.astype(np.float64), target.astype(np.float64)
    number("value_mae", m.mean_absolute_error(target, value))
    number("value_rmse", np.sqrt(m.mean_squared_error(target, value)))
    number("value_r2", m.r2_score(target, value))


print("/* metric_cases.h: made by scripts/metric_fixture.py with scikit-learn " + sklearn.__version__ + ". */")
print("/* clang-format off */")
print(f"enum {{ CASE_SAMPLES = {SAMPLES} }};")
classes("many", 5, 4)  # nobody is of the fifth class
classes("two", 2, 2)
values()
print("/* clang-format on */")
