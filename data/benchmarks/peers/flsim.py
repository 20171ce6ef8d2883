"""FLSim's AsyncTrainer; what it calls an epoch is one update for each device."""

import dataclasses
import functools

from omegaconf import OmegaConf
from peers.common import ALPHA, LR, clock, complete_torchvision, load

complete_torchvision()
original = dataclasses.dataclass


def hashable(kind: type | None = None, **words: bool) -> object:
    """Make a data class; one of FLSim's can be hashed, or Python 3.11 would refuse it as another one's default."""
    if kind is None:
        return functools.partial(hashable, **words)
    return original(kind, **words, **({"unsafe_hash": True} if kind.__module__.startswith("flsim.") else {}))


dataclasses.dataclass = hashable
from flsim.clients.base_client import ClientConfig
from flsim.data.data_provider import FLDataProviderFromList
from flsim.optimizers import async_aggregators as aggregators
from flsim.optimizers.local_optimizers import LocalOptimizerSGDConfig
from flsim.trainers.async_trainer import AsyncTrainer, AsyncTrainerConfig
from flsim.utils.async_trainer import training_event_generator as events
from flsim.utils.example_utils import FLModel, MetricsReporter
from flsim.utils.timing import training_duration_distribution as durations

dataclasses.dataclass = original


class Model(FLModel):
    """A model whose data are batches already."""

    def fl_create_training_batch(self, batch: dict) -> dict:
        return batch


class Reporter(MetricsReporter):
    """Keeps the metrics to itself."""

    def set_summary_writer(self, log_dir: str | None) -> None:
        pass


def batches(images, labels, size):
    """Return what FLSim calls the data of a user."""
    return [{"features": x, "labels": y} for x, y in zip(images.split(size), labels.split(size), strict=True)]


work = load()
users = min(work.devices, work.updates)
model, reporter = Model(work.network()), Reporter([])
arrivals = events.PoissonAsyncTrainingStartTimeDistrConfig(training_rate=work.flight)  # a second; a task takes one
duration = durations.PerUserUniformDurationDistributionConfig(training_duration_mean=1.0, training_duration_min=0.5)
config = AsyncTrainerConfig(
    epochs=work.updates / users, always_keep_trained_model=True,
    client=ClientConfig(epochs=1, optimizer=LocalOptimizerSGDConfig(lr=LR)),
    aggregator=aggregators.FedAvgWithLRAsyncAggregatorConfig(
        lr=ALPHA, aggregation_type=aggregators.AsyncAggregationType.fed_async_aggregation
    ),
    training_event_generator=events.AsyncTrainingEventGeneratorConfig(
        training_start_time_distribution=arrivals, duration_distribution_generator=duration
    ),
)  # fmt: skip
trainer = AsyncTrainer(model=model, cuda_enabled=False, **OmegaConf.structured(config))
owned = [batches(*work.device(device), work.batch) for device in range(users)]
tested = [batches(*work.test, 500)]
data = FLDataProviderFromList(owned, tested, tested, model)
start = clock()
_, metrics = trainer.train(data, reporter, num_total_users=users)
seconds = clock() - start
work.report("FLSim", "flsim", seconds, trainer.global_round - 1, metrics["Accuracy"] / 100)
