"""Flower's simulation engine. It has rounds only: each of as many devices as others have in flight."""

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peers.common import LR, LeNet5, clock, load

client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train one device for an epoch."""
    work, model = load(), LeNet5()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = work.device(context.node_config["partition-id"])
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    for index in torch.randperm(len(labels)).split(work.batch):
        optimiser.zero_grad()
        F.cross_entropy(model(images[index]), labels[index]).backward()
        optimiser.step()
    found = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(labels)})}
    return Message(content=RecordDict(found), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds, measure them, and print the line."""
    work = load()
    rounds = -(-work.updates // work.flight)

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        if number % (work.period // work.flight) and number < rounds:
            return None
        model = LeNet5()
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": work.accuracy(model)})

    share = work.flight / work.devices
    strategy = FedAvg(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=work.devices)
    arrays = ArrayRecord(work.network().state_dict())
    start = clock()
    result = strategy.start(grid, arrays, num_rounds=rounds, evaluate_fn=evaluate)
    accuracy = result.evaluate_metrics_serverapp[rounds]["accuracy"]
    work.report("Flower", "flwr", clock() - start, rounds * work.flight, accuracy)


if __name__ == "__main__":
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=load().devices, backend_config=backend)
