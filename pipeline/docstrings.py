"""
Docstrings to prose: paragraphs that a person would read aloud, without code, tables, field lists and markup.

The layouts of reStructuredText, numpy, Google and plain style are told apart line by line.
"""

import re
from collections.abc import Iterator
from textwrap import dedent

# Sections that list names, types, pointers or code; their words are fragments.
LISTS = re.compile(
    r"((other|keyword|optional|type|class|instance|constructor|function|positional|required|returned?|public)s?[ _])?"
    r"(param(eter)?s?|arg(ument)?s?|kwargs?|keywords?|attributes?|returns?|yields?|rtype|receives?|raises?|warns|throws|"
    r"exceptions?|inputs?|outputs?|methods?|functions?|classes|constants?|exports?|members|fields|properties|options|"
    r"see also|seealso|references?|examples?|usage|shapes?|variables|invariants|(typical|example|sample) usage|"
    r"usage examples?|todo|synopsis|code|versions?|authors?|values?)( \(.*\))?",
    re.IGNORECASE,
)
KEPT = re.compile(
    r"notes?|warnings?|tip|important|caution|attention|hint|admonition|topic|summary|description", re.IGNORECASE
)
UNDERLINE = re.compile(r"\s*([-=~^*#+\"'`.])\1{2,}\s*$")
LABEL = re.compile(r"\s*\**([A-Za-z][\w ()-]{0,60}?)\**\s*:{1,2}\**\s*$")
DIRECTIVE = re.compile(r"\s*\.\.(\s|$|_)")
NAMED = re.compile(r"\s*\.\. ([\w-]+(?::[\w-]+)?)\s*::\s*(.*)$")
FENCE = re.compile(r"\s*(```|~~~)")
CODE = re.compile(r"\s*(>>>|\.\.\. |In ?\[\d+\]:|[$%] |Traceback \(most recent|@\w|(from \w+ )?import \w+|[-+]+\+)")
FIELD = re.compile(r"\s*(:[\w ,*\\-]{1,60}:(\s|$)|@\w+( \w+)?:)")
ITEM = re.compile(r"\s*([-*+•]|\(?(\d{1,2}|[a-z])[.)])\s+(?=\S)")
TABLE = re.compile(r"\s*([|+].*[|+]\s*$|={3,}(\s+={3,})+|-{3,}(\s+-{3,})+)")
TERM = re.compile(
    r"\S+(\s*\([^)]*\))?\s*(--?|==?|=>|->|\|)\s|[\w.*`'\"\[\]/-]+(\([^)]*\))?(,\s*\S+)*(\s*\([^)]*\))?\s*:\s|\S+\s{2,}\S"
)
INLINE = (
    (re.compile(r"\\ "), ""),  # an escaped space joins
    (re.compile(r"\[\d+\]_|\[#?\w*\]_"), ""),  # footnotes
    (re.compile(r":(?:\w+:)*\w+:`~?([^`<]*?)\s*<[^`]*>`"), r"\1"),  # role with its own words
    (re.compile(r":(?:\w+:)*\w+:`~(?:[\w.]*\.)?([^`]*)`"), r"\1"),  # role shown by its last part
    (re.compile(r":(?:\w+:)*\w+:`!?([^`]*)`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]+>`_{0,2}"), r"\1"),  # links
    (re.compile(r"\[([^\]]+)\]\([^)\s]*\)"), r"\1"),  # links of Markdown
    (re.compile(r"<?https?://[^\s>]+>?"), ""),
    (re.compile(r"(`{1,2})(.+?)\1_{0,2}"), r"\2"),
    (re.compile(r"`([^`']+)'"), r"'\1'"),
    (re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*]+?)(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"\|([A-Za-z]\w*)\|"), r"\1"),
    (re.compile(r"\\([*`_|\\])"), r"\1"),
)
CUT_OFF = re.compile(r"\s+(Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Usage|Inputs?|Outputs?):$")
SIGNATURE = re.compile(r"[\w.]+\(.*\)\s*(->.*)?$")
FORMULA = re.compile(r"\\[A-Za-z]{2,}")  # LaTeX
WORD = re.compile(r"[^\W\d_]{2,}|\b[aAI]\b")


def prose(docstring: str) -> list[str]:
    """Paragraphs of prose of a docstring whose common indentation is gone."""
    found = (unmarked(" ".join(lines)) for lines in _paragraphs(docstring.expandtabs().split("\n")))
    return [text for text in found if is_prose(text)]


