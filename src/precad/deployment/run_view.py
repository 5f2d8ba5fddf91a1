"""A server's folder as a run's page shows it: rounds, verdicts and ε, from the task and the store. Nothing is written.

A server has no test set and keeps no times. Where the task hides its participants, nothing that depends on who took
part leaves this module: the ε are those of the cap on participations, which the task fixes (PROTOCOL §7a).
"""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from precad.databases import look, typed
from precad.deployment import config as settings
from precad.deployment import receipts
from precad.deployment.store import BESIDE_LEDGER, LOG
from precad.deployment.task import Participants, Task
from precad.errors import Reason
from precad.files import words_of
from precad.privacy.epsilon import epsilon
from precad.privacy.ledger import SCHEMA as LEDGER
from precad.privacy.ledger import LedgerError, read_verified
from precad.privacy.terms import Adversary
from precad.report.run import About, ReportError, RoundFigures, Run, Source, as_text
from precad.report.statement import Statement
from precad.settings import Hyperparameters, RunConfig, TaskConfig
from precad.tables import finite

FIGURES = 12
"""ε is computed after at most this number of rounds, which are spread evenly."""


def server_source(folder: Path) -> Source | None:
    """The run of a server's folder, which has ``a.toml`` or ``b.toml``; None if this is no such folder."""
    place = next((folder / name for name in ("a.toml", "b.toml") if (folder / name).is_file()), None)
    if place is None:
        return None
    store = settings.load(place).store
    return Source(folder, (place, store, store.with_name(f"{store.name}-wal")), lambda: read_server(place))


def read_server(place: Path) -> Run:
    """The run of a server with these settings, at this moment."""
    config = settings.load(place)
    task, store = config.load_task(), config.store
    if not store.is_file():
        raise ReportError(f"there is no store at {store}: the server has not run yet")
    ledger = read_verified(store, BESIDE_LEDGER)
    valid = {entry.round: entry.participants for entry in ledger.entries()}
    # The ledger is read first: a round that is opened meanwhile is in the log alone, and is shown the next time.
    opened = [events for events in _log(store) if events.kind == receipts.OPENED and events.round in valid]
    hidden = task.training.participants is Participants.HIDDEN
    rounds = [_round(number, events, hidden=hidden) for number, events in enumerate(opened, 1)]
    sent = tuple(
        (number, json.dumps([item.client for item in each.verdicts]), ledger.last_link)
        for number, each in enumerate(opened)
    )
    return Run(
        name=place.resolve().parent.name,
        config=_config(task),
        entries=as_text({part: value for part, value in task.as_json().items() if part in ("parameters", "training")}),
        clients=len(task.roster),
        rounds=tuple(_with_costs(task, rounds, [valid[events.round] for events in opened], hidden=hidden)),
        summary=None,
        about=About(versions={}, parameters=task.bounds.dim, clients=None if hidden else tuple(task.members)),
        ledger=None if hidden else replace(ledger, rows=sent),
        config_digest=task.digest.hex(),
        hidden=hidden,
        simulated=False,
    )


def task_statement(task: Task, log: Sequence[str], clients: Mapping[str, Sequence[str]]) -> Statement:
    """What a task has cost, from a server's log and clients' logs that were audited.

    A client counts the rounds that it sent in, a server those that it opened: the larger number is taken. Where the
    task hides its participants it is the cap, which tells nothing.
    """
    opened = [events for events in (receipts.parse(line).events for line in log) if events.kind == receipts.OPENED]
    counts = Counter(item.client for events in opened for item in events.verdicts if item.verdict == receipts.VALID)
    for name, lines in clients.items():
        sent = {
            events.round for events in (receipts.parse(line).events for line in lines) if events.kind == receipts.SENT
        }
        counts[name] = max(counts[name], len(sent))
    hidden = task.training.participants is Participants.HIDDEN
    most = task.training.participations if hidden else max(counts.values(), default=0)
    return Statement(
        name="of two servers",
        digest=task.digest.hex(),
        training=_config(task).training,
        terms=task.terms,
        rounds=len(opened),
        participations=most,
        costs={each: finite(epsilon(task.terms, each, most)) for each in Adversary},
        private=True,
        differences=0,
        simulated=False,
        hidden=hidden,
    )


def _log(store: Path) -> list[receipts.Events]:
    try:
        lines = look(
            store,
            LOG,
            lambda connection: typed("a line", connection.execute("SELECT line FROM log ORDER BY number"), str),
            (*BESIDE_LEDGER, *LEDGER),
        )
        return [receipts.parse(line).events for (line,) in lines]
    except (sqlite3.Error, OSError, ValueError) as error:
        raise LedgerError(f"{store} is not a server's store that can be read: {words_of(error)}") from None


def _round(number: int, events: receipts.Events, *, hidden: bool) -> RoundFigures:
    bad = {item.client: Reason(item.verdict).name.lower() for item in events.verdicts if item.verdict != receipts.VALID}
    selected = 0 if hidden else len(events.verdicts)
    return RoundFigures(round=number, selected=selected, rejected={} if hidden else bad, seconds={})


def _with_costs(
    task: Task, rounds: list[RoundFigures], valid: list[tuple[str, ...]], *, hidden: bool
) -> list[RoundFigures]:
    """Add ε to some rounds, the last one among them: that of the client ``valid`` most often, or of the cap."""
    counts, shown = Counter[str](), list(rounds)
    last, step = len(rounds) - 1, math.ceil(len(rounds) / FIGURES) or 1
    for number, clients in enumerate(valid):
        counts.update(clients)
        if (last - number) % step == 0:
            most = task.training.participations if hidden else max(counts.values(), default=0)
            by_server, by_clients = (epsilon(task.terms, adversary, most) for adversary in Adversary)
            shown[number] = replace(shown[number], epsilon_server=by_server, epsilon_clients=by_clients)
    return shown


def _config(task: Task) -> RunConfig:
    bounds, training = task.bounds, task.training
    return RunConfig(
        task=TaskConfig(dataset="a task of two servers", clients=len(task.roster)),
        training=Hyperparameters(
            rounds=training.rounds,
            client_rate=training.client_rate,
            record_rate=training.record_rate,
            record_bound=bounds.record_bound,
            client_bound=bounds.client_bound,
            noise_multiplier=bounds.noise_multiplier,
            delta=training.delta,
            validation=bounds.validation,
            noise=bounds.noise,
            unit=bounds.unit,
            normalise=training.normalise,
            budget=training.budget,
            **vars(training.schedule),
        ),
    )
