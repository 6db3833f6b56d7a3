"""ConvS2S: gated convolutions on both sides and attention in every decoder layer (Gehring et al. 2017); with dilations
and without attention, a translator in the manner of ByteNet (Kalchbrenner et al. 2016).

Symbols: f -> d_embedding, d of layer l -> encoder_widths[l] and decoder_widths[l], k -> encoder_kernels and
decoder_kernels, e_j and g_i -> embeddings with positions, z_j -> memory.states, h_i^l -> x, m -> source length.

    h^l = (GLU(conv(h^{l-1})) + h^{l-1}) sqrt(1/2)             (§3.2, §3.5)
    d_i^l = W_d h_i^l + b_d + g_i                               (eq. 1)
    a_ij^l = softmax_j(d_i^l . z_j), c_i^l = sum_j a_ij^l (z_j + e_j) m sqrt(1/m)
    h_i^l <- (h_i^l + W_c c_i^l + b_c) sqrt(1/2)                (decoder, every layer)

All linear layers and convolutions are under weight normalisation and start as §3.5 says; the gradient that reaches the
encoder through z is divided by the number of attentions, the source embeddings' own part is not (§3.5).

Differs from the paper: W_c stands also where f and d are equal, as in the authors' code; that code attends before the
residual sum, scales d_i and z_j + e_j by sqrt(1/2) too and halves the encoder's gradient once more, which the paper
does not say. Positions beyond `max_positions` share the last one, so that no sentence is too long; a position that
training has never met still has its random embedding. Attention asked for is the mean over the decoder layers.

`attention: none` stacks the decoder on the encoder: target position t reads z_t, the encoder reads on over nothing up
to `unfold` times the source length, and what is behind reads zeros (dynamic unfolding, Kalchbrenner et al. §3.1-3.2).
The work is linear in both lengths. Differs from ByteNet: the gated block above in place of the residual blocks of three
convolutions with layer normalisation; z_t is added to the target embedding through a matrix of its own; tokens are
whatever the recipe asks for, not characters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.models._protocol import BackendConfig, Memory, Paper, Step, TranslationModel
from mtkit.nn.convolution import GatedConvolution, normalized_linear
from mtkit.nn.dropout import Dropout
from mtkit.nn.embedding import PositionEmbedding

PAPER = Paper(
    "Gehring, Auli, Grangier, Yarats and Dauphin",
    2017,
    "Convolutional Sequence to Sequence Learning",
    "https://arxiv.org/abs/1705.03122",
)

SQRT_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two
Sizes = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
_BYTENET_RATES = (1, 2, 4, 8, 16)


class Config(BackendConfig):
    """Sizes and switches of a ConvS2S. Kernels and dilations repeat until every layer has one."""

    ONLY_WITH: ClassVar = {"unfold": ("attention", ("none",))}

    d_embedding: int = Field(
        256, ge=1, description="width of the embeddings, of the encoder states and of what the output layer reads (f)"
    )
    encoder_widths: Sizes = Field((256,) * 4, description="width of each encoder layer, first to last")
    encoder_kernels: Sizes = Field((3,), description="inputs that a position of each encoder layer sees; odd")
    encoder_dilations: Sizes = Field((1,), description="distance of these inputs from each other")
    decoder_widths: Sizes = Field((256,) * 4, description="width of each decoder layer, first to last")
    decoder_kernels: Sizes = Field((3,), description="inputs that a position of each decoder layer sees")
    decoder_dilations: Sizes = Field((1,), description="distance of these inputs from each other")
    attention: Literal["multi_step", "none"] = Field(
        "multi_step", description="multi_step: in every decoder layer; none: target position t reads encoder state t"
    )
    unfold: float = Field(
        1.0, ge=1, description="with attention none: encoder states for each source token (ByteNet, En-De: 1.2)"
    )
    max_positions: int = Field(
        512, ge=0, description="position embeddings of each side; positions beyond share the last, 0 = no positions"
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="on the embeddings, the input of every block and the decoder's output"
    )

    @model_validator(mode="after")
    def _patterns_fit(self) -> Config:
        for side in ("encoder", "decoder"):
            n_layers = len(getattr(self, f"{side}_widths"))
            for key in (f"{side}_kernels", f"{side}_dilations"):
                if n_layers % len(getattr(self, key)):
                    raise ValueError(
                        f"{key}: {len(getattr(self, key))} values do not divide the {n_layers} layers of {side}_widths"
                    )
        if any(kernel % 2 == 0 for kernel in self.encoder_kernels):
            raise ValueError("encoder_kernels: an even kernel has no middle")
        return self


_PAPER_WIDTHS, _PAPER_KERNELS = (512,) * 10 + (768,) * 3 + (2048,) * 2, (3,) * 13 + (1,) * 2
PRESETS = {
    # WMT14 En-De. Embeddings are 512 in the paper and 768 in the code that the authors released later.
    "paper": Config(
        d_embedding=512,
        encoder_widths=_PAPER_WIDTHS,
        encoder_kernels=_PAPER_KERNELS,
        decoder_widths=_PAPER_WIDTHS,
        decoder_kernels=_PAPER_KERNELS,
        max_positions=1024,
        dropout=0.2,
    ),
    "small": Config(),
    # The paper's 30 + 30 layers and rates; the width is ours, its tables could not be looked up.
    "bytenet_paper": Config(
        d_embedding=800,
        encoder_widths=(800,) * 30,
        encoder_dilations=_BYTENET_RATES,
        decoder_widths=(800,) * 30,
        decoder_dilations=_BYTENET_RATES,
        attention="none",
        unfold=1.2,
        max_positions=0,
        dropout=0.0,
    ),
    "bytenet": Config(
        encoder_widths=(256,) * 5,
        encoder_dilations=_BYTENET_RATES,
        decoder_widths=(256,) * 5,
        decoder_dilations=_BYTENET_RATES,
        attention="none",
        unfold=1.2,
        max_positions=0,
    ),
    "tiny": Config(
        d_embedding=10, encoder_widths=(12, 12), decoder_widths=(14, 14), max_positions=8, dropout=0.0
    ),
}  # fmt: skip


class Embedding(nn.Module):
    """Tokens and, where there are any, their positions, both from N(0, 0.1^2) (§3.1, §3.5); padding is 0."""

    def __init__(self, vocab_size: int, pad_id: int, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_embedding, padding_idx=pad_id)
        self.positions = PositionEmbedding(config.max_positions, config.d_embedding) if config.max_positions else None
        self.dropout = Dropout(config.dropout)
        nn.init.normal_(self.tokens.weight, std=0.1)
        with torch.no_grad():
            self.tokens.weight[pad_id].zero_()
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=0.1)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """[rows, length] of both, `positions` also [length] -> [rows, length, d_embedding]"""
        embedded = self.tokens(tokens)
        if self.positions is not None:
            embedded = embedded + self.positions(positions)
        return self.dropout(embedded)


class Block(nn.Module):
    """(GLU(conv(x)) + x) sqrt(1/2); x is projected where the width changes."""

    def __init__(self, d_in: int, d_out: int, kernel: int, dilation: int, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.convolution = GatedConvolution(d_in, d_out, kernel, dilation, causal=causal, dropout=dropout)
        self.residual = nn.Identity() if d_in == d_out else normalized_linear(d_in, d_out)

    def forward(self, x: Tensor) -> Tensor:
        return (self.convolution(x) + self.residual(x)) * SQRT_HALF

    def step(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """One position, x [rows, 1, d_in]; past as in `GatedConvolution.step`."""
        gated, past = self.convolution.step(x, past)
        return (gated + self.residual(x)) * SQRT_HALF, past


class MultiStepAttention(nn.Module):
    """The attention of one decoder layer over encoder states z_j, which gives back z_j + e_j (§3.3)."""

    def __init__(self, d_layer: int, d_embedding: int) -> None:
        super().__init__()
        self.query = normalized_linear(d_layer, d_embedding)
        self.output = normalized_linear(d_embedding, d_layer)

    def forward(self, x: Tensor, embedded: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The decoder layer's output with its context, like x, and the weights [rows, length, src_len].

        Args:
            x: [rows, length, d_layer], h_i^l
            embedded: [rows, length, d_embedding], g_i
            memory: with (z_j + e_j) m sqrt(1/m) as its cache; row i of x looks at row i // k of it.
        """
        batch, src_len, d_embedding = memory.states.shape
        queries = (self.query(x) + embedded).view(batch, -1, d_embedding)  # [batch, k * length, d_embedding]
        energies = torch.bmm(queries.to(memory.states.dtype), memory.states.transpose(1, 2))
        energies = energies.masked_fill(memory.src_pad_mask[:, None], -math.inf)
        weights = torch.softmax(energies, dim=-1, dtype=torch.promote_types(energies.dtype, torch.float32))
        context = torch.bmm(weights.to(memory.cache.dtype), memory.cache).view(len(x), -1, d_embedding)
        return (x + self.output(context)) * SQRT_HALF, weights.view(len(x), -1, src_len)


