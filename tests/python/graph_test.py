"""graph_test.py: networks built in Python."""

from __future__ import annotations

import inspect
import unittest
from typing import Any, Callable

import sluice
from helpers import small_graph
from sluice._ops import GraphOps, TensorOps


def weights(g: sluice.Graph, name: str, *shape: int) -> sluice.Tensor:
    return g.parameter(name, shape, "normal", 0.1)


class Values:
    """One of every kind of operand."""

    def __init__(self) -> None:
        self.g = g = sluice.Graph()
        self.x = g.input("x", (4, 6))
        self.y = g.input("y", (4, 6))
        self.images = g.input("images", (2, 8, 8, 4))
        self.sequence = g.input("sequence", (2, 5, 16))
        self.ids = g.input("ids", (4,), "i32")
        self.labels = g.input("labels", (2, 2), "i32")
        self.lengths = g.input("lengths", (2,), "i32")
        self.positions = g.input("positions", (2, 5), "i32")
        self.ends = g.input("ends", (2,), "i32")
        self.table = weights(g, "table", 10, 6)
        self.matrix = weights(g, "matrix", 3, 6)
        self.bias = weights(g, "bias", 3)
        self.gain = weights(g, "gain", 6)
        self.head = weights(g, "head", 4)
        self.kernel = weights(g, "kernel", 8, 4, 3, 3)
        self.recurrent = weights(g, "recurrent", 9, 3)
        self.recurrent_bias = weights(g, "recurrent_bias", 9)
        self.gates = g.input("gates", (2, 5, 9))


# A call of every builder, and the shape of what it gives.
CALLS: dict[str, tuple[Callable[[Values], sluice.Tensor], tuple[int, ...]]] = {
    "add": (lambda v: v.g.add(v.x, v.y), (4, 6)),
    "subtract": (lambda v: v.g.subtract(v.x, v.y), (4, 6)),
    "multiply": (lambda v: v.g.multiply(v.x, v.y), (4, 6)),
    "scale": (lambda v: v.g.scale(v.x, 2.0), (4, 6)),
    "linear": (lambda v: v.g.linear(v.x, 5, "fc"), (4, 5)),
    "linear_with": (lambda v: v.g.linear_with(v.x, v.matrix, v.bias), (4, 3)),
    "matmul": (lambda v: v.g.matmul(v.x, v.y, transpose_b=True), (4, 4)),
    "embedding": (lambda v: v.g.embedding(v.ids, v.table), (4, 6)),
    "bag": (lambda v: v.g.bag(v.x, v.ends, mean=True), (2, 6)),
    "embedding_bag": (lambda v: v.g.embedding_bag(v.ids, v.ends, v.table), (2, 6)),
    "conv2d": (lambda v: v.g.conv2d(v.images, v.kernel, stride=2, padding=(1, 1)), (2, 4, 4, 8)),
    "max_pool2d": (lambda v: v.g.max_pool2d(v.images, kernel=2), (2, 4, 4, 4)),
    "avg_pool2d": (lambda v: v.g.avg_pool2d(v.images, kernel=(2, 4)), (2, 4, 2, 4)),
    "global_avg_pool": (lambda v: v.g.global_avg_pool(v.images), (2, 4)),
    "flatten": (lambda v: v.g.flatten(v.images), (2, 256)),
    "relu": (lambda v: v.g.relu(v.x), (4, 6)),
    "gelu": (lambda v: v.g.gelu(v.x, exact=False), (4, 6)),
    "silu": (lambda v: v.g.silu(v.x), (4, 6)),
    "tanh": (lambda v: v.g.tanh(v.x), (4, 6)),
    "sigmoid": (lambda v: v.g.sigmoid(v.x), (4, 6)),
    "swiglu": (lambda v: v.g.swiglu(v.x), (4, 3)),
    "geglu": (lambda v: v.g.geglu(v.x), (4, 3)),
    "softcap": (lambda v: v.g.softcap(v.x, 30.0), (4, 6)),
    "softmax": (lambda v: v.g.softmax(v.x), (4, 6)),
    "log_softmax": (lambda v: v.g.log_softmax(v.x), (4, 6)),
    "layer_norm": (lambda v: v.g.layer_norm(v.x, v.gain), (4, 6)),
    "rms_norm": (lambda v: v.g.rms_norm(v.x, v.gain, offset=1.0), (4, 6)),
    "batch_norm": (lambda v: v.g.batch_norm(v.images, "bn", relu=True, residual=v.images), (2, 8, 8, 4)),
    "group_norm": (lambda v: v.g.group_norm(v.images, 2, "gn"), (2, 8, 8, 4)),
    "qk_norm": (lambda v: v.g.qk_norm(v.sequence, v.head, v.head, 2, 1), (2, 5, 16)),
    "rotary": (lambda v: v.g.rotary(v.sequence, v.positions, heads=2, head_width=4, scaling="linear", factor=2.0), (2, 5, 16)),
    "attention": (lambda v: v.g.attention(v.sequence, heads=2, kv_heads=1, window=3), (2, 5, 8)),
    "dropout": (lambda v: v.g.dropout(v.x, 0.1), (4, 6)),
    "reshape": (lambda v: v.g.reshape(v.x, (2, -1)), (2, 12)),
    "split": (lambda v: v.g.split(v.x, 1, 2, 3), (4, 3)),
    "add_part": (lambda v: v.g.add_part(v.x, v.y[:, 0:2], 1, 3), (4, 6)),
    "concat": (lambda v: v.g.concat([v.x, v.y], 0), (8, 6)),
    "cross_entropy": (lambda v: v.g.cross_entropy(v.x, v.ids, smoothing=0.1), ()),
    "linear_cross_entropy": (lambda v: v.g.linear_cross_entropy(v.x, v.matrix, v.ids, v.bias), ()),
    "mse": (lambda v: v.g.mse(v.x, v.y), ()),
    "bce_with_logits": (lambda v: v.g.bce_with_logits(v.x, v.y), ()),
    "gru": (lambda v: v.g.gru(v.gates, v.recurrent, v.recurrent_bias, v.lengths, reverse=True), (2, 5, 3)),
    "ctc_loss": (lambda v: v.g.ctc_loss(v.gates, v.labels, v.lengths), ()),
    "sum": (lambda v: v.g.sum(v.x), ()),
    "mean": (lambda v: v.g.mean(v.x), ()),
}  # fmt: skip


