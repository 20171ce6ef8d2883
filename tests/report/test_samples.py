"""Pictures of samples hold the pixels of the samples that they say they show."""

from __future__ import annotations

import numpy as np
import torch
from refusals import refuses

from fl_core.datasets import Split
from fl_core.errors import DataError
from fl_core.report.samples import GAP, PAPER, contact_sheet, plot_samples, plot_stages, plot_styles, plot_words

SIDE = 4
# Sample i is one grey level, 10 i; labels 0 0 1 1 0 0 1 1 ..., owners 0 0 0 0 1 1 1 1 ...
LEVELS = 10 * torch.arange(16)
SPLIT = Split(
    LEVELS.view(-1, 1, 1, 1).expand(-1, 1, SIDE, SIDE).byte(), torch.arange(16) // 2 % 2, torch.arange(16) // 4
)


def levels(figure):
    """Grey level of each tile of a contact sheet, ``[rows, columns]``."""
    sheet = np.asarray(figure.axes[0].images[0].get_array())
    assert sheet.dtype == np.uint8
    return sheet[GAP :: SIDE + GAP, GAP :: SIDE + GAP, 0]


def names(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_a_row_shows_the_first_samples_of_its_class():
    figure = plot_samples(SPLIT, {1: "one", 0: "zero"}, columns=3)
    assert levels(figure).tolist() == [[20, 30, 60], [0, 10, 40]]
    assert names(figure) == ["one", "zero"]


def test_a_row_can_be_what_one_owner_has():
    figure = plot_samples(SPLIT, {2: "Ada"}, columns=8, by="owners")
    assert levels(figure).tolist() == [[80, 90, 100, 110, *[PAPER] * 4]]


def test_styles_are_the_same_classes_by_several_owners():
    figure = plot_styles(SPLIT, {0: "Ada", 3: "Bob"}, labels=[1, 0, 0], classes=("no", "yes"))
    assert levels(figure).tolist() == [[20, 0, 10], [140, 120, 130]]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["yes", "no"]


test_what_is_not_there_is_named = refuses(
    DataError,
    (lambda: plot_samples(SPLIT, {7: "seven"}), "none of the 16 samples has labels = 7"),
    (lambda: plot_styles(SPLIT, {0: "Ada"}, labels=[1, 1, 1]), "owner 0 has 2 of 16 samples of class 1"),
    (lambda: plot_samples(Split(SPLIT.inputs, SPLIT.labels), {0: ""}, by="owners"), "nobody owns"),
)


def test_features_become_grey_levels_from_smallest_to_largest_number():
    split = Split(torch.linspace(-3, 5, 32).view(2, 1, SIDE, SIDE), torch.zeros(2, dtype=torch.int64))
    sheet = np.asarray(plot_samples(split, {0: "features"}, columns=2).axes[0].images[0].get_array())
    tiles = [sheet[GAP : GAP + SIDE, start : start + SIDE, 0] for start in (GAP, 2 * GAP + SIDE)]
    assert tiles[0][0, 0] == 0
    assert tiles[1][-1, -1] == 255
    assert (np.diff(np.concatenate([tile.ravel() for tile in tiles]).astype(int)) >= 0).all()


def test_colours_keep_their_channels():
    image = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    image[0, 1] = 200
    sheet = contact_sheet([image], 1)
    assert (sheet[GAP:-GAP, GAP:-GAP] == [0, 200, 0]).all()


def test_a_stage_is_drawn_from_black_to_white_and_says_its_size_and_range():
    figure = plot_stages({"scaled": torch.tensor([[[-2.0, 0.0, 2.0]]])}, columns=1)
    [axis] = figure.axes
    assert np.asarray(axis.images[0].get_array())[0, :, 0].tolist() == [0, 0.5, 1]
    assert axis.get_xlabel() == "1 × 3\n−2 to 2"


def test_a_word_is_sound_features_and_an_image():
    noise = torch.randn(16_000, generator=torch.Generator().manual_seed(0)) * 1000
    figure = plot_words({"hiss": noise, "again": noise})
    shapes = [np.asarray(axis.images[0].get_array()).shape for axis in figure.axes if axis.images]
    assert shapes == [(13, 99)] * 2 + [(32, 32)] * 2
