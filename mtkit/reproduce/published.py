"""The published systems: what their papers say of each setting of a recipe. Data, no logic.

A recipe names one of them (`paper: vaswani2017-base`), and `mtkit recipe explain` puts it beside the recipe. Only what
was read in the paper stands here, or in a later paper that quotes it; what a paper leaves open is not here, whatever
its authors' code may do. `deviation` says why the recipe in recipes/wmt14 has another value.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Setting(NamedTuple):
    """What a paper says of one setting."""

    key: str  # of a recipe, with dots
    value: Any  # as a recipe holds it
    where: str  # section, table or equation of the paper
    deviation: str = ""  # why the recipe of recipes/wmt14 has another value; "" = it has this one


class Cost(NamedTuple):
    """What a paper's authors spent on training."""

    n_gpus: int
    days: float
    where: str  # in the paper, with the GPU if it is named

    @property
    def gpu_days(self) -> float:
        return self.n_gpus * self.days


class Publication(NamedTuple):
    """A published system."""

    title: str
    url: str
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]  # what no setting can say
    cost: Cost | None = None  # None: not known


_NO_SELECTION = (
    "The training text is a selection of WMT 2014 English-French (348 million French words, 12 million pairs) by "
    "Axelrod et al. (2011); the whole corpus has about 36 million pairs, and mtkit selects nothing."
)
_TOKENS = "Words are what Moses' tokenizer makes; mtkit cuts punctuation from words by a rule of its own."
_FOUR_SPECIALS = "The shortlists count words; in mtkit's counts, four special symbols are among them."

_SUTSKEVER = (
    Setting("data.src", "en", "§3.1"),
    Setting("data.trg", "fr", "§3.1"),
    Setting("text.subword", "word", "§3.1"),
    Setting("text.vocab_size", 160_000, "§3.1"),
    Setting("text.trg_vocab_size", 80_000, "§3.1"),
    Setting("text.shared_vocab", False, "§3.1"),
    Setting("model.type", "seq2seq", "§2"),
    Setting("model.n_layers", 4, "§3.4"),
    Setting("model.d_hidden", 1000, "§3.4"),
    Setting("model.d_embedding", 1000, "§3.4"),
    Setting("model.init", "uniform", "§3.4"),
    Setting("train.optimizer", "sgd", "§3.4"),
    Setting("train.momentum", 0.0, "§3.4"),
    Setting("train.lr", 0.7, "§3.4"),
    Setting("train.schedule", "halving", "§3.4"),
    Setting("train.decay_factor", 0.5, "§3.4"),
    Setting("train.decay_after", 5.0, "§3.4"),
    Setting("train.decay_every", 0.5, "§3.4"),
    Setting("train.epochs", 7.5, "§3.4"),
    Setting("train.batch_sentences", 128, "§3.4"),
    Setting("train.normalize", "sentences", "§3.4"),
    Setting("train.clip_norm", 5.0, "§3.4"),
    Setting("search.beam_size", 12, "table 1"),
    Setting("search.length_penalty", 0.0, "§3.2, eq. 2"),
    Setting("search.unknown", "keep", "§3.6"),
)
_SUTSKEVER_NOTES = (_NO_SELECTION, _FOUR_SPECIALS, "The paper's best figure, 34.81 BLEU, is an ensemble of five.")

_BAHDANAU = (
    Setting("data.src", "en", "§4.1"),
    Setting("data.trg", "fr", "§4.1"),
    Setting("text.subword", "word", "§4.1"),
    Setting("text.vocab_size", 30_000, "§4.1"),
    Setting("text.shared_vocab", False, "§4.1"),
    Setting("model.d_embedding", 620, "§A.2.3"),
    Setting("model.d_encoder", 1000, "§4.2, §A.2.3"),
    Setting("model.d_hidden", 1000, "§4.2, §A.2.3"),
    Setting("model.d_maxout", 500, "§A.2.3"),
    Setting("model.init", "paper", "§B.1"),
    Setting("train.optimizer", "adadelta", "§4.2"),
    Setting("train.rho", 0.95, "§B.2"),
    Setting("train.eps", 1e-6, "§B.2"),
    Setting("train.clip_norm", 1.0, "§B.2"),
    Setting("train.batch_sentences", 80, "§4.2"),
    Setting("search.unknown", "keep", "table 1, column All"),
)
_RNNENCDEC = (*_BAHDANAU, Setting("model.type", "rnnencdec", "§4.2, §A.2.2"))
_RNNSEARCH = (
    *_BAHDANAU,
    Setting("model.type", "rnnsearch", "§4.2"),
    Setting("model.d_attention", 1000, "§A.2.3"),
)
_BAHDANAU_NOTES = (
    _NO_SELECTION,
    _TOKENS,
    _FOUR_SPECIALS,
    "Batches of similar length come from 1,600 pairs at a time (§B.2); mtkit sorts the whole epoch.",
)

