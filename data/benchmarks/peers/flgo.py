"""FLGo's FedAsync, with plain SGD on the devices: its own client would add a proximal term to every step."""

import importlib
import os
import sys
import tempfile
from pathlib import Path

import flgo
import flgo.algorithm.fedasync
from flgo.algorithm.fedbase import BasicClient
from flgo.benchmark.partition import BasicPartitioner
from flgo.benchmark.toolkits.cv import classification
from peers.common import ALPHA, LR, clock, load

work = load()
jobs = arrived = 0
# PyTorch refuses subclasses of Subset that have __getitem__ but not __getitems__.
classification.FromDatasetPipe.TaskDataset.__getitems__ = lambda self, indices: [self[i] for i in indices]


class Division(BasicPartitioner):
    """Who owns which images."""

    def __call__(self, data: object) -> list[list[int]]:
        return work.owned.tolist()


class Async:
    """An algorithm, as FLGo wants it."""

    class Server(flgo.algorithm.fedasync.Server):
        def initialize(self) -> None:
            super().initialize()
            self.alpha, self.flag = ALPHA, "constant"

        def package_handler(self, packages: dict) -> bool:
            global arrived
            arrived += len(packages["__cid"])
            return super().package_handler(packages)

    class Client(BasicClient):
        def train(self, model: object) -> None:
            global jobs
            jobs += 1
            super().train(model)


option = {
    "num_rounds": work.updates, "proportion": work.flight / work.devices, "learning_rate": LR, "num_epochs": 1,
    "batch_size": work.batch, "eval_interval": work.period, "test_batch_size": 500, "train_holdout": 0,
    "responsiveness": "UNI-50-150", "no_tqdm": True, "no_log_console": True,
}  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    sys.path.insert(0, folder)
    lines = ["from torch.utils.data import TensorDataset", "from peers.common import load"]
    lines += [f"{part}_data = TensorDataset(*load().{part})" for part in ("train", "test")]
    lines += ["def get_model():", "    return load().network()"]
    Path("config.py").write_text("\n".join(lines), encoding="utf-8")
    benchmark = importlib.import_module(flgo.gen_benchmark_from_file("fashion", "config.py"))
    del benchmark.visualize  # a picture of the division
    flgo.gen_task_by_(benchmark, Division(), "task")
    runner = flgo.init("task", Async, option)
    runner.register_exit_condition(lambda server: arrived >= work.updates)
    start = clock()
    runner.run()
    accuracy = runner.test()["accuracy"]
    work.report("FLGo", "flgo", clock() - start, jobs, accuracy)
    os.chdir("/")
