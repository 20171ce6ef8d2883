"""The stand-in for IMDb: what its grammar does, and that the same request always gives the same reviews."""

import pytest
import torch

from fl_core.datasets.surrogates.text import (
    INTENSIFIERS,
    LENGTH,
    MEDIAN_LENGTH,
    NEGATIONS,
    OPINIONS,
    SURROGATES,
    generate,
    words,
)
from fl_core.errors import SpecError


@pytest.fixture(scope="module")
def reviews():
    return generate(3000, 500)


def _among(tokens, role):
    return (tokens >= role.start) & (tokens < role.stop)


def _opinions(split):
    """Return, of each opinion: its review, 1 for praise and -1 for blame as spelled, whether negated, intensified."""
    tokens = torch.cat([torch.zeros(len(split), 2, dtype=torch.int32), split.inputs], 1)
    opinion = _among(tokens, OPINIONS)
    before, earlier = tokens.roll(1, 1), tokens.roll(2, 1)
    negated = (_among(before, NEGATIONS) | _among(earlier, NEGATIONS))[opinion]
    spelled = 1 - 2 * (tokens[opinion] % 2)
    return opinion.nonzero()[:, 0], spelled, negated, _among(before, INTENSIFIERS)[opinion]


def test_the_surrogate_has_the_size_of_imdb():
    [surrogate] = SURROGATES
    assert (surrogate.name, surrogate.sizes, surrogate.shape) == ("imdb-surrogate", (25_000, 25_000), (256,))


def test_reviews_are_token_ids_padded_at_the_end(reviews):
    for split, count in zip(reviews, (3000, 500), strict=True):
        assert split.inputs.shape == (count, LENGTH)
        assert split.inputs.dtype == torch.int32
        assert split.labels.dtype == torch.int64
        assert split.owners is None
        assert split.inputs.min() == 0
        assert split.inputs.max() < 20_000
        padding = split.inputs == 0
        assert not (padding[:, :-1] & ~padding[:, 1:]).any()


def test_half_of_the_reviews_are_positive(reviews):
    assert reviews[0].labels.float().mean() == 0.5
    assert set(reviews[0].labels.tolist()) == {0, 1}


def test_lengths_spread_as_in_imdb(reviews):
    lengths = (reviews[0].inputs != 0).sum(1)
    assert abs(lengths.median() - MEDIAN_LENGTH) < 12
    assert 0.2 < (lengths == LENGTH).float().mean() < 0.4
    assert (lengths < 80).float().mean() > 0.1


@pytest.mark.parametrize(("train", "test"), [(0, 0), (1, 3), (251, 250)])
def test_a_smaller_request_gives_the_first_reviews(reviews, train, test):
    for part, whole, count in zip(generate(train, test), reviews, (train, test), strict=True):
        assert torch.equal(part.inputs, whole.inputs[:count])
        assert torch.equal(part.labels, whole.labels[:count])


def test_training_and_test_reviews_differ(reviews):
    assert not torch.equal(reviews[0].inputs[:500], reviews[1].inputs)


def test_words_are_zipf_distributed(reviews):
    counts = torch.bincount(reviews[0].inputs.flatten(), minlength=20_000)[OPINIONS.stop :].double()
    assert counts[0] > 5 * counts[40:50].mean() > 25 * counts[1000:1100].mean() > 0


def test_a_negation_turns_an_opinion_round(reviews):
    review, spelled, negated, _ = _opinions(reviews[0])
    agrees = spelled == 2 * reviews[0].labels[review] - 1
    assert agrees[~negated].float().mean() > 0.65
    assert agrees[negated].float().mean() < 0.35


def test_an_intensifier_makes_an_opinion_more_reliable(reviews):
    review, spelled, negated, intensified = _opinions(reviews[0])
    agrees = (spelled * (1 - 2 * negated.int()) == 2 * reviews[0].labels[review] - 1).float()
    assert agrees[intensified].mean() > agrees[~intensified].mean() + 0.03


def test_counting_words_is_good_and_reading_negations_is_better(reviews):
    review, spelled, negated, _ = _opinions(reviews[0])
    labels = 2 * reviews[0].labels - 1

    def accuracy(polarity):
        score = torch.zeros(len(labels)).index_add(0, review, polarity.float())
        return ((score.sign() == labels) + 0.5 * (score == 0)).mean()

    counting, reading = accuracy(spelled), accuracy(spelled * (1 - 2 * negated.int()))
    assert counting > 0.75
    assert reading > counting + 0.05


def test_tokens_have_readable_names():
    tokens = torch.tensor([1, NEGATIONS[0], INTENSIFIERS[1], OPINIONS[0], OPINIONS[3], OPINIONS.stop, 0, 0])
    assert words(tokens) == ["?", "not0", "very1", "good0", "bad1", "w0"]


@pytest.mark.parametrize("wanted", [-1, 25_001])
def test_more_reviews_than_there_are_are_refused(wanted):
    with pytest.raises(SpecError, match=f"cannot generate {wanted} reviews"):
        generate(wanted, 0)
