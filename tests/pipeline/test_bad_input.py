"""What cannot be used, of every kind: it stands in quarantine with file and row, is counted, and costs only itself."""

import io
import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import road

from models.recipe import Corpus
from pipeline import files, parquet, sources
from pipeline.shard import SourceError

LONG = "x" * 1_000_001


def jsonl(*values: bytes) -> bytes:
    return b"".join(b'{"text": %s}\n' % value for value in (b'"First."', *values, b'"Last."'))


def lines(*texts: bytes) -> bytes:
    return b"\n\n".join((b"First.", *texts, b"Last.")) + b"\n"


def csv(*values: bytes) -> bytes:
    return b"".join(
        b"1,%s\n" % value if n else b"n,text\n" for n, value in enumerate((b"", b"First.", *values, b"Last."))
    )


BAD = {  # a file with one record that cannot be used between two that can, that record's row, and why
    "null.jsonl": (jsonl(b"null"), 2, "text is missing; fill it in or drop the row"),
    "null.csv": (csv(b""), 2, "text is blank; fill it in or drop the row"),
    "blank.jsonl": (jsonl(b'" \\t\\u00a0"'), 2, "text is blank; fill it in or drop the row"),
    "blank.csv": (csv(b"   "), 2, "text is blank; fill it in or drop the row"),
    "long.jsonl": (jsonl(b'"%s"' % LONG.encode()), 2, "text of 1000001 characters; corpus.longest is 1000000"),
    "long.csv": (csv(LONG.encode()), 2, "text of 1000001 characters; corpus.longest is 1000000"),
    "long.txt": (lines(LONG.encode()), 3, "text of 1000001 characters; corpus.longest is 1000000"),
    "utf8.jsonl": (jsonl(b'"caf\xe9"'), 2, "not UTF-8 at byte 13 of the value; convert the file"),
    "utf8.csv": (csv(b"caf\xe9"), 2, "not UTF-8 at byte 3 of the value; convert the file"),
    "utf8.txt": (lines(b"caf\xe9"), 3, "not UTF-8 at byte 3 of the value; convert the file"),
    "utf8.tsv": (csv(b"caf\xe9").replace(b",", b"\t"), 2, "not UTF-8 at byte 3 of the value; convert the file"),
    "nul.jsonl": (jsonl(b'"a\\u0000b"'), 2, "NUL in the text; is this a text file?"),
    "nul.csv": (csv(b"a\x00b"), 2, "NUL in the text; is this a text file?"),
    "nul.txt": (lines(b"a\x00b"), 3, "NUL in the text; is this a text file?"),
    "columns.csv": (csv(b"Two, three"), 2, "3 values, should be 2; quote or mend the line"),
    "columns.tsv": (csv(b"a\tb").replace(b",", b"\t"), 2, "3 values, should be 2; quote or mend the line"),
    "half.jsonl": (jsonl(b'"cut in ha')[:-18] + b'\n{"text": "Last."}\n', 2, "not JSON: "),
}


def walked(folder: Path, *settings: str) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, int]]:
    """Documents and quarantine of a corpus, and its counts."""
    way = road(folder / "store", folder / "corpus", "corpus.held_out=0", *settings)
    made = way.documents(way.numbered())
    aside = [way.store.piece("quarantine", piece.key) for piece in made.pieces.values()]
    tables = [way.store.read(piece) for piece in aside if piece]
    return pl.concat(map(way.store.read, made.pieces.values())), pl.concat(tables), dict(made.counts())


@pytest.fixture
def corpus(tmp_path) -> Path:
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_in_quarantine_with_its_row_and_counted_and_costs_only_itself(corpus, name):
    data, row, reason = BAD[name]
    (corpus / name).write_bytes(data)
    documents, aside, counts = walked(corpus.parent)
    assert aside.select("source", "row").rows() == [(name, row)]
    assert aside["reason"][0].startswith(reason)
    assert counts["quarantined"] == 1
    assert [times for kind, times in counts.items() if kind.startswith("dropped.")] == [1]
    assert documents.select("text", "place").rows() == [("First.", 0), ("Last.", 2)]


