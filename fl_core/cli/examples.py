"""What stands below the help texts of ``fl-core``; each line is a command that works."""

START = """\b
First steps:
  fl-core doctor                     is everything here?
  fl-core list algorithms            what is there, with which parameters?
  fl-core run --algorithm fedasync   one asynchronous run, about ten seconds
  fl-core plan --profile laptop      what would the paper's figures cost?
  fl-core regenerate fedasync-fig2   one command, one figure
  fl-core book                       all chapters as HTML
"""

RUN = """\b
Examples:
  fl-core run --algorithm fedasync --set alpha=0.8
  fl-core run --algorithm fedasync --set weight="hinge(a=10, b=4)"
  fl-core run --algorithm fedavg --set world.devices=50 --set training.lr=0.1
  fl-core run --algorithm fedasync --set partition="dirichlet(alpha=0.3)"
  fl-core run --algorithm fedper --set compressor="topk(delta=0.1)"
  fl-core run -a sgd -s budget.updates=none -s budget.gradients=2000
  fl-core run --algorithm fedasync --print-spec > spec.json
  fl-core run spec.json --seed 1 --out result.json
"""

LIST = """\b
Examples:
  fl-core list               all names, one kind per line
  fl-core list algorithms    parameters, defaults and meanings
  fl-core list fields        everything that 'fl-core run --set' can change
"""

DATA = """\b
Examples:
  fl-core data                                  what is here, and what is not?
  fl-core data get cifar10                      download, verify, decode
  fl-core data import cifar-10-python.tar.gz    a copy from elsewhere, packed or not
  fl-core data get cifar10-surrogate            generate now instead of on first use
  fl-core data get cifar10 --again              after a message that a file is damaged
  fl-core data calibrate cifar10                is its surrogate as hard as the real one?
"""

PLAN = """\b
Examples:
  fl-core plan                                all artifacts, profile laptop
  fl-core plan fedasync-fig2 --profile paper
  fl-core plan 'fedasync-*' --seeds 0,1
"""

WORK = """\b
Examples:
  fl-core work --minutes 60 --nice                     an hour of the published profile's missing runs
  fl-core work 'sdfeel-*' --seeds 3,4,5 --jobs 2
  fl-core work --paper fedluck --undecided --publish   the seeds that open claims need
  fl-core work fedasmu-tab1 --profile paper --publish
"""

VERIFY = """\b
Examples:
  fl-core verify --sample 30                  thirty records, every bit
  fl-core verify 'wkafl-*' --prefix 0.1       the beginning of WKAFL's
  fl-core verify --paper fedluck --all        all of FedLuck's, every bit
  fl-core verify 0a7edd78bdf0                 one run
"""

CLAIMS = """\b
Examples:
  fl-core claims                        all, with a headline
  fl-core claims FEDASYNC-C03           one, with all parts
  fl-core claims --paper sdfeel --undecided
  fl-core claims --csv > claims.csv
"""

REPLAY = """\b
Examples:
  fl-core replay 0a7edd78bdf0 --at 120        where is everybody before event 120?
  fl-core replay spec.json --at 120 -i        the same, and a console
"""

REGENERATE = """\b
Examples:
  fl-core regenerate fedasync-fig2
  fl-core regenerate fedasync-fig3 -P laptop -p 'alphas=[0.6]' -p 'seeds=[0]'
  fl-core regenerate fedasync/replication --profile laptop
  fl-core regenerate start_here -p SEED=3 --output mine.ipynb
"""

BENCH = """\b
Examples:
  fl-core bench                   everything, about fifteen minutes
  fl-core bench reference kernel  only these
  fl-core bench --quick           does it run?
  fl-core bench --out data/benchmarks/laptop.json
"""

PARTS = (
    *("reference", "synchronous", "overhead", "small", "kernel"),
    *("memory", "kasync", "clusters", "scaling", "batched", "limit", "data", "formulas"),
)
"""What ``fl-core bench`` can measure; :mod:`fl_core.benchmarks` has the same."""

KINDS = (
    *("algorithms", "weights", "compressors", "models", "datasets", "partitions", "preprocessing"),
    *("worlds", "compute", "availability", "graphs", "triggers", "faults"),
    *("artifacts", "profiles", "executors", "notebooks", "records", "fields"),
)
"""What ``fl-core list`` can show; :mod:`fl_core.cli.catalogue` has the same."""
