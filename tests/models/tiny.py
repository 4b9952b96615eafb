"""Small things that tests of transformers share: a tokenizer of 40 words, recipes at a size for tests, batches."""

from dataclasses import replace

import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from models.batch import Batch
from models.candidates import FILLER, Rows
from models.method import Method
from models.recipe import load
from models.resolving import resolve

SPECIAL = ["<unk>", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
AROUND = ["this", "sentence", "of", "means", '"', ":", ".", "[", "]", "x"]
PLAIN = ["river", "baker", "clock", "owl", "sing", "wait", "sleep", "the", "a", "an", "old", "new", "red", "blue"]
PLAIN += ["near", "far", "under", "over", "slow", "quick"]
WORDS = [*SPECIAL, *AROUND, *PLAIN, "##s", "##er", "##ing", "##ly", "##ness"]
NEW = ("encoder.path=''", "encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.positions=64")
VIEWS = {"single": 2, "pairs": 2, "triples": 3, "none": 1}

A = [[1, 0.5, -0.5], [0.2, -1, 0.3], [-0.7, 0.4, 0.9], [0.6, 0.8, 0.1]]  # first views
B = [[0.9, 0.4, -0.6], [0.1, -0.8, 0.5], [-0.5, 0.6, 0.7], [0.7, 0.6, 0.3]]  # second views
C = [[-0.9, 0.1, 0.5], [0.3, 0.9, -0.4], [0.8, -0.3, -0.6], [-0.2, -0.7, 0.9]]  # hard negatives
Q = [[0, 1, 0], [-1, 0.2, 0.4]]  # a queue


def words():
    tokenizer = Tokenizer(WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def number(*texts):
    """Vocabulary numbers of words."""
    return [WORDS.index(text) for text in texts]


def recipe_of(name, *overrides):
    return resolve(load(name, [*NEW, *overrides]))


def build(name, *overrides, seed=0, double=True):
    """A recipe's method with a new encoder, in evaluation mode."""
    recipe = recipe_of(name, *overrides)
    torch.manual_seed(seed)
    method = Method(recipe, len(WORDS), tokenizer=words())
    return (method.double() if double else method).eval()


def tower(*overrides, name="simcse-unsup", **given):
    """The encoder of a recipe."""
    return build(name, *overrides, **given).tower("f")


def padded(texts, filler=0, extra=0):
    """Numbers [L, T] and lengths [L] of texts that are lists of numbers."""
    most = max(map(len, texts)) + extra
    ids = torch.tensor([[*text, *[filler] * (most - len(text))] for text in texts], dtype=torch.int64)
    return ids, torch.tensor([len(text) for text in texts])


def sides(*lists):
    """Vectors in float64 that take gradients."""
    return [torch.tensor(rows, dtype=torch.float64, requires_grad=True) for rows in lists]


def lying_by_example(*views):
    """Vectors of views as their rows lie in a batch: an example's next to each other."""
    return torch.stack(views, dim=1).flatten(0, 1)


def examples(count, views, groups=None, fillers=0):
    """Rows of examples as the batches table has them; `groups` of each row, by default those of `single` texts."""
    size = count * views
    view = list(range(views)) * count
    first = [row - view[row] for row in range(size)]
    answers = [[first[row] + 1 - view[row]] if views > 1 and view[row] < 2 else [-1] for row in range(size)]
    hard = [[first[row] + 2] if views > 2 and view[row] == 0 else [-1] for row in range(size)]
    groups = [first[row] if views == 2 else row for row in range(size)] if groups is None else groups
    return Rows(
        torch.tensor([2 if at == 2 else 0 for at in view] + [FILLER] * fillers, dtype=torch.uint8),
        torch.tensor(groups + [-9 - at for at in range(fillers)]),
        torch.tensor(answers + [[-1]] * fillers),
        torch.tensor(view + [0] * fillers, dtype=torch.uint8),
        torch.tensor(hard + [[-1]] * fillers) if views > 2 else None,
    )


def questions(*shapes, fillers=0, groups=None):
    """Rows of questions as the batches table has them; of each how many right answers it has, and how many wrong."""
    side, view, answers, hard = [], [], [], []
    most = max(wrong for _, wrong in shapes)
    for right, wrong in shapes:
        first = len(side) + right  # behind the question's own rows, one a right answer
        wrongs = list(range(first + right, first + right + wrong))
        side += [1] * right + [2] * (right + wrong)
        view += [0] * right + [1] * right + [2] * wrong
        answers += [[first + at] for at in range(right)] + [[-1]] * (right + wrong)
        hard += [wrongs + [-1] * (most - wrong)] * right + [[-1] * most] * (right + wrong)
    groups = list(range(len(side))) if groups is None else groups
    return Rows(
        torch.tensor(side + [FILLER] * fillers, dtype=torch.uint8),
        torch.tensor(groups + [-9 - at for at in range(fillers)]),
        torch.tensor(answers + [[-1]] * fillers),
        torch.tensor(view + [0] * fillers, dtype=torch.uint8),
        torch.tensor(hard + [[-1] * most] * fillers, dtype=torch.int64),
    )


def drawn_questions(draw, rows=20):
    """A batch of questions as far as there is room, and fillers: some with too few wrong answers, one alike a right."""
    shapes = []
    for right, wrong in ((1, 6), (2, 3), (1, 2), (1, 0)):
        if sum(2 * r + w for r, w in shapes) + 2 * right + wrong <= rows:
            shapes.append((right, wrong))
    count = sum(2 * r + w for r, w in shapes)
    texts = [text_of(draw) for _ in range(count)] + [[0]] * (rows - count)
    texts[7] = texts[1]
    table = questions(*shapes, fillers=rows - count, groups=[1 if row == 7 else row for row in range(count)])
    ids = torch.tensor([word for text in texts for word in text])
    return Batch(ids, torch.tensor([len(text) for text in texts]), table)


def drawn_examples(draw, kind, rows=20, repeated=False):
    """A batch of examples, lengths from 1 to 6, two texts alike, and fillers in what room is left."""
    if kind == "qa":
        return drawn_questions(draw, rows)
    views = VIEWS[kind]
    count = (rows - 2) // views
    texts = []
    for at in range(count):
        drawn = [text_of(draw) for _ in range(views if kind != "single" else 1)]
        drawn = texts[0][:1] + drawn[1:] if at == count - 1 else drawn
        if kind == "single":
            drawn = [drawn[0], drawn[0] + drawn[0][-1:] * repeated]
        texts.append(drawn)
    flat = [text for example in texts for text in example]
    names = {}
    groups = [names.setdefault(tuple(example[0] if kind == "single" else text), len(names))
              for example in texts for text in example]  # fmt: skip
    fillers = rows - count * views
    flat += [[0]] * fillers
    ids = torch.tensor([word for text in flat for word in text])
    return Batch(ids, torch.tensor([len(text) for text in flat]), examples(count, views, groups, fillers))


def fitted(batch, recipe, width=3):
    """The batch with what a recipe reads besides: its rows' answers as targets, a teacher's and a guide's vectors."""
    rows, draw = batch.rows, torch.Generator().manual_seed(2)
    if recipe.teacher:
        rows = replace(rows, teacher_BE=torch.randn(len(rows.side_B), width, generator=draw))
    if recipe.guide:
        rows = replace(rows, guide_BE=torch.randn(len(rows.side_B), width, generator=draw))
    if not any(term.objective.kind == "generation" for term in recipe.terms):
        return replace(batch, rows=rows)
    texts = batch.flat_ids.split(batch.length_B.tolist())
    answers = [texts[answer].tolist() if answer >= 0 else [] for answer in rows.answers_BP[:, 0].tolist()]
    flat = torch.tensor([word for text in answers for word in text], dtype=torch.int64)
    return replace(batch, rows=rows, target_ids=flat, target_length_B=torch.tensor([len(text) for text in answers]))


def text_of(draw):
    size = int(torch.randint(1, 7, (1,), generator=draw))
    return torch.randint(len(SPECIAL), len(WORDS), (size,), generator=draw).tolist()
