"""Figures: what stands where is read from the figure, what is drawn from the file."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.image import imread

from mtkit.errors import RequestError
from mtkit.evaluate.plots import (
    attention_figure,
    attention_heatmap,
    learning_curve,
    learning_curve_figure,
    missing_characters,
)

SRC = ["der", "Hund", "schläft", "</s>"]
TRG = ["the", "dog", "sleeps"]
WEIGHTS = [[0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 0.0], [0.05, 0.05, 0.9, 0.0]]


def tick_labels(axis) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def test_rows_are_target_tokens_and_columns_source_tokens():
    axes, colour_bar = attention_figure(WEIGHTS, SRC, TRG).axes
    (image,) = axes.images
    assert np.array_equal(image.get_array(), WEIGHTS)
    assert tick_labels(axes.xaxis) == SRC
    assert tick_labels(axes.yaxis) == TRG
    top, bottom = axes.get_ylim()[1], axes.get_ylim()[0]
    assert top < bottom  # the first target token stands at the top
    assert image.get_cmap().name == "Blues"
    assert colour_bar.get_ylabel() == "attention"


def test_the_linear_scale_starts_at_zero_and_ends_at_the_largest_weight():
    (image,) = attention_figure(WEIGHTS, SRC, TRG).axes[0].images
    assert image.get_clim() == (0.0, 1.0)


def test_the_log_scale_tells_weak_weights_apart_and_draws_zeros():
    figure = attention_figure([[1.0, 0.01, 0.001, 0.0]], SRC, ["a"], scale="log")
    (image,) = figure.axes[0].images
    assert isinstance(image.norm, LogNorm)
    colours = image.to_rgba(image.get_array())[0]
    assert len({tuple(colour) for colour in colours}) == 4
    assert np.isfinite(colours).all()


def test_attention_of_nothing_but_zeros_is_drawn(tmp_path):
    for scale in ("linear", "log"):
        attention_heatmap([[0.0, 0.0]], ["a", "b"], ["c"], tmp_path / f"{scale}.png", scale=scale)


@pytest.mark.parametrize("token", ["$x^2$", "$", "a_b", "\\alpha", "50%", "{", "▁the", ""])
def test_tokens_are_text_and_never_formulas(tmp_path, token):
    attention_heatmap([[1.0]], [token], [token], tmp_path / "map.svg", title=token)
    texts = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert texts.count(f">{token}<") >= (3 if token else 0)


def test_control_characters_do_not_break_labels(tmp_path):
    assert attention_heatmap([[1.0]], ["a\nb\x00"], ["\u2028"], tmp_path / "map.png") == ""
    assert tick_labels(attention_figure([[1.0]], ["a\nb\x00"], ["c"]).axes[0].xaxis) == ["a\ufffdb\ufffd"]


def test_the_files_have_the_form_of_their_suffix(tmp_path):
    attention_heatmap(WEIGHTS, SRC, TRG, tmp_path / "map.png", title="layer 1")
    attention_heatmap(WEIGHTS, SRC, TRG, tmp_path / "map.svg", title="layer 1")
    assert imread(tmp_path / "map.png").min() < 0.5  # something dark is on the white ground
    assert "schläft" in (tmp_path / "map.svg").read_text(encoding="utf-8")


def test_an_svg_is_the_same_each_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        attention_heatmap(WEIGHTS, SRC, TRG, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_characters_without_a_font_are_returned_once_and_warn_of_nothing(tmp_path, recwarn, monkeypatch):
    monkeypatch.setattr(fontManager, "ttflist", [face for face in fontManager.ttflist if face.name == "DejaVu Sans"])
    missing = attention_heatmap([[0.5, 0.5]], ["喜喜", "b"], ["▁欢"], tmp_path / "map.png", title="欢")
    assert sorted(missing) == sorted("喜欢")
    assert len(recwarn) == 0
    assert missing_characters(["plain", "schläft", "▁the"]) == ""


def test_han_characters_are_drawn_or_named_without_warnings(tmp_path, recwarn):
    known = {
        character
        for character in "喜欢"
        for face in fontManager.ttflist
        if not face.name.startswith(("Last Resort", "STIX", "cm"))
        and ord(character) in get_font(face.fname).get_charmap()
    }
    missing = attention_heatmap([[0.5, 0.5]], ["喜", "欢"], ["x"], tmp_path / "map.png")
    assert set(missing) == set("喜欢") - known
    assert len(recwarn) == 0


def test_an_installed_font_is_taken_for_what_the_default_lacks():
    default = get_font(findfont(FontProperties())).get_charmap().keys()
    stix = next(face for face in fontManager.ttflist if face.name == "STIXGeneral")
    only_there = [
        code for code in get_font(stix.fname).get_charmap() if code not in default and chr(code).isprintable()
    ]
    token = chr(only_there[0])
    assert missing_characters([token]) == ""
    label = attention_figure([[1.0]], [token], ["a"]).axes[0].get_xticklabels()[0]
    holders = [
        name
        for name in label.get_fontfamily()[1:]
        if ord(token) in get_font(findfont(FontProperties(family=name))).get_charmap()
    ]
    assert holders


def test_long_sentences_keep_the_picture_within_bounds():
    n_tokens = 800
    tokens = [f"t{number}" for number in range(n_tokens)]
    figure = attention_figure(np.eye(n_tokens), tokens, tokens)
    assert max(figure.get_size_inches()) < 30
    labels = figure.axes[0].get_xticklabels()
    assert 100 < len(labels) < n_tokens
    assert labels[1].get_text() == tokens[int(figure.axes[0].get_xticks()[1])]


def test_a_very_long_token_is_cut():
    (label,) = tick_labels(attention_figure([[1.0]], ["x" * 500], ["a"]).axes[0].xaxis)
    assert label == "x" * 29 + "…"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros((4, 3)), r"shape \(4, 3\) does not fit 3 target and 4 source tokens"),
        (np.full((3, 4), np.nan), "finite and not negative"),
        (np.full((3, 4), -0.1), "finite and not negative"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        attention_figure(weights, SRC, TRG)


def test_an_empty_side_is_refused():
    with pytest.raises(ValueError, match="0 target and 1 source tokens"):
        attention_figure(np.zeros((0, 1)), ["a"], [])


def test_other_suffixes_and_unwritable_places_are_request_errors(tmp_path):
    with pytest.raises(RequestError, match=r"map.bmp: expected a file name ending in one of .png, .svg, .pdf"):
        attention_heatmap(WEIGHTS, SRC, TRG, tmp_path / "map.bmp")
    with pytest.raises(RequestError, match=r"cannot be written \(No such file or directory\)"):
        attention_heatmap(WEIGHTS, SRC, TRG, tmp_path / "nowhere" / "map.png")


CURVES = {"transformer": [(1.0, 5.0), (2.0, 20.0)], "_luong $1$": [(1.0, 8.0), (3.0, 18.0)], "none yet": []}


def test_a_learning_curve_shows_each_system_by_name(tmp_path):
    (axes,) = learning_curve_figure(CURVES).axes
    assert [line.get_xydata().tolist() for line in axes.lines[:2]] == [
        [[1.0, 5.0], [2.0, 20.0]],
        [[1.0, 8.0], [3.0, 18.0]],
    ]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(CURVES)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training time (minutes)", "BLEU")
    learning_curve(CURVES, tmp_path / "curve.png")
    assert imread(tmp_path / "curve.png").min() < 0.5


def test_curves_of_many_systems_differ_in_colour_or_marker():
    (axes,) = learning_curve_figure({f"system {number}": [(1.0, 1.0)] for number in range(30)}).axes
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == 30


def test_no_curve_at_all_is_an_empty_plot(tmp_path):
    learning_curve({}, tmp_path / "curve.svg")
    assert "training time (minutes)" in (tmp_path / "curve.svg").read_text(encoding="utf-8")
