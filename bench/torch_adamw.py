"""GB/s of PyTorch's fused AdamW on the CPU, counted as bench_adamw counts: 28 bytes a parameter.

    python torch_adamw.py [MILLIONS OF ELEMENTS, 64] [TURNS, 9]
"""
import os
import statistics
import sys
import time

import torch

millions = int(sys.argv[1]) if len(sys.argv) > 1 else 64
turns = int(sys.argv[2]) if len(sys.argv) > 2 else 9
elements = millions << 20
for threads in sorted({1, len(os.sched_getaffinity(0))}):
    torch.set_num_threads(threads)
    weight = torch.full((elements,), 0.5, requires_grad=True)
    weight.grad = torch.full((elements,), 0.01)
    try:
        optimizer = torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.01, fused=True)
    except RuntimeError as e:
        print(f"PyTorch {torch.__version__.split('+')[0]} has no fused AdamW for the CPU: {e}")
        break
    rates = []
    for turn in range(turns + 1):  # the first one makes the state
        start = time.perf_counter()
        optimizer.step()
        if turn > 0:
            rates.append(28e-9 * elements / (time.perf_counter() - start))
    print(f"{threads} thread{'s' if threads > 1 else ''}, {elements} elements, {turns} turns")
    print(f"  PyTorch {max(rates):7.2f} GB/s best {statistics.median(rates):7.2f} median; "
          f"{statistics.median(rates) / 28:.2f} G parameters/s")
