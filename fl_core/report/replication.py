"""What every replication chapter does: check its parameters, run what is missing, show artifacts, judge claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fl_core.experiments import ledger
from fl_core.experiments.artifacts import find_artifact, find_artifacts, make_study, stored_seeds
from fl_core.experiments.claims import CLAIMS, Judgement, judge
from fl_core.experiments.experiment import Experiment, chosen_options
from fl_core.experiments.grid import execute, plan
from fl_core.experiments.store import default_store
from fl_core.experiments.study import Study, listed
from fl_core.report import Markdown, display
from fl_core.report.figures import draw
from fl_core.report.tables import Table


class Replication:
    """A replication chapter.

    `namespace` is the notebook's ``globals()``, with the values of its ``parameters`` cell: PROFILE, SHOW, DATASET,
    SEEDS, RECOMPUTE, and the experiment's options in capitals. `groups` are ids of artifacts whose runs are looked up
    together, the first ones set the tone; `published` looks up what of a group is shown from the store when SHOW is
    "published".
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        experiment: type[Experiment],
        groups: Mapping[str, Sequence[str]],
        published: Callable[..., Study | None] = stored_seeds,
    ) -> None:
        self.experiment, self.store = experiment, default_store()
        self.overrides = chosen_options(namespace, experiment)
        self.profile, self.dataset, self.seeds = (namespace[name] for name in ("PROFILE", "DATASET", "SEEDS"))
        self.recompute, self.from_store = namespace["RECOMPUTE"], namespace["SHOW"] == "published"
        self.groups = {name: find_artifacts(ids) for name, ids in groups.items()}
        self._published = published
        self.published = {name: self.stored(name) if self.from_store else None for name in groups}
        self.here = {
            name: make_study(artifacts, self.profile, self.dataset, self.seeds, **self.overrides)
            for name, artifacts in self.groups.items()
        }
        self._captions: dict[str, str] = {}

    @property
    def first(self) -> str:
        """The first group."""
        return next(iter(self.groups))

    @property
    def standard(self) -> bool:
        """Whether data set, seeds and options are the standard ones, which the text was written about."""
        return self.dataset == ledger.DATASET and not self.overrides and self.seeds is None

    @property
    def shown(self) -> dict[str, Study]:
        """The study of each group: published runs, else those made here."""
        return {name: self.published[name] or self.here[name] for name in self.groups}

    def stored(self, group: str, dataset: str | None = None, than: str | None = None) -> Study | None:
        """Return the stored runs of a group with the chapter's options on a data set, of a profile above `than`."""
        return self._published(
            self.groups[group],
            self.store,
            than or self.profile,
            dataset or self.dataset,
            self.seeds,
            **self.overrides,
        )

    def run(self, checked: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> None:
        """Run at the chapter's profile what the store lacks, after saying what that costs.

        Of a group whose figures come from the store only those runs are made that the page checks: `checked` has for
        each group descriptions by labels (a list of values holds alternatives), and what fits none is left out. All
        runs are made if it is None or RECOMPUTE is set.
        """
        wanted = {}
        for name, study in self.here.items():
            some = checked is not None and not self.recompute and self.published[name] is not None
            few = [e for e in study.entries if any(_fits(e.labels, each) for each in (checked or {}).get(name, ()))]
            wanted[name] = few if some else study.entries
        specs = [entry.spec for entries in wanted.values() for entry in entries]
        print(f"profile    {self.profile}, seeds {self.here[self.first].seeds}")
        print(plan(specs, self.store).table())
        done = execute(specs, store=self.store, recompute=self.recompute)
        for name, entries in wanted.items():
            self.here[name] = self.here[name].with_results({entry.key: done[entry.key] for entry in entries})

    def setting(self) -> Table:
        """Return the paper's setting beside that of the runs that are shown."""
        [artifact, *_] = self.groups[self.first]
        assert artifact.paper_setting is not None
        found = self.published[self.first]
        profile, seeds = (found.profile, found.seeds) if found else (self.profile, self.seeds)
        table = artifact.paper_setting(profile, self.dataset, seeds, **self.overrides)
        return Table(table, wrap=dict.fromkeys(table.columns[1:], 9), caption="The setting of the paper, and ours")

    def origin(self, study: Study) -> str:
        """Return what a study rests on, in words."""
        made = "the runs above" if any(study is own for own in self.here.values()) else "stored results"
        lacking = sum(entry.key not in study.results for entry in study.entries)
        return (
            f"{made}, profile `{study.profile}`, seed{'s' if len(study.seeds) > 1 else ''} {listed(study.seeds)}, on "
            f"{study.data}; {study.verification}"
            f"{f', {lacking} runs missing' if lacking else ''}"
        )

    def summary(self, parts: Mapping[str, str]) -> Markdown:
        """Return what the page shows and what that rests on; `parts` says in words what each group is."""
        shown = self.shown
        lines = [f"- {words}: {self.origin(shown[name])}." for name, words in parts.items()]
        if any(study.profile == "smoke" for study in shown.values()):
            lines.append("\nProfile `smoke` only shows that everything works: do not read results from it.")
        return Markdown("**What this page shows:**\n\n" + "\n".join(lines))

    def computed(self, name: str) -> Any:
        """Return the figure or table of an artifact that needs no runs."""
        artifact = find_artifact(name)
        return draw(artifact, make_study(artifact, self.profile))[0]

    def show(self, name: str, group: str | None = None, study: Study | None = None) -> Any:
        """Return the figure or table of an artifact, and keep for :meth:`caption` what is not in the table's own."""
        made, said = draw(find_artifact(name), study or self.shown[group or self.first])
        self._captions[name] = said.removeprefix(f"{made.caption}. ") if isinstance(made, Table) else said
        return made

    def caption(self, name: str, group: str | None = None) -> Markdown:
        """Return what a figure, as it was shown last, else of a group, rests on, and the command that makes it."""
        return Markdown(self._captions.get(name) or find_artifact(name).caption(self.shown[group or self.first]))

    def display(self, name: str, group: str | None = None, study: Study | None = None) -> None:
        """Show a figure or table with its caption below it."""
        display(self.show(name, group, study), self.caption(name))

    def judged(self, studies: Mapping[str, Study] | None = None, also: Iterable[str] = ()) -> list[Judgement]:
        """Return the judgements of all claims that the groups in `studies` carry (the shown ones), by id.

        `also` names claims that need no group. Where the page shows the published runs with the standard parameters,
        they are those of the ledger; else they are made on these studies alone, and say so.
        """
        studies = self.shown if studies is None else studies
        names = {group: [c for artifact in self.groups[group] for c in artifact.claims] for group in studies}
        if self.standard and all(study is self.published[group] for group, study in studies.items()):
            return ledger.judged(sorted({*also, *(name for found in names.values() for name in found)}))
        found = {each.claim.id: each for group in studies for each in judge(names[group], studies[group])}
        if studies:
            extra = [name for name in also if name not in found]
            found |= {each.claim.id: each for each in judge(extra, next(iter(studies.values())))}
        return [found[name] for name in sorted(found)]

    @staticmethod
    def claims_about_formulas(paper: str) -> list[str]:
        """Return the ids of the claims of a paper (``"FEDLUCK"``) that need no training."""
        return [name for name, claim in CLAIMS.items() if name.startswith(f"{paper}-") and claim.kind != "run"]


def _fits(labels: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a run has these labels; a list holds alternatives."""
    return all(labels.get(name) in (value if isinstance(value, list) else [value]) for name, value in wanted.items())
