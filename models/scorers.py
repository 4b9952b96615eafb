"""
Encoders that tell words: an anchor's vector, made of words around or before, against each word's row of a table.

    score(w, c) = anchor(c) . row(w)

A text's own vector is the mean of its words' input vectors, so that all that reads texts' vectors goes on working.
Letters besides those of `models`: A anchors, n - 1 words of a context, E width of a word vector, D of an anchor.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from models.lookup import Dropout, Encoder, Words, real
from models.windows import Keep, Windows, around, before, keep_chances


class Scorer(Encoder):
    """What encoders of words have: input vectors, output rows, and the windows of a lane."""

    words: Words
    ends: bool  # the end of a text is told too; its number is that of the words

    @property
    def outputs(self) -> Words:
        """The table of rows that anchors are multiplied with, [V', D]."""
        raise NotImplementedError

    def windows(self, id_LT: Tensor, length_L: Tensor) -> Windows:
        """What is told from what in a lane; may draw."""
        raise NotImplementedError

    def anchors(self, input: Tensor) -> Tensor:
        """Vectors [A, D] of anchors."""
        raise NotImplementedError

    def check_context(self) -> None:
        """
        Refuse what `only_word` cannot give.

        Raises:
            ValueError: an anchor is made of several words.
        """

    def only_word(self, input: Tensor) -> Tensor:
        """The one word that an anchor is made of, [A]."""
        return input

    def start_at(self, log_share_V: Tensor) -> None:
        """Let scores begin at the logarithm of each word's share, for encoders that have a bias."""

    def forward(
        self, id_LT: Tensor, length_L: Tensor, shared: Tensor | None = None, view_L: Tensor | None = None
    ) -> Tensor:
        """Mean input vector [L, E] of each text; zeros for a text without words."""
        return self.words.mean(id_LT[real(length_L, id_LT.shape[1])], length_L)


class Ordered(Scorer):
    """
    A scorer of the word that comes next, or of the end, from the n - 1 words before.

    Input vectors and output rows have one row more than there are words: the last one stands before a text in contexts,
    and for its end among outputs.

    Raises:
        ValueError: the order is below 1.
    """

    ends = True

    def __init__(self, vocabulary: int, order: int, word_width: int, width: int, initial: float) -> None:
        super().__init__()
        if order < 1:
            raise ValueError(f"encoder.order is {order}; should be at least 1: a word, with order - 1 words before it")
        if word_width < 1:
            raise ValueError(f"encoder.word_width is {word_width}; should be at least 1")
        self.order, self.mark = order, vocabulary
        self.words = Words(vocabulary + 1, word_width, initial=initial)
        self.rows = Words(vocabulary + 1, width + 1, initial=initial)  # the last number of a row is the word's bias
        self.drop, self.width = Dropout(0.0, shared=False), word_width
        with torch.no_grad():
            self.rows.weight[:, -1] = 0

    @property
    def outputs(self) -> Words:
        """Rows of words, and the last row of the end; the last number is a bias."""
        return self.rows

    def windows(self, id_LT: Tensor, length_L: Tensor) -> Windows:
        """All words and the end, each with what comes before."""
        return before(id_LT, length_L, self.order, self.mark)

    def check_context(self) -> None:
        """Refuse an order other than 2."""
        if self.order != 2:
            raise ValueError(
                f'objective.log_z is "per-context", which wants encoder.order = 2, not {self.order}: there is a number '
                'for each context; use "fixed" or "global"'
            )

    def only_word(self, input: Tensor) -> Tensor:
        """The word before."""
        return input[:, 0]

    @torch.no_grad()
    def start_at(self, log_share_V: Tensor) -> None:
        """Biases begin at the logarithm of each word's share."""
        self.rows.weight[:, -1] = log_share_V


class NPLM(Ordered):
    """
    A neural probabilistic language model.

        x = [C(c_1); ..; C(c_(n-1))],   s(w, c) = b[w] + W[w] . x + U[w] . tanh(d + H x)

    The oldest word comes first. Rows of the output table are [U | W | b], an anchor is [tanh(d + H x); x; 1].

    Args:
        vocabulary: number of words V.
        order: n; a context is n - 1 words.
        word_width: width of C's rows.
        hidden: numbers of the hidden layer; 0: none.
        direct: whether there is W.
        initial: new tables are drawn evenly from -initial to initial; biases are 0.
    Raises:
        ValueError: the order is below 1, or another size below its least.
    Source:
        Bengio, Ducharme, Vincent and Jauvin 2003, equation 1, whose contexts have the newest word first.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        order: int = 5,
        word_width: int = 60,
        hidden: int = 100,
        direct: bool = True,
        initial: float = 0.05,
    ) -> None:
        if hidden < 0:
            raise ValueError(f"encoder.hidden is {hidden}; 0 for none, or how many")
        x_width = (order - 1) * word_width
        super().__init__(vocabulary, order, word_width, hidden + x_width * direct, initial)
        self.direct = direct
        bound = 1 / max(1, x_width) ** 0.5
        self.inner = nn.Parameter(torch.empty(hidden, x_width).uniform_(-bound, bound))
        self.shift = nn.Parameter(torch.zeros(hidden))

    def anchors(self, input: Tensor) -> Tensor:
        """[tanh(d + H x); x; 1] of contexts [A, n - 1]."""
        x_AE = self.words(input).flatten(1)
        hidden_AH = nn.functional.linear(x_AE, self.inner, self.shift).tanh()
        one_A1 = x_AE.new_ones(len(input), 1)
        return torch.cat([hidden_AH, x_AE, one_A1] if self.direct else [hidden_AH, one_A1], dim=1)


class LogBilinear(Ordered):
    """
    A log-bilinear language model.

        s(w, c) = b[w] + q[w] . (sum over i of C_i r(c_i))

    Args:
        vocabulary: number of words V.
        order: n; a context is n - 1 words, the oldest first.
        word_width: width of r's and q's rows.
        positions: C_i is a whole matrix ("matrix") or a diagonal ("diagonal"); both start at 1 / (n - 1).
        initial: new tables are drawn evenly from -initial to initial; biases are 0.
    Raises:
        ValueError: the order is below 1, or the width.
    Source:
        Mnih and Hinton 2007; the diagonals are those of Mnih and Teh 2012.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        order: int = 5,
        word_width: int = 100,
        positions: Literal["matrix", "diagonal"] = "matrix",
        initial: float = 0.05,
    ) -> None:
        super().__init__(vocabulary, order, word_width, word_width, initial)
        one = torch.ones(word_width) if positions == "diagonal" else torch.eye(word_width)
        self.place = nn.Parameter((one / max(1, order - 1)).expand(order - 1, *one.shape).clone())

    def anchors(self, input: Tensor) -> Tensor:
        """[sum of C_i r(c_i); 1] of contexts [A, n - 1]."""
        word_ANE = self.words(input)
        sums = "ane,ne->ae" if self.place.dim() == 2 else "ane,nfe->af"
        return torch.cat([torch.einsum(sums, word_ANE, self.place), word_ANE.new_ones(len(input), 1)], dim=1)


