"""The simulator of this repository."""

from peers.common import clock, load, options

from fl_core.benchmarks.throughput import reference_spec

work = load()
threads = options().threads
spec = reference_spec(work.updates).changed(
    **{"world.devices": work.devices, "algorithm.concurrency": work.flight, "training.batch_size": work.batch},
    **{"evaluation.every_updates": work.period},
)
simulation = spec.simulation()
start = clock()
history = simulation.run("threads" if threads > 1 else "sequential", threads if threads > 1 else None)
seconds = clock() - start
work.report("ours", "fl-core", seconds, simulation.dispatched, float(history.evaluations["test_accuracy"][-1]))
