"""Figures: what stands where is read from the figure, what is drawn from the file."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.image import imread

from mtkit.errors import RequestError
from mtkit.evaluate import pictures
from mtkit.evaluate.pictures import choose_fonts
from mtkit.evaluate.plots import attention_figure, attention_grid, attention_grid_figure, attention_heatmap

SRC = ["der", "Hund", "schläft", "</s>"]
TRG = ["the", "dog", "sleeps"]
WEIGHTS = [[0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 0.0], [0.05, 0.05, 0.9, 0.0]]


def tick_labels(axis) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def grid(n_tokens: int, *, n_layers: int = 2, n_heads: int = 2, title: str = ""):
    """A figure of the maps of some layers and heads, with their tokens on the axes."""
    maps = [
        (f"layer {layer}, head {head}", np.full((n_tokens, n_tokens), 1 / n_tokens))
        for layer in range(1, n_layers + 1)
        for head in range(1, n_heads + 1)
    ]
    tokens = tokens_of(n_tokens)
    return attention_grid_figure(maps, n_heads, title=title, tokens=(tokens, tokens), axes_names=("source", "target"))


def tokens_of(n_tokens: int) -> list[str]:
    """Of different lengths; their letters reach as high and as low as letters do."""
    return [f"▁Åg|{'j' * (number % 7)}{number}" for number in range(n_tokens)]


def extents(figure, texts):
    """Where texts are drawn, in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    return [text.get_window_extent(renderer) for text in texts]


def overlaps(boxes) -> list[int]:
    return [number for number, (one, other) in enumerate(zip(boxes, boxes[1:], strict=False)) if one.overlaps(other)]


def assert_names_its_tokens(figure, axes, tokens: list[str]) -> None:
    """Each tick names the token of its place, the first token is named, and names stay apart and in the picture."""
    for axis in (axes.xaxis, axes.yaxis):
        places = [int(place) for place in axis.get_ticklocs()]
        assert tick_labels(axis) == [tokens[place] for place in places]
        assert places[0] == 0
        assert len({after - before for before, after in zip(places, places[1:], strict=False)}) <= 1
        boxes = extents(figure, axis.get_ticklabels())
        assert overlaps(boxes) == []
        assert all(figure.bbox.containsx(box.x0) and figure.bbox.containsy(box.y0) for box in boxes)
        assert all(figure.bbox.containsx(box.x1) and figure.bbox.containsy(box.y1) for box in boxes)


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
    monkeypatch.setattr(pictures, "_learn_of_new_fonts", lambda: None)
    missing = attention_heatmap([[0.5, 0.5]], ["喜喜", "b"], ["▁欢"], tmp_path / "map.png", title="欢")
    assert sorted(missing) == sorted("喜欢")
    assert len(recwarn) == 0
    assert choose_fonts(["plain", "schläft", "▁the"]).missing == ""


def test_han_characters_are_drawn_or_named_without_warnings(tmp_path, recwarn):
    missing = attention_heatmap([[0.5, 0.5]], ["喜", "欢"], ["x"], tmp_path / "map.png")
    known = {
        character
        for character in "喜欢"
        for face in fontManager.ttflist
        if not face.name.startswith(("Last Resort", "STIX", "cm"))
        and ord(character) in get_font(face.fname).get_charmap()
    }
    assert set(missing) == set("喜欢") - known
    assert len(recwarn) == 0


def character_only_in_stix() -> str:
    """One that matplotlib's own font lacks and another font of matplotlib has."""
    default = get_font(findfont(FontProperties())).get_charmap().keys()
    stix = next(face for face in fontManager.ttflist if face.name == "STIXGeneral")
    return next(
        chr(code) for code in get_font(stix.fname).get_charmap() if code not in default and chr(code).isprintable()
    )


def fonts_with(character: str, families: list[str]) -> list[str]:
    return [
        name for name in families if ord(character) in get_font(findfont(FontProperties(family=[name]))).get_charmap()
    ]


def test_an_installed_font_is_taken_for_what_the_default_lacks():
    token = character_only_in_stix()
    assert choose_fonts([token]).missing == ""
    label = attention_figure([[1.0]], [token], ["a"]).axes[0].get_xticklabels()[0]
    assert fonts_with(token, label.get_fontfamily())


def test_a_font_installed_since_matplotlib_made_its_list_is_found(monkeypatch):
    token = character_only_in_stix()
    having = {face.fname for face in fontManager.ttflist if ord(token) in get_font(face.fname).get_charmap()}
    new = next(face.fname for face in fontManager.ttflist if face.name == "STIXGeneral")
    monkeypatch.setattr(fontManager, "ttflist", [face for face in fontManager.ttflist if face.fname not in having])
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [new])
    pictures._learn_of_new_fonts.cache_clear()
    assert choose_fonts([token]).missing == ""


def test_the_end_of_a_long_title_has_its_font_too():
    title = "x" * 40 + " " + character_only_in_stix()
    for figure in (attention_figure([[1.0]], ["a"], ["b"], title=title), grid(3, title=title)):
        assert fonts_with(title[-1], figure._suptitle.get_fontfamily())


