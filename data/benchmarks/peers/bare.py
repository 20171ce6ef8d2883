"""The plain loop on one thread: the same number of mini-batches and evaluations, and nothing of a federation."""

import torch
import torch.nn.functional as F
from peers.common import LR, clock, load

work = load()
images, labels = work.train
model = work.network()
optimiser = torch.optim.SGD(model.parameters(), lr=LR)
order = torch.randint(work.devices, (work.updates,))
start = clock()
for update, device in enumerate(order):
    if update % work.period == 0:
        work.accuracy(model)
    owned = work.owned[device]
    for index in owned[torch.randperm(len(owned))].split(work.batch):
        optimiser.zero_grad()
        F.cross_entropy(model(images[index]), labels[index]).backward()
        optimiser.step()
accuracy = work.accuracy(model)
work.report("plain loop", "torch", clock() - start, work.updates, accuracy)
