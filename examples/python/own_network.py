"""A network of one's own, trained on arrays of NumPy where they lie: two interleaved half circles."""
import numpy as np

import sluice

ROWS = 64
source = np.random.default_rng(1)
label = source.integers(0, 2, 2048).astype("int32")
angle = source.uniform(0, np.pi, 2048)
x = np.stack([np.cos(angle) * (1 - 2 * label) + label, np.sin(angle) * (1 - 2 * label) + label / 2], 1)
x = (x + source.normal(0, 0.1, x.shape)).astype("float32")

g = sluice.Graph()
inputs = g.input("x", (ROWS, 2))
target = g.input("label", (ROWS,), "i32")
hidden = inputs.linear(32, "fc1").relu()
hidden = hidden + hidden.linear(32, "fc2").relu()  # a residual connection
g.output = hidden.linear(2, "out")
g.loss = g.output.cross_entropy(target)

with sluice.Engine(g, sluice.AdamW(lr=1e-2), evaluation=True, seed=1) as engine:
    print(engine.plan.splitlines()[0])
    for step in range(300):
        at = step * ROWS % len(x)
        loss = engine.train_step({"x": x[at : at + ROWS], "label": label[at : at + ROWS]})
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}  loss {loss:.4f}")
    scores = np.empty((ROWS, 2), "float32")
    right = 0
    for at in range(0, len(x), ROWS):
        engine.predict({"x": x[at : at + ROWS], "label": label[at : at + ROWS]}, out=scores)
        right += int((scores.argmax(1) == label[at : at + ROWS]).sum())
    engine.save("own_network.safetensors")
    print(f"{100 * right / len(x):.1f} % right; weights of fc1: {engine['fc1.weight'].numpy().shape}")
