"""The convolutions of bench/conv_gpu.c in PyTorch: channels last, bf16, the same shapes, the same columns.

    torch_conv_gpu.py [--batch N]

cuDNN's engines are those of its heuristic (torch.backends.cudnn.benchmark is off) and deterministic."""
import argparse

import torch

# name, size, in, out, kernel, stride, padding, groups, times in ResNet-50
SHAPES = [
    ("stem", 224, 3, 64, 7, 2, 3, 1, 1), ("1 x 1", 56, 64, 64, 1, 1, 0, 1, 1), ("1 x 1", 56, 256, 64, 1, 1, 0, 1, 2),
    ("3 x 3", 56, 64, 64, 3, 1, 1, 1, 3), ("1 x 1", 56, 64, 256, 1, 1, 0, 1, 4), ("1 x 1", 56, 256, 128, 1, 1, 0, 1, 1),
    ("3 x 3, stride 2", 56, 128, 128, 3, 2, 1, 1, 1), ("1 x 1, stride 2", 56, 256, 512, 1, 2, 0, 1, 1),
    ("1 x 1", 28, 512, 128, 1, 1, 0, 1, 3), ("3 x 3", 28, 128, 128, 3, 1, 1, 1, 3), ("1 x 1", 28, 128, 512, 1, 1, 0, 1, 4),
    ("1 x 1", 28, 512, 256, 1, 1, 0, 1, 1), ("3 x 3, stride 2", 28, 256, 256, 3, 2, 1, 1, 1),
    ("1 x 1, stride 2", 28, 512, 1024, 1, 2, 0, 1, 1), ("1 x 1", 14, 1024, 256, 1, 1, 0, 1, 5),
    ("3 x 3", 14, 256, 256, 3, 1, 1, 1, 5), ("1 x 1", 14, 256, 1024, 1, 1, 0, 1, 6), ("1 x 1", 14, 1024, 512, 1, 1, 0, 1, 1),
    ("3 x 3, stride 2", 14, 512, 512, 3, 2, 1, 1, 1), ("1 x 1, stride 2", 14, 1024, 2048, 1, 2, 0, 1, 1),
    ("1 x 1", 7, 2048, 512, 1, 1, 0, 1, 2), ("3 x 3", 7, 512, 512, 3, 1, 1, 1, 2), ("1 x 1", 7, 512, 2048, 1, 1, 0, 1, 3),
    ("depthwise 3 x 3", 56, 128, 128, 3, 1, 1, 128, 0), ("32 groups 3 x 3", 56, 128, 128, 3, 1, 1, 32, 0),
]


def seconds(call):
    best = 1e30
    call()
    call()
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(8):
            call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 8e3)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    batch = parser.parse_args().batch
    torch.backends.cudnn.deterministic = True
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}; batch {batch}, bf16")
    total = [0.0, 0.0, 0.0]
    for name, size, inputs, outputs, kernel, stride, padding, groups, times in SHAPES:
        make = dict(device="cuda", dtype=torch.bfloat16)
        last = dict(memory_format=torch.channels_last)
        x = torch.randn(batch, inputs, size, size, **make).to(**last)
        w = torch.randn(outputs, inputs // groups, kernel, kernel, **make).to(**last)
        y = torch.nn.functional.conv2d(x, w, None, stride, padding, 1, groups)
        dy = torch.randn_like(y)

        def backward(mask):
            return lambda: torch.ops.aten.convolution_backward(
                dy, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, mask)
        passes = [lambda: torch.nn.functional.conv2d(x, w, None, stride, padding, 1, groups),
                  backward([True, False, False]), backward([False, True, False])]
        flops = 2.0 * y.numel() * (inputs // groups) * kernel * kernel
        line = f"{name:<17} {inputs:4} -> {outputs:4} at {size:3} {times:2}x"
        for i, call in enumerate(passes):
            each = seconds(call)
            line += f"  {1e3 * each:7.3f} ms {1e-12 * flops / each:5.0f}"
            if not (i == 1 and inputs == 3):
                total[i] += times * each
        print(line, flush=True)
    print("convolutions of a step of ResNet-50: %.2f + %.2f + %.2f = %.2f ms" % (*(1e3 * t for t in total), 1e3 * sum(total)))


if __name__ == "__main__":
    main()