MIXED = {  # the same three records, their lines ended in three ways
    "mixed.txt": b"First.\r\n\r\nSecond.\n\nLast.\r\n",
    "mixed.jsonl": b'{"text": "First."}\r\n{"text": "Second."}\n{"text": "Last."}\r\n',
    "mixed.csv": b"n,text\r\n1,First.\n2,Second.\r\n3,Last.\n",
    "mixed.tsv": b"n\ttext\r\n1\tFirst.\n2\tSecond.\r\n3\tLast.\n",
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_mixed_line_ends_and_a_byte_order_mark_cost_nothing(corpus, name, mark):
    (corpus / name).write_bytes(mark + MIXED[name])
    documents, aside, counts = walked(corpus.parent)
    assert documents["text"].to_list() == ["First.", "Second.", "Last."]
    assert aside.is_empty()
    assert counts["quarantined"] == 0


def write(path: Path, **columns: object) -> None:
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"body": ["One."]}, "no column text; columns there: body; set corpus.text"),
        ({"text": [5]}, "column text is int64; text must be a string column; set corpus.text"),
        ({"text": [["One."]]}, "column text is list<element: string>; text must be a string column; set corpus.text"),
    ],
)
def test_a_second_parquet_file_with_other_columns_is_in_quarantine_and_costs_only_itself(
    corpus, ray_session, other, reason
):
    write(corpus / "a.parquet", text=["First.", "Last."])
    write(corpus / "b.parquet", **other)
    documents, aside, counts = walked(corpus.parent)
    assert documents["text"].to_list() == ["First.", "Last."]
    assert aside.select("source", "row").rows() == [("b.parquet", 1)]
    assert aside["reason"][0].startswith(reason)
    assert counts["quarantined"] == 1


def test_a_second_parquet_file_with_its_columns_in_another_order_and_type_is_read(corpus, ray_session):
    write(corpus / "a.parquet", text=["First."], n=[1])
    write(corpus / "b.parquet", n=["2"], text=pa.array(["Last."]).dictionary_encode())
    assert sorted(walked(corpus.parent)[0]["text"]) == ["First.", "Last."]


def test_a_parquet_file_that_is_mended_is_read(corpus, ray_session):
    write(corpus / "a.parquet", text=["First."])
    write(corpus / "b.parquet", body=["Last."])
    walked(corpus.parent)
    write(corpus / "b.parquet", text=["Last."])
    documents, aside, _ = walked(corpus.parent)
    assert sorted(documents["text"]) == ["First.", "Last."]
    assert aside.is_empty()


def test_no_parquet_file_with_the_columns_is_an_error(corpus):
    (corpus / "a.txt").write_text("First.\n")
    for name in "bc":
        write(corpus / f"{name}.parquet", body=["One."])
    with pytest.raises(SourceError, match=r"b\.parquet: no column text; columns there: body"):
        sources.shards(str(corpus), Corpus(), {})


# What is larger than memory should hold


@pytest.fixture
def one_group(tmp_path) -> Path:
    """Parquet in one row group of 24 MB of text that no compression makes small."""
    draws = pl.Series(range(3_000_000)).hash(1).cast(pl.String()).to_list()
    texts = [" ".join(draws[start : start + 300]) for start in range(0, len(draws), 300)]
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=10**9, use_dictionary=False)
    assert pq.read_metadata(path).num_row_groups == 1
    assert path.stat().st_size > 24_000_000
    return path


class Recorded(io.FileIO):
    """A file that knows the most bytes that were asked of it at once."""

    most = 0

    def read(self, size=-1, /):
        found = super().read(size)
        self.most = max(self.most, len(found))
        return found


def test_a_large_row_group_is_read_a_part_at_a_time(one_group, monkeypatch):
    opened = Recorded(one_group)
    monkeypatch.setattr(files, "open_file", lambda uri: opened)
    with parquet._opened(str(one_group), "large.parquet") as source:
        assert sum(len(columns["text"]) for columns in parquet._batches(source, "large.parquet", Corpus())) == 10_000
    assert opened.most < one_group.stat().st_size / 5  # a page, not the group


def test_a_part_of_a_file_reads_no_row_group_before_its_own(tmp_path):
    texts = [f"Text {n}." for n in range(100)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=7)
    corpus = Corpus(document=("text",), shard_bytes=60)
    shards = sources.shards(str(tmp_path / "a.parquet"), corpus, {})
    assert len(shards) > 10
    assert pl.concat([sources.read(shard, corpus)[0] for shard in shards])["text"].to_list() == texts
    with parquet._opened(str(tmp_path / "a.parquet"), "a.parquet") as source:
        assert [parquet._group(source, row) for row in (0, 6, 7, 50, 99, 100)] == [
            (0, 0), (0, 0), (1, 7), (7, 49), (14, 98), (14, 98),
        ]  # fmt: skip
        first = next(parquet._batches(source, "a.parquet", corpus, 7))["text"][0].as_py()
    assert first == b"Text 49."


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.jsonl.gz", "a.md"])
def test_a_file_that_cannot_be_cut_is_refused_above_the_limit_with_the_remedy(tmp_path, monkeypatch, name):
    monkeypatch.setattr(sources, "LARGEST_WHOLE", 100)
    (tmp_path / name).write_bytes(b"x" * 101)
    with pytest.raises(SourceError, match=rf"{name}: 101 bytes that cannot be cut, and at most 100 .*as JSON lines"):
        sources.shards(str(tmp_path), Corpus(), {})


def test_json_lines_are_cut_so_no_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LARGEST_WHOLE", 100)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": n, "text": "One."}) + "\n" for n in range(20)))
    assert len(sources.shards(str(tmp_path), Corpus(shard_bytes=50), {})) > 5
