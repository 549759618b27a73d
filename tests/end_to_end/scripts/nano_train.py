"""A character-level language model in the style of small single-file trainers. It does not import Seatrial.

torchrun --standalone --nproc_per_node 2 nano_train.py --batch_size 8 --max_iters 30
"""

import argparse
import gc
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--block_size", type=int, default=32)
parser.add_argument("--n_embd", type=int, default=32)
parser.add_argument("--max_iters", type=int, default=30)
parser.add_argument("--log_interval", type=int, default=1)
args = parser.parse_args()

ddp = "RANK" in os.environ
if ddp:
    dist.init_process_group("gloo")
master = not ddp or dist.get_rank() == 0
torch.set_num_threads(1)
torch.manual_seed(1337 + (dist.get_rank() if ddp else 0))

text = ("to build a ship is to trust the sea, and to trust the sea is to have tried the ship " * 40).encode()
data = torch.tensor(list(text), dtype=torch.long)
model = nn.Sequential(nn.Embedding(256, args.n_embd), nn.Linear(args.n_embd, 4 * args.n_embd), nn.GELU(), nn.Linear(4 * args.n_embd, 256))
if ddp:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
if master:
    print(f"number of parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M")

t0 = time.time()
for iter_num in range(args.max_iters):
    starts = torch.randint(len(data) - args.block_size - 1, (args.batch_size,))
    x = torch.stack([data[i : i + args.block_size] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + args.block_size] for i in starts])
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    t1 = time.time()
    dt, t0 = t1 - t0, t1
    if iter_num % args.log_interval == 0 and master:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {dt * 1000:.2f}ms, mfu -100.00%")

if ddp:
    # gloo aborts now and then when the group ends before the model that uses it, or on one rank before the other.
    del model, optimizer, loss
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()
