"""Convolutions of ResNet-18 on CIFAR's images: sluice's kernels on the CPU beside PyTorch's, in fp32.

    python conv.py BENCH_CONV [TURNS, 3] [THREADS, 2] [BATCH, 64]

BENCH_CONV is the program that bench/conv.c makes. Both are run in turns, and of each figure the best is kept; PyTorch's is the
better one of its two layouts in memory. GFLOP/s, and sluice's over PyTorch's. With one thread the CPU's time counts, not
the clock's, so that a busy machine disturbs less.
"""
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = [  # name, side, in, out, kernel, stride, groups: as in conv.c
    ("stem", 32, 3, 64, 3, 1, 1), ("64@32", 32, 64, 64, 3, 1, 1), ("64-128/2", 32, 64, 128, 3, 2, 1),
    ("64-128/2 1x1", 32, 64, 128, 1, 2, 1), ("128@16", 16, 128, 128, 3, 1, 1), ("128-256/2", 16, 128, 256, 3, 2, 1),
    ("128-256/2 1x1", 16, 128, 256, 1, 2, 1), ("256@8", 8, 256, 256, 3, 1, 1), ("256-512/2", 8, 256, 512, 3, 2, 1),
    ("256-512/2 1x1", 8, 256, 512, 1, 2, 1), ("512@4", 4, 512, 512, 3, 1, 1), ("1x1 256@16", 16, 256, 256, 1, 1, 1),
    ("depthwise 64@32", 32, 64, 64, 3, 1, 64), ("groups 128@16", 16, 128, 128, 3, 1, 8),
]
COUNTS = {"stem": 1, "64@32": 4, "64-128/2": 1, "64-128/2 1x1": 1, "128@16": 3, "128-256/2": 1, "128-256/2 1x1": 1,
          "256@8": 3, "256-512/2": 1, "256-512/2 1x1": 1, "512@4": 3}  # of a ResNet-18


def torch_rates(shape, batch, layout, clock):
    _, side, channels, outputs, kernel, stride, groups = shape
    x = torch.randn(batch, channels, side, side).to(memory_format=layout)
    w = torch.randn(outputs, channels // groups, kernel, kernel).to(memory_format=layout)
    pad = kernel // 2
    y = F.conv2d(x, w, None, stride, pad, 1, groups)
    dy = torch.randn_like(y).to(memory_format=layout)
    flops = 2 * y.numel() * w.numel() / outputs
    repeats = int(3e8 / flops) + 1

    def backward(dx, dw):
        return torch.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups,
                                                   [dx, dw, False])

    rates = []
    for call in (lambda: F.conv2d(x, w, None, stride, pad, 1, groups), lambda: backward(True, False),
                 lambda: backward(False, True)):
        best = 0
        for _ in range(4):
            start = clock()
            for _ in range(repeats):
                call()
            best = max(best, flops * repeats / (clock() - start) * 1e-9)
        rates.append(best)
    return rates


def main():
    bench = sys.argv[1]
    turns, threads, batch = [int(a) for a in sys.argv[2:]] + [3, 2, 64][len(sys.argv) - 2:]
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    ours = {s[0]: [0, 0, 0] for s in SHAPES}
    theirs = {s[0]: [0, 0, 0] for s in SHAPES}
    command = [bench, "--threads", str(threads), "--batch", str(batch), "--f32", "--turns", "4"]
    if threads == 1:
        command.append("--busy")
    for _ in range(turns):
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            name, figures = line[:16].strip(), [float(f) for f in line[16:].split()]
            ours[name] = [max(a, b) for a, b in zip(ours[name], figures)]
        for shape in SHAPES:
            for layout in (torch.channels_last, torch.contiguous_format):
                rates = torch_rates(shape, batch, layout, clock)
                theirs[shape[0]] = [max(a, b) for a, b in zip(theirs[shape[0]], rates)]
    print(f"{'':16}        forward             input            weight    GFLOP/s, {threads} threads, batch {batch}")
    seconds = [0, 0]
    for name, side, channels, outputs, kernel, stride, groups in SHAPES:
        a, b = ours[name], theirs[name]
        flops = 2 * batch * (side // stride) ** 2 * outputs * channels // groups * kernel ** 2
        print(f"{name:16}" + "".join(f" {o:7.1f} {t:7.1f} {o / t:4.2f}x" for o, t in zip(a, b)))
        for i, rates in enumerate((a, b)):
            seconds[i] += COUNTS.get(name, 0) * sum(flops / r for r in rates) * 1e-9
    print(f"all of a ResNet-18's, forward and both gradients: {1e3 * seconds[0]:.0f} ms, PyTorch {1e3 * seconds[1]:.0f} ms,"
          f" {seconds[1] / seconds[0]:.2f}x")


main()