class Table(Scorer):
    """
    A table of word vectors that tells, or is told, the words around.

    Two towers make a model: one holds the vectors of words that tell, the other those of words that are told.

    Args:
        vocabulary: number of words V.
        width: of a vector.
        window: most places between two words; each word draws its own radius, evenly from 1 to this.
        subsample: words with a larger share of the corpus are left out at times; 0: none.
        keep: how often such a word stays, see `windows.keep_chances`.
        initial: a new table is drawn evenly from -initial / width to initial / width.
        table: name of a ready-made table; whoever resolves it hands it over as `words`.
        frozen: the table is never trained.
        words: a ready-made or shared table; `width`, `frozen` and `initial` then say nothing.
        frequency: each word's share of the corpus, for `subsample`.
    Raises:
        ValueError: the window is below 1, or the threshold below 0.
    Source:
        Mikolov, Sutskever, Chen, Corrado and Dean 2013, section 2; initial numbers are word2vec's.
    """

    ends = False
    keep_V: Tensor

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 100,
        window: int = 5,
        subsample: float = 1e-5,
        keep: Keep = "paper",
        initial: float = 0.5,
        table: str = "",
        frozen: bool = False,
        words: Words | None = None,
        frequency: Tensor | None = None,
    ) -> None:
        super().__init__()
        if window < 1:
            raise ValueError(f"encoder.window is {window}; how many places around a word are looked at, at least 1")
        if not 0 <= subsample < 1:
            raise ValueError(f"encoder.subsample is {subsample}; a share of the corpus from 0 to below 1")
        if table and words is None:
            raise ValueError(f'encoder.table is "{table}" but no table was handed over')
        self.words = words or Words(vocabulary, width, frozen=frozen, initial=initial / max(1, width))
        self.window, self.drop, self.width = window, Dropout(0.0, shared=False), self.words.width
        share_V = torch.zeros(vocabulary) if frequency is None else frequency
        self.register_buffer("keep_V", keep_chances(share_V, subsample, keep), persistent=False)

    @property
    def outputs(self) -> Words:
        """The table itself."""
        return self.words

    def windows(self, id_LT: Tensor, length_L: Tensor) -> Windows:
        """Words that are kept, each with those around."""
        return around(id_LT, length_L, self.window, self.keep_V)

    def anchors(self, input: Tensor) -> Tensor:
        """Vectors of words [A]."""
        return self.words(input)


SCORERS: dict[str, type[Scorer]] = {"log-bilinear": LogBilinear, "nplm": NPLM, "table": Table}
