"""A method: encoders, and terms that compare their vectors. Built from a recipe; knows neither files nor workers."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer as WordPieces
from torch import Tensor, nn

from models.candidates import CANDIDATES, Memory, Rows, anchors, scores
from models.choosing import Choosing
from models.lane import LaneObjective, LaneTerm
from models.lookup import Bag, Encoder, Words
from models.masked import LANE_OBJECTIVES
from models.ngram import Ngram
from models.noise import WORD_CANDIDATES, WORD_OBJECTIVES, Counted, NoiseWords, Unnormalised
from models.objectives import COUNTS, OBJECTIVES, kept
from models.parts import bind, complete
from models.projection import Projection
from models.queue import Queue
from models.recipe import Choice, Readout, Recipe, RecipeError, Term, Tokenizer, Watch
from models.recurrent import GRU
from models.scorers import SCORERS, Scorer
from models.sequence import CONTEXTS, Recurrent, Runs
from models.similarity import SIMILARITIES, cosine, dot
from models.telling import Telling, counts
from models.transformer import Around, Transformer
from models.views import CUTS, VIEWS

ENCODERS: dict[str, type[Encoder]] = {
    "bag": Bag,
    "gru": GRU,
    "ngram": Ngram,
    "projection": Projection,
    "transformer": Transformer,
    **SCORERS,
}
CELLS = 4_000_000  # pairs of anchor and candidate: arrays of 16 MB


def resolve(recipe: Recipe, base: Path | None = None, look: bool = True) -> Recipe:
    """
    The same recipe with every option of every part filled in, so that it says all that decides the result.

    Args:
        base: folder of saved encoders; what the recipe starts from need not be there any more.
        look: build the method once, so that wrong values show; needs the model that the recipe starts from.
    Raises:
        RecipeError: an unknown part or option, the known ones are named; a value that a part refuses.
    """
    recipe = _absolute(recipe)
    encoder = recipe.encoder
    own = {}
    for name in encoder.towers:
        choice = Choice(kind=encoder.kind, options=encoder.tower(name))
        own[name] = complete(ENCODERS, choice, f"encoder.{name}" if name in encoder.own else "encoder").options
    shared = {k: v for k, v in own[encoder.towers[0]].items() if all(own[name][k] == v for name in encoder.towers)}
    apart = {name: {k: v for k, v in own[name].items() if k not in shared} for name in encoder.towers}
    whole = encoder.model_copy(update={"options": shared, "own": {k: v for k, v in apart.items() if v}})
    terms = tuple(_resolve_term(term, f"terms.{number}", encoder.towers) for number, term in enumerate(recipe.terms))
    readout = recipe.readout.model_copy(update={"towers": recipe.readout.towers or encoder.towers[:1]})
    views = tuple(complete(VIEWS, view, f"view.{number}") for number, view in enumerate(recipe.view))
    parts = {"encoder": whole, "terms": terms, "readout": readout, "view": views, "tokenizer": _tokenizer(recipe)}
    parts["context"] = recipe.context and complete(CONTEXTS, recipe.context, "context")
    resolved = recipe.model_copy(update=parts)
    _check_views(resolved)
    _check_counting(resolved)
    _check_descent(resolved)
    _check_ahead(resolved)
    if look:
        _try(resolved, base)
    return resolved


def _absolute(recipe: Recipe) -> Recipe:
    """Files and folders by their whole path: workers stand elsewhere. What is no path here stays as it is."""
    whole = lambda value: str(Path(value).resolve()) if value and Path(value).exists() else value
    encoder, training = recipe.encoder, recipe.training
    is_file = lambda key, value: key in ("path", "table") and value not in encoder.towers  # a table may be a tower's
    put = lambda options: {k: whole(v) if is_file(k, v) else v for k, v in options.items()}
    own = {name: put(options) for name, options in encoder.own.items()}
    return recipe.model_copy(
        update={
            "encoder": encoder.model_copy(update={"options": put(encoder.options), "own": own}),
            "tokenizer": recipe.tokenizer.model_copy(update={"path": whole(recipe.tokenizer.path)}),
            "training": training.model_copy(update={"start": whole(training.start)}),
            "evaluation": (measured := tuple(_of_examples(choice, recipe) for choice in recipe.evaluation)),
            "watch": _watched(recipe.watch, measured, whole),
        }
    )


def _watched(watch: Watch, measured: tuple[Choice, ...], whole: Callable[[str], str]) -> Watch:
    """What is measured on the way, by files that a worker finds wherever it stands."""
    if not watch.steps:
        return watch
    put = lambda options: {k: whole(v) if isinstance(v, str) else v for k, v in options.items()}
    chosen = [Choice(kind=choice.kind, options=put(choice.options)) for choice in watch.evaluation or measured]
    return watch.model_copy(update={"evaluation": tuple(chosen)})


def _of_examples(choice: Choice, recipe: Recipe) -> Choice:
    """Of labelled texts only the first asks, and only for the second; questions have answers to put in order."""
    texts = recipe.corpus.example_texts
    if choice.kind == "neighbours" and recipe.corpus.asks:
        return Choice(kind="ranking", options={k: v for k, v in choice.options.items() if k != "texts"})
    if choice.kind != "neighbours" or not texts:
        return choice
    return Choice(kind=choice.kind, options={"texts": texts, **choice.options})


def _tokenizer(recipe: Recipe) -> Tokenizer:
    """The encoder's own tokenizer by its path, or a new one where the encoder is new; or the words of its table."""
    kind, first = recipe.tokenizer.kind, recipe.encoder.tower(recipe.encoder.towers[0])
    if recipe.tokenizer.leave_out and kind not in ("word-level", "table"):
        raise RecipeError(f'tokenizer.leave_out is for kinds word-level and table; tokenizer.kind is "{kind}"')
    if kind == "table":
        if not first.get("table"):
            raise RecipeError('tokenizer.kind is "table", but the first tower has no table; name one in encoder.table')
        return recipe.tokenizer.model_copy(update={"path": str(first["table"])})
    if kind != "encoder":
        return recipe.tokenizer
    path = str(first.get("path", ""))
    ready = {"kind": "saved", "path": path} if path else {"kind": "wordpiece", "path": ""}
    return recipe.tokenizer.model_copy(update=ready)


