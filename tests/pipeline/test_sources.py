import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from models.recipe import Corpus
from pipeline import files, sources
from pipeline.shard import Chunk, SourceError

PLAIN = Corpus()
ROWS = Corpus(document=("book",), shard_bytes=100)


def everything(uri: Path | str, corpus: Corpus = PLAIN) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Records and quarantine of all shards, one behind the other."""
    got = [sources.read(shard, corpus) for shard in sources.shards(str(uri), corpus, {})]
    return pl.concat([records for records, _ in got]), pl.concat([bad for _, bad in got])


def books(count: int, rows: int = 3) -> list[dict[str, object]]:
    """Books of `rows` to `rows` + 2 lines."""
    lines = [(b, r) for b in range(count) for r in range(rows + b % 3)]
    return [{"book": f"b{b}", "text": f"Line {r} of the book number {b}."} for b, r in lines]


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[dict[str, object]], **options: object) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


# Text


def test_paragraphs_of_a_text_file_are_records_with_their_first_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne goes\r\n  on here.\r\n\r\n\r\nTwo.\r\n")
    records, bad = everything(tmp_path / "a.txt")
    assert records.rows() == [
        ("a.txt", 1, "a.txt", "", "en", "One goes on here.", 0),
        ("a.txt", 5, "a.txt", "", "en", "Two.", 1),
    ]
    assert bad.is_empty()


def test_with_lines_each_line_is_a_record_and_a_blank_line_begins_a_document(tmp_path):
    (tmp_path / "a.txt").write_text("\nOne.\nTwo.\n\n\nThree.\n")
    records, _ = everything(tmp_path, Corpus(lines=True))
    assert records["text"].to_list() == ["One.", "Two.", "Three."]
    assert records["id"].to_list() == ["a.txt:1", "a.txt:1", "a.txt:2"]
    assert records["place"].to_list() == [0, 1, 0]


def test_a_paragraph_over_the_limit_is_cut_at_line_ends(tmp_path):
    (tmp_path / "a.txt").write_text("aaaa\nbbbb\ncccc\n")
    records, bad = everything(tmp_path, Corpus(longest=9))
    assert records["text"].to_list() == ["aaaa bbbb", "cccc"]
    assert bad.is_empty()


def test_a_line_of_ten_megabytes_goes_to_quarantine_and_its_neighbours_stay_apart(tmp_path):
    (tmp_path / "a.txt").write_text("Before.\n" + "x" * 10_000_000 + "\nAfter.\n")
    records, bad = everything(tmp_path)
    assert records.select("text", "place").rows() == [("Before.", 0), ("After.", 2)]
    assert bad.rows() == [("a.txt", 2, "text of 10000000 characters; corpus.longest is 1000000", "x" * 80)]


def test_a_line_that_is_not_utf8_is_named_and_costs_only_itself(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"Fine.\n\ncaf\xe9 noir\n\nAlso fine.\n")
    records, bad = everything(tmp_path)
    assert records.select("text", "place").rows() == [("Fine.", 0), ("Also fine.", 2)]
    assert bad.select("row", "excerpt").row(0) == (3, "caf\\xe9 noir")
    assert "not UTF-8 at byte 3" in bad["reason"][0]


def test_nul_goes_to_quarantine_with_a_printable_excerpt(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"Good.\n\nb\x00d\n")
    records, bad = everything(tmp_path)
    assert records["text"].to_list() == ["Good."]
    assert bad["excerpt"].to_list() == ["b\\x00d"]


def test_compressed_text_reads_like_plain_text(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"One.\n") + gzip.compress(b"\nTwo.\n"))
    with pa.CompressedOutputStream(str(tmp_path / "b.txt.zst"), "zstd") as stream:
        stream.write(b"Three.")
    records, _ = everything(tmp_path)
    assert records["text"].to_list() == ["One.", "Two.", "Three."]


def test_broken_gzip_is_an_error_with_the_file_and_the_remedy(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"One. " * 1000)[:-9])
    with pytest.raises(SourceError, match=r"a\.txt\.gz: broken gzip data.*write the file again"):
        everything(tmp_path)


# Markdown

MARKDOWN = """---
title: front matter
---
# A *first* heading

