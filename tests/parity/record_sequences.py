"""Records twenty training steps of small models in PyTorch, as the reference for tests/train/sequence_parity_test.c: a speech network
(two GRUs, CTC loss), the one that model.type speech builds, a classifier of several labels (binary cross entropy with weights) and one with label smoothing.

Weights and data are formulas over integers that the C test repeats (README.md beside this file). It overwrites
sequence_losses.json beside itself:

    python record_sequences.py
"""

import json
import pathlib

import torch
import torch.nn.functional as F

STEPS = 20


def values(name, scale, *shape):
    """README.md's sequence of a name, in [-scale / 2, scale / 2)."""
    state, out = 2166136261, []
    for byte in name.encode():
        state = ((state ^ byte) * 16777619) & 0xFFFFFFFF
    for _ in range(int(torch.Size(shape).numel())):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(((state >> 8) / 16777216.0 - 0.5) * scale)
    return torch.tensor(out, dtype=torch.float64).float().reshape(shape)


class Model:
    """Parameters by name; a linear layer has two."""

    def __init__(self):
        self.parameters = {}

    def parameter(self, name, *shape):
        if name not in self.parameters:
            self.parameters[name] = values(name, 1.0, *shape).requires_grad_()
        return self.parameters[name]

    def linear(self, x, out, name):
        return F.linear(x, self.parameter(name + ".weight", out, x.shape[-1]), self.parameter(name + ".bias", out))


def speech(m):
    batch, frames, features, hidden, classes = 3, 20, 6, 8, 7
    lengths = torch.tensor([20, 15, 9])
    labels = torch.tensor([[1, 2, 2, 3, 0], [4, 5, 6, 6, 1], [3, 0, 0, 0, 0]])
    x = values("x", 4.0, batch, frames, features)
    gru = torch.nn.GRU(features, hidden, batch_first=True, bidirectional=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    given = {}
    for direction, suffix in (("f", ""), ("b", "_reverse")):
        given["weight_ih_l0" + suffix] = m.parameter(direction + ".ih.weight", 3 * hidden, features)
        given["bias_ih_l0" + suffix] = m.parameter(direction + ".ih.bias", 3 * hidden)
        given["weight_hh_l0" + suffix] = m.parameter(direction + ".hh.weight", 3 * hidden, hidden)
        given["bias_hh_l0" + suffix] = m.parameter(direction + ".hh.bias", 3 * hidden)
    states, _ = torch.func.functional_call(gru, given, (packed,))
    states, _ = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=frames)
    log_p = m.linear(states, classes, "head").log_softmax(-1)
    return F.ctc_loss(log_p.transpose(0, 1), labels, lengths, torch.tensor([4, 5, 1]), blank=0, reduction="mean")


def recogniser(m):
    """What model.type speech builds: convolutions, layer norms, GRUs in both directions, CTC loss."""
    batch, rows, bands, hidden, classes = 2, 24, 10, 5, 7
    lengths, channels = torch.tensor([12, 7]), 1
    x = values("x", 4.0, batch, rows, bands, 1).permute(0, 3, 1, 2)
    for i, (out, stride) in enumerate(((3, (2, 2)), (4, (1, 2)))):
        weight = m.parameter(f"conv{i + 1}.weight", out, channels, 3, 3)
        x, channels = F.relu(F.conv2d(x, weight, m.parameter(f"conv{i + 1}.bias", out), stride, 1)), out
    x = x.permute(0, 2, 3, 1).flatten(2)
    for i in (1, 2):
        width = x.shape[-1]
        x = F.layer_norm(x, (width,), m.parameter(f"norm{i}.weight", width), m.parameter(f"norm{i}.bias", width))
        gru = torch.nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        given = {name: m.parameter(f"rnn{i}.{name}", *p.shape) for name, p in gru.named_parameters()}
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        states, _ = torch.func.functional_call(gru, given, (packed,))
        x, _ = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=12)
    x = F.layer_norm(x, (2 * hidden,), m.parameter("norm.weight", 2 * hidden), m.parameter("norm.bias", 2 * hidden))
    log_p = m.linear(x, classes, "fc").log_softmax(-1)
    labels = torch.tensor([[1, 2, 2, 3, 4], [5, 6, 0, 0, 0]])
    return F.ctc_loss(log_p.transpose(0, 1), labels, lengths, torch.tensor([5, 2]), blank=0, reduction="mean")


def labels(m):
    y = m.linear(torch.tanh(m.linear(values("x", 4.0, 16, 5), 8, "fc1")), 3, "fc2")
    return F.binary_cross_entropy_with_logits(y, values("target", 1.0, 16, 3) + 0.5, values("weight", 2.0, 16, 3) + 1.0)


def smoothed(m):
    y = m.linear(values("x", 4.0, 12, 6), 10, "fc1").log_softmax(-1)
    target = torch.tensor([-100 if i % 4 == 3 else i % 10 for i in range(12)])
    return F.cross_entropy(y, target, label_smoothing=0.1)


def fused(m):
    y = F.linear(torch.tanh(m.linear(values("x", 4.0, 12, 6), 5, "fc1")), m.parameter("head", 10, 5))
    target = torch.tensor([-100 if i % 4 == 3 else i % 10 for i in range(12)])
    return F.cross_entropy(y, target, label_smoothing=0.25)


def record(build, lr):
    m, losses, norms = Model(), [], []
    for _ in range(STEPS):
        loss = build(m)
        gradients = torch.autograd.grad(loss, list(m.parameters.values()))
        losses.append(loss.item())
        norms.append(torch.sqrt(sum(g.double().pow(2).sum() for g in gradients)).item())
        with torch.no_grad():
            for p, g in zip(m.parameters.values(), gradients):
                p -= lr * g
    return {"lr": lr, "losses": losses, "gradient_norms": norms}


if __name__ == "__main__":
    runs = {"speech": record(speech, 0.5), "recogniser": record(recogniser, 0.1), "labels": record(labels, 0.5), "smoothed": record(smoothed, 0.25), "fused": record(fused, 0.25)}
    path = pathlib.Path(__file__).with_name("sequence_losses.json")
    path.write_text(json.dumps(runs, indent=1) + "\n")
    for name, run in runs.items():
        print(name, run["losses"][0], run["losses"][-1])
