"""A training step of ResNet-18 on CIFAR's images and of a BERT of 4 layers in PyTorch, taking turns with sluice's, in fp32.

    python torch_networks.py BENCH_TRAIN_STEP CONFIG.JSON [--rounds 5] [--steps 2] [--busy]

CONFIG is resnet18.json (torchvision's network with a stem of 3 x 3, SGD with momentum; PyTorch in both layouts in memory) or
bert-mini.json (transformers' classifier of pairs with scaled_dot_product_attention, fused AdamW; rows are full, so that neither side
computes padding). The same batch and all cores this process may use. The first round warms up; the figures are the least of
the others, because a busy machine only adds. With --busy each has one thread, and the CPU's time counts, not the clock's: for a
machine that others use.
"""
import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_gpt import measure

HERE = Path(__file__).resolve().parent


class ResNet:
    def __init__(self, config, layout):
        from torchvision.models import resnet18
        self.batch, self.layout = config["train_batch_size"], layout
        self.model = resnet18(num_classes=config["data"]["outputs"])
        self.model.conv1, self.model.maxpool = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.Identity()
        self.model = self.model.to(memory_format=layout)
        self.classes = config["data"]["outputs"]
        params = config["optimizer"]["params"]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=params["lr"], momentum=params["momentum"],
                                         weight_decay=params["weight_decay"])

    def loss(self):
        x = torch.randn(self.batch, 3, 32, 32).to(memory_format=self.layout)
        return F.cross_entropy(self.model(x), torch.randint(self.classes, (self.batch,)))


class Bert:
    def __init__(self, config, _):
        from transformers import BertConfig, BertForSequenceClassification
        model, params = config["model"], config["optimizer"]["params"]
        self.shape, self.vocabulary = (config["train_batch_size"], model["context"]), int(model["vocabulary"])
        self.model = BertForSequenceClassification(BertConfig(
            vocab_size=self.vocabulary, hidden_size=model["width"], num_hidden_layers=model["layers"],
            num_attention_heads=model["heads"], intermediate_size=4 * model["width"], max_position_embeddings=model["context"],
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa"))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=params["lr"], betas=tuple(params["betas"]),
                                           weight_decay=params["weight_decay"], fused=True)

    def loss(self):
        ids = torch.randint(self.vocabulary, self.shape)
        return F.cross_entropy(self.model(input_ids=ids).logits, torch.randint(2, (self.shape[0],)))


def serve(config, steps, layout, busy):
    torch.manual_seed(1)
    torch.set_num_threads(1 if busy else len(os.sched_getaffinity(0)))
    clock = time.process_time if busy else time.perf_counter
    peer = (ResNet if config["model"]["type"] == "resnet" else Bert)(config, getattr(torch, layout))
    peer.model.train()
    while True:
        start = clock()
        for _ in range(steps):
            peer.optimizer.zero_grad(set_to_none=True)
            loss = peer.loss()
            loss.backward()
            peer.optimizer.step()
            loss.item()
        print((clock() - start) / steps, flush=True)
        if not sys.stdin.readline():
            return


def write_pairs():
    """Sentences that fill a row, and a tokenizer for them."""
    tokenizer = HERE.parent / "tests" / "fixtures" / "tokenizers" / "bert-uncased.json"
    Path("bert-tokenizer.json").write_bytes(tokenizer.read_bytes())
    words = "the of one day in another way that they will have been for all".split()
    with open("pairs.tsv", "w") as f:
        f.write("label\tsentence1\tsentence2\n")
        for i in range(256):
            first, second = (" ".join(words[(i * k + j * j) % len(words)] for j in range(90)) for k in (3, 5))
            f.write(f"{i % 2}\t{first}\t{second}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("config")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--serve", choices=["channels_last", "contiguous_format"])
    arguments = parser.parse_args()
    with open(arguments.config) as f:
        config = json.load(f)
    if arguments.serve:
        serve(config, arguments.steps, arguments.serve, arguments.busy)
        return
    steps = ["--steps", str(arguments.steps)] + ["--busy"] * arguments.busy
    threads = 1 if arguments.busy else len(os.sched_getaffinity(0))
    peer = [sys.executable, __file__, arguments.program, arguments.config, *steps, "--serve"]
    ways = {"sluice": ("fp32", [arguments.program, arguments.config, "--serve", *steps, "--set", f"threads={threads}"]),
            "PyTorch": ("fp32", peer + ["contiguous_format"])}
    if config["model"]["type"] == "resnet":
        ways["PyTorch channels last"] = ("fp32", peer + ["channels_last"])
    else:
        write_pairs()
    seconds = measure(ways, arguments.rounds)
    print(f"{Path(arguments.config).stem}, batch {config['train_batch_size']}, fp32, threads: {threads}{' (time of the CPU)' if arguments.busy else ''}, PyTorch "
          f"{torch.__version__.split('+')[0]}; ms a step, the least of {arguments.rounds} rounds that take turns, and the most")
    for name, s in seconds.items():
        print(f"{name:22} {1e3 * min(s):8.1f} {1e3 * max(s):8.1f}")
    best = min(min(s) for name, s in seconds.items() if name != "sluice")
    print(f"sluice is {best / min(seconds['sluice']):.2f} times as fast")


main()
