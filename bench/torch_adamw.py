"""G parameters/s and GB/s of AdamW on the CPU as PyTorch (fused) and, where it can be loaded, DeepSpeed (cpu_adam) have
it, in fp32, counted as bench_adamw counts: 28 bytes a parameter.

    python torch_adamw.py [MILLIONS OF ELEMENTS, 32] [TURNS, 9]
"""
import os
import statistics
import sys
import time

import torch


def torch_optimizer(weight):
    return torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.01, fused=True)


def deepspeed_optimizer(weight):
    from deepspeed.ops.adam import DeepSpeedCPUAdam  # builds its kernel at first use
    return DeepSpeedCPUAdam([weight], lr=1e-3, weight_decay=0.01, adamw_mode=True)


def measure(name, make, elements, turns):
    weight = torch.nn.Parameter(torch.full((elements,), 0.5))
    weight.grad = torch.full((elements,), 0.01)
    try:
        optimizer = make(weight)
    except Exception as e:  # no kernel, no compiler, no such release: whatever it is, say it and go on
        print(f"  {name}: not here: {str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__}")
        return
    rates = []
    for turn in range(turns + 1):  # the first one makes the state
        start = time.perf_counter()
        optimizer.step()
        if turn > 0:
            rates.append(1e-9 * elements / (time.perf_counter() - start))
    best, median = max(rates), statistics.median(rates)
    print(f"  {name:19} {best:6.3f} {median:6.3f} G/s  {28 * best:6.2f} {28 * median:6.2f} GB/s")


def main():
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    elements = millions << 20
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        print(f"{threads} thread{'s' if threads > 1 else ''}, {elements} elements, {turns} turns: best and median")
        measure(f"PyTorch {torch.__version__.split('+')[0]}", torch_optimizer, elements, turns)
        measure("DeepSpeed cpu_adam", deepspeed_optimizer, elements, turns)


main()
