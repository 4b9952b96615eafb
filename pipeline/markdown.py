"""
Markdown to plain lines: a light, line-based cleaner that keeps prose and headings and drops the rest.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import unescape

Line = str | bytes  # bytes where they are not UTF-8

FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
UNDERLINE = re.compile(r"\s{0,3}(=+|-+)\s*$")
RULE = re.compile(r"\s{0,3}([-*_])(\s*\1){2,}\s*$")
TABLE = re.compile(r"\s*\|.*\||.*\|\s*:?-{3,}:?\s*\|?|\s*:?-{3,}:?\s*\|")
DEFINITION = re.compile(r"\s{0,3}\[[^\]]+\]:\s")
ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s+(\[[ xX]\]\s+)?")
QUOTE = re.compile(r"^\s{0,3}(>\s?)+")
COMMENT = re.compile(r"<!--.*?-->")
INLINE = (
    (re.compile(r"!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])"), ""),  # images
    (re.compile(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])"), r"\1"),  # links: what they say, not where they lead
    (re.compile(r"<(https?|mailto):[^>]*>|https?://\S+"), ""),
    (re.compile(r"</?[A-Za-z][^<>]*>"), ""),  # tags
    (re.compile(r"(`+)(.+?)\1"), r"\2"),
    (re.compile(r"(\*{1,3}|~~)(?=\S)(.+?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"\\([\\`*_{}\[\]()#+.!|>~-])"), r"\1"),
)


@dataclass
class _State:
    title: str = ""
    fence: str = ""  # the marker that ends the code block
    comment: bool = False
    listed: bool = False  # indented lines belong to a list item, and are no code
    blank: bool = True


def cleaned(lines: Iterable[tuple[int, Line]]) -> Iterator[tuple[int, str, Line]]:
    """Row, heading above it, and text of each line; what is no prose is blank, and so ends its paragraph."""
    state, held = _State(), list(lines)
    start = _front_matter(held)
    for (row, line), (_, below) in zip(held[start:], [*held[start + 1 :], (0, "")], strict=True):
        if isinstance(line, bytes):
            yield row, state.title, line
        elif UNDERLINE.match(line) and (state.blank or not state.listed):
            state.blank = True
            yield row, state.title, ""  # below a heading, or a rule
        else:
            for text in _parts(line, below if isinstance(below, str) else "", state):
                yield row, state.title, text


def _front_matter(lines: list[tuple[int, Line]]) -> int:
    if lines and lines[0][1] == "---":
        ends = [i for i, (_, line) in enumerate(lines[1:], 1) if line in ("---", "...")]
        return ends[0] + 1 if ends else 0
    return 0


def _parts(line: str, below: str, state: _State) -> Iterator[str]:
    text = "" if _fenced(line, state) else _uncommented(line, state)
    was_blank, state.blank = state.blank, not text.strip()
    item = ITEM.match(text)
    code = was_blank and not state.listed and text.startswith(("    ", "\t"))
    if code:
        state.blank = True  # the next indented line is code as well
    if state.blank or RULE.match(text) or TABLE.match(text) or DEFINITION.match(text):
        yield ""
        return
    text = QUOTE.sub("", text, count=1)
    if (heading := HEADING.match(text)) or (UNDERLINE.match(below) and not item and below.strip() != "-"):
        state.title, state.listed = plain(heading.group(1) if heading else text), False
        yield ""
        return
    state.listed = item is not None or (state.listed and text[:1].isspace())
    if item:
        yield ""
    yield plain(text[item.end() :] if item and item.end() <= len(text) else text)


def _fenced(line: str, state: _State) -> bool:
    mark = FENCE.match(line)
    if state.fence:
        if mark and mark.group(1).startswith(state.fence):
            state.fence = ""
        return True
    if mark and not state.comment:
        state.fence = mark.group(1)
    return bool(state.fence)


def _uncommented(line: str, state: _State) -> str:
    if state.comment:
        _, end, line = line.partition("-->")
        if not end:
            return ""
        state.comment = False
    line = COMMENT.sub("", line)
    before, begin, _ = line.partition("<!--")
    state.comment = bool(begin)
    return before


def plain(text: str) -> str:
    """A line without inline markup."""
    for pattern, instead in INLINE:
        text = pattern.sub(instead, text)
    return " ".join(unescape(text).split())
