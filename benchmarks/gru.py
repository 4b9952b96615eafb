"""
Speed of the recurrent encoder, forward and backward, beside torch.nn.GRU on packed sequences.

    python benchmarks/gru.py [THREADS]

Lanes of sentences with lengths spread as in running text, taken in order of length as training takes them. Word vectors
are looked up in a small table, so that it is the recurrence that is measured. Shares are of what a bf16 product of two
2048 x 2048 matrices reaches in the same run.
"""

import sys
import time

import torch
from torch import nn

from models.recurrent import GRU

SHAPES = [(50, 600, 620), (100, 600, 620), (50, 256, 256)]  # rows of a lane, width of a direction, of a word vector
LANES, REPEATS, WORDS = 8, 3, 1000


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    peak = product_flops()
    print(f"{torch.get_num_threads()} threads; bf16 product {peak / 1e9:.0f} GFLOP/s")
    print(f"{'rows':>5} {'width':>6} {'words':>6}  {'':22} {'sentences/s':>12} {'GFLOP/s':>8} {'share':>6}")
    for rows, width, word_width in SHAPES:
        lanes = sentences(rows)
        torch.manual_seed(0)
        model = GRU(WORDS, width=width, word_width=word_width, bidirectional=True)
        flops = sum(int(length_L.sum()) for _, length_L in lanes) * 3 * 2 * 2 * 3 * width * (width + word_width)
        for name, encode, low in (
            ("torch.nn.GRU fp32", packed, False),
            ("ours fp32", GRU.__call__, False),
            ("ours bf16 autocast", GRU.__call__, True),
        ):
            seconds = fastest(model, encode, lanes, low)
            rate = f"{LANES * rows / seconds:12.0f} {flops / seconds / 1e9:8.0f} {flops / seconds / peak:6.0%}"
            print(f"{rows:5} {width:6} {word_width:6}  {name:22} {rate}", flush=True)


def sentences(rows):
    """Lanes of token numbers and lengths; median 20 tokens, cut at 50."""
    draw = torch.Generator().manual_seed(1)
    lengths = (torch.randn(LANES * rows, generator=draw) * 0.6 + 3).exp().clamp(1, 50).long().sort().values
    return [(torch.randint(WORDS, (rows, int(lane.max())), generator=draw), lane) for lane in lengths.split(rows)]


def packed(model, ids, lengths):
    words = nn.utils.rnn.pack_padded_sequence(model.words(ids), lengths, batch_first=True, enforce_sorted=False)
    return model.gru(words)[1].transpose(0, 1).flatten(1)


def fastest(model, encode, lanes, low):
    def run():
        start = time.perf_counter()
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            for lane in lanes:
                encode(model, *lane).sum().backward()
        return time.perf_counter() - start

    run()
    return min(run() for _ in range(REPEATS))


def product_flops(size=2048):
    a, b = (torch.randn(size, size).bfloat16() for _ in range(2))
    a @ b
    start = time.perf_counter()
    for _ in range(5):
        a @ b
    return 5 * 2 * size**3 / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
