"""APPFL's virtual clock; without --shipped its garbage collections, several for each update, are switched off."""

import gc
import logging

import numpy as np
from omegaconf import OmegaConf
from peers.common import ALPHA, LR, clock, complete_torchvision, load, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

complete_torchvision()
from appfl.agent import ClientAgent, ServerAgent
from appfl.config import ClientAgentConfig, ServerAgentConfig
from appfl.vsim import AsyncSimDriver, ClientProfile

work = load()
collect = {} if options().shipped else {"optimize_memory": False}
training = {
    "trainer": "VanillaTrainer", "mode": "epoch", "num_local_epochs": 1, "optim": "SGD", "optim_args": {"lr": LR},
    "train_batch_size": work.batch, "device": "cpu", "do_validation": False, "loss_fn": "CrossEntropyLoss", **collect,
}  # fmt: skip
serving = {
    "num_clients": work.devices, "num_global_epochs": work.updates, "scheduler": "AsyncScheduler",
    "scheduler_kwargs": collect, "aggregator": "FedAsyncAggregator",
    # It divides the weight of an arriving model by the number of devices.
    "aggregator_kwargs": {"alpha": ALPHA * work.devices, "staleness_fn": "constant", **collect}, **collect,
}  # fmt: skip


class Parts:
    """What APPFL would read from files."""

    def _load_model(self) -> None:
        self.model = getattr(self, "model", None) or work.network()

    def _load_loss(self) -> None:
        self.loss_fn = nn.CrossEntropyLoss()

    def _load_metric(self) -> None:
        self.metric = lambda labels, scores: float((np.argmax(scores, 1) == labels).mean())


class Client(Parts, ClientAgent):
    """A device."""

    def _load_data(self) -> None:
        self.train_dataset, self.val_dataset = TensorDataset(*work.device(int(self.get_id()))), None


class Server(Parts, ServerAgent):
    """A server that evaluates on the test images."""

    def _load_val_data(self) -> None:
        self._val_dataset = TensorDataset(*work.test)
        self._val_dataloader = DataLoader(self._val_dataset, batch_size=500)


logging.disable(logging.INFO)
shared = {"train_configs": training, "model_configs": {}}
server = Server(ServerAgentConfig(OmegaConf.create(shared), OmegaConf.create(serving)))
clients = []
for device in range(work.devices):
    config = OmegaConf.structured(ClientAgentConfig(train_configs=OmegaConf.create(training)))
    OmegaConf.set_struct(config, False)
    clients.append(Client(OmegaConf.merge(config, {"client_id": str(device), **collect})))
random = np.random.default_rng(0)
profiles = {str(device): ClientProfile(compute_factor=random.uniform(0.5, 1.5)) for device in range(work.devices)}
driver = AsyncSimDriver(
    server, clients, profiles, work.flight, logging.getLogger(), base_step_time=1.0, eval_every=work.period
)
if collect:
    gc.collect = lambda *_: 0  # some of them ask nobody
start = clock()
driver.run()
accuracy = driver._global_eval(server.get_parameters(serial_run=True))[1] if work.updates % work.period else None
seconds = clock() - start
accuracy = driver.history[-1]["global_val_accuracy"] if accuracy is None else accuracy
work.report("APPFL", "appfl", seconds, len(driver.history) + len(driver._pending), accuracy)
