"""RNNencdec: the sentence as one vector, given to every decoder step (Cho et al. 2014).

This is the baseline of Bahdanau et al. (2015), A.2.2: the decoder of RNNsearch with c_i fixed to the last forward state
of the encoder, c = ->h_Tx, for all i; so the encoder needs one direction only. Symbols as in `rnnsearch`.

    s_0 = tanh(W_s c)        (Cho et al. 2014, appendix A.2)
    s_i = GRU(E y_{i-1}, s_{i-1}, c)
    p(y_i) = softmax(W_o maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c))

Differs from Cho et al.: c is the last encoder state itself, without their extra layer tanh(V h_Tx). Dropout and `init`
as in `rnnsearch`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from mtkit.models._protocol import BackendConfig, Memory, Paper, Step, TranslationModel
from mtkit.nn.dropout import Dropout
from mtkit.nn.recurrent import GRUCell, MaxoutReadout, initialize

PAPER = Paper(
    "Cho, van Merriënboer, Gulcehre, Bahdanau, Bougares, Schwenk and Bengio",
    2014,
    "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    "https://arxiv.org/abs/1406.1078",
)


class Config(BackendConfig):
    """Sizes of an RNNencdec."""

    d_embedding: int = Field(default=256, ge=1, description="width of the token embeddings (m)")
    d_encoder: int = Field(default=512, ge=1, description="units of the encoder (n): the width of the sentence vector")
    d_hidden: int = Field(default=512, ge=1, description="units of the decoder (n)")
    d_maxout: int = Field(default=256, ge=1, description="units of the maxout layer, each the larger of two (l)")
    dropout: float = Field(default=0.2, ge=0, lt=1, description="on the embeddings and on the maxout layer")
    init: Literal["paper", "xavier"] = Field(
        default="xavier", description="initial weights; paper: N(0, 0.01^2); both: recurrent weights orthogonal"
    )


PRESETS = {
    "paper": Config(d_embedding=620, d_encoder=1000, d_hidden=1000, d_maxout=500, dropout=0.0, init="paper"),
    "small": Config(),
    "tiny": Config(d_embedding=12, d_encoder=14, d_hidden=16, d_maxout=6, dropout=0.0),
}


class State(NamedTuple):
    """What the decoder carries from one target token to the next."""

    hidden: Tensor  # [batch, 1, d_hidden], s_{i-1}


class Model(TranslationModel):
    """GRU encoder, one context vector, GRU decoder with deep output."""

    has_attention = False

    def __init__(self, config: Config, src_vocab_size: int, trg_vocab_size: int, pad_id: int) -> None:
        super().__init__()
        self.src_embedding = nn.Embedding(src_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.trg_embedding = nn.Embedding(trg_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.encoder = GRUCell(config.d_embedding, config.d_encoder)
        self.initial = nn.Linear(config.d_encoder, config.d_hidden)
        self.decoder = GRUCell(config.d_embedding, config.d_hidden, config.d_encoder)
        self.readout = MaxoutReadout(config.d_hidden, config.d_embedding, config.d_encoder, config.d_maxout)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.d_maxout, trg_vocab_size)
        initialize(self, config.init)

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        embedded = self.dropout(self.src_embedding(src.t()))  # [src_len, batch, d_embedding]
        states = self.encoder.scan(self.encoder.input(embedded), self.encoder.zero_state(len(src)), src_pad_mask)
        # The scan carries the state over padding: the last column holds ->h_Tx of every row.
        return Memory(states.transpose(0, 1), src_pad_mask, cache=states[-1])

    def start(self, memory: Memory) -> State:
        return State(torch.tanh(self.initial(memory.cache)).to(self.initial.weight.dtype)[:, None])

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        hidden = state.hidden[:, 0]
        embedded = self.dropout(self.trg_embedding(prev))
        context = memory.cache.repeat_interleave(len(prev) // len(memory.cache), dim=0)
        logits = self.output(self.dropout(self.readout(hidden, embedded, context)))
        hidden = self.decoder(self.decoder.project(embedded, context), hidden)
        return Step(logits, State(hidden[:, None]), None)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        memory = self.encode(src, src_pad_mask)
        embedded = self.dropout(self.trg_embedding(trg_in.t()))  # [trg_len, batch, d_embedding]
        initial = self.start(memory).hidden[:, 0]
        # The state after the last token is not computed: no output depends on it.
        following = self.decoder.scan(self.decoder.project(embedded[:-1], memory.cache), initial)
        states = torch.cat([initial[None], following])  # s_{i-1}
        return self.dropout(self.readout(states, embedded, memory.cache)).transpose(0, 1)