Some **bold** prose with a [link](https://example.org/x) and `code`,
and ![an image](x.png) more <b>words</b> &amp; signs. <!-- hidden
still hidden --> Seen.

```python
print("not prose")
```

| a | b |
|---|---|
| 1 | 2 |

Second
------
- item one
  goes on
- item two

    def code(): pass

[ref]: https://example.org
> A quoted snake_case line.
"""


def test_markdown_keeps_prose_and_headings_only(tmp_path):
    (tmp_path / "a.md").write_text(MARKDOWN)
    records, bad = everything(tmp_path)
    assert records.select("row", "title", "text").rows() == [
        (6, "A first heading", "Some bold prose with a link and code, and more words & signs. Seen."),
        (20, "Second", "item one goes on"),
        (22, "Second", "item two"),
        (24, "Second", "def code(): pass"),  # indented below an item: part of the item
        (27, "Second", "A quoted snake_case line."),
    ]
    assert bad.is_empty()


def test_indented_code_outside_a_list_is_no_prose(tmp_path):
    (tmp_path / "a.md").write_text("Prose here.\n\n    code = 1\n\n    more = 2\n\nProse again.\n")
    assert everything(tmp_path)[0]["text"].to_list() == ["Prose here.", "Prose again."]


# Rows: JSON lines, CSV, Parquet


@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv", "parquet", "jsonl.gz"])
def test_every_row_format_gives_the_same_records(tmp_path, form):
    rows = [
        {"book": "b", "n": 1, "t": "T", "l": "en", "text": "One."},
        {"book": "b", "n": 2, "t": "T", "l": "de", "text": "Zwei."},
        {"book": "c", "n": 1, "t": "U", "l": "en", "text": "Three."},
    ]
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        write_parquet(path, rows)
    elif form == "jsonl":
        write_lines(path, rows)
    elif form == "jsonl.gz":
        path.write_bytes(gzip.compress(write_lines(tmp_path / "hidden", rows).read_bytes()))
    else:
        pl.DataFrame(rows).write_csv(path, separator="\t" if form == "tsv" else ",")
    corpus = Corpus(document=("file", "book"), order=("n",), title="t", language_column="l")
    records, bad = everything(path, corpus)
    name = path.name
    assert records.rows() == [
        (name, 1, f"{name}/b", "T", "en", "One.", 0),
        (name, 2, f"{name}/b", "T", "de", "Zwei.", 1),
        (name, 3, f"{name}/c", "U", "en", "Three.", 0),
    ]
    assert bad.is_empty()


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_without_document_columns_the_id_column_names_them_and_numbers_are_fine(tmp_path, form):
    rows = [{"id": 7, "text": "One."}, {"id": 8, "text": "Two."}]
    path = tmp_path / f"a.{form}"
    {"jsonl": write_lines, "parquet": write_parquet, "csv": lambda p, r: pl.DataFrame(r).write_csv(p)}[form](path, rows)
    assert everything(path)[0]["id"].to_list() == ["7", "8"]


def test_without_id_column_the_file_is_one_document(tmp_path):
    write_lines(tmp_path / "a.jsonl", [{"text": "One."}, {"text": "Two."}])
    assert everything(tmp_path)[0]["id"].to_list() == ["a.jsonl", "a.jsonl"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_missing_column_is_an_error_that_names_those_there(tmp_path, form):
    rows = [{"body": "One.", "n": "1"}]
    path = tmp_path / f"a.{form}"
    {"jsonl": write_lines, "parquet": write_parquet, "csv": lambda p, r: pl.DataFrame(r).write_csv(p)}[form](path, rows)
    with pytest.raises(SourceError, match=rf"a\.{form}: no column text; columns there: body, n; set corpus\.text"):
        everything(path)


def test_order_sorts_the_rows_of_a_document_as_numbers_where_they_are(tmp_path):
    write_lines(tmp_path / "a.jsonl", [{"book": "b", "n": n, "text": f"T{n}"} for n in (10, 9, 2)])
    records, _ = everything(tmp_path, Corpus(document=("book",), order=("n",)))
    assert records.select("text", "row", "place").rows() == [("T2", 3, 0), ("T9", 2, 1), ("T10", 1, 2)]


BAD_LINES = [
    (b'{"text": "cut in ha', "not JSON"),
    (b'{"text": 5}', "text is int, should be a string"),
    (b'{"text": null}', "text is missing"),
    (b'{"text": "  \\t "}', "text is blank"),
    (b'{"body": "x"}', "text is missing"),
    (b'["text"]', "a JSON list, should be an object"),
    (b'{"text": "caf\xe9"}', "not UTF-8"),
    (b'{"text": "half \\ud800 pair"}', "surrogate"),
    (b"[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_a_bad_json_line_is_put_aside_and_leaves_a_gap(tmp_path, line, reason):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "One."}\n' + line + b'\n{"text": "Two."}\n')
    records, bad = everything(tmp_path)
    assert records.select("text", "row", "place").rows() == [("One.", 1, 0), ("Two.", 3, 2)]
    assert bad.select("source", "row").rows() == [("a.jsonl", 2)]
    assert reason in bad["reason"][0]


def test_a_row_without_document_is_put_aside(tmp_path):
    write_lines(tmp_path / "a.jsonl", [{"book": "b", "text": "One."}, {"text": "Lost."}, {"book": "b", "text": "Two."}])
    records, bad = everything(tmp_path, Corpus(document=("book",)))
    assert records["place"].to_list() == [0, 2]
    assert "no value in document column book" in bad["reason"][0]


def test_a_csv_line_of_wrong_length_is_put_aside_with_its_row(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'n,text\n1,"One, or\nmore"\n2,Two,too\n3,caf\xe9\n4,\n5,Five\n')
    records, bad = everything(tmp_path)
    assert records.select("row", "text", "place").rows() == [(1, "One, or\nmore", 0), (5, "Five", 4)]
    assert bad["row"].to_list() == [2, 3, 4]
    assert bad["reason"][0] == "3 values, should be 2; quote or mend the line"


def test_a_quote_that_is_never_closed_is_told(tmp_path):
    (tmp_path / "a.csv").write_text('n,text\n1,One\n2,"Two\n3,Three\n')
    records, bad = everything(tmp_path)
    assert records["text"].to_list() == ["One"]
    assert "never closed" in bad["reason"][0]


def test_a_csv_column_that_is_there_twice_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("text,text\n1,One\n")
    with pytest.raises(SourceError, match=r"a\.csv: column text is there twice"):
        everything(tmp_path)


def test_quotes_are_plain_characters_in_tab_separated_files(tmp_path):
    (tmp_path / "a.tsv").write_text('n\ttext\n1\t"One\n2\tTwo\n')
    assert everything(tmp_path)[0]["text"].to_list() == ['"One', "Two"]


def test_bad_text_in_parquet_is_put_aside(tmp_path):
    raw = pa.array([b"One.", None, b"caf\xe9", b" ", b"Two."], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 5, raw.buffers())
    pq.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
    records, bad = everything(tmp_path)
    assert records.select("text", "place").rows() == [("One.", 0), ("Two.", 4)]
    assert bad.select("row", "excerpt").rows() == [(2, ""), (3, "caf\\xe9"), (4, " ")]


def test_parquet_text_that_is_no_string_column_is_an_error(tmp_path):
    write_parquet(tmp_path / "a.parquet", [{"text": 5}])
    with pytest.raises(SourceError, match=r"column text is int64; text must be a string column"):
        everything(tmp_path)


@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_truncated_parquet_is_an_error_before_any_work(tmp_path, keep):
    path = write_parquet(tmp_path / "a.parquet", books(500))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(SourceError, match=r"a\.parquet: broken Parquet: .*write the file again or move it away"):
        sources.shards(str(tmp_path), ROWS, {})


def test_parquet_with_damaged_pages_is_an_error(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", books(500), compression="zstd")
    data = bytearray(path.read_bytes())
    data[20 : len(data) // 2] = bytes(len(data) // 2 - 20)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.parquet: broken Parquet"):
        sources.shards(str(tmp_path), ROWS, {})


def test_scattered_rows_are_refused_with_file_row_and_remedy(tmp_path):
    write_lines(tmp_path / "a.jsonl", [{"book": b, "text": f"{b}."} for b in "bcb"])
    with pytest.raises(SourceError, match=r"a\.jsonl, row 3: document b comes back .*corpus\.scattered=sort"):
        everything(tmp_path, Corpus(document=("book",)))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_scattered_rows_are_sorted_by_first_appearance_on_request(tmp_path, form):
    rows = [{"book": f"b{i % 3}", "text": f"Row {i} is here."} for i in range(30)]
    (write_lines if form == "jsonl" else write_parquet)(tmp_path / f"a.{form}", rows)
    records, _ = everything(tmp_path, ROWS.model_copy(update={"scattered": "sort"}))
    assert records["id"].to_list() == [f"b{i}" for i in range(3) for _ in range(10)]
    assert records["row"].to_list() == [b + 3 * i + 1 for b in range(3) for i in range(10)]


# Shards


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_chunks_hold_whole_documents_and_together_all_rows(tmp_path, form):
    path = tmp_path / f"a.{form}"
    (write_lines if form == "jsonl" else write_parquet)(path, books(40))
    shards = sources.shards(str(path), ROWS, {})
    got = [sources.read(shard, ROWS)[0] for shard in shards]
    assert len(shards) > 5
    assert pl.concat(got)["row"].to_list() == list(range(1, len(books(40)) + 1))
    assert sum(records["id"].n_unique() for records in got) == 40
    assert all(shard.first_row == records["row"][0] for shard, records in zip(shards, got, strict=True))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rows_that_are_appended_leave_earlier_chunks_alone(tmp_path, form):
    path = tmp_path / f"a.{form}"
    write = write_lines if form == "jsonl" else write_parquet
    before = sources.shards(str(write(path, books(40))), ROWS, {})
    after = sources.shards(str(write(path, books(60))), ROWS, {})
    same = {shard.digest for shard in before} & {shard.digest for shard in after}
    assert len(after) > len(before)
    assert len(same) >= len(before) - 1


def test_parquet_digests_do_not_depend_on_row_groups_or_compression(tmp_path):
    path = tmp_path / "a.parquet"
    one = sources.shards(str(write_parquet(path, books(3000, 4))), ROWS, {})
    two = sources.shards(str(write_parquet(path, books(3000, 4), row_group_size=7, compression="zstd")), ROWS, {})
    assert one == two


def test_a_chunk_over_several_batches_is_read_as_it_was_digested(tmp_path):
    corpus = Corpus(document=("book",), shard_bytes=200_000)
    path = write_parquet(tmp_path / "a.parquet", books(3000, 4))
    shards = sources.shards(str(path), corpus, {})
    assert len(shards) == 3
    assert sum(len(sources.read(shard, corpus)[0]) for shard in shards) == len(books(3000, 4))


@pytest.mark.parametrize("count", [60, 200])
def test_a_new_file_makes_one_new_digest(tmp_path, count):
    for i in range(count):
        (tmp_path / f"{i}.txt").write_text(f"Text number {i}.")
    before = {shard.digest for shard in sources.shards(str(tmp_path), PLAIN, {})}
    (tmp_path / "new.txt").write_text("New text.")
    shards = sources.shards(str(tmp_path), PLAIN, {})
    after = {shard.digest for shard in shards}
    assert len(after - before) == 1
    assert len(after) == (61 if count == 60 else len(before))
    assert sum(len(sources.read(shard, PLAIN)[0]) for shard in shards) == count + 1


def test_many_small_files_are_put_together_in_at_most_64_buckets(tmp_path):
    for i in range(200):
        (tmp_path / f"{i}.txt").write_text(f"Text number {i}.")
    assert 50 < len(sources.shards(str(tmp_path), PLAIN, {})) <= 64


def test_a_bucket_of_one_file_has_the_digest_of_the_file_alone(tmp_path):
    for i in range(60):
        (tmp_path / f"{i}.txt").write_text(f"Text number {i}.")
    before = {shard.digest for shard in sources.shards(str(tmp_path), PLAIN, {})}
    for i in range(60, 66):
        (tmp_path / f"{i}.txt").write_text(f"Text number {i}.")
    shards = sources.shards(str(tmp_path), PLAIN, {})
    alone = {shard.digest for shard in shards if len(shard.files) == 1 and int(Path(shard.files[0]).stem) < 60}
    assert alone
    assert alone <= before


def test_a_renamed_file_has_another_digest(tmp_path):
    (tmp_path / "a.txt").write_text("Text.")
    (before,) = sources.shards(str(tmp_path), PLAIN, {})
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    (after,) = sources.shards(str(tmp_path), PLAIN, {})
    assert before.digest != after.digest


def test_what_is_remembered_is_not_read_again(tmp_path, monkeypatch):
    write_parquet(tmp_path / "a.parquet", books(20))
    write_lines(tmp_path / "b.jsonl", books(20))
    (tmp_path / "c.txt").write_text("Text.")
    memory: dict[str, object] = {}
    before = sources.shards(str(tmp_path), ROWS, memory)
    remembered = json.loads(json.dumps(memory))
    monkeypatch.setattr(files, "open_file", lambda uri: pytest.fail(f"{uri} is opened"))
    assert sources.shards(str(tmp_path), ROWS, remembered) == before


def test_a_file_that_changed_is_not_taken_from_memory(tmp_path):
    memory: dict[str, object] = {}
    (tmp_path / "a.txt").write_text("Text.")
    (before,) = sources.shards(str(tmp_path), PLAIN, memory)
    (tmp_path / "a.txt").write_text("Other text.")
    (after,) = sources.shards(str(tmp_path), PLAIN, memory)
    assert before.digest != after.digest
    assert sources.read(after, PLAIN)[0]["text"].to_list() == ["Other text."]


def test_other_settings_of_chunks_are_not_taken_from_memory(tmp_path):
    write_parquet(tmp_path / "a.parquet", books(40))
    memory: dict[str, object] = {}
    small = sources.shards(str(tmp_path), ROWS, memory)
    assert len(sources.shards(str(tmp_path), ROWS.model_copy(update={"shard_bytes": 10_000}), memory)) < len(small)


@pytest.mark.parametrize("form", ["txt", "jsonl", "parquet"])
def test_a_file_that_changes_before_it_is_read_is_an_error(tmp_path, form):
    path = tmp_path / f"a.{form}"
    write = {"jsonl": write_lines, "parquet": write_parquet, "txt": lambda p, r: p.write_text(str(r))}[form]
    write(path, books(3))
    (shard,) = sources.shards(str(path), Corpus(document=("book",)), {})
    write(path, [*books(2), {"book": "b1", "text": "Another line."}])
    with pytest.raises(SourceError, match="changed while it was read"):
        sources.read(shard, Corpus(document=("book",)))


def test_a_file_that_is_gone_before_it_is_read_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("Text.")
    (shard,) = sources.shards(str(tmp_path), PLAIN, {})
    (tmp_path / "a.txt").unlink()
    with pytest.raises(SourceError, match="cannot be opened"):
        sources.read(shard, PLAIN)


# What is at the path


def test_an_empty_path_is_an_error():
    with pytest.raises(SourceError, match="the source is empty; give a file"):
        sources.shards(" ", PLAIN, {})


def test_a_missing_path_is_an_error_that_names_it(tmp_path):
    with pytest.raises(SourceError, match=r"nowhere: no such file or folder"):
        sources.shards(str(tmp_path / "nowhere"), PLAIN, {})


def test_an_empty_folder_is_an_error_that_names_the_known_suffixes(tmp_path):
    with pytest.raises(SourceError, match=r"the folder holds no files; known suffixes: \.txt"):
        sources.shards(str(tmp_path), PLAIN, {})


def test_unknown_suffixes_are_an_error_that_names_them(tmp_path):
    (tmp_path / "a.doc").write_text("x")
    (tmp_path / "b.parquet.gz").write_text("x")
    with pytest.raises(SourceError, match=r"nothing usable; suffixes there: \.doc, \.gz; known: \.txt"):
        sources.shards(str(tmp_path), PLAIN, {})


def test_files_of_unknown_suffix_are_left_alone_where_others_are_usable(tmp_path):
    (tmp_path / "a.doc").write_text("x")
    (tmp_path / "a.txt").write_text("Text.")
    assert everything(tmp_path)[0]["source"].to_list() == ["a.txt"]


def test_an_unknown_scheme_is_an_error():
    with pytest.raises(SourceError, match=r"ftp://host/x.*known: paths, and URIs such as s3://"):
        sources.shards("ftp://host/x", PLAIN, {})


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
def test_a_single_empty_file_is_an_error(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(SourceError, match=r"all empty"):
        sources.shards(str(tmp_path / name), PLAIN, {})


@pytest.mark.parametrize("name", ["b.txt", "b.jsonl", "b.csv", "b.parquet", "b.txt.gz"])
def test_an_empty_file_among_others_goes_to_quarantine(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / "a.txt").write_text("Text.")
    records, bad = everything(tmp_path)
    assert records["text"].to_list() == ["Text."]
    assert bad.select("source", "row").rows() == [(name, 1)]


def test_a_parquet_file_without_rows_goes_to_quarantine(tmp_path):
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "b.parquet")
    (tmp_path / "a.txt").write_text("Text.")
    assert everything(tmp_path)[1].select("source", "row").rows() == [("b.parquet", 1)]


def test_folders_are_read_to_the_bottom_and_hidden_files_skipped(tmp_path):
    for name in ("a/b/c.txt", ".git/x.txt", "a/.hidden.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Text.")
    assert everything(tmp_path)[0]["source"].to_list() == ["a/b/c.txt"]


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "d/b.txt", "d/e/c.txt"]),
        ("d*", ["d/b.txt", "d/e/c.txt"]),
        ("?/[a-b].txt", ["d/b.txt"]),
        ("d/**/c.txt", ["e/c.txt"]),
    ],
)
def test_globs_choose_files_by_their_path_below_the_first_wildcard(tmp_path, glob, names):
    for name in ("a.txt", "d/b.txt", "d/e/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Text.")
    assert sorted(file.relative for file in files.listing(f"{tmp_path}/{glob}")[1]) == names


def test_a_path_with_wildcards_in_its_name_is_taken_as_it_is(tmp_path):
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "a[1]" / "x.txt").write_text("Text.")
    assert everything(tmp_path / "a[1]")[0]["source"].to_list() == ["x.txt"]


def test_links_out_of_the_corpus_are_never_read(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret.txt").write_text("Secret.")
    (inside / "a.txt").write_text("Text.")
    (inside / "link.txt").symlink_to(outside / "secret.txt")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "broken.txt").symlink_to(inside / "nothing.txt")
    records, bad = everything(inside)
    assert records["text"].to_list() == ["Text."]
    assert bad["source"].to_list() == ["broken.txt", "folder", "link.txt"]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "p.txt")
    (tmp_path / "a.txt").write_text("Text.")
    assert everything(tmp_path)[1]["source"].to_list() == ["p.txt"]


def test_a_file_name_that_is_not_utf8_is_told(tmp_path):
    (tmp_path / "a.txt").write_text("Text.")
    with open(os.fsencode(tmp_path) + b"/b\xe9.txt", "w") as file:  # noqa: PTH123 (pathlib has no names of bytes)
        file.write("Text.")
    assert everything(tmp_path)[1]["source"].to_list() == ["b\ufffd.txt"]


def test_a_uri_is_read_like_a_folder():
    system, path = fs.FileSystem.from_uri("fsspec+memory://firth-test/corpus")
    system.create_dir(path)
    for name, text in (("b.txt", b"Two."), ("a.txt", b"One."), (".c.txt", b"Three.")):
        with system.open_output_stream(f"{path}/{name}") as stream:
            stream.write(text)
    records, _ = everything("fsspec+memory://firth-test/corpus")
    only, _ = everything("fsspec+memory://firth-test/corpus/b*")
    system.delete_dir(path)
    assert records.select("source", "text").rows() == [("a.txt", "One."), ("b.txt", "Two.")]
    assert only["source"].to_list() == ["b.txt"]


def test_equal_digests_do_not_hide_another_first_row(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", books(40))
    shard = sources.shards(str(path), ROWS, {})[1]
    with pytest.raises(SourceError, match="changed while it was read"):
        sources.read(replace(shard, first_row=shard.first_row + 1), ROWS)


def test_a_chunk_says_what_it_covers():
    assert Chunk("d") == Chunk("d", 0, -1, 1, False)