def unmarked(text: str) -> str:
    """A paragraph without inline markup."""
    for pattern, instead in INLINE:
        text = pattern.sub(instead, text)
    text = re.sub(r"\s+([,.;:)])(?=\s|$)", r"\1", " ".join(text.split()))
    return CUT_OFF.sub("", re.sub(r"::(?=\s|$)", ":", text))


def is_prose(text: str) -> bool:
    """Whether a paragraph reads as prose: three words at least, and mostly words."""
    words = WORD.findall(text)
    spoken = sum(any(map(str.isalpha, token)) for token in text.split())
    if spoken < 3 or len(words) < 3 or SIGNATURE.match(text) or len(FORMULA.findall(text)) > 1:
        return False
    letters = sum(map(len, words)) + text.count(" ")
    return letters >= 0.75 * len(text)


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Lines of each paragraph outside code, lists of names and directives, from a block that begins at indent 0."""
    at, listed = 0, False
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif (special := _special(lines, at)) is not None:
            at, inner = special
            yield from _paragraphs(inner)
        elif line.startswith(" "):
            end = _end_of_block(lines, at, 0)  # below a list item it goes on with it; elsewhere it is code
            if listed:
                yield from _paragraphs(_dedented(lines[at:end]))
            at = end
        else:
            end = _end_of_paragraph(lines, at)
            item = ITEM.match(line)
            listed = item is not None and not lines[end - 1].rstrip().endswith("::")
            text = [line[item.end() :] if item else line, *lines[at + 1 : end]]
            if not _is_term(text, item is not None):
                yield text
            at = end


def _special(lines: list[str], at: int) -> tuple[int, list[str]] | None:
    """Where a construct that is no paragraph ends, and the lines inside that may be prose; None: a paragraph."""
    line = lines[at]
    indent = _indent(line)
    if UNDERLINE.match(line):
        return at + 1, []
    if at + 1 < len(lines) and UNDERLINE.match(lines[at + 1]):
        end = _next_section(lines, at + 2)
        return (end, []) if LISTS.fullmatch(line.strip().rstrip(":")) else (at + 2, [])
    if (label := LABEL.match(line)) and LISTS.fullmatch(label[1]):
        return _end_of_block(lines, at + 1, indent), []
    if label and KEPT.fullmatch(label[1]):
        end = _end_of_block(lines, at + 1, indent)
        return end, _dedented(lines[at + 1 : end])
    if DIRECTIVE.match(line):
        end = _end_of_block(lines, at + 1, indent)
        named = NAMED.match(line)
        return end, [named[2], *_dedented(lines[at + 1 : end])] if named and KEPT.fullmatch(named[1]) else []
    if FENCE.match(line):
        return next((i + 1 for i in range(at + 1, len(lines)) if FENCE.match(lines[i])), len(lines)), []
    if CODE.match(line) or TABLE.match(line) or FIELD.match(line):
        end = next((i for i in range(at, len(lines)) if not lines[i].strip()), len(lines))
        return _end_of_block(lines, end, indent) if FIELD.match(line) else end, []
    return None


def _is_term(text: list[str], is_item: bool) -> bool:
    """Whether a paragraph is an entry of a list of names: `name: what it is`, or a name with what it is below."""
    if (match := TERM.match(text[0])) and not KEPT.fullmatch(match[0].rstrip(": ")):
        return True
    return not is_item and len(text) > 1 and _indent(text[1]) > _indent(text[0])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _dedented(lines: list[str]) -> list[str]:
    return dedent("\n".join(lines)).split("\n")


def _end_of_block(lines: list[str], at: int, indent: int) -> int:
    """First line from `at` on that has text and is not deeper than `indent`."""
    return next((i for i in range(at, len(lines)) if lines[i].strip() and _indent(lines[i]) <= indent), len(lines))


def _end_of_paragraph(lines: list[str], at: int) -> int:
    """First line after `at` that is blank, an item, or no part of a paragraph."""
    for i in range(at + 1, len(lines)):
        if not lines[i].strip() or ITEM.match(lines[i]) or _special(lines, i) is not None:
            return i
    return len(lines)


def _next_section(lines: list[str], at: int) -> int:
    """First underlined header from `at` on."""
    underlined = (i for i in range(at, len(lines) - 1) if lines[i].strip() and UNDERLINE.match(lines[i + 1]))
    return next((i for i in underlined if not UNDERLINE.match(lines[i])), len(lines))
