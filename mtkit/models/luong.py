"""Luong: stacked LSTMs with global or local attention on the decoder's new state (Luong, Pham and Manning 2015).

Symbols: h_t (target) -> the top decoder state, h_s -> memory.states, c_t -> context, a_t -> attention, W_c -> combine,
h~_t -> attentional, D -> window, W_s -> output.

    h_t from y_{t-1} (and, with input feeding, h~_{t-1})
    c_t = sum_s a_t(s) h_s, a_t by `mtkit.nn.luong_attention`
    h~_t = tanh(W_c [c_t; h_t])                                   (eq. 5)
    p(y_t) = softmax(W_s h~_t)                                    (eq. 6)

Attention comes after the state, where Bahdanau et al. (2015) attend with s_{i-1}, before it. `attention: none` is the
paper's base system, p(y_t) = softmax(W_s h_t). Input feeding (§3.3) hands on the attentional vector h~, not the context
as the textbook chapter has it. A reversed source changes what the encoder reads, never the positions: windows and
attention columns follow reading order.

Differs from the paper: one bias for each LSTM gate and for the output layer, `init: xavier` beside the paper's uniform
weights, and the switch `gaussian`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from mtkit.models._protocol import BackendConfig, Memory, Paper, Step, TranslationModel
from mtkit.nn.dropout import Dropout
from mtkit.nn.loop import LoopLinear
from mtkit.nn.luong_attention import LuongAttention
from mtkit.nn.recurrent import LSTMStack, LSTMStates, initialize, lstm_step, matmul_dtype

PAPER = Paper(
    "Luong, Pham and Manning",
    2015,
    "Effective Approaches to Attention-based Neural Machine Translation",
    "https://arxiv.org/abs/1508.04025",
)


class Config(BackendConfig):
    """Sizes and switches of a Luong system."""

    ONLY_WITH: ClassVar = {
        "score": ("attention", ("global", "local_m", "local_p")),
        "window": ("attention", ("local_m", "local_p")),
        "gaussian": ("attention", ("local_m", "local_p")),
        "max_source_length": ("score", ("location",)),
    }

    d_embedding: int = Field(default=256, ge=1, description="width of the token embeddings")
    d_hidden: int = Field(default=512, ge=1, description="units of each layer, in the encoder and in the decoder")
    n_layers: int = Field(default=2, ge=1, description="layers of the encoder and of the decoder")
    attention: Literal["none", "global", "local_m", "local_p"] = Field(
        default="global",
        description="global: all source positions; local_m: a window that moves with the target position; "
        "local_p: a window whose middle is predicted",
    )
    score: Literal["dot", "general", "concat", "location"] = Field(
        default="general", description="how a source position is scored, if at all; location looks at no source state"
    )
    window: int = Field(default=10, ge=1, description="D: local attention looks at most this far to each side")
    gaussian: Literal["paper", "chapter", "none"] = Field(
        default="paper",
        description="local attention; paper: local_p only, not renormalised; chapter: local_m too, rows sum to 1",
    )
    input_feeding: bool = Field(default=True, description="each step also reads the attentional vector before it")
    reverse_source: bool = Field(default=True, description="read the source from its last word to its first")
    max_source_length: int = Field(
        default=256, ge=1, description="score location: source positions that can get weight, EOS counted"
    )
    dropout: float = Field(
        default=0.2, ge=0, lt=1, description="on what each layer reads, and on what the output layer reads"
    )
    init: Literal["uniform", "xavier"] = Field(
        default="xavier", description="initial weights; uniform: the paper's U[-0.1, 0.1]"
    )

    @model_validator(mode="after")
    def _feeds_what_there_is(self) -> Config:
        if self.attention == "none" and self.input_feeding:
            raise ValueError("input_feeding: needs attention; with attention none set it to false")
        return self

    @model_validator(mode="after")
    def _learns_its_window(self) -> Config:
        if self.attention == "local_p" and self.gaussian == "none":
            raise ValueError("gaussian: none leaves local_p without a gradient for its window; choose paper or chapter")
        return self


PRESETS = {
    "paper": Config(
        d_embedding=1000, d_hidden=1000, n_layers=4, attention="local_p", score="general", dropout=0.2, init="uniform"
    ),
    "small": Config(),
    "tiny": Config(d_embedding=12, d_hidden=16, n_layers=2, dropout=0.0),
}

INITIAL_BOUND = 0.1  # §4.1


class State(NamedTuple):
    """What the decoder carries from one target token to the next."""

    layers: LSTMStates
    attentional: Tensor  # [batch, 1, d_hidden], h~_{t-1}; [batch, 0, d_hidden] without input feeding
    position: Tensor  # [batch, 1], t, tokens read so far


class Cache(NamedTuple):
    """What is computed of the source once."""

    final: LSTMStates  # the encoder's states after the last token it read
    keys: Tensor  # see SourceScore.keys; without attention [batch, src_len, 0]


class Model(TranslationModel):
    """Stacked LSTM encoder and decoder; the decoder's top state attends."""

    def __init__(self, config: Config, src_vocab_size: int, trg_vocab_size: int, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.has_attention = config.attention != "none"
        d_fed = config.d_hidden if config.input_feeding else 0
        self.src_embedding = nn.Embedding(src_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.trg_embedding = nn.Embedding(trg_vocab_size, config.d_embedding, padding_idx=pad_id)
        self.encoder = LSTMStack(config.d_embedding, config.d_hidden, config.n_layers, config.dropout)
        self.decoder = LSTMStack(config.d_embedding + d_fed, config.d_hidden, config.n_layers, config.dropout)
        self.attention: LuongAttention | None = None
        if config.attention != "none":
            self.attention = LuongAttention(
                config.attention,
                config.score,
                config.d_hidden,
                config.d_hidden,
                window=config.window,
                gaussian=config.gaussian,
                max_source_length=config.max_source_length,
            )
            self.combine = nn.Linear(2 * config.d_hidden, config.d_hidden, bias=False)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.d_hidden, trg_vocab_size)
        initialize(self, config.init, INITIAL_BOUND)

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        embedded = self.src_embedding(src.t())  # [src_len, batch, d_embedding]
        # A backward scan passes over padding first, and returns the states in reading order.
        scanned, final = self.encoder.scan(
            embedded, self.encoder.zero_states(len(src)), src_pad_mask, reverse=self.config.reverse_source
        )
        states = scanned.transpose(0, 1).to(matmul_dtype(scanned))
        keys = states[:, :, :0] if self.attention is None else self.attention.keys(states)
        return Memory(states, src_pad_mask, Cache(final, keys))

    def start(self, memory: Memory) -> State:
        final = LSTMStates(*memory.cache.final)
        batch, _, d_hidden = final.hidden.shape
        attentional = final.hidden.new_zeros(batch, 1 if self.config.input_feeding else 0, d_hidden)
        return State(final, attentional, memory.src_pad_mask.new_zeros(batch, 1, dtype=torch.int64))

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        embedded = self.trg_embedding(prev)
        if self.config.input_feeding:
            embedded = torch.cat([embedded, state.attentional[:, 0].to(embedded.dtype)], dim=-1)
        top, layers = self.decoder(embedded, state.layers)
        weights, attentional = None, top
        if self.attention is not None:
            # The k rows of a sentence ask its one memory row: [batch, k, d_hidden].
            query = top.view(len(memory.states), -1, top.size(-1))
            context, weights = self.attention(
                query,
                memory.states,
                memory.cache.keys,
                memory.src_pad_mask,
                state.position.view(len(memory.states), -1),
            )
            attentional = torch.tanh(self.combine(torch.cat([context.to(query.dtype), query], dim=-1))).view_as(top)
            weights = weights.view(len(prev), -1)
        fed = attentional[:, None].to(state.attentional.dtype) if self.config.input_feeding else state.attentional
        logits = self.output(self.dropout(attentional))
        return Step(logits, State(layers, fed, state.position + 1), weights if need_attention else None)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        memory = self.encode(src, src_pad_mask)
        embedded = self.trg_embedding(trg_in.t())  # [trg_len, batch, d_embedding]
        if self.config.input_feeding:
            return self.dropout(self._fed_scan(embedded, memory))
        scanned, _ = self.decoder.scan(embedded, self.start(memory).layers)
        states = scanned.transpose(0, 1)
        if self.attention is None:
            return self.dropout(states)
        steps = torch.arange(states.size(1), device=states.device)[None]
        context, _ = self.attention(states, memory.states, memory.cache.keys, src_pad_mask, steps)
        return self.dropout(torch.tanh(self.combine(torch.cat([context.to(states.dtype), states], dim=-1))))

    def _fed_scan(self, embedded: Tensor, memory: Memory) -> Tensor:
        """All attentional vectors [batch, trg_len, d_hidden] with input feeding: `step` in a loop, made for training.

        What the embeddings add to the first layer is one product over all steps, and so is every weight's gradient.
        """
        assert self.attention is not None
        n_steps, batch, d_embedding = embedded.shape
        dtype = matmul_dtype(embedded)
        first = self.decoder.layers[0]
        of_embedding, of_fed = first.input.weight.split([d_embedding, self.config.d_hidden], dim=1)
        from_embedding = nn.functional.linear(self.decoder.dropout(embedded), of_embedding, first.input.bias)
        products: list[Any] = [LoopLinear(of_fed.to(dtype))]
        products += [LoopLinear(layer.input.weight.to(dtype)) for layer in list(self.decoder.layers)[1:]]
        recurrent = [LoopLinear(layer.recurrent.weight.to(dtype)) for layer in self.decoder.layers]
        combine = LoopLinear(self.combine.weight.to(dtype))

        state = self.start(memory)
        hiddens, cells = list(state.layers.hidden.unbind(1)), list(state.layers.cell.unbind(1))
        attentional, found = state.attentional[:, 0], []
        for t in range(n_steps):
            below = attentional
            for number, layer in enumerate(self.decoder.layers):
                inputs = products[number](self.decoder.dropout(below)) + recurrent[number](hiddens[number])
                inputs = inputs + (from_embedding[t] if number == 0 else layer.input.bias)
                hiddens[number], cells[number] = lstm_step(inputs, cells[number])
                below = hiddens[number]
            step = state.position + t
            context, _ = self.attention(below[:, None], memory.states, memory.cache.keys, memory.src_pad_mask, step)
            attentional = torch.tanh(combine(torch.cat([context[:, 0].to(dtype), below.to(dtype)], dim=-1)))
            attentional = attentional.to(state.attentional.dtype)
            found.append(attentional)
        return torch.stack(found, dim=1)