def test_long_sentences_keep_the_picture_within_bounds():
    n_tokens = 800
    tokens = [f"t{number}" for number in range(n_tokens)]
    figure = attention_figure(np.eye(n_tokens), tokens, tokens)
    assert max(figure.get_size_inches()) < 30
    labels = figure.axes[0].get_xticklabels()
    assert 100 < len(labels) < n_tokens
    assert labels[1].get_text() == tokens[int(figure.axes[0].get_xticks()[1])]


@pytest.mark.parametrize(("n_tokens", "n_heads"), [(1, 2), (5, 8), (18, 8), (19, 8), (45, 2), (45, 8), (130, 8)])
def test_tokens_beside_a_grid_never_run_into_each_other(n_tokens, n_heads):
    figure = grid(n_tokens, n_heads=n_heads)
    lower_left = figure.axes[n_heads]
    assert_names_its_tokens(figure, lower_left, tokens_of(n_tokens))
    assert tick_labels(figure.axes[0].xaxis) == [] and tick_labels(figure.axes[1].yaxis) == []


@pytest.mark.parametrize("n_tokens", [1, 5, 40, 300])
def test_tokens_beside_a_map_never_run_into_each_other(n_tokens):
    figure = attention_figure(np.eye(n_tokens), tokens_of(n_tokens), tokens_of(n_tokens))
    assert_names_its_tokens(figure, figure.axes[0], tokens_of(n_tokens))


def test_a_grid_names_every_token_while_there_is_room():
    assert tick_labels(grid(45).axes[2].xaxis) == tokens_of(45)


def test_a_grid_grows_with_its_tokens_and_stays_within_bounds():
    few, many = grid(12).get_size_inches(), grid(40).get_size_inches()
    assert (many > 2 * few).all()
    assert max(grid(300, n_layers=6, n_heads=16).get_size_inches()) < 30


def test_names_of_maps_stay_apart():
    figure = grid(5, n_layers=1, n_heads=32)
    assert overlaps(extents(figure, [axes.title for axes in figure.axes[:32]])) == []


TITLES = {
    "short": "the dog → der Hund",
    "words": "the old dog sees $x_1$ and a_b in the house of the small cat " * 2,
    "Chinese": "我喜欢红苹果和狗" * 8,
    "both": "the dog → " + "我喜欢红苹果和狗" * 4,
    "one word": "Donaudampfschifffahrtsgesellschaft" * 3,
    "no end": "the old dog sees the cat " * 200,
}


@pytest.mark.filterwarnings("ignore:Glyph .* missing from")  # save_figure does so
@pytest.mark.parametrize("title", TITLES.values(), ids=TITLES)
@pytest.mark.parametrize("n_tokens", [3, 12])
@pytest.mark.parametrize("is_grid", [True, False])
def test_a_title_is_as_wide_as_the_picture_at_most(title, n_tokens, is_grid):
    if is_grid:
        figure = grid(n_tokens, n_heads=1, title=title)
    else:
        figure = attention_figure(np.eye(n_tokens), tokens_of(n_tokens), tokens_of(n_tokens), title=title)
    shown = figure._suptitle.get_text()
    title_box, name_box = extents(figure, [figure._suptitle, figure._supxlabel])
    assert title_box.x0 >= 0 and title_box.x1 <= figure.bbox.x1
    assert title_box.y1 <= figure.bbox.y1 and title_box.y0 >= figure.axes[0].get_window_extent().y1
    assert not title_box.overlaps(name_box)
    if shown.endswith("…"):
        assert len(title) > 100 and title.startswith(shown[:-1].replace("\n", " ").rstrip())
    else:
        assert shown.replace("\n", "").replace(" ", "") == title.replace(" ", "")


def test_a_grid_of_one_map_is_the_labelled_map():
    figure = attention_grid_figure([("attention", WEIGHTS)], 1, tokens=(SRC, TRG), axes_names=("source", "target"))
    axes, colour_bar = figure.axes
    assert (tick_labels(axes.xaxis), tick_labels(axes.yaxis)) == (SRC, TRG)
    assert (figure.get_supxlabel(), figure.get_supylabel(), figure.get_suptitle()) == ("source", "target", "attention")
    plain = attention_figure(WEIGHTS, SRC, TRG, title="attention")
    assert np.array_equal(figure.get_size_inches(), plain.get_size_inches())
    assert axes.get_position().bounds == plain.axes[0].get_position().bounds


def test_a_grid_without_tokens_has_no_labels(tmp_path):
    maps = [(str(number), np.eye(30)) for number in range(3)]
    figure = attention_grid_figure(maps, 2)
    assert len(figure.axes) == 4  # the fourth is the colour bar
    assert all(tick_labels(axis) == [] for axes in figure.axes[:3] for axis in (axes.xaxis, axes.yaxis))
    assert attention_grid(maps, 2, tmp_path / "grid.png") == ""


def test_maps_that_do_not_fit_their_tokens_are_refused():
    with pytest.raises(ValueError, match=r"shape \(3, 4\) does not fit 4 target and 3 source tokens"):
        attention_grid_figure([("a", WEIGHTS), ("b", WEIGHTS)], 2, tokens=(TRG, SRC))


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