_LUONG = (
    Setting("data.src", "en", "§4.1"),
    Setting("data.trg", "de", "§4.1"),
    Setting("data.filters.max_length", 50, "§4.1"),
    Setting("text.subword", "word", "§4.1"),
    Setting("text.vocab_size", 50_000, "§4.1"),
    Setting("text.shared_vocab", False, "§4.1"),
    Setting("model.type", "luong", "§3"),
    Setting("model.n_layers", 4, "§4.1"),
    Setting("model.d_hidden", 1000, "§4.1"),
    Setting("model.d_embedding", 1000, "§4.1"),
    Setting("model.init", "uniform", "§4.1"),
    Setting("model.dropout", 0.2, "§4.1"),
    Setting("model.reverse_source", True, "table 1"),
    Setting("model.input_feeding", True, "§3.3, table 1"),
    Setting("train.optimizer", "sgd", "§4.1"),
    Setting("train.lr", 1.0, "§4.1"),
    Setting("train.schedule", "halving", "§4.1"),
    Setting("train.decay_factor", 0.5, "§4.1"),
    Setting("train.decay_after", 8.0, "§4.1, with dropout"),
    Setting("train.decay_every", 1.0, "§4.1"),
    Setting("train.epochs", 12.0, "§4.1, with dropout"),
    Setting("train.batch_sentences", 128, "§4.1"),
    Setting("train.clip_norm", 5.0, "§4.1"),
    Setting("search.unknown", "replace", "table 4, after unk replacement"),
)
_LUONG_NOTES = (
    _TOKENS,
    _FOUR_SPECIALS,
    "The paper's newstest2014 has 2,737 of the 3,003 sentences.",
    "Unknown words are replaced from a dictionary of aligned words; without one, mtkit copies the source word.",
)

_PARTS = "split as the memory allows: batch_tokens x accumulate is the paper's number"
_VASWANI = (
    Setting("data.src", "en", "§5.1"),
    Setting("data.trg", "de", "§5.1"),
    Setting("text.subword", "bpe", "§5.1"),
    Setting("text.vocab_size", 37_000, "§5.1"),
    Setting("text.shared_vocab", True, "§5.1"),
    Setting("model.type", "transformer", "§3"),
    Setting("model.n_layers", 6, "table 3"),
    Setting("model.norm", "post", "§3.1"),
    Setting("model.tied_embeddings", "three_way", "§3.4"),
    Setting("train.batch_tokens", 25_000, "§5.1", _PARTS),
    Setting("train.optimizer", "adam", "§5.3"),
    Setting("train.betas", (0.9, 0.98), "§5.3"),
    Setting("train.eps", 1e-9, "§5.3"),
    Setting("train.schedule", "noam", "§5.3, eq. 3"),
    Setting("train.lr", 1.0, "§5.3, eq. 3"),
    Setting("train.warmup_updates", 4000, "§5.3"),
    Setting("train.label_smoothing", 0.1, "§5.4"),
    Setting("search.beam_size", 4, "§6.1"),
    Setting("search.length_penalty", 0.6, "§6.1"),
    Setting("search.length_normalization", "gnmt", "§6.1"),
    Setting("search.max_length_ratio", 1.0, "§6.1"),
    Setting("search.max_length_extra", 50, "§6.1"),
)
_VASWANI_NOTES = (
    "A checkpoint every 10 minutes of the paper's 8 P100; mtkit counts updates, 0.4 seconds (base) and 1.0 (big) each.",
    "The paper's BLEU is of tokenised text with compounds split at hyphens; sacreBLEU's is about 0.7 to 1 lower.",
)

