"""The tests that a user runs on an algorithm: all of ours pass them, and what breaks a promise is named."""

from __future__ import annotations

import random

import pytest
import torch
from refusals import refuses

from fl_core.algorithms import ALGORITHMS, Algorithm
from fl_core.experiments.conformance import WORLDS, check_algorithm

CLUSTERED = {name: world | {"clusters": {"servers": 2}} for name, world in WORLDS.items() if name != "trouble"}


class Sound(Algorithm):
    """Average with the model."""

    async def scheduler(self, server):
        await server.keep_busy(4)

    async def updater(self, server):
        [upload] = await server.receive()
        server.commit(torch.lerp(server.model, upload.model, self.share(server)))

    def share(self, server):
        return 0.5


class Forgetful(Sound):
    """Counts where no checkpoint looks."""

    async def updater(self, server):
        COUNT.append(1)
        [upload] = await server.receive()
        server.commit(torch.lerp(server.model, upload.model, 1 / (1 + len(COUNT))))


class Whimsical(Sound):
    def share(self, server):
        return random.random()


class Overwriting(Sound):
    async def updater(self, server):
        [upload] = await server.receive()
        upload.model.mul_(0.5)
        server.commit(upload.model)


class Exploding(Sound):
    def share(self, server):
        return 1e300 if server.version > 20 else 0.5


class Silent(Sound):
    async def device(self, device):
        snapshot = await device.download()
        await device.train(snapshot.model)


COUNT: list[int] = []


def test_a_sound_algorithm_keeps_everything_in_every_world():
    kept = check_algorithm(Sound())
    assert len(kept) == 7 * len(WORLDS) + 2  # that it comes to its end is asked where nothing goes wrong
    assert all(": " in each for each in kept)
    assert check_algorithm("fedasync", worlds={"plain": {}})[0] == kept[0]


test_what_breaks_a_promise_is_named = refuses(
    AssertionError,
    (Forgetful, "gives the same bits again: .* first, .* then"),
    (Whimsical, "keeps the rules for programs: .*random"),
    (Overwriting, "keeps the rules for programs: "),
    (Exploding, "keeps the rules for programs: .*finite"),
    (Silent, r"comes to its end: ended .lost. after 0 versions; 1000 tasks brought no upload"),
    by=lambda cls: check_algorithm(cls(), worlds={"plain": {}}),
)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_of_the_book_keeps_everything(name):
    algorithm = ALGORITHMS[name]()
    needs_clusters = "sdfeel" in name or name == "hierarchical_fedavg"
    check_algorithm(algorithm, updates=15, worlds=CLUSTERED if needs_clusters else WORLDS)
