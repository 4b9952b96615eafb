"""A corpus composed of word lists, and a recipe small enough for it."""

import random
from pathlib import Path

TOPICS = {
    "sea": "wave salt harbour sail tide anchor gull shore",
    "field": "wheat plough furrow barn straw seed hedge soil",
    "forge": "iron anvil hammer coal spark bellows tongs steel",
    "night": "moon star owl shadow lantern frost dream quiet",
}
SMALL = [
    "batches.rows=64",
    "batches.lane_rows=32",
    "encoder.width=16",
    "corpus.held_out=0.2",
    "training.epochs=4",
    "training.precision=fp32",
]


def sentences(topic: str, count: int, seed: object) -> list[str]:
    """Sentences of one topic's words, none twice."""
    draw, words = random.Random(str(seed)), TOPICS[topic].split()
    pick = lambda: draw.choice(words)
    return [f"The {pick()} and the {pick()} meet the {pick()} of {pick()} at hour {n}." for n in range(count)]


def write_corpus(folder: Path, documents: int = 40) -> Path:
    """Text files of eight sentences, a topic each, so that neighbours share their words."""
    folder.mkdir(parents=True)
    for number in range(documents):
        topic = list(TOPICS)[number % len(TOPICS)]
        (folder / f"{topic}{number:02}.txt").write_text(" ".join(sentences(topic, 8, number)))
    return folder
