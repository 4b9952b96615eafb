"""A corpus that grows, changes and shrinks: each stage makes the pieces of what is new, and says what is gone."""

import json
from pathlib import Path

import pytest
from corpora import road, stories, story, write

from pipeline.manifest import Manifest
from pipeline.road import Road
from pipeline.store import Store

pytestmark = pytest.mark.ray
STAGES = ("documents", "sentences", "tokens", "pairs")


def walk(road: Road) -> dict[str, Manifest]:
    """The stages before batches, by name."""
    documents = road.documents(road.numbered())
    sentences = road.sentences(documents)
    road.source(sentences, tokens := road.tokens(sentences, road.vocabulary(sentences)), pairs := road.pairs(sentences))
    return {"documents": documents, "sentences": sentences, "tokens": tokens, "pairs": pairs}


def counted(made: dict[str, Manifest]) -> set[tuple[int, int, int]]:
    """New, same and gone shards as the scoreboard shows them; one entry if all stages say the same."""
    rows = [made[name].row() for name in STAGES]
    return {(row["shards_new"], row["shards_same"], row["shards_gone"]) for row in rows}


def append(path: Path, first: int, count: int) -> Path:
    lines = [{"id": f"story{n:03d}", "text": " ".join(story(n, 5))} for n in range(first, first + count)]
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def lines(tmp_path_factory, ray_session) -> Road:
    """JSON lines in seven shards, and a store in which their road was walked; the tests below follow each other."""
    place = tmp_path_factory.mktemp("lines")
    way = road(place / "store", append(place / "rows.jsonl", 0, 80), "corpus.shard_bytes=1700")
    assert counted(walk(way)) == {(7, 0, 0)}
    return way


def test_lines_that_are_appended_make_the_last_shard_anew_and_those_behind_it(lines):
    append(Path(lines.uri), 80, 20)
    made = walk(lines)
    ((new, same, gone),) = counted(made)
    assert (same, gone) == (6, 1)
    assert new in (2, 3)
    assert list(made["pairs"].pieces) == [*range(6), *range(7, 7 + new)]


def test_a_changed_line_makes_its_own_shard_anew(lines):
    path = Path(lines.uri)
    old = path.read_text(encoding="utf-8")
    path.write_text(old.replace(story(0, 5)[0], story(0, 5)[0][::-1], 1), encoding="utf-8")  # of equal length
    assert counted(walk(lines)) == {(1, len(walk(lines)["pairs"].pieces) - 1, 1)}
    path.write_text(old, encoding="utf-8")
    ((new, _, gone),) = counted(walk(lines))
    assert (new, gone) == (0, 1)


def test_nothing_new_makes_and_reads_no_piece(lines, monkeypatch):
    monkeypatch.setattr(Store, "read", lambda *_: pytest.fail("a piece is read"))
    monkeypatch.setattr(Store, "write", lambda *_, **__: pytest.fail("a piece is written"))
    ((new, same, gone),) = counted(walk(lines))
    assert (new, gone) == (0, 0)
    assert same > 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory, ray_session) -> Road:
    """So many small files that they are put together."""
    place = tmp_path_factory.mktemp("folder")
    way = road(place / "store", write(place / "corpus", stories(150)))
    ((new, _, _),) = counted(walk(way))
    assert 50 < new <= 64
    return way


def test_of_many_small_files_a_new_one_makes_its_own_bucket_anew(folder):
    write(Path(folder.uri), {"another": story(900, 5)})
    ((new, same, gone),) = counted(walk(folder))
    assert (new, gone) in {(1, 1), (1, 0)}
    assert same >= 50


def test_of_many_small_files_a_changed_and_a_removed_one_make_their_buckets_anew(folder):
    write(Path(folder.uri), {"story007": story(907, 5)})
    (Path(folder.uri) / "story008.txt").unlink()
    ((new, _, gone),) = counted(walk(folder))
    assert new <= 2
    assert gone in (1, 2)


def test_what_reads_all_shards_reads_only_digests_of_those_that_were_there(folder, monkeypatch):
    write(Path(folder.uri), {"one more": story(901, 5)})
    read = []
    monkeypatch.setattr(
        Store, "read", lambda s, piece, *a, _read=Store.read: (read.append(piece.stage), _read(s, piece, *a))[1]
    )
    ((new, same, _),) = counted(walk(folder))
    assert new == 1
    assert {name: read.count(name) for name in ("documents", "sentences", "tokens", "pairs")} == {
        "documents": 2, "sentences": 3, "tokens": 0, "pairs": 0,
    }  # fmt: skip
    assert read.count("numbers") == same + 1
