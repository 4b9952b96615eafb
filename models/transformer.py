"""
The transformer encoder: any of the `transformers` library's, from a folder, from the hub, or new from a few numbers.

Special words and templates are put around a text here, so that tables hold the text alone. Letters besides those of
`models`: S tokens of a text with what stands around it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from models.dropout import ATTENTION, install
from models.lookup import Dropout, Encoder, real
from models.packed import Packed
from models.pretrained import continuing, first_position, local, opened
from models.recipe import Choice, Readout
from models.rotary import KIND, fuse
from models.views import CUTS, SLOT, Frame, frame, framed, shuffle, special, split

Pooling = Literal["first", "mean", "mean-last-two", "mask"]
POOLINGS = ("first", "mean", "mean-last-two", "mask")
MASKED = ("transform",)  # heads that a masked-word model brings along


@dataclass(frozen=True)
class Around:
    """
    What an encoder is told beside its own options.

    Args:
        tokenizer: None where only shapes matter.
        views: one choice a view, complete; empty: plain ones.
        readout: what is different after training.
        masked: whether masked words are to be told, which needs a head over the vocabulary.
        base: a folder that takes the place of `path`: weights and sizes as they were saved.
        packed: whether texts stand in a row with their answers.
    """

    tokenizer: Tokenizer | None = None
    views: tuple[Choice, ...] = ()
    readout: Readout = field(default_factory=Readout)
    masked: bool = False
    base: Path | None = None
    packed: bool = False


class Transformer(Encoder):
    """
    A transformer over the tokens of a text, a pooling of its states, and a head.

    Args:
        vocabulary: number of words.
        path: folder of a model that `transformers` reads, or its name on the hub; empty: a new one of the sizes below.
        layers, width, heads: sizes of a new one.
        inner: width inside the feed-forward part; 0: four times `width`.
        positions: most tokens of a text, special ones included, of a new one.
        rotary: a new one is a RoFormer: queries and keys are turned by their places. What `path` names is as it is.
        dropout: share of states, and of attention, set to 0 in training; None: as `path` says, or 0.1.
        pooling: which state is a text's vector: that of the first token, the mean over its tokens in the last layer or
            in the last two, that of the mask word.
        head: what the vector goes through: nothing, a linear map, the same and tanh ("mlp"), or what a masked-word
            model has before its vocabulary: linear, GELU, layer norm ("transform").
        around: from the builder.
    Raises:
        RecipeError: there is no such model.
        ValueError: the tokenizer, the template or the sizes do not fit together.
    Source:
        Devlin et al. 2019 (BERT) for the new one. Heads: Gao, Yao and Chen 2021 (SimCSE), section 4; Jiang et al. 2022
        (PromptBERT), section 4.2.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        path: str = "",
        layers: int = 4,
        width: int = 256,
        heads: int = 4,
        inner: int = 0,
        positions: int = 512,
        rotary: bool = False,
        dropout: float | None = None,
        pooling: Pooling = "first",
        head: Literal["none", "linear", "mlp", "transform"] = "none",
        around: Around | None = None,
    ) -> None:
        super().__init__()
        self.around = around or Around()
        new = {"layers": layers, "width": width, "heads": heads, "inner": inner or 4 * width, "positions": positions}
        folder = self.around.base or (local(path) if path else None)
        masked = self.around.masked or head in MASKED
        self.whole = opened(folder, vocabulary, new, dropout, masked, self.around.tokenizer, rotary)
        self.body: Any = self.whole.base_model if masked else self.whole
        self.width = int(self.body.config.hidden_size)
        self.pooling, self.head_kind = pooling, head
        self.head = _head(head, self.width)
        self.drop = Dropout(0.0, shared=False)
        self.words = None
        _sparse(self.body)
        fuse(self.whole)
        install(self.whole)
        self.views = [_View.of(choice, self.around.tokenizer) for choice in self.around.views or (Choice(kind="none"),)]
        self._check(pooling, "encoder.pooling")
        self._check_parts(head)
        self._check(self.around.readout.pooling or pooling, "readout.pooling")
        self._keep: Tensor | None = None
        self._continues: Tensor | None = None
        if any(view.cut for view in self.views):
            self.body.embeddings.register_forward_hook(self._cut)

    def forward(
        self, id_LT: Tensor, length_L: Tensor, shared: Tensor | None = None, view_L: Tensor | None = None
    ) -> Tensor:
        """
        Vectors [L, D] of texts, float32 or float64.

        Args:
            id_LT: vocabulary numbers without special words; whatever stands behind a text's end is not read.
            length_L: int64 number of tokens of each text.
            shared: not used.
            view_L: which view each row is; None: all the first. Rows beyond the last view are encoded as that one.
        """
        view_L = torch.zeros_like(length_L) if view_L is None else view_L.long().clamp(max=len(self.views) - 1)
        return self._vectors(id_LT, length_L, view_L, self.pooling, use_head=True, denoise=True)

    def readout(self, id_LT: Tensor, length_L: Tensor) -> Tensor:
        """Vectors [L, D] after training: the first view, with what the recipe's readout keeps."""
        wanted, first = self.around.readout, torch.zeros_like(length_L)
        pooling = cast(Pooling, wanted.pooling or self.pooling)
        return self._vectors(id_LT, length_L, first, pooling, use_head=wanted.head, denoise=wanted.denoise)

    def states(self, id_LS: Tensor, length_L: Tensor, position_LS: Tensor | None = None) -> tuple[Tensor, ...]:
        """States of the last two layers, each [L, S, D]; the last one alone where no pooling needs both."""
        attention = None if bool((length_L == id_LS.shape[1]).all()) else real(length_L, id_LS.shape[1]).long()
        both = "mean-last-two" in (self.pooling, self.around.readout.pooling)
        given: dict[str, Any] = {"input_ids": id_LS, "attention_mask": attention}
        if position_LS is not None:
            given["position_ids"] = position_LS + first_position(self.body)
        out = self.body(**given, output_hidden_states=both)
        return tuple(out.hidden_states[-2:]) if both else (out.last_hidden_state,)

    def packed(self, rows: Packed) -> tuple[Tensor, Tensor]:
        """Of texts in a row with their answers the vectors [L, D], and the states [N, D] that tell the answers."""
        given = {"input_ids": rows.id_LS, "attention_mask": rows.sees()}
        if self.segmented:
            given["token_type_ids"] = rows.segment_LS
        state_LSD = self.body(**given).last_hidden_state
        vector_LD = _pooled((state_LSD,), rows.source_L, torch.zeros_like(rows.source_L), self.pooling)
        return self._headed(vector_LD, None, use_head=True).to(_exact(self.body)), state_LSD[rows.tells()]

    @property
    def segmented(self) -> bool:
        """Whether the body tells an answer from its text by segments."""
        return getattr(self.body.config, "type_vocab_size", 0) > 1

    def ends(self) -> tuple[int, int]:
        """The special words before and behind a text."""
        plain = _View.of(Choice(kind="none"), self.around.tokenizer).frame
        return plain.before[0], plain.behind[0]

    def share_head(self, other: Encoder) -> None:
        """Take another transformer's head in place of the own one."""
        assert isinstance(other, Transformer)
        self.head = other.head
        if self.head_kind in MASKED:
            self.whole.cls.predictions.transform = other._transform()

    def words_at(self, state_ND: Tensor) -> Tensor:
        """Scores [N, V] of the words at some states: the head of a masked-word model."""
        return cast(Tensor, self._words_head()(state_ND))

    def states_of(self, id_LT: Tensor, length_L: Tensor, chosen_LT: Tensor) -> Tensor:
        """States [N, D] of some tokens, row after row: texts stand between the first and the last word, no template."""
        length_L = length_L.clamp(max=self.room())
        plain = _View.of(Choice(kind="none"), self.around.tokenizer).frame
        id_LS, whole_L, _ = framed(id_LT, length_L, torch.zeros_like(length_L), [plain], self.filler)
        before = len(plain.before)
        chosen_LS = nn.functional.pad(chosen_LT, (before, id_LS.shape[1] - before - id_LT.shape[1]))
        return self.states(id_LS, whole_L)[-1][chosen_LS]

    def continues(self, id_LT: Tensor) -> Tensor:
        """True [L, T] for tokens that go on with the word before them."""
        if self._continues is None:
            self._continues = continuing(self.around.tokenizer, self.vocabulary())
        return self._continues.to(id_LT.device)[id_LT]

    def vocabulary(self) -> int:
        """Number of words."""
        return int(self.body.config.vocab_size)

    def mask_word(self) -> int:
        """
        Number of the mask word.

        Raises:
            RecipeError: there is none.
        """
        return special(self.around.tokenizer, "mask") if self.around.tokenizer else 0

    def around_text(self, id_LT: Tensor, length_L: Tensor, view_L: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """
        The texts with what stands around them.

        Returns:
            Numbers [L, S], lengths [L], and the place of the mask word [L], which is 0 where there is none.
        """
        return framed(id_LT, length_L, view_L, [view.frame for view in self.views], self.filler)

    @property
    def filler(self) -> int:
        """What stands behind a text's end; attention does not see it."""
        return int(getattr(self.body.config, "pad_token_id", 0) or 0)

    def most_around(self) -> int:
        """Most words that stand around a text."""
        return max(len(view.frame) for view in self.views)

    def room(self) -> int:
        """Most tokens of a text, what stands around it not counted."""
        offset = first_position(self.body)
        return int(getattr(self.body.config, "max_position_embeddings", 2**31)) - offset - self.most_around()

    def _vectors(
        self, id_LT: Tensor, length_L: Tensor, view_L: Tensor, pooling: Pooling, use_head: bool, denoise: bool
    ) -> Tensor:
        length_L = length_L.clamp(max=self.room())  # repeated words may be too many
        id_LS, whole_L, mask_L = self.around_text(id_LT, length_L, view_L)
        position_LS = self._positions(whole_L, view_L, id_LS.shape[1])
        self._keep = self._kept(whole_L, view_L, id_LS.shape[1])
        states = self.states(id_LS, whole_L, position_LS)
        self._keep = None
        vector_LD = _pooled(states, whole_L, mask_L, pooling)
        bare_LD = self._bare(length_L, view_L, pooling) if denoise else None
        return self._headed(vector_LD, bare_LD, use_head).to(_exact(self.body))

    def _headed(self, vector_LD: Tensor, bare_LD: Tensor | None, use_head: bool) -> Tensor:
        """Through the head, and less the template's own vector."""
        through = self._transform() if self.head_kind in MASKED else self.head
        if not use_head:
            through = nn.Identity()
        if bare_LD is None:
            return cast(Tensor, through(vector_LD))
        if self.head_kind in MASKED:  # the released order: transform both, then subtract
            return cast(Tensor, through(vector_LD) - through(bare_LD))
        return cast(Tensor, through(vector_LD - bare_LD))

    def _bare(self, length_L: Tensor, view_L: Tensor, pooling: Pooling) -> Tensor | None:
        """
        The vectors of the templates alone, as if around texts of these lengths, [L, D]; None: no view takes one off.

        It depends on view and length alone, so each pair is encoded once.
        """
        if all(view.delta == "none" for view in self.views) or not self.views[0].template:
            return None
        pair_U2, of_L = torch.stack([view_L, length_L], dim=1).unique(dim=0, return_inverse=True)
        view_U, length_U = pair_U2.unbind(dim=1)
        frozen = any(view.frozen for view in self.views)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            if self.views[0].delta == "x-tokens":
                most = max(1, int(length_U.max()))
                unknown_UT = torch.full((len(length_U), most), self._unknown(), device=length_L.device)
                id_US, whole_U, mask_U = self.around_text(unknown_UT, length_U, view_U)
                position_US = None
            else:
                none_U = torch.zeros_like(length_U)
                id_US, whole_U, mask_U = self.around_text(length_U[:, None], none_U, view_U)
                place_S = torch.arange(id_US.shape[1], device=length_L.device)
                before_V = torch.tensor([len(view.frame.before) for view in self.views], device=length_L.device)
                before_U = before_V[view_U]
                position_US = place_S + length_U[:, None] * (place_S >= before_U[:, None])
                position_US = position_US.where(place_S < whole_U[:, None], 0)
            vector_UD = _pooled(self.states(id_US, whole_U, position_US), whole_U, mask_U, pooling)
        return vector_UD[of_L]

    def _positions(self, whole_L: Tensor, view_L: Tensor, most: int) -> Tensor | None:
        """Position numbers, [L, S]; None: as they stand. After training nothing is shuffled."""
        if not self.training or not any(view.shuffled for view in self.views):
            return None
        shuffled = torch.tensor([view.shuffled for view in self.views], device=whole_L.device)
        place_LS = torch.arange(most, device=whole_L.device).expand(len(whole_L), most)
        return shuffle(whole_L, most).where(shuffled[view_L][:, None], place_LS)

    def _kept(self, whole_L: Tensor, view_L: Tensor, most: int) -> Tensor | None:
        """What stays of the embeddings, [L, S, D]; None: all, as always after training."""
        if not self.training or not any(view.cut for view in self.views):
            return None
        width = int(getattr(self.body.config, "embedding_size", self.width))
        keep_LSD = torch.ones(len(whole_L), most, width, dtype=torch.bool, device=whole_L.device)
        for number, view in enumerate(self.views):
            row_R = (view_L == number).nonzero().flatten()
            if view.cut and len(row_R):
                keep_LSD[row_R] &= CUTS[view.cut](whole_L[row_R], most, width, **view.options)
        return keep_LSD

    def _cut(self, module: nn.Module, given: object, out: Tensor) -> Tensor:
        """Hook behind the embeddings, their layer norm included."""
        return out if self._keep is None else out * self._keep

    def _unknown(self) -> int:
        tokenizer = self.around.tokenizer
        names = (SLOT, "<unk>", "[UNK]")
        found = [tokenizer.token_to_id(name) for name in names] if tokenizer else []
        return next((number for number in found if number is not None), 0)

    def _words_head(self) -> nn.Module:
        return cast(nn.Module, getattr(self.whole, "cls", None) or self.whole.lm_head)

    def _transform(self) -> nn.Module:
        return cast(nn.Module, self.whole.cls.predictions.transform)

    def _check_parts(self, head: str) -> None:
        kind, words = self.body.config.model_type, getattr(self.whole, "cls", None)
        if head in MASKED and not hasattr(getattr(words, "predictions", None), "transform"):
            raise ValueError(f'encoder.head is "{head}", which only models like BERT have; this is {kind}: use "mlp"')
        if head in MASKED and cast(Any, self._transform()).dense.out_features != self.width:
            raise ValueError(
                f'encoder.head is "{head}", which this {kind} narrows to the width of its words; use "mlp"'
            )
        if self.around.masked and words is None and not hasattr(self.whole, "lm_head"):
            raise ValueError(f"a term tells masked words, but where {kind} models tell them is not known; use another")
        if self.around.packed and self.body.config._attn_implementation != ATTENTION:
            raise ValueError(f"a term generates, but what words of {kind} models see cannot be said; use one like BERT")
        if any(view.cut for view in self.views) and not hasattr(self.body, "embeddings"):
            raise ValueError(f"view: {kind} models have no embeddings to cut from; use shuffle, template or none")
        if kind == KIND and any(view.shuffled for view in self.views):
            raise ValueError(
                'view "shuffle" needs position numbers, which rotary positions have not; use token-cutoff, '
                "feature-cutoff, dropout or a template"
            )
        if kind == KIND and any(view.delta == "positions" for view in self.views):
            raise ValueError(
                'a template\'s delta is "positions", which needs position numbers, and rotary positions have none; use '
                '"x-tokens" or "none"'
            )

    def _check(self, pooling: str, where: str) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f'{where} is "{pooling}"; known: {", ".join(POOLINGS)}')
        templates = [view.template for view in self.views]
        if pooling == "mask" and not all(templates):
            raise ValueError(f'{where} is "mask", so every view needs a template: view = [{{ kind = "template", .. }}]')
        if any(templates) and not all(templates):
            raise ValueError("view: either all views are templates or none is")
        if len({(view.delta, view.frozen) for view in self.views}) > 1:
            raise ValueError("view: all templates need the same `delta` and `frozen`")