def methods(of: type) -> set[str]:
    return {n for n, _ in inspect.getmembers(of, inspect.isfunction) if not n.startswith("_")}


class Graphs(unittest.TestCase):
    def test_every_builder_builds_what_it_says(self) -> None:
        self.assertEqual(methods(GraphOps), set(CALLS))
        for name, (call, shape) in CALLS.items():
            made = call(Values())
            self.assertEqual(made.shape, shape, name)

    def test_tensors_have_the_builders_as_methods(self) -> None:
        self.assertEqual(methods(GraphOps) - methods(TensorOps), {"concat"})
        v = Values()
        self.assertEqual(v.x.linear(5, "fc").relu().shape, (4, 5))
        self.assertEqual(v.images.conv2d(v.kernel, padding=1).shape, (2, 8, 8, 8))
        self.assertEqual(v.sequence.attention(heads=2, kv_heads=1).shape, (2, 5, 8))

    def test_operators_and_slices_build(self) -> None:
        v = Values()
        self.assertEqual((v.x + v.y * 2.0 - v.x / 3).shape, (4, 6))
        self.assertEqual((2.0 * -v.x).shape, (4, 6))
        self.assertEqual((v.x @ v.y.transpose((1, 0))).shape, (4, 4))
        self.assertEqual(v.x[1:3, -2:].shape, (2, 2))
        self.assertEqual(v.sequence[..., 4:8].shape, (2, 5, 4))
        self.assertEqual(v.x[:].shape, (4, 6))
        self.assertIn("linear", str(small_graph()))

    def test_a_mistake_raises_at_its_line_with_the_librarys_message(self) -> None:
        mistakes: list[tuple[Callable[[Values], Any], str]] = [
            (lambda v: v.x @ v.y, "matmul"),
            (lambda v: v.x.reshape((5, 5)), "reshape"),
            (lambda v: v.g.input("x", (3,)), "there is one of this name already"),
            (lambda v: v.g.parameter("p", (2,), "orthogonal"), "'orthogonal' is not one of zero, one, normal, uniform"),
            (lambda v: v.g.input("z", (3,), "f64"), "'f64' is not one of f32, i32"),
            (lambda v: v.x.transpose((0, 1, 2)), "is no order of the dimensions of [4, 6]"),
            (lambda v: v.x[0], "takes slices of step 1"),
            (lambda v: v.x.linear(4, ""), "needs a name"),
            (lambda v: v.x.linear("four", "fc"), "linear: features: 'four' is of the wrong type"),
            (lambda v: v.x.dropout("much"), "dropout: an argument is of the wrong type"),
            (lambda v: v.g.layer("\n"), "layer"),
            (lambda v: v.x.rotary(heads=1, head_width=6, scaling="longer"), "'longer' is not one of default, linear"),
            (lambda v: v.x + Values().x, "a tensor of another graph"),
            (lambda v: setattr(v.g, "loss", v.x), "loss"),
            (lambda v: v.g.input("deep", (1,) * 7), "at most 6"),
            (lambda v: v.g.output, "the graph has no output yet"),
            (lambda v: v.g.loss, "the graph has no loss yet"),
        ]  # fmt: skip
        for mistake, message in mistakes:
            with self.assertRaises(sluice.UsageError) as raised:
                mistake(Values())
            self.assertIn(message, str(raised.exception))
        with self.assertRaises(TypeError):
            Values().x + 1.0  # type: ignore[operator]

    def test_parameters_are_listed_with_shapes_and_what_is_frozen(self) -> None:
        g = small_graph()
        self.assertEqual(list(g.parameters), ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"])
        self.assertEqual(g.parameters["fc1.weight"], sluice.Parameter((16, 6), True))
        v = Values()
        v.g.freeze(v.table)
        self.assertFalse(v.g.parameters["table"].trained)
        v.g.sparse(weights(v.g, "rows", 100, 4), 10)
        self.assertEqual(v.g.inputs["ids"], sluice.Input("i32", (4,)))


if __name__ == "__main__":
    unittest.main()
