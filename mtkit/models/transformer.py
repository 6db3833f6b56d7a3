"""Transformer: attention alone, no recurrence (Vaswani et al. 2017, "Attention Is All You Need").

Symbols: N -> n_layers, d_model, d_ff, h -> n_heads, d_v = d_model / n_heads, d_k -> d_key, P_drop -> dropout.

The presets `base` and `big` are those of the paper's Table 3; `big` carries the En-De dropout of 0.3 (0.1 is
the paper's En-Fr value). `small` and `tiny` are sizes for small corpora and tests.

Differs from the paper: dropout also after the first layer of the feed-forward block where `ff_dropout` is set,
and layer normalisation before each block where `norm: pre` (Xiong et al. 2020), which trains without a long
warm-up.

Variants: queries and keys of another width than values (Table 3, rows B); heads of the decoder that share keys and
values (`kv`), in its self-attention and its attention over the source as in Ainslie et al. (2023); self-attention
within a window, in encoder and decoder; learned or no positions; and what an ablation takes away: the scale
1/sqrt(d_k), residual sums, layer normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.models._protocol import BackendConfig, Memory, Paper, Step, TranslationModel
from mtkit.nn.attention import KeysValues, LatentAttention, MultiHeadAttention
from mtkit.nn.dropout import Dropout
from mtkit.nn.embedding import LearnedPositions, NoPositions, SinusoidalPositions, TokenEmbedding
from mtkit.nn.masks import causal_mask, far_mask, key_pad_mask

PAPER = Paper(
    "Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser and Polosukhin",
    2017,
    "Attention Is All You Need",
    "https://arxiv.org/abs/1706.03762",
)


class Config(BackendConfig):
    """Sizes and switches of a Transformer."""

    ONLY_WITH: ClassVar = {
        "n_kv_groups": ("kv", ("gqa",)),
        "d_latent": ("kv", ("mla",)),
        "max_positions": ("positions", ("learned",)),
    }

    d_model: int = Field(256, ge=2, description="width of every layer")
    d_ff: int = Field(1024, ge=1, description="inner width of the feed-forward block")
    n_heads: int = Field(4, ge=1, description="attention heads; divides d_model")
    d_key: int | None = Field(
        None, ge=1, description="width of each head's queries and keys (d_k); null = d_model / n_heads, as its values"
    )
    n_layers: int = Field(3, ge=1, description="layers of the encoder and of the decoder")
    dropout: float = Field(0.1, ge=0, lt=1, description="on every block's output and on the embeddings")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on the attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="after the inner feed-forward layer")
    kv: Literal["mha", "gqa", "mqa", "mla"] = Field(
        "mha",
        description="keys and values of the decoder's heads; mha: each its own; gqa: one for each of n_kv_groups "
        "groups; mqa: one for all; mla: made from a latent vector of d_latent",
    )
    n_kv_groups: int = Field(2, ge=1, description="kv gqa: groups of heads; divides n_heads")
    d_latent: int = Field(64, ge=1, description="kv mla: width of the latent vector")
    window: int | None = Field(
        None, ge=1, description="self-attention looks at most this far to each side; null = everywhere"
    )
    positions: Literal["sinusoidal", "learned", "none"] = Field("sinusoidal", description="what tells of positions")
    max_positions: int = Field(1024, ge=1, description="positions learned: how many; those beyond share the last")
    scaled: bool = Field(True, description="divide by sqrt(d_k) before the softmax")
    residual: bool = Field(True, description="add what a block reads to what it gives")
    layer_norm: bool = Field(True, description="normalise layers, as norm says")
    norm: Literal["pre", "post"] = Field("pre", description="post: LayerNorm(x + block(x)), as in the paper")
    tied_embeddings: Literal["three_way", "two_way", "none"] = Field(
        "three_way",
        description="three_way: source, target and output share one matrix (needs a shared vocabulary); "
        "two_way: target and output",
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Config:
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads: {self.n_heads} does not divide d_model {self.d_model}")
        if self.kv == "gqa" and self.n_heads % self.n_kv_groups:
            raise ValueError(f"n_kv_groups: {self.n_kv_groups} does not divide n_heads {self.n_heads}")
        if self.d_model % 2 and self.positions == "sinusoidal":
            raise ValueError(f"d_model: {self.d_model} is odd; sinusoidal positions need an even width")
        return self


PRESETS = {
    "base": Config(d_model=512, d_ff=2048, n_heads=8, n_layers=6, dropout=0.1, norm="post"),
    "big": Config(d_model=1024, d_ff=4096, n_heads=16, n_layers=6, dropout=0.3, norm="post"),
    "small": Config(),
    "tiny": Config(d_model=16, d_ff=32, n_heads=2, n_layers=2, dropout=0.0),
}


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 (eq. 2)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.ff_dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x))))


class Residual(nn.Module):
    """What stands around each block: the residual sum, dropout and layer normalisation (§5.4)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.adds = config.residual
        self.norm = nn.LayerNorm(config.d_model) if config.layer_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def before(self, x: Tensor) -> Tensor:
        """What the block reads."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, block_output: Tensor) -> Tensor:
        """What the next block gets."""
        total = x + self.dropout(block_output) if self.adds else self.dropout(block_output)
        return total if self.pre else self.norm(total)


def decoder_attention(config: Config) -> MultiHeadAttention:
    """Attention whose heads share keys and values as `kv` says."""
    sizes = (config.d_model, config.n_heads, config.attention_dropout)
    if config.kv == "mla":
        return LatentAttention(*sizes, d_latent=config.d_latent, d_key=config.d_key, scaled=config.scaled)
    n_groups = {"mha": config.n_heads, "gqa": config.n_kv_groups, "mqa": 1}[config.kv]
    return MultiHeadAttention(*sizes, n_groups=n_groups, d_key=config.d_key, scaled=config.scaled)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward block."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(
            config.d_model, config.n_heads, config.attention_dropout, d_key=config.d_key, scaled=config.scaled
        )
        self.around_self_attention = Residual(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [batch, src_len, d_model]; mask [batch, 1, 1 or src_len, src_len]"""
        queries, memory = self.self_attention.project_all(self.around_self_attention.before(x))
        attended, _ = self.self_attention.attend(queries, memory, mask)
        x = self.around_self_attention.after(x, attended)
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the source, the feed-forward block."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.window = config.window
        self.self_attention = decoder_attention(config)
        self.around_self_attention = Residual(config)
        self.cross_attention = decoder_attention(config)
        self.around_cross_attention = Residual(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, future: Tensor, source: KeysValues, src_mask: Tensor) -> Tensor:
        """All target positions at once: x [batch, trg_len, d_model]; future [trg_len, trg_len]"""
        queries, memory = self.self_attention.project_all(self.around_self_attention.before(x))
        attended, _ = self.self_attention.attend(queries, memory, future)
        x = self.around_self_attention.after(x, attended)
        queries = self.cross_attention.project_queries(self.around_cross_attention.before(x))
        attended, _ = self.cross_attention.attend(queries, source, src_mask)
        x = self.around_cross_attention.after(x, attended)
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))

    def step(
        self, x: Tensor, past: KeysValues, source: KeysValues, src_mask: Tensor, need_attention: bool
    ) -> tuple[Tensor, KeysValues, Tensor | None]:
        """One position: x [rows, 1, d_model]; returns also the new cache and the attention [rows, src_len]."""
        block_input = self.around_self_attention.before(x)
        # Two products here, not one: joining the matrices each time costs a step of few rows more than it saves.
        queries = self.self_attention.project_queries(block_input)
        new = self.self_attention.project_keys_values(block_input)
        past = KeysValues(torch.cat([past.keys, new.keys], dim=2), torch.cat([past.values, new.values], dim=2))
        if self.window is not None:  # what no later position will see is dropped
            past = KeysValues(*(part[:, :, -self.window - 1 :] for part in past))
        attended, _ = self.self_attention.attend(queries, past, None)
        x = self.around_self_attention.after(x, attended)
        # The k rows of a sentence ask its one memory row k questions: [batch, k, d_model].
        n_rows, _, d_model = x.shape
        asked = self.around_cross_attention.before(x).view(source.keys.size(0), -1, d_model)
        attended, weights = self.cross_attention.attend(
            self.cross_attention.project_queries(asked), source, src_mask, need_weights=need_attention
        )
        x = self.around_cross_attention.after(x, attended.reshape(n_rows, 1, d_model))
        x = self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))
        return x, past, None if weights is None else weights.reshape(n_rows, -1)


