"""What fits where, before anything is bought: plans of one model over device memory, ranks and stages. Needs sluice alone."""
import logging

import sluice

logging.getLogger("sluice").setLevel(logging.ERROR)  # no warnings that this machine is smaller than those
model = {
    "model": {
        "type": "llama", "layers": 32, "heads": 32, "width": 4096, "feed_forward": 11008, "context": 2048, "vocabulary": "32000",
    },
    "data": {"type": "random_tokens", "samples": 10000},
    "steps": 1, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "memory": {"host": "24GiB"},
}  # fmt: skip

print("device   ranks  stage  verdict")
for device in ("24GiB", "80GiB"):
    for ranks, stage in ((1, 0), (8, 1), (8, 3)):
        p = sluice.plan(model, ranks=ranks, settings={"memory.device": device, "zero_optimization.stage": stage})
        told = (
            f"{p.memory.device / 2**30:.1f} GiB on the device, {p.memory.host / 2**30:.1f} GiB on the host, "
            f"a step in {p.step_seconds:.1f} s"
            if p.fits
            else p.verdict.split(". What would help")[0]
        )
        print(f"{device}  {ranks:5}  {stage:5}  {told}")
