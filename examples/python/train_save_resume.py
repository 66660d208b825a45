"""Trains a small language model on this very file, stops half way, and goes on to the same weights. Needs sluice alone."""
import sluice

config = {
    "model": {"type": "gpt2", "layers": 2, "heads": 2, "width": 64, "context": 32, "vocabulary": "bytes"},
    "data": {"type": "text", "path": __file__},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-3}},
    "steps": 60, "seed": 1, "train_batch_size": 4, "checkpoint": {"path": "checkpoints"},
}  # fmt: skip


def stop_half_way(step: sluice.Step) -> None:
    if step.step == 30:
        raise sluice.StopTraining  # as Ctrl-C does: a checkpoint is saved first


print(sluice.plan(config).verdict)
first = sluice.train(config, on_step=stop_half_way)
rest = sluice.train(config, resume=True)
print(f"saved at step {first.steps}, ended at step {rest.steps} with loss {rest.loss:.3f}, weights {rest.weights_sha256[:16]}")