@dataclass(frozen=True)
class _View:
    """A view, ready to be applied."""

    frame: Frame
    template: bool = False
    delta: str = "none"
    frozen: bool = False
    shuffled: bool = False
    cut: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(choice: Choice, tokenizer: Tokenizer | None) -> "_View":
        """From a recipe's choice; without a tokenizer a template is checked but not numbered."""
        text = str(choice.options["text"]) if choice.kind == "template" else None
        if text is not None:
            split(text)
        around = frame(text, tokenizer) if tokenizer else Frame((0,), (0,), 0)
        if text is not None:
            return _View(around, True, choice.options["delta"], choice.options["frozen"])
        cut = choice.kind if choice.kind in CUTS else ""
        return _View(around, shuffled=choice.kind == "shuffle", cut=cut, options=dict(choice.options))


def _head(kind: str, width: int) -> nn.Module:
    if kind == "linear":
        return nn.Linear(width, width)
    return nn.Sequential(nn.Linear(width, width), nn.Tanh()) if kind == "mlp" else nn.Identity()


def _sparse(body: Any) -> None:
    """A lane's gradient of the word table has its words' rows only; the step makes one dense sum."""
    body.get_input_embeddings().sparse = True


def _full(state: Tensor) -> Tensor:
    """Differences and means of bf16 numbers would lose what little they hold."""
    return state.float() if state.dtype == torch.bfloat16 else state


def _exact(body: nn.Module) -> torch.dtype:
    return torch.float64 if next(body.parameters()).dtype == torch.float64 else torch.float32


def _pooled(states: tuple[Tensor, ...], length_L: Tensor, mask_L: Tensor, pooling: Pooling) -> Tensor:
    last_LSD = states[-1]
    if pooling in ("first", "mask"):
        place_L = torch.zeros_like(length_L) if pooling == "first" else mask_L
        return _full(last_LSD[torch.arange(len(length_L), device=length_L.device), place_L])
    state_LSD = _full((states[0] + states[1]) / 2 if pooling == "mean-last-two" else last_LSD)
    real_LS1 = real(length_L, state_LSD.shape[1])[:, :, None]
    return state_LSD.where(real_LS1, 0.0).sum(dim=1) / length_L[:, None]
