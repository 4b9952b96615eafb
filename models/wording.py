"""
tokenizer.json with what stands around a text, and the special words by the names that `transformers` has for them.

So a model folder's tokenizer makes by itself what the encoder sees; Firth reads it for the text alone.
"""

from typing import Any

from tokenizers import Tokenizer, processors

from models.recipe import Recipe
from models.views import NAMES, Frame, frame

FILLERS, UNKNOWN = ("[PAD]", "<pad>"), ("<unk>", "[UNK]")


def first_frame(recipe: Recipe, tokenizer: Tokenizer) -> Frame:
    """What stands around a text after training: the first view's words."""
    view = recipe.view[0] if recipe.view else None
    return frame(str(view.options["text"]) if view and view.kind == "template" else None, tokenizer)


def around(text: str, between: Frame) -> str:
    """
    A tokenizer's JSON that puts a frame around each text, and neither cuts nor fills by itself.

    One that does so already keeps its own way, in which it may treat pairs of texts too.
    """
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    bare = tokenizer.encode("a b", add_special_tokens=False).ids
    if tokenizer.encode("a b").ids != [*between.before, *bare, *between.behind]:
        tokenizer.post_processor = _processor(tokenizer, between)
    return str(tokenizer.to_str())


def named(text: str) -> dict[str, str]:
    """A tokenizer's special words as `transformers` asks for them: `cls_token` and so on."""
    tokenizer = Tokenizer.from_str(text)
    unknown = getattr(tokenizer.model, "unk_token", None)
    known: dict[str, tuple[str, ...]] = {
        "cls_token": NAMES["first"],
        "sep_token": NAMES["last"],
        "mask_token": NAMES["mask"],
        "pad_token": FILLERS,
        "unk_token": (unknown,) if unknown else UNKNOWN,
    }
    found = {role: [n for n in names if tokenizer.token_to_id(n) is not None] for role, names in known.items()}
    return {role: names[0] for role, names in found.items() if names}


def _processor(tokenizer: Tokenizer, between: Frame) -> Any:
    word = lambda number: str(tokenizer.id_to_token(number))
    entry = lambda name, ids: {"id": name, "ids": list(ids), "tokens": [word(number) for number in ids]}
    if len(between) > 2:  # the template's words go in as two special words of many numbers each
        sides = [entry("before", between.before), entry("behind", between.behind)]
        return processors.TemplateProcessing(
            single="before $A behind", pair="before $A behind $B", special_tokens=sides
        )
    first, last = word(between.before[0]), word(between.behind[0])
    return processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[entry(first, between.before), entry(last, between.behind)],
    )
