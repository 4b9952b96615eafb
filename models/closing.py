"""
A closing mark for texts that have none, as a step of tokenizer.json, so that each reader of that file does it.

This file imports no torch, so that data workers can read a model folder's tokenizer cheaply.
"""

import json

CLOSING = "[^\\s.!?\u2026\u3002\uff01\uff1f\"'\u201d\u2019\u00bb]"  # what a text that is not closed ends with
STOP = {"type": "Replace", "pattern": {"Regex": rf"(?<={CLOSING})\s*(?![\s\S])"}, "content": "."}


def plain(text: str) -> str:
    """A tokenizer's JSON without what `stopping` puts into it; any other stays as it is, to the byte."""
    tree = json.loads(text)
    parts = (tree.get("normalizer") or {}).get("normalizers") or []
    if parts[:1] != [STOP]:
        return text
    return json.dumps(tree | {"normalizer": parts[1] if len(parts) > 1 else None}, ensure_ascii=False)


def stopping(text: str) -> str:
    """
    A tokenizer's JSON that adds a full stop to a text that does not end with . ! ? or a closing quote.

    Empty texts stay empty. Where special words stand inside a text, each stretch between them counts as a text.

    Source:
        Jiang et al. 2022 (PromptBERT): the authors' evaluation. Theirs also adds one behind an exclamation mark.
    """
    tree = json.loads(plain(text))
    parts = [STOP] + ([tree["normalizer"]] if tree.get("normalizer") else [])
    return json.dumps(tree | {"normalizer": {"type": "Sequence", "normalizers": parts}}, ensure_ascii=False)