def _check_counting(recipe: Recipe) -> None:
    """What only training or vectors know says nothing to counts."""
    wrong = [name for name in ("view", "augment") if getattr(recipe, name)]
    wrong += ["training.start"] if recipe.training.start != "fresh" else []
    wrong += ["watch"] if recipe.watch.steps else []
    wrong += ["encoder.towers"] if len(recipe.encoder.towers) > 1 else []
    wrong += ["readout"] if recipe.readout != Readout(towers=recipe.encoder.towers) else []
    if recipe.counting and wrong:
        raise RecipeError(f"{wrong[0]} is set, but encoder.kind = {recipe.encoder.kind} counts: leave it out")


def _check_views(recipe: Recipe) -> None:
    if recipe.encoder.kind == "transformer":
        return
    told = [name for name, default in vars(Readout()).items() if getattr(recipe.readout, name) != default]
    wrong = [f"readout.{name}" for name in told if name in ("pooling", "head", "denoise")]
    wrong += ["view"] if any(view.kind != "none" for view in recipe.view) else []
    if wrong:
        raise RecipeError(f"{wrong[0]} is for encoder.kind = transformer; this encoder is {recipe.encoder.kind}")


def _check_descent(recipe: Recipe) -> None:
    points = [name for name in recipe.encoder.towers if recipe.encoder.tower(name).get("riemannian") == "table"]
    if points and recipe.training.optimizer != "sgd":
        raise RecipeError(
            f'encoder.{points[0]}.riemannian is "table" but training.optimizer is "{recipe.training.optimizer}", which '
            'divides the gradient by its own size and so undoes the factor; use "sgd"'
        )


def _check_ahead(recipe: Recipe) -> None:
    """Terms that look ahead, and the context that they look from, need each other."""
    if recipe.context and not any(term.ahead for term in recipe.terms):
        raise RecipeError(f'context.kind is "{recipe.context.kind}", but no term has `ahead`; give one, or no context')
    for number, term in enumerate(recipe.terms):
        kind = term.candidates.kind if term.candidates else "none"
        if kind == "ahead" and not term.ahead:
            raise RecipeError(f'terms.{number}.candidates.kind is "ahead", but terms.{number}.ahead is 0; 1 or more')
        if term.ahead and kind not in ("ahead", "batch"):
            raise RecipeError(
                f'terms.{number}.ahead is {term.ahead}, but its candidates.kind is "{kind}"; should be ahead or batch'
            )


