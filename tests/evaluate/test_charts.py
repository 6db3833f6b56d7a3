"""Charts: names are shown as they are, whatever their first letter, their script and their dollar signs."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.image import imread

from mtkit.evaluate.charts import Bar, Point, bar_figure, line_figure, numbers_shown
from mtkit.evaluate.pictures import save_figure
from mtkit.evaluate.plots import learning_curve

NAMES = ["_base", "a$x$b|c", "plain"]
CURVES = {"transformer": [(1.0, 5.0), (2.0, 20.0)], "_luong $1$": [(1.0, 8.0), (3.0, 18.0)], "none yet": []}


def lines(names: list[str]):
    return line_figure({name: [Point(1.0, 1.0), Point(2.0, 2.0, 0.5)] for name in names}, x_label="x", y_label="y")


def bars(names: list[str]):
    return bar_figure({name: [Bar(1.0, 0.5), None] for name in names}, ["_one", "$2$"], y_label="$y$")


@pytest.mark.parametrize("figure_of", [lines, bars])
def test_every_name_stands_in_the_legend_as_it_is(tmp_path, figure_of):
    figure = figure_of(NAMES)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == NAMES
    save_figure(figure, tmp_path / "chart.svg")
    svg = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert all(f">{name}<" in svg for name in NAMES)


def test_keys_of_the_legend_are_those_of_the_lines():
    (axes,) = lines(NAMES).axes
    keys = axes.get_legend().get_lines()
    assert [(key.get_color(), key.get_marker()) for key in keys] == [
        (line.get_color(), line.get_marker()) for line in axes.lines
    ]


def test_bars_that_are_all_missing_keep_their_colour_in_the_legend():
    (axes,) = bar_figure({"a": [Bar(1.0)], "b": [None], "c": [Bar(2.0)]}, ["x"], y_label="y").axes
    keys = [to_hex(key.get_facecolor()) for key in axes.get_legend().get_patches()]
    drawn = [to_hex(container.patches[0].get_facecolor()) for container in axes.containers if container.patches]
    assert len(set(keys)) == 3 and [keys[0], keys[2]] == drawn


def test_names_of_axes_and_ticks_are_never_formulas(tmp_path):
    points = {"a": [Point(0.0, 1.0), Point(1.0, 2.0)]}
    figure = line_figure(points, x_label="$m$", y_label="a_b$", x_ticks={0.0: "$1$", 1.0: "_2\n(3)"}, title="$t$")
    save_figure(figure, tmp_path / "lines.svg")
    save_figure(bars(["a"]), tmp_path / "bars.svg")
    lines_svg, bars_svg = ((tmp_path / f"{name}.svg").read_text(encoding="utf-8") for name in ("lines", "bars"))
    assert all(f">{text}<" in lines_svg for text in ("$m$", "a_b$", "$1$", "_2", "(3)", "$t$"))
    assert all(f">{text}<" in bars_svg for text in ("_one", "$2$", "$y$"))


def test_numbers_of_a_log_scale_stay_powers_of_ten():
    points = {"a": [Point(1.0, 1.0), Point(100.0, 1000.0)]}
    (axes,) = line_figure(points, x_label="x", y_label="y", x_scale="log", y_scale="log").axes
    axes.figure.draw(FigureCanvasAgg(axes.figure).get_renderer())
    labels = [text for text in axes.get_yticklabels() if "10^{3}" in text.get_text()]
    assert labels and all(text.get_parse_math() for text in labels)


def test_foreign_scripts_are_drawn_with_a_font_that_has_them():
    default = get_font(findfont(FontProperties())).get_charmap().keys()
    stix = next(face for face in fontManager.ttflist if face.name == "STIXGeneral")
    name = next(
        chr(code) for code in get_font(stix.fname).get_charmap() if code not in default and chr(code).isprintable()
    )
    chart = line_figure({name: [Point(0.0, 1.0)], "b": []}, x_label=name, y_label=name, x_ticks={0.0: name}).axes[0]
    groups = bar_figure({name: [Bar(1.0)], "b": [None]}, [name], y_label=name).axes[0]
    for axes in (chart, groups):
        texts = [axes.yaxis.label, axes.get_xticklabels()[0], axes.get_legend().get_texts()[0]]
        for text in texts:
            fonts = [get_font(findfont(FontProperties(family=[family]))) for family in text.get_fontfamily()]
            assert any(ord(name) in font.get_charmap() for font in fonts)


def test_characters_without_a_font_warn_of_nothing(tmp_path, recwarn):
    for number, figure in enumerate((lines(["\U0001f3fb欢", "b\x00"]), bars(["欢", "b"]))):
        save_figure(figure, tmp_path / f"{number}.png")
        save_figure(figure, tmp_path / f"{number}.svg")
    assert len(recwarn) == 0


@pytest.mark.parametrize("n_groups", [2, 12])
def test_names_of_groups_stay_apart(n_groups):
    figure = bar_figure({"a": [Bar(1.0)] * n_groups}, [f"group {n:05}" for n in range(n_groups)], y_label="y")
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    texts = figure.axes[0].get_xticklabels()
    if texts[0].get_rotation():
        # Boxes of slanted texts overlap where the texts do not: the places must be a slanted line's height apart.
        places = [figure.axes[0].transData.transform((place, 0))[0] for place in range(n_groups)]
        height = texts[0].get_fontsize() * 1.2 / 72 * figure.dpi
        assert all(after - before >= 2 * height for before, after in zip(places, places[1:], strict=False))
    else:
        boxes = [text.get_window_extent(renderer) for text in texts]
        assert not any(one.overlaps(other) for one, other in zip(boxes, boxes[1:], strict=False))


def test_lines_of_many_systems_differ_in_colour_or_marker():
    (axes,) = lines([f"system {number}" for number in range(30)]).axes
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == 30


def test_a_learning_curve_shows_each_system_by_name(tmp_path):
    for name in ("curve.png", "curve.svg"):
        learning_curve(CURVES, tmp_path / name)
    assert imread(tmp_path / "curve.png").min() < 0.5  # something dark is on the white ground
    svg = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert all(f">{text}<" in svg for text in (*CURVES, "training time (minutes)", "BLEU"))


def test_the_curve_of_one_system_tells_its_name(tmp_path):
    learning_curve({"_one $x$": [(1.0, 5.0)]}, tmp_path / "curve.svg", y_label="dev BLEU (greedy)")
    svg = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert svg.count(">_one $x$<") == 1 and ">dev BLEU (greedy)<" in svg


def test_a_chart_tells_its_numbers_with_their_names():
    points = {"a": [Point(1.0, 2.5, 0.5), Point(2.0, 1 / 3)], "none": []}
    shown = numbers_shown(line_figure(points, x_label="n", y_label="ms", x_ticks={2.0: "two\n(2)"}))
    assert shown.header == ("line", "x: n", "tick", "y: ms", "half width")
    assert shown.rows == [("a", 1.0, None, 2.5, 0.5), ("a", 2.0, "two (2)", 1 / 3, None)]
    shown = numbers_shown(bar_figure({"a": [Bar(1.0, 0.5), None], "b": [Bar(2.0), Bar(3.0)]}, ["x", "y"], y_label="z"))
    assert shown.header == ("bar", "group", "y: z", "half width")
    assert shown.rows == [("a", "x", 1.0, 0.5), ("a", "y", None, None), ("b", "x", 2.0, None), ("b", "y", 3.0, None)]
    assert numbers_shown(Figure()) is None


def test_no_curve_at_all_is_an_empty_chart(tmp_path):
    learning_curve({}, tmp_path / "curve.svg")
    assert "training time (minutes)" in (tmp_path / "curve.svg").read_text(encoding="utf-8")


def test_a_title_is_as_wide_as_the_chart_at_most():
    points = {"a": [Point(1.0, 1.0)]}
    figure = line_figure(points, x_label="x", y_label="y", title="the_$run$ of a very long name " * 6)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    box = figure._suptitle.get_window_extent(renderer)
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert box.y0 >= figure.axes[0].get_window_extent().y1
    assert figure._suptitle.get_text().split() == ("the_$run$ of a very long name " * 6).split()