class State(NamedTuple):
    """Constant in size: what the next position of each decoder layer sees of those before it."""

    position: Tensor  # [batch], of the next token
    pasts: tuple[Tensor, ...]  # for each layer [batch, (kernel - 1) * dilation, d_in]


class Model(TranslationModel):
    """Convolutional encoder and causal convolutional decoder, joined by attention or stacked (`Config.attention`)."""

    def __init__(self, config: Config, src_vocab_size: int, trg_vocab_size: int, pad_id: int) -> None:
        super().__init__()
        self.has_attention = config.attention == "multi_step"
        self.unfold = config.unfold
        self.pad_id = pad_id
        keep = 1 - config.dropout
        self.src_embedding = Embedding(src_vocab_size, pad_id, config)
        self.trg_embedding = Embedding(trg_vocab_size, pad_id, config)
        self.src_input = normalized_linear(config.d_embedding, config.encoder_widths[0], keep=keep)
        self.encoder = _stack(
            config.encoder_widths,
            config.encoder_kernels,
            config.encoder_dilations,
            causal=False,
            dropout=config.dropout,
        )
        self.src_output = normalized_linear(config.encoder_widths[-1], config.d_embedding)  # h_j^u -> z_j
        self.trg_input = normalized_linear(config.d_embedding, config.decoder_widths[0], keep=keep)
        self.decoder = _stack(
            config.decoder_widths,
            config.decoder_kernels,
            config.decoder_dilations,
            causal=True,
            dropout=config.dropout,
        )
        self.attentions: Sequence[MultiStepAttention] = ()
        if self.has_attention:
            attentions = [MultiStepAttention(width, config.d_embedding) for width in config.decoder_widths]
            self.attentions = cast("Sequence[MultiStepAttention]", nn.ModuleList(attentions))
        else:
            self.stacking = normalized_linear(config.d_embedding, config.decoder_widths[0])  # z_t -> h_t^0
        self.trg_output = normalized_linear(config.decoder_widths[-1], config.d_embedding)
        self.dropout = Dropout(config.dropout)
        self.output = normalized_linear(config.d_embedding, trg_vocab_size, keep=keep)

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        """`states` holds z_j, 0 at padding; `cache` is (z_j + e_j) m sqrt(1/m), or without attention all states that
        the decoder may read, [batch, unfold * src_len, d_embedding]."""
        lengths = (~src_pad_mask).sum(dim=1)
        src, beyond = self._unfolded(src.masked_fill(src_pad_mask, self.pad_id), lengths)
        beyond = beyond[:, :, None]
        embedded = self.src_embedding(src, torch.arange(src.size(1), device=src.device))
        # A convolution would carry what stands at padding into real positions.
        x = self.src_input(embedded).masked_fill(beyond, 0)
        for block in self.encoder:
            x = block(x).masked_fill(beyond, 0)
        z = self.src_output(x).masked_fill(beyond, 0)
        if not self.has_attention:
            return Memory(z[:, : src_pad_mask.size(1)], src_pad_mask, z)
        if self.training and z.requires_grad:  # otherwise a gradient is asked for what it says
            z.register_hook(lambda gradient: gradient / len(self.attentions))
        values = (z + embedded) * lengths.to(embedded.dtype).sqrt()[:, None, None]
        return Memory(z, src_pad_mask, values.to(z.dtype))

    def _unfolded(self, src: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The source as far as the decoder may read, and the mask [batch, width] of what stands beyond that."""
        # In double precision, as Python multiplies: where a row ends must not hang on the width of its batch.
        ends = (lengths.double() * self.unfold).ceil().long()
        width = max(math.ceil(src.size(1) * self.unfold), src.size(1))
        beyond = torch.arange(width, device=src.device) >= ends[:, None]
        return F.pad(src, (0, width - src.size(1)), value=self.pad_id), beyond

    def start(self, memory: Memory) -> State:
        batch = len(memory.states)
        pasts = tuple(block.convolution.nothing(batch, memory.states) for block in self.decoder)
        return State(memory.src_pad_mask.new_zeros(batch, dtype=torch.long), pasts)

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        embedded = self.trg_embedding(prev[:, None], state.position[:, None])
        x = self.trg_input(embedded)
        if not self.has_attention:
            x = x + self.stacking(_states_at(state.position, memory.cache))
        pasts, attention = [], []
        for number, (block, past) in enumerate(zip(self.decoder, state.pasts, strict=True)):
            x, past = block.step(x, past)
            pasts.append(past)
            if self.has_attention:
                x, weights = self.attentions[number](x, embedded, memory)
                attention.append(weights)
        logits = self.output(self.dropout(self.trg_output(x))).squeeze(1)
        mean = torch.stack(attention).mean(dim=0).squeeze(1) if need_attention and attention else None
        return Step(logits, State(state.position + 1, tuple(pasts)), mean)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        memory = self.encode(src, src_pad_mask)
        trg_len = trg_in.size(1)
        embedded = self.trg_embedding(trg_in, torch.arange(trg_len, device=trg_in.device))
        x = self.trg_input(embedded)
        if not self.has_attention:
            states = memory.cache[:, :trg_len]
            x = x + self.stacking(F.pad(states, (0, 0, 0, trg_len - states.size(1))))
        for number, block in enumerate(self.decoder):
            x = block(x)
            if self.has_attention:
                x, _ = self.attentions[number](x, embedded, memory)
        return self.dropout(self.trg_output(x))


def _stack(
    widths: Sequence[int], kernels: Sequence[int], dilations: Sequence[int], *, causal: bool, dropout: float
) -> Sequence[Block]:
    """A block for each width; the first reads its own width."""
    blocks = [
        Block(
            widths[max(number - 1, 0)],
            width,
            kernels[number % len(kernels)],
            dilations[number % len(dilations)],
            causal=causal,
            dropout=dropout,
        )
        for number, width in enumerate(widths)
    ]
    return cast("Sequence[Block]", nn.ModuleList(blocks))


def _states_at(positions: Tensor, states: Tensor) -> Tensor:
    """Each row's encoder state at its own target position, [rows, 1, d]; zeros behind the last one.

    Args:
        positions: [rows]
        states: [batch, length, d]; row i of `positions` reads row i // k.
    """
    length = states.size(1)
    rows = torch.arange(len(positions), device=positions.device) // (len(positions) // len(states))
    read = states[rows, positions.clamp(max=length - 1)]
    return read.masked_fill((positions >= length)[:, None], 0)[:, None]