def _try(recipe: Recipe, base: Path | None) -> None:
    """Build the method once without memory for its numbers, so that a wrong value shows before any work."""
    towers = recipe.encoder.towers
    named = {str(recipe.encoder.tower(tower).get("table", "")) for tower in towers}.difference(towers, [""])
    try:
        with torch.device("meta"):
            method = Method(recipe, 2, {name: torch.zeros(2, 1) for name in named}, torch.zeros(2), base=base)
            for term in method.summands:
                widths = method.anchor_width(term), method.tower(term.candidate).width
                term.similarity(*(torch.zeros(1, width) for width in widths))
        with torch.device("cpu"):
            _try_options(recipe, method)
    except RecipeError:
        raise
    except (ValueError, RuntimeError) as error:
        raise RecipeError(f"recipe {recipe.name}: {error}") from None


def _try_options(recipe: Recipe, method: "Method") -> None:
    """Call what looks at its options only when it is called."""
    nothing, one_B = torch.zeros(0, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    rows = Rows(torch.zeros(1, dtype=torch.uint8), one_B, -one_B[:, None], document_B=one_B, place_B=one_B)
    for summand in method.summands:
        summand.candidates(rows, nothing, torch.zeros(1, 1))
        summand.objective(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.int64))
    for view in recipe.view:
        if view.kind in CUTS:
            CUTS[view.kind](one_B, 1, 1, **view.options)


def _resolve_term(term: Term, where: str, towers: tuple[str, ...]) -> Term:
    anchor = term.anchor or towers[0]
    named = {"anchor": anchor, "candidate": term.candidate or anchor}
    if term.candidates is None and term.similarity is None:
        return term.model_copy(
            update={**named, "objective": complete(LANE_OBJECTIVES, term.objective, f"{where}.objective")}
        )
    if term.candidates is None or term.similarity is None:
        missing = "similarity" if term.similarity is None else "candidates"
        raise RecipeError(f"{where} has no {missing}; a term has candidates and a similarity, or neither")
    words = term.candidates.kind in WORD_CANDIDATES
    if words and term.similarity.kind != "dot":
        raise RecipeError(f'{where}.similarity.kind is "{term.similarity.kind}"; words are scored by "dot"')
    candidates: Mapping[str, Callable[..., Any]] = {**CANDIDATES, **WORD_CANDIDATES}
    objectives: Mapping[str, Callable[..., Any]] = WORD_OBJECTIVES if words else OBJECTIVES
    return term.model_copy(
        update={
            **named,
            "candidates": complete(candidates, term.candidates, f"{where}.candidates"),
            "similarity": complete(SIMILARITIES, term.similarity, f"{where}.similarity"),
            "objective": complete(objectives, term.objective, f"{where}.objective"),
        }
    )


