"""Records what DeepSpeed's dynamic loss scaler does, for tests/optim/loss_scale.c.

    python record_loss_scale.py loss_scale.json        (needs deepspeed; nothing of sluice)

Each case is a string of steps, "x" for one that overflows and "." for one that does not, with the scale and the remaining hysteresis
after every step. "raised" is the index of the step at which DeepSpeed gives up, or -1.
"""

import itertools
import json
import logging
import sys

from deepspeed.runtime.fp16 import loss_scaler

SEQUENCES = [
    "." * 12,
    "x" * 12,
    "x.x.x.x.x.x.",
    "..x..x...x....x.....xx",
    "xx...xx......x.x.x...",
    ".xxx.....x..........xxxx....",
]


class OneRank:
    """The scaler asks for its rank alone, to log once."""

    @staticmethod
    def get_rank():
        return 1


def run(steps, initial_power, window, hysteresis, consecutive, minimum):
    scaler = loss_scaler.DynamicLossScaler(2**initial_power, window, minimum, hysteresis, consecutive)
    scales, left, raised = [], [], -1
    for i, step in enumerate(steps):
        try:
            scaler.update_scale(step == "x")
        except Exception:
            raised = i
            break
        scales.append(float(scaler.loss_scale))
        left.append(scaler.cur_hysteresis)
    return {
        "steps": steps,
        "initial_power": initial_power,
        "window": window,
        "hysteresis": hysteresis,
        "consecutive": consecutive,
        "minimum": minimum,
        "scales": scales,
        "left": left,
        "raised": raised,
    }


def main():
    logging.disable(logging.CRITICAL)
    loss_scaler.dist = OneRank
    cases = [
        run(steps, power, window, hysteresis, consecutive, minimum)
        for steps, (power, minimum), window, hysteresis, consecutive in itertools.product(
            SEQUENCES, [(16, 1), (4, 1), (5, 6.0)], [1, 2, 5], [1, 2, 3], [False, True])
    ]
    with open(sys.argv[1], "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