def _positions(config: Config) -> nn.Module:
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    return SinusoidalPositions(config.d_model) if config.positions == "sinusoidal" else NoPositions()


class State(NamedTuple):
    """Keys and values of the target prefix, a pair for each decoder layer; with a window, of its end alone."""

    layers: tuple[KeysValues, ...]
    read: Tensor  # [rows, trg_len, 0]: holds nothing, its length is the number of tokens read


class Model(TranslationModel):
    """Encoder-decoder Transformer (Vaswani et al. 2017, Figure 1)."""

    has_attention = True

    def __init__(self, config: Config, src_vocab_size: int, trg_vocab_size: int, pad_id: int) -> None:
        """Raises: ValueError when three_way tying meets two vocabulary sizes."""
        super().__init__()
        if config.tied_embeddings == "three_way" and src_vocab_size != trg_vocab_size:
            raise ValueError(f"three_way needs one vocabulary, got sizes {src_vocab_size} and {trg_vocab_size}")
        self.config = config
        self.trg_embedding = TokenEmbedding(trg_vocab_size, config.d_model, pad_id)
        self.src_embedding = (
            self.trg_embedding
            if config.tied_embeddings == "three_way"
            else TokenEmbedding(src_vocab_size, config.d_model, pad_id)
        )
        self.src_positions, self.trg_positions = _positions(config), _positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = cast("Sequence[EncoderLayer]", nn.ModuleList(map(EncoderLayer, [config] * config.n_layers)))
        self.decoder = cast("Sequence[DecoderLayer]", nn.ModuleList(map(DecoderLayer, [config] * config.n_layers)))
        pre = config.norm == "pre" and config.layer_norm  # the last sum of a pre-norm stack has not been normalised yet
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()
        self.output = nn.Linear(config.d_model, trg_vocab_size, bias=False)
        if config.tied_embeddings == "none":
            nn.init.normal_(self.output.weight, std=config.d_model**-0.5)
        else:
            self.output.weight = self.trg_embedding.weight

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        mask = self._encoder_mask(src_pad_mask)
        x = self.dropout(self.src_positions(self.src_embedding(src)))
        for layer in self.encoder:
            x = layer(x, mask)
        states = self.encoder_norm(x)
        cache = tuple(layer.cross_attention.project_keys_values(states) for layer in self.decoder)
        return Memory(states, src_pad_mask, cache)

    def _encoder_mask(self, src_pad_mask: Tensor) -> Tensor:
        """[batch, 1, 1 or src_len, src_len]"""
        pad_mask = key_pad_mask(src_pad_mask)
        if self.config.window is None:
            return pad_mask
        length = src_pad_mask.size(1)
        far = far_mask(length, self.config.window, src_pad_mask.device)
        # A padding position with padding all around it looks at itself: a softmax over nothing would be NaN.
        is_self = torch.eye(length, dtype=torch.bool, device=src_pad_mask.device)
        return (pad_mask | far) & ~is_self

    def start(self, memory: Memory) -> State:
        nothing = KeysValues(*(part[:, :, :0] for part in memory.cache[0]))
        return State(tuple(nothing for _ in self.decoder), memory.states.new_empty(memory.states.size(0), 0, 0))

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        n_rows, n_read, _ = state.read.shape
        x = self.trg_positions(self.trg_embedding(prev[:, None]), start=n_read)
        src_mask = key_pad_mask(memory.src_pad_mask)
        # Heads of the layer below the last follow word alignments best (Garg et al. 2019, §4).
        asked_layer = max(len(self.decoder) - 2, 0) if need_attention else -1
        layers, attention = [], None
        for number, (layer, past, source) in enumerate(zip(self.decoder, state.layers, memory.cache, strict=True)):
            x, past, weights = layer.step(x, past, source, src_mask, number == asked_layer)
            layers.append(past)
            attention = weights if number == asked_layer else attention
        logits = self.output(self.decoder_norm(x).squeeze(1))
        return Step(logits, State(tuple(layers), state.read.new_empty(n_rows, n_read + 1, 0)), attention)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        memory = self.encode(src, src_pad_mask)
        src_mask = key_pad_mask(src_pad_mask)
        future = causal_mask(trg_in.size(1), trg_in.device)
        if self.config.window is not None:
            future = future | far_mask(trg_in.size(1), self.config.window, trg_in.device)
        x = self.dropout(self.trg_positions(self.trg_embedding(trg_in)))
        for layer, source in zip(self.decoder, memory.cache, strict=True):
            x = layer(x, future, source, src_mask)
        return self.decoder_norm(x)
