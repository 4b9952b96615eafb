"""A method: encoders, and terms that compare their vectors. Built from a recipe; knows neither files nor workers."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer as WordPieces
from torch import Tensor, nn

from models.candidates import CANDIDATES, Memory, Rows, anchors, scores
from models.lane import LaneObjective, LaneTerm
from models.lookup import Bag, Encoder, Words
from models.masked import LANE_OBJECTIVES
from models.noise import WORD_CANDIDATES, WORD_OBJECTIVES, Counted, NoiseWords, Unnormalised
from models.objectives import COUNTS, OBJECTIVES, kept
from models.parts import bind, complete
from models.queue import Queue
from models.recipe import Choice, Readout, Recipe, RecipeError, Term, Tokenizer
from models.recurrent import GRU
from models.scorers import SCORERS, Scorer
from models.similarity import SIMILARITIES, cosine, dot
from models.telling import Telling, counts
from models.transformer import Around, Transformer
from models.views import CUTS, VIEWS

ENCODERS: dict[str, type[Encoder]] = {"bag": Bag, "gru": GRU, "transformer": Transformer, **SCORERS}
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
    resolved = recipe.model_copy(update=parts)
    _check_views(resolved)
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
            "evaluation": tuple(_of_examples(choice, recipe) for choice in recipe.evaluation),
        }
    )


def _of_examples(choice: Choice, recipe: Recipe) -> Choice:
    """Of labelled texts only the first asks, and only for the second."""
    texts = recipe.corpus.example_texts
    if choice.kind != "neighbours" or not texts:
        return choice
    return Choice(kind=choice.kind, options={"texts": texts, **choice.options})


def _tokenizer(recipe: Recipe) -> Tokenizer:
    """The encoder's own tokenizer by its path, or a new one where the encoder is new."""
    if recipe.tokenizer.kind != "encoder":
        return recipe.tokenizer
    path = str(recipe.encoder.tower(recipe.encoder.towers[0]).get("path", ""))
    ready = {"kind": "saved", "path": path} if path else {"kind": "wordpiece", "path": ""}
    return recipe.tokenizer.model_copy(update=ready)


def _check_views(recipe: Recipe) -> None:
    if recipe.encoder.kind == "transformer":
        return
    told = [name for name, default in vars(Readout()).items() if getattr(recipe.readout, name) != default]
    wrong = [f"readout.{name}" for name in told if name in ("pooling", "head", "denoise")]
    wrong += ["view"] if any(view.kind != "none" for view in recipe.view) else []
    if wrong:
        raise RecipeError(f"{wrong[0]} is for encoder.kind = transformer; this encoder is {recipe.encoder.kind}")


def _try(recipe: Recipe, base: Path | None) -> None:
    """Build the method once without memory for its numbers, so that a wrong value shows before any work."""
    towers = recipe.encoder.towers
    named = {str(recipe.encoder.tower(tower).get("table", "")) for tower in towers}.difference(towers, [""])
    try:
        with torch.device("meta"):
            method = Method(recipe, 2, {name: torch.zeros(2, 1) for name in named}, torch.zeros(2), base=base)
            for term in method.summands:
                one_1D, other_1D = (torch.zeros(1, method.tower(name).width) for name in (term.anchor, term.candidate))
                term.similarity(one_1D, other_1D)
        with torch.device("cpu"):
            _try_options(recipe, method)
    except RecipeError:
        raise
    except (ValueError, RuntimeError) as error:
        raise RecipeError(f"recipe {recipe.name}: {error}") from None


def _try_options(recipe: Recipe, method: "Method") -> None:
    """Call what looks at its options only when it is called."""
    nothing, one_B = torch.zeros(0, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    for summand in method.summands:
        summand.candidates(Rows(torch.zeros(1, dtype=torch.uint8), one_B, -one_B[:, None]), nothing, torch.zeros(1, 1))
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

    def anchors(self, rows: Rows) -> Tensor:
        """Row numbers of the batch's anchors, [A]."""
        return anchors(self.kind, rows)

    def __call__(
        self, rows: Rows, anchor_A: Tensor, vectors: Mapping[str, Tensor], queue: Queue | None = None
    ) -> tuple[Tensor, Tensor]:
        """
        Sum and count of this term over some anchors.

        Args:
            anchor_A: row numbers of the anchors, [A].
            vectors: each tower's vectors of the whole batch, [B, D].
            queue: earlier vectors, if the term has them.
        """
        held = {"memory": queue.memory()} if queue else {}
        pool = self.candidates(rows, anchor_A, vectors[self.candidate], **held)
        score_AC = scores(pool, vectors[self.anchor][anchor_A], self.similarity)
        return self.objective(score_AC, pool.answer_AP)

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
        nothing_B0 = torch.zeros(len(rows.side_B), 0, device=rows.side_B.device)
        memory = queue.memory() if queue else None
        held = {"memory": Memory(memory.vector_MD[:, :0], memory.group_M)} if memory else {}
        total = torch.zeros((), dtype=torch.int64, device=rows.side_B.device)
        for part_A in anchor_A.split(max(1, cells // len(rows.side_B))):
            pool = self.candidates(rows, part_A, nothing_B0, **held)
            total = total + self.counted(kept(scores(pool, nothing_B0[part_A], dot)), pool.answer_AP)
        return total.clamp(min=1)  # anchors without a wrong candidate make no triple


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

    def loss(self, rows: Rows, own_B: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """
        This worker's part of the batch's loss, []: the parts of all workers sum to it.

        Each mean term's sum is divided by the count over the whole batch: lanes hold unequal numbers of anchors, and a
        mean of their means would be another loss.

        Args:
            own_B: True for the rows that this worker encoded.
            vectors: each tower's vectors of the whole batch, [B, D].
        """
        total = next(iter(vectors.values())).new_zeros(())
        for number, term in enumerate(self.summands):
            anchor_A, queue = term.anchors(rows), self.queue(number)
            mine_A = anchor_A[own_B[anchor_A]]
            if len(mine_A):
                amount, _ = term(rows, mine_A, vectors, queue)
                total = total + term.weight * amount / term.divisor(rows, queue)
        return total

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
                no term compares what is read out, as with masked words alone, it is the cosine.
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
            total += term.weight * term.similarity(
                left_MD[:, stretch[term.anchor]], right_ND[:, stretch[term.candidate]]
            )
        return total


def _similarity(term: Term, method: Method) -> Callable[..., Tensor]:
    """A term's similarity, with new weights where it learns."""
    assert term.similarity
    part = SIMILARITIES[term.similarity.kind]
    if not isinstance(part, type):
        return bind(SIMILARITIES, term.similarity)
    widths = (method.tower(term.anchor).width, method.tower(term.candidate).width)
    return part(**term.similarity.options, widths=widths)


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
