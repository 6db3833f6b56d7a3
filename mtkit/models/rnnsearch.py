"""RNNsearch: a recurrent translator that learns to align (Bahdanau, Cho and Bengio 2015, with its appendix A).

Symbols: m -> d_embedding, n -> d_encoder (each direction) and d_hidden (decoder), n' -> d_attention, l -> d_maxout;
h_j = [->h_j; <-h_j] -> memory.states, U_a h_j -> memory.cache, s_{i-1} -> state.hidden, c_i -> context.

    s_0 = tanh(W_s <-h_1)
    c_i = sum_j alpha_ij h_j, alpha_ij = softmax_j(v_a^T tanh(W_a s_{i-1} + U_a h_j))
    s_i = GRU(E y_{i-1}, s_{i-1}, c_i)
    p(y_i) = softmax(W_o maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i))

Differs from the paper: one bias a layer is kept where the paper leaves them out of its equations; dropout (0 in the
preset `paper`) on the embeddings and on the maxout layer; encoder and decoder may have different widths; `init: xavier`
beside the paper's own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from mtkit.models._protocol import BackendConfig, Memory, Paper, Step, TranslationModel
from mtkit.nn.additive import AdditiveAttention, attentive_scan
from mtkit.nn.dropout import Dropout
from mtkit.nn.recurrent import GRUCell, MaxoutReadout, initialize, matmul_dtype

PAPER = Paper(
    "Bahdanau, Cho and Bengio",
    2015,
    "Neural Machine Translation by Jointly Learning to Align and Translate",
    "https://arxiv.org/abs/1409.0473",
)


class Config(BackendConfig):
    """Sizes of an RNNsearch."""

    d_embedding: int = Field(default=256, ge=1, description="width of the token embeddings (m)")
    d_encoder: int = Field(default=256, ge=1, description="units of each encoder direction (n)")
    d_hidden: int = Field(default=512, ge=1, description="units of the decoder (n)")
    d_attention: int = Field(default=256, ge=1, description="units of the alignment model (n')")
    d_maxout: int = Field(default=256, ge=1, description="units of the maxout layer, each the larger of two (l)")
    dropout: float = Field(default=0.2, ge=0, lt=1, description="on the embeddings and on the maxout layer")
    init: Literal["paper", "xavier"] = Field(
        default="xavier",
        description="initial weights; paper: N(0, 0.01^2), in the alignment model N(0, 0.001^2) and v_a = 0; "
        "both: recurrent weights orthogonal",
    )


PRESETS = {
    "paper": Config(
        d_embedding=620, d_encoder=1000, d_hidden=1000, d_attention=1000, d_maxout=500, dropout=0.0, init="paper"
    ),
    "small": Config(),
    "tiny": Config(d_embedding=12, d_encoder=8, d_hidden=16, d_attention=10, d_maxout=6, dropout=0.0),
}


class State(NamedTuple):
    """What the decoder carries from one target token to the next."""

    hidden: Tensor  # [batch, 1, d_hidden], s_{i-1}


class Model(TranslationModel):
    """Bidirectional GRU encoder, additive attention, GRU decoder with deep output."""

    has_attention = True

    def __init__(self, config: Config, src_vocab_size: int, trg_vocab_size: int, pad_id: int) -> None:
        super().__init__()
        d_memory = 2 * config.d_encoder
        self.src_embedding = nn.Embedding(src_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.trg_embedding = nn.Embedding(trg_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.forward_encoder = GRUCell(config.d_embedding, config.d_encoder)
        self.backward_encoder = GRUCell(config.d_embedding, config.d_encoder)
        self.initial = nn.Linear(config.d_encoder, config.d_hidden)
        self.attention = AdditiveAttention(config.d_hidden, d_memory, config.d_attention)
        self.decoder = GRUCell(config.d_embedding, config.d_hidden, d_memory)
        self.readout = MaxoutReadout(config.d_hidden, config.d_embedding, d_memory, config.d_maxout)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.d_maxout, trg_vocab_size)
        initialize(self, config.init)
        self.attention.initialize(config.init)

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        embedded = self.dropout(self.src_embedding(src.t()))  # [src_len, batch, d_embedding]
        start = self.forward_encoder.zero_state(len(src))
        forward = self.forward_encoder.scan(self.forward_encoder.input(embedded), start, src_pad_mask)
        backward = self.backward_encoder.scan(self.backward_encoder.input(embedded), start, src_pad_mask, reverse=True)
        states = torch.cat([forward.transpose(0, 1), backward.transpose(0, 1)], dim=-1).to(matmul_dtype(forward))
        return Memory(states, src_pad_mask, self.attention.keys(states))

    def start(self, memory: Memory) -> State:
        first_backward = memory.states[:, 0, self.initial.in_features :]  # <-h_1
        return State(torch.tanh(self.initial(first_backward)).to(self.initial.weight.dtype)[:, None])

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        hidden = state.hidden[:, 0]
        embedded = self.dropout(self.trg_embedding(prev))
        context, weights = self.attention(hidden, memory.states, memory.cache, memory.src_pad_mask)
        logits = self.output(self.dropout(self.readout(hidden, embedded, context)))
        hidden = self.decoder(self.decoder.project(embedded, context), hidden)
        return Step(logits, State(hidden[:, None]), weights if need_attention else None)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        memory = self.encode(src, src_pad_mask)
        embedded = self.dropout(self.trg_embedding(trg_in.t()))  # [trg_len, batch, d_embedding]
        states, contexts = attentive_scan(
            self.decoder,
            self.attention,
            self.decoder.input(embedded[:-1]),
            self.start(memory).hidden[:, 0],
            memory.states,
            memory.cache,
            src_pad_mask,
        )
        return self.dropout(self.readout(states, embedded, contexts)).transpose(0, 1)
