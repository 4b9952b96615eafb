"""
Mining hard negatives beside `sentence_transformers.util.mine_hard_negatives`, on the same vectors with the same rules.

    python benchmarks/mining.py [--queries 100000] [--texts 100000] [--width 384] [--only ours]

Each way runs in a process of its own, whose peak memory is that over what it had with vectors and imports in place. The
library needs `datasets`, with faiss and without; its model only hands over the ready vectors. Ours is what stage
`negatives` does with a shard's anchors and all texts, lists and table included. The vectors lie around 2,000 centres,
and an anchor's answer near it; texts are numbers, so that the library's own handling of them costs it nothing.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

CENTRES = 2_000
RULES = {"first": 10, "last": 60, "count": 10, "relative_margin": 0.05}
WAYS = ("ours", "library", "library-faiss")


def made(queries: int, texts: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of queries and of texts; text q answers query q."""
    draw = np.random.default_rng(0)
    centre_MD = draw.standard_normal((CENTRES, width), dtype=np.float32)
    text_ND = centre_MD[draw.integers(0, CENTRES, texts)] + 0.8 * draw.standard_normal((texts, width), dtype=np.float32)
    query_QD = text_ND[:queries] + 0.8 * draw.standard_normal((queries, width), dtype=np.float32)
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit(query_QD), unit(text_ND)


class Watch:
    """Peak memory of this process, by looking every 10 ms."""

    def __enter__(self) -> "Watch":
        self.before, self.most, self._open = resident(), 0, True
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        self.began, self.used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        return self

    def _look(self) -> None:
        while self._open:
            self.most = max(self.most, resident())
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self._open = False
        now = resource.getrusage(resource.RUSAGE_SELF)
        self.found = {
            "seconds": time.perf_counter() - self.began,
            "processor_seconds": now.ru_utime + now.ru_stime - self.used.ru_utime - self.used.ru_stime,
            "peak_bytes": max(self.most, resident()) - self.before,
        }


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ours(query_QD: np.ndarray, text_ND: np.ndarray) -> tuple[np.ndarray, Watch]:
    """Search, choice and table."""
    from models.recipe import Negatives
    from pipeline.mine import SPARE, _picked
    from pipeline.mine_choice import chosen, may_be_right
    from pipeline.mine_search import Lists, exact, listed

    rules = Negatives(**RULES)
    number_Q = np.arange(len(query_QD))
    with Watch() as watch:
        found = listed(
            *exact(query_QD, text_ND, rules.last + SPARE),
            np.arange(len(text_ND), dtype=np.uint64),
            np.arange(len(text_ND), dtype=np.uint64),
        )
        found = Lists.none(len(query_QD)).merged(found, rules.last + SPARE)
        right_Q = np.einsum("qd,qd->q", query_QD, text_ND[: len(query_QD)])
        own_Q = np.full(len(query_QD), 2**63, np.uint64)
        barred_QK = may_be_right(found.group_QK, own_Q, number_Q, number_Q.astype(np.uint64))
        kept = chosen(found, barred_QK, right_Q, rules, np.random.default_rng(0))
        table = _picked(number_Q, found, kept.place_QC, kept.rank_QK, "dense")
    return table.select("anchor", "candidate").to_numpy(), watch


def library(query_QD: np.ndarray, text_ND: np.ndarray, faiss: bool) -> tuple[np.ndarray, Watch]:
    """The same by the library."""
    import torch
    from datasets import Dataset
    from sentence_transformers.util import cos_sim, mine_hard_negatives, pairwise_cos_sim

    class Ready:
        """Hands the ready vectors over."""

        device, model_card_data = torch.device("cpu"), None
        similarity, similarity_pairwise = staticmethod(cos_sim), staticmethod(pairwise_cos_sim)

        def get_embedding_dimension(self) -> int:
            return text_ND.shape[1]

        def encode_document(self, texts: list, **_: object) -> np.ndarray:
            return text_ND[[int(text) for text in texts]]

        def encode_query(self, texts: list, **_: object) -> np.ndarray:
            return query_QD[[int(text[1:]) for text in texts]]

    pairs = {"anchor": [f"q{n}" for n in range(len(query_QD))], "positive": [str(n) for n in range(len(query_QD))]}
    rows, corpus = Dataset.from_dict(pairs), [str(n) for n in range(len(text_ND))]
    with Watch() as watch:
        found = mine_hard_negatives(
            rows,
            Ready(),
            corpus=corpus,
            range_min=RULES["first"],
            range_max=RULES["last"],
            relative_margin=RULES["relative_margin"],
            num_negatives=RULES["count"],
            output_format="triplet",
            use_faiss=faiss,
            verbose=False,
        )
    table = [(int(row["anchor"][1:]), int(row["negative"])) for row in found]
    return np.array(table), watch


def one(way: str, arguments: argparse.Namespace) -> None:
    """Run one way and keep what it found."""
    query_QD, text_ND = made(arguments.queries, arguments.texts, arguments.width)
    warm = query_QD[:64], text_ND[:1000]
    run = ours if way == "ours" else lambda *given: library(*given, faiss=way == "library-faiss")
    run(*(warm if way == "ours" else (query_QD[:64], text_ND[:1000])))
    pairs, watch = run(query_QD, text_ND)
    np.save(arguments.keep / f"{way}.npy", pairs)
    (arguments.keep / f"{way}.json").write_text(json.dumps(watch.found | {"negatives": len(pairs)}))


def main() -> None:
    """All ways, and what they have in common."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--only", default="", help="ways whose name holds this")
    parser.add_argument("--way", default="", choices=["", *WAYS], help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        one(arguments.way, arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        sizes = [
            part for name in ("queries", "texts", "width") for part in (f"--{name}", str(getattr(arguments, name)))
        ]
        ways = [way for way in WAYS if arguments.only in way]
        for way in ways:
            command = [sys.executable, __file__, *sizes, "--way", way, "--keep", folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        tell(Path(folder), ways)


def tell(folder: Path, ways: list[str]) -> None:
    """A line a way: time, memory, and the share of its negatives that ours are too."""
    print("| way | seconds | processor seconds | peak MB | negatives | also ours |\n|---|---|---|---|---|---|")
    mine = {tuple(pair) for pair in np.load(folder / "ours.npy").tolist()} if "ours" in ways else set()
    for way in ways:
        told = json.loads((folder / f"{way}.json").read_text())
        pairs = {tuple(pair) for pair in np.load(folder / f"{way}.npy").tolist()}
        share = len(pairs & mine) / max(1, len(pairs | mine))
        numbers = f"{told['seconds']:.1f} | {told['processor_seconds']:.1f} | {told['peak_bytes'] / 1e6:,.0f}"
        print(f"| {way} | {numbers} | {told['negatives']:,} | {share:.5f} |")


if __name__ == "__main__":
    main()
