"""A method: encoders, and terms that compare their vectors. Built from a recipe; knows neither files nor workers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import torch
from tokenizers import Tokenizer as WordPieces
from torch import Tensor, nn

from models.candidates import Rows
from models.generation import Generating, matched_and_told
from models.lane import LaneTerm, compares, in_lane, lane_term
from models.lookup import Encoder, Words
from models.noise import Counted
from models.queue import Queue
from models.recipe import Recipe, Term
from models.scorers import Scorer
from models.sequence import Recurrent, Runs
from models.similarity import cosine
from models.summand import Summand, summand
from models.towers import contexts, encoders
from models.transformer import Transformer


class Method(nn.Module):
    """
    Encoders by tower, and the terms of the loss.

    Args:
        recipe: resolved.
        vocabulary: entries of the tokenizer.
        tables: ready word vectors by the name that `table` has in the recipe, each [V, word width].
        frequency: each word's share of the corpus, [V], for encoders that start from it.
        tokenizer: for encoders that put words around a text; None: only shapes matter.
        base: folder of saved encoders, instead of those that the recipe starts from.
        counted: the corpus, for noise; None: made up from `frequency`.
    """

    def __init__(
        self,
        recipe: Recipe,
        vocabulary: int,
        tables: Mapping[str, Tensor] | None = None,
        frequency: Tensor | None = None,
        tokenizer: WordPieces | None = None,
        base: Path | None = None,
        counted: Counted | None = None,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        towers = encoders(recipe, vocabulary, tables or {}, frequency, tokenizer, base)
        self.towers = nn.ModuleDict(towers)
        for name in recipe.encoder.towers:
            for words in self.tower(name).modules():
                if isinstance(words, Words):
                    # A lane's gradient has its words' rows only; the step makes one dense sum.
                    words.sparse = True
        self.contexts = nn.ModuleDict(contexts(recipe, towers))
        widths = lambda term: (self.anchor_width(term), towers[term.candidate].width)
        self.summands = tuple(summand(term, widths(term), recipe.guide) for term in recipe.terms if compares(term))
        self.similarities = _learning(one.similarity for one in self.summands)
        counted, kind = counted or _made_up(vocabulary, frequency), recipe.encoder.kind
        self.lane_terms = tuple(
            lane_term(term, towers[term.anchor], towers[term.candidate], kind, counted)
            for term in recipe.terms
            if in_lane(term)
        )
        self.told = _learning(term.objective for term in self.lane_terms)
        self.generating = tuple(
            Generating(term.anchor, term.weight, term.reduce == "mean") for term in recipe.terms if term.generates
        )
        compared = [name for term in self.summands for name in (term.anchor, term.candidate)]
        self.used = tuple(dict.fromkeys([*compared, *(term.tower for term in self.generating)]))
        self.start_queues()

    def by_rows(self) -> list[nn.Parameter]:
        """Word tables of whose rows only those of a batch's words have a gradient, each once."""
        tables = [part for part in self.modules() if isinstance(part, Words) and part.sparse]
        weights = [cast(nn.Parameter, table.weight) for table in tables if table.weight.requires_grad]
        return list({id(weight): weight for weight in weights}.values())

    def next_word(self) -> LaneTerm | None:
        """The term that tells the next word, where there is one."""
        for term in self.lane_terms:
            encoder = self.tower(term.tower)
            if isinstance(encoder, Scorer) and encoder.ends:
                return term
        return None

    def tower(self, name: str) -> Encoder:
        """A tower's encoder."""
        return cast(Encoder, self.towers[name])

    def context(self, name: str) -> Recurrent | None:
        """What reads the runs of a tower's vectors, if anything does."""
        return cast(Recurrent, self.contexts[name]) if name in self.contexts else None

    def anchor_width(self, term: Term | Summand) -> int:
        """Numbers of an anchor's vector in a term, or of its context where the term looks ahead."""
        context = self.context(term.anchor) if term.ahead else None
        return context.width if context else self.tower(term.anchor).width

    def start_queues(self) -> None:
        """Empty queues for the terms that have one, their encoders equal to the towers as they are now."""
        self.queues = nn.ModuleDict()
        for number, term in enumerate(term for term in self.recipe.terms if compares(term)):
            options = term.candidates.options if term.candidates else {}
            if options.get("queue", 0) > 0:
                self.queues[str(number)] = Queue(self.tower(term.candidate), options["queue"], options["momentum"])

    def queue(self, number: int) -> Queue | None:
        """The queue of summand `number`, if it has one."""
        return cast(Queue, self.queues[str(number)]) if str(number) in self.queues else None

    def encode(
        self,
        tower: str,
        ids_LT: Tensor,
        length_L: Tensor,
        shared: Tensor | None = None,
        view_L: Tensor | None = None,
    ) -> Tensor:
        """One tower's vectors, [L, D]; `shared` is the step's dropout mask, `view_L` each row's view."""
        return cast(Tensor, self.tower(tower)(ids_LT, length_L, shared, view_L))

    def encode_packed(
        self, tower: str, texts: tuple[Tensor, Tensor], answers: tuple[Tensor, Tensor], telling: bool
    ) -> tuple[Tensor, Tensor]:
        """One tower's vectors, [L, D], and the nats that the answers take, []; see `matched_and_told`."""
        return matched_and_told(cast(Transformer, self.tower(tower)), *texts, *answers, telling=telling)

    def shares(self, length_B: Tensor, answer_B: Tensor) -> dict[str, float]:
        """By tower, what a nat of an answer weighs in the loss of a batch whose texts and answers are so long."""
        encoder = lambda name: cast(Transformer, self.tower(name))
        return {term.tower: term.share(encoder(term.tower), length_B, answer_B) for term in self.generating}

    def on_gradient(self) -> None:
        """What encoders do to the gradients of a step before they are clipped and the weights move."""
        for part in self.modules():  # names a table once that several towers share
            if isinstance(part, Encoder | Words):
                part.on_gradient()

    def after_step(self) -> None:
        """What encoders do to the weights after they moved."""
        for part in self.modules():
            if isinstance(part, Encoder | Words):
                part.after_step()

    def loss(
        self,
        rows: Rows,
        own_B: Tensor,
        vectors: Mapping[str, Tensor],
        chosen: Mapping[int, Rows] | None = None,
        bound_S: Tensor | None = None,
    ) -> Tensor:
        """
        This worker's part of the batch's loss, []: the parts of all workers sum to it.

        Each mean term's sum is divided by the count over the whole batch: lanes hold unequal numbers of anchors, and a
        mean of their means would be another loss.

        Args:
            own_B: True for the rows that this worker encoded.
            vectors: each tower's vectors of the whole batch, [B, D].
            chosen: the batch's rows as the summands of these numbers see them, after choosing.
            bound_S: one number a summand, to which this worker's part of its `bounds` is added.
        """
        total = next(iter(vectors.values())).new_zeros(())
        runs = rows.runs() if len(self.contexts) else None
        read = {name: self.contexts[name](vectors[name], runs) for name in self.contexts}
        for number, term in enumerate(self.summands):
            seen = chosen.get(number, rows) if chosen else rows
            anchor_A, queue = term.anchors(seen), self.queue(number)
            mine_A = anchor_A[own_B[anchor_A]]
            if len(mine_A):
                amount, _ = term(seen, mine_A, vectors, queue, read)
                total = total + term.weight * amount / term.divisor(seen, queue)
                if bound_S is not None and term.softmax:
                    bound_S[number] += (term.choices(seen, mine_A, queue) - amount.detach()) / len(anchor_A)
        return total

    def no_bounds(self) -> Tensor:
        """Room for what `step_gradient` tells of the terms that compare vectors, [S]; see `bounds`."""
        return torch.zeros(len(self.summands), dtype=torch.float64, device=next(self.parameters()).device)

    def bounds(self, bound_S: Tensor) -> dict[int, float]:
        """
        By its number in the recipe, what each softmax term has learned, in nats.

            log N - L,   N candidates of an anchor, the right one included, L the term's loss; means over anchors

        0: no better than chance. With one right answer, and the others drawn from all texts whatever the anchor is, it
        is in expectation a lower bound of the mutual information of anchor and answer; it never exceeds log N. With P
        right answers an anchor it measures progress and bounds nothing: right answers stand in each other's
        denominator, and it cannot exceed log N - log P.

        Source:
            van den Oord, Li and Vinyals 2018, section 2.3 and appendix A.1; Poole et al. 2019, section 2.3.
        """
        numbers = [number for number, term in enumerate(self.recipe.terms) if compares(term)]
        told = zip(numbers, self.summands, bound_S.tolist(), strict=True)
        return {number: value for number, term, value in told if term.softmax}

    @torch.no_grad()
    def readout(self, ids_LT: Tensor, length_L: Tensor) -> Tensor:
        """What a text's vector is after training, [L, D]: the towers of the readout, one behind the other."""
        vectors = [self.tower(name).readout(ids_LT, length_L) for name in self.recipe.readout.towers]
        if self.recipe.readout.normalise:
            vectors = [nn.functional.normalize(vector_LD, dim=1) for vector_LD in vectors]
        return torch.cat(vectors, dim=1)

    def widths(self) -> list[tuple[str, int]]:
        """Tower and width of each stretch of the readout."""
        return [(name, self.tower(name).width) for name in self.recipe.readout.towers]

    @torch.no_grad()
    def score(self, left_MD: Tensor, right_ND: Tensor) -> Tensor:
        """
        How well right texts answer left ones in the geometry that was trained, [M, N]; larger is better.

        Args:
            left_MD, right_ND: readouts; a term compares its own towers' stretches, and the terms add by weight. Where
                no term compares what is read out, as with masked words alone, it is the cosine. A term that looks
                ahead has one text for context: the first of a run.
        """
        start, stretch = 0, {}
        for name, width in self.widths():
            stretch[name] = slice(start, start + width)
            start += width
        # A tower may be thrown away after training.
        kept = [term for term in self.summands if term.anchor in stretch and term.candidate in stretch]
        if not kept:
            return cosine(left_MD, right_ND)
        total = torch.zeros(len(left_MD), len(right_ND), device=left_MD.device)
        for term in kept:
            anchor_MD, context = left_MD[:, stretch[term.anchor]], self.context(term.anchor)
            if term.ahead and context:
                anchor_MD = context(anchor_MD, Runs.alone(len(anchor_MD), anchor_MD.device))
            total += term.weight * term.similarity(anchor_MD, right_ND[:, stretch[term.candidate]])
        return total


def _learning(parts: Iterable[object]) -> nn.ModuleDict:
    """The parts with weights, by their numbers among all."""
    return nn.ModuleDict({str(number): part for number, part in enumerate(parts) if isinstance(part, nn.Module)})


def _made_up(vocabulary: int, frequency: Tensor | None) -> Counted:
    """A corpus of a million words of these shares, in texts of twenty."""
    share_V = torch.zeros(vocabulary) if frequency is None else frequency
    return Counted(share_V.double() * 1e6, 5e4)
