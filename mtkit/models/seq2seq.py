"""Seq2Seq: a deep LSTM reads the sentence, another writes its translation (Sutskever, Vinyals and Le 2014).

The decoder starts from the final hidden state and cell of every encoder layer (8,000 numbers in the paper) and is told
nothing of the source afterwards. The source is read backwards, last word first, so that its first words stand next to
the first words of the translation; the target is not reversed (§3.3). EOS, which ends a source row, is then read
first.

    (h_0, c_0) of decoder layer k = (h, c) of encoder layer k after the last token read
    p(y_t) = softmax(W_o h_t of the top layer)

Differs from the paper: dropout (0 in the preset `paper`) as in Zaremba et al. (2014), one bias for each gate, and
`init: xavier` beside the paper's uniform weights. The textbook chapter writes s_t = g(y_{t-1}, s_{t-1}, c): that is the
decoder of Cho et al. (2014), here `rnnencdec`. At the paper's vocabularies of 160,000 and 80,000 words this model has
384 million parameters, 64 million of them recurrent, as the paper says.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from mtkit.models._protocol import BackendConfig, Memory, Paper, Step, TranslationModel
from mtkit.nn.dropout import Dropout
from mtkit.nn.recurrent import LSTMStack, LSTMStates, initialize

PAPER = Paper(
    "Sutskever, Vinyals and Le",
    2014,
    "Sequence to Sequence Learning with Neural Networks",
    "https://arxiv.org/abs/1409.3215",
)


class Config(BackendConfig):
    """Sizes and switches of a Seq2Seq."""

    d_embedding: int = Field(default=256, ge=1, description="width of the token embeddings")
    d_hidden: int = Field(default=512, ge=1, description="units of each layer, in the encoder and in the decoder")
    n_layers: int = Field(default=2, ge=1, description="layers of the encoder and of the decoder")
    reverse_source: bool = Field(default=True, description="read the source from its last word to its first")
    dropout: float = Field(
        default=0.2, ge=0, lt=1, description="on what each layer reads, and on the top layer's state"
    )
    init: Literal["uniform", "xavier"] = Field(
        default="xavier", description="initial weights; uniform: the paper's U[-0.08, 0.08]"
    )


PRESETS = {
    "paper": Config(d_embedding=1000, d_hidden=1000, n_layers=4, dropout=0.0, init="uniform"),
    "small": Config(),
    "tiny": Config(d_embedding=12, d_hidden=16, n_layers=2, dropout=0.0),
}

INITIAL_BOUND = 0.08  # §3.4


class Model(TranslationModel):
    """Two LSTM stacks, joined by nothing but the states that one hands to the other."""

    has_attention = False

    def __init__(self, config: Config, src_vocab_size: int, trg_vocab_size: int, pad_id: int) -> None:
        super().__init__()
        self.reverse_source = config.reverse_source
        self.src_embedding = nn.Embedding(src_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.trg_embedding = nn.Embedding(trg_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.encoder = LSTMStack(config.d_embedding, config.d_hidden, config.n_layers, config.dropout)
        self.decoder = LSTMStack(config.d_embedding, config.d_hidden, config.n_layers, config.dropout)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.d_hidden, trg_vocab_size)
        initialize(self, config.init, INITIAL_BOUND)

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        embedded = self.src_embedding(src.t())  # [src_len, batch, d_embedding]
        # A backward scan passes over padding first, and returns the states in reading order.
        states, after = self.encoder.scan(
            embedded, self.encoder.zero_states(len(src)), src_pad_mask, reverse=self.reverse_source
        )
        return Memory(states.transpose(0, 1), src_pad_mask, cache=after)

    def start(self, memory: Memory) -> LSTMStates:
        return LSTMStates(*memory.cache)

    def step(self, prev: Tensor, state: LSTMStates, memory: Memory, *, need_attention: bool = False) -> Step:
        top, state = self.decoder(self.trg_embedding(prev), state)
        return Step(self.output(self.dropout(top)), state, None)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        memory = self.encode(src, src_pad_mask)
        states, _ = self.decoder.scan(self.trg_embedding(trg_in.t()), self.start(memory))
        return self.dropout(states).transpose(0, 1)
