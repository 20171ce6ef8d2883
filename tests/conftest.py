"""Settings every test shares: one intra-op thread per process, reproducible property tests."""

from __future__ import annotations

import os

# Two pytest workers with a thread pool each would fight for the cores; read before torch is imported,
# and inherited by the kernels that run the notebooks.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