_GEHRING_WIDTHS = (512,) * 10 + (768,) * 3 + (2048,) * 2
_GEHRING_KERNELS = (3,) * 13 + (1,) * 2
_RATES = (1, 2, 4, 8, 16)

PUBLICATIONS = {
    "sutskever2014": Publication(
        "Sutskever, Vinyals and Le (2014): one deep LSTM, the source reversed",
        "https://arxiv.org/abs/1409.3215",
        (*_SUTSKEVER, Setting("model.reverse_source", True, "§3.3")),
        _SUTSKEVER_NOTES,
        Cost(8, 10, "§3.5"),
    ),
    "sutskever2014-forward": Publication(
        "Sutskever, Vinyals and Le (2014): one deep LSTM, the source read forwards",
        "https://arxiv.org/abs/1409.3215",
        (*_SUTSKEVER, Setting("model.reverse_source", False, "§3.3, table 1")),
        _SUTSKEVER_NOTES,
        Cost(8, 10, "§3.5"),
    ),
    "bahdanau2015-rnnencdec-30": Publication(
        "Bahdanau, Cho and Bengio (2015): RNNencdec-30, after Cho et al. (2014)",
        "https://arxiv.org/abs/1409.0473",
        (
            *_RNNENCDEC,
            Setting("data.filters.max_length", 30, "§4.2"),
            Setting("train.updates", 846_000, "table 2"),
        ),
        _BAHDANAU_NOTES,
        Cost(1, 109 / 24, "table 2"),
    ),
    "bahdanau2015-rnnencdec-50": Publication(
        "Bahdanau, Cho and Bengio (2015): RNNencdec-50, after Cho et al. (2014)",
        "https://arxiv.org/abs/1409.0473",
        (
            *_RNNENCDEC,
            Setting("data.filters.max_length", 50, "§4.2"),
            Setting("train.updates", 600_000, "table 2"),
        ),
        _BAHDANAU_NOTES,
        Cost(1, 108 / 24, "table 2"),
    ),
    "bahdanau2015-rnnsearch-30": Publication(
        "Bahdanau, Cho and Bengio (2015): RNNsearch-30",
        "https://arxiv.org/abs/1409.0473",
        (
            *_RNNSEARCH,
            Setting("data.filters.max_length", 30, "§4.2"),
            Setting("train.updates", 471_000, "table 2"),
        ),
        _BAHDANAU_NOTES,
        Cost(1, 113 / 24, "table 2"),
    ),
    "bahdanau2015-rnnsearch-50": Publication(
        "Bahdanau, Cho and Bengio (2015): RNNsearch-50",
        "https://arxiv.org/abs/1409.0473",
        (
            *_RNNSEARCH,
            Setting("data.filters.max_length", 50, "§4.2"),
            Setting("train.updates", 288_000, "table 2"),
        ),
        _BAHDANAU_NOTES,
        Cost(1, 111 / 24, "table 2"),
    ),
    "luong2015-global": Publication(
        "Luong, Pham and Manning (2015): global attention (dot), input feeding, dropout",
        "https://arxiv.org/abs/1508.04025",
        (
            *_LUONG,
            Setting("model.attention", "global", "§3.1"),
            Setting("model.score", "dot", "§3.1, table 4"),
        ),
        _LUONG_NOTES,
        Cost(1, 10, "§4.1, a K40, 7 to 10 days"),
    ),
    "luong2015-local-p": Publication(
        "Luong, Pham and Manning (2015): local-p attention (general), input feeding, dropout",
        "https://arxiv.org/abs/1508.04025",
        (
            *_LUONG,
            Setting("model.attention", "local_p", "§3.2"),
            Setting("model.score", "general", "§3.1, table 4"),
            Setting("model.window", 10, "§4.1"),
            Setting("model.gaussian", "paper", "eq. 10"),
        ),
        _LUONG_NOTES,
        Cost(1, 10, "§4.1, a K40, 7 to 10 days"),
    ),
    "gehring2017": Publication(
        "Gehring et al. (2017): ConvS2S, English-German",
        "https://arxiv.org/abs/1705.03122",
        (
            Setting("data.src", "en", "§4.1"),
            Setting("data.trg", "de", "§4.1"),
            Setting("text.subword", "bpe", "§4.1"),
            Setting("text.vocab_size", 40_000, "§4.1"),
            Setting("model.type", "convs2s", "§3"),
            Setting("model.attention", "multi_step", "§3.3"),
            Setting("model.d_embedding", 512, "§4.2"),
            Setting("model.encoder_widths", _GEHRING_WIDTHS, "§5.1"),
            Setting("model.encoder_kernels", _GEHRING_KERNELS, "§5.1"),
            Setting("model.decoder_widths", _GEHRING_WIDTHS, "§5.1"),
            Setting("model.decoder_kernels", _GEHRING_KERNELS, "§5.1"),
            Setting("train.optimizer", "sgd", "§4.2"),
            Setting("train.momentum", 0.99, "§4.2"),
            Setting("train.nesterov", True, "§4.2"),
            Setting("train.lr", 0.25, "§4.2"),
            Setting("train.schedule", "plateau", "§4.2"),
            Setting("train.decay_factor", 0.1, "§4.2"),
            Setting("train.min_lr", 1e-4, "§4.2"),
            Setting("train.clip_norm", 0.1, "§4.2"),
            Setting("train.batch_sentences", 48, "§5.1"),
            Setting("train.normalize", "tokens", "§4.2"),
            Setting("search.beam_size", 5, "§4.3"),
            Setting("search.length_normalization", "power", "§4.3"),
        ),
        (
            "The validation set is 0.5 to 1% of the training text (§4.1); mtkit's recipe takes newstest2013.",
            "Once the validation loss stops improving, the paper lowers the rate after every epoch; mtkit lowers it at "
            "each validation that is not the best so far.",
            "The exponent of the length is tuned on newstest2015 (§4.3); its value is not given.",
        ),
        Cost(1, 18.5, "§5.1"),
    ),
    "kalchbrenner2016": Publication(
        "Kalchbrenner et al. (2016): ByteNet, English-German characters",
        "https://arxiv.org/abs/1610.10099",
        (
            Setting("data.src", "en", "as quoted by Gehring et al. (2017), §5.1"),
            Setting("data.trg", "de", "as quoted by Gehring et al. (2017), §5.1"),
            Setting("text.subword", "char", "as quoted by Gehring et al. (2017), §5.1"),
            Setting("model.type", "convs2s", "as quoted by Gehring et al. (2017), §5.1"),
            Setting("model.attention", "none", "as quoted by Gehring et al. (2017), §5.1"),
            Setting("model.encoder_kernels", (3,), "as reimplemented"),
            Setting("model.encoder_dilations", _RATES, "as reimplemented"),
            Setting("model.decoder_kernels", (3,), "as reimplemented"),
            Setting("model.decoder_dilations", _RATES, "as reimplemented"),
            Setting("model.unfold", 1.2, "as reimplemented"),
        ),
        (
            "30 layers in the encoder and 30 in the decoder (Gehring et al. 2017, §5.1), as the recipe has them.",
            "The paper's residual blocks of three convolutions with layer normalisation are gated convolutions here.",
            "Widths, optimizer and batches stand here as mtkit's own: the paper's tables were not at hand.",
        ),
    ),
    "vaswani2017-base": Publication(
        "Vaswani et al. (2017): Transformer base, English-German",
        "https://arxiv.org/abs/1706.03762",
        (
            *_VASWANI,
            Setting("model.d_model", 512, "table 3"),
            Setting("model.d_ff", 2048, "table 3"),
            Setting("model.n_heads", 8, "table 3"),
            Setting("model.dropout", 0.1, "table 3"),
            Setting("train.updates", 100_000, "§5.2"),
            Setting("train.average_last", 5, "§6.1"),
        ),
        _VASWANI_NOTES,
        Cost(8, 0.5, "§5.2, P100"),
    ),
    "vaswani2017-big": Publication(
        "Vaswani et al. (2017): Transformer big, English-German",
        "https://arxiv.org/abs/1706.03762",
        (
            *_VASWANI,
            Setting("model.d_model", 1024, "table 3"),
            Setting("model.d_ff", 4096, "table 3"),
            Setting("model.n_heads", 16, "table 3"),
            Setting("model.dropout", 0.3, "table 3; 0.1 for English-French"),
            Setting("train.updates", 300_000, "§5.2"),
            Setting("train.average_last", 20, "§6.1"),
        ),
        _VASWANI_NOTES,
        Cost(8, 3.5, "§5.2, P100"),
    ),
}