@dataclass(frozen=True)
class Summand:
    """A term of the loss that compares vectors, its parts bound to their options."""

    anchor: str
    candidate: str
    kind: str
    candidates: Callable[..., Any]
    similarity: Callable[..., Tensor]
    objective: Callable[..., tuple[Tensor, Tensor]]
    counted: Callable[[Tensor, Tensor], Tensor] | None
    weight: float
    mean: bool
    choosing: Choosing | None = None
    ahead: int = 0
    softmax: bool = False

    def anchors(self, rows: Rows) -> Tensor:
        """Row numbers of the batch's anchors, [A]."""
        return anchors(self.kind, self._answered(rows))

    def __call__(
        self,
        rows: Rows,
        anchor_A: Tensor,
        vectors: Mapping[str, Tensor],
        queue: Queue | None = None,
        contexts: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """
        Sum and count of this term over some anchors.

        Args:
            anchor_A: row numbers of the anchors, [A].
            vectors: each tower's vectors of the whole batch, [B, D].
            queue: earlier vectors, if the term has them.
            contexts: of the towers that have them, the contexts of the whole batch, [B, E], for a term with `ahead`.
        """
        held = {"memory": queue.memory()} if queue else {}
        pool = self.candidates(self._answered(rows), anchor_A, vectors[self.candidate], **held)
        seen = {**vectors, **(contexts or {})} if self.ahead else vectors
        score_AC = scores(pool, seen[self.anchor][anchor_A], self.similarity)
        return self.objective(score_AC, pool.answer_AP)

    def _answered(self, rows: Rows) -> Rows:
        """The rows with the answers that this term asks for."""
        return rows.ahead(self.ahead) if self.ahead else rows

    def divisor(self, rows: Rows, queue: Queue | None = None, cells: int = CELLS) -> Tensor | int:
        """
        What this term's sum over the whole batch is divided by: 1, its anchors, or what else the objective counts.

        Rows alone decide it, so that every worker knows it before any backward and without asking the others. Pools
        of vectors that have no width say who stands in which.

        Args:
            cells: pairs of anchor and candidate looked at together; it bounds the memory and changes nothing.
        """
        if not self.mean:
            return 1
        anchor_A = self.anchors(rows)
        if self.counted is None:
            return len(anchor_A)
        total = torch.zeros((), dtype=torch.int64, device=rows.side_B.device)
        for kept_AC, answer_AP in self._pools(rows, anchor_A, queue, cells):
            total = total + self.counted(kept_AC, answer_AP)
        return total.clamp(min=1)  # anchors without a wrong candidate make no triple

    def choices(self, rows: Rows, anchor_A: Tensor, queue: Queue | None = None, cells: int = CELLS) -> Tensor:
        """Sum over some anchors of log N, [], N being the candidates left in an anchor's pool with the right ones."""
        total = torch.zeros((), dtype=torch.float64, device=rows.side_B.device)
        for kept_AC, _ in self._pools(rows, anchor_A, queue, cells):
            total = total + kept_AC.sum(dim=1).double().log().sum()
        return total

    def _pools(self, rows: Rows, anchor_A: Tensor, queue: Queue | None, cells: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Of some anchors after the other: who stands in their pools, [A, C], and their answers' columns, [A, P]."""
        nothing_B0 = torch.zeros(len(rows.side_B), 0, device=rows.side_B.device)
        memory = queue.memory() if queue else None
        held = {"memory": Memory(memory.vector_MD[:, :0], memory.group_M)} if memory else {}
        for part_A in anchor_A.split(max(1, cells // len(rows.side_B))):
            pool = self.candidates(self._answered(rows), part_A, nothing_B0, **held)
            yield kept(scores(pool, nothing_B0[part_A], dot)), pool.answer_AP


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
        self.towers = nn.ModuleDict(_towers(recipe, vocabulary, tables or {}, frequency, tokenizer, base))
        for name in recipe.encoder.towers:
            for words in self.tower(name).modules():
                if isinstance(words, Words):
                    # A lane's gradient has its words' rows only; the step makes one dense sum.
                    words.sparse = True
        self.contexts = nn.ModuleDict(_contexts(recipe, self))
        compared = [term for term in recipe.terms if not in_lane(term)]
        similarities = [_similarity(term, self) for term in compared]
        self.similarities = nn.ModuleDict(
            {str(number): one for number, one in enumerate(similarities) if isinstance(one, nn.Module)}
        )
        self.summands = tuple(map(_summand, compared, similarities))
        counted = counted or _made_up(vocabulary, frequency)
        self.lane_terms = tuple(_lane_term(term, self, counted) for term in recipe.terms if in_lane(term))
        objectives = enumerate(term.objective for term in self.lane_terms)
        self.told = nn.ModuleDict({str(number): one for number, one in objectives if isinstance(one, nn.Module)})
        self.used = tuple(dict.fromkeys(name for term in self.summands for name in (term.anchor, term.candidate)))
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
        for number, term in enumerate(term for term in self.recipe.terms if not in_lane(term)):
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
        contexts = {name: self.contexts[name](vectors[name], runs) for name in self.contexts}
        for number, term in enumerate(self.summands):
            seen = chosen.get(number, rows) if chosen else rows
            anchor_A, queue = term.anchors(seen), self.queue(number)
            mine_A = anchor_A[own_B[anchor_A]]
            if len(mine_A):
                amount, _ = term(seen, mine_A, vectors, queue, contexts)
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
        numbers = [number for number, term in enumerate(self.recipe.terms) if not in_lane(term)]
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
        total = torch.zeros(len(left_MD), len(right_ND))
        for term in kept:
            anchor_MD, context = left_MD[:, stretch[term.anchor]], self.context(term.anchor)
            if term.ahead and context:
                anchor_MD = context(anchor_MD, Runs.alone(len(anchor_MD), anchor_MD.device))
            total += term.weight * term.similarity(anchor_MD, right_ND[:, stretch[term.candidate]])
        return total


def _similarity(term: Term, method: Method) -> Callable[..., Tensor]:
    """A term's similarity, with new weights where it learns."""
    assert term.similarity
    part = SIMILARITIES[term.similarity.kind]
    if not isinstance(part, type):
        return bind(SIMILARITIES, term.similarity)
    widths = (method.anchor_width(term), method.tower(term.candidate).width)
    return part(**term.similarity.options, widths=widths)


def _contexts(recipe: Recipe, method: Method) -> dict[str, Recurrent]:
    """A context network for each tower whose vectors look ahead."""
    if not recipe.context:
        return {}
    part, options = CONTEXTS[recipe.context.kind], recipe.context.options
    towers = dict.fromkeys(term.anchor for term in recipe.terms if term.ahead)
    return {name: part(method.tower(name).width, **options) for name in towers}


def _summand(term: Term, similarity: Callable[..., Tensor]) -> Summand:
    assert term.candidates
    return Summand(
        anchor=term.anchor,
        candidate=term.candidate,
        kind=term.candidates.kind,
        candidates=bind(CANDIDATES, term.candidates),
        similarity=similarity,
        objective=bind(OBJECTIVES, term.objective),
        counted=COUNTS.get(term.objective.kind),
        weight=term.weight,
        mean=term.reduce == "mean",
        choosing=Choosing(**term.candidates.options) if term.candidates.kind == "own" else None,
        ahead=term.ahead,
        softmax=term.objective.kind == "softmax",
    )


def in_lane(term: Term) -> bool:
    """Whether a term needs nothing beyond a lane: masked words, or words told from windows."""
    return term.candidates is None or term.candidates.kind in WORD_CANDIDATES


def _lane_term(term: Term, method: Method, counted: Counted) -> LaneTerm:
    objective: LaneObjective
    if term.candidates is None:
        objective = LANE_OBJECTIVES[term.objective.kind](**term.objective.options)
    else:
        objective = _telling(term, method, counted)
    return LaneTerm(term.anchor, term.candidate, objective, term.weight, term.reduce == "mean")


def _telling(term: Term, method: Method, counted: Counted) -> Telling:
    """Words told by a scorer; where noise is corrected for, scores start as log shares, so that Z starts near 1."""
    assert term.candidates and term.similarity
    encoder, other = method.tower(term.anchor), method.tower(term.candidate)
    if not isinstance(encoder, Scorer) or not isinstance(other, Scorer):
        raise RecipeError(
            f"candidates.kind = {term.candidates.kind} wants encoder.kind = {', '.join(SCORERS)}; "
            f"this encoder is {method.recipe.encoder.kind}"
        )
    candidates = WORD_CANDIDATES[term.candidates.kind](**term.candidates.options)
    objective = WORD_OBJECTIVES[term.objective.kind](**term.objective.options)
    contexts = len(encoder.words.weight)
    if isinstance(objective, Unnormalised) and objective.log_z == "per-context":
        encoder.check_context()
    count_V = counts(counted, other.ends)
    if isinstance(candidates, NoiseWords) and candidates.correct:
        times_V = count_V.clamp(min=1)
        other.start_at((times_V / times_V.sum()).log())
    # Where all words are candidates the gradient has every row.
    other.outputs.sparse = other.outputs.sparse and isinstance(candidates, NoiseWords)
    return Telling(candidates, objective, count_V, contexts, term.similarity.options["temperature"])


def _made_up(vocabulary: int, frequency: Tensor | None) -> Counted:
    """A corpus of a million words of these shares, in texts of twenty."""
    share_V = torch.zeros(vocabulary) if frequency is None else frequency
    return Counted(share_V.double() * 1e6, 5e4)


def _towers(
    recipe: Recipe,
    vocabulary: int,
    tables: Mapping[str, Tensor],
    frequency: Tensor | None,
    tokenizer: WordPieces | None,
    base: Path | None,
) -> dict[str, Encoder]:
    towers: dict[str, Encoder] = {}
    encoder = ENCODERS[recipe.encoder.kind]
    wanted = inspect.signature(encoder).parameters
    masked = {term.anchor for term in recipe.terms if term.candidates is None}
    for name in recipe.encoder.towers:
        options = recipe.encoder.tower(name)
        table = str(options.get("table", ""))
        words = towers[table].words if table in towers else None
        if table and words is None:
            if table not in tables:
                raise RecipeError(
                    f'encoder.{name}.table is "{table}": neither a tower before it nor a table that was read'
                )
            words = Words(vocabulary, tables[table].shape[1], frozen=bool(options["frozen"]), weight=tables[table])
        saved = base / name if base and len(recipe.encoder.towers) > 1 else base
        around = Around(tokenizer, recipe.view, recipe.readout, name in masked, saved)
        given = {"words": words, "frequency": frequency, "around": around}
        towers[name] = encoder(vocabulary, **options, **{k: v for k, v in given.items() if k in wanted})
    if masked and recipe.encoder.kind != "transformer":
        raise RecipeError(f"a term that tells masked words needs encoder.kind = transformer, not {recipe.encoder.kind}")
    return towers
