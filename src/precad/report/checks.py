"""What an auditor compares in the files of a run: each function, one kind of evidence.

Where a figure can be computed again it is: ε from the configuration and the ledger, T_i from the ledger, the task's
digest from the configuration. Where it cannot, such as a test accuracy, the files that repeat it are compared.
"""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from precad import __version__
from precad.files import read_text
from precad.privacy.terms import Adversary
from precad.protocol.digests import model_digest
from precad.report.books import KEY, LOCK, SQLITES, Books
from precad.report.manifest import COVERED, LEDGER, MANIFEST, PAGE
from precad.report.page import render
from precad.report.run import RoundFigures, Summary, read_run
from precad.report.weights import holds
from precad.settings import NOT_PRIVATE, PRIVATE, Protocol, config_digest, task_digest

_SAID = {PRIVATE: True, NOT_PRIVATE: False}
_WHY = "follows from config.toml and the participations"


def check_files(books: Books) -> None:
    """Which files there must be, and must not."""
    played = books.finished or (books.checkpoint is not None and books.checkpoint.round > 0)
    needed = {
        "machine.json": True,
        "checkpoint.npz": True,
        "metrics.jsonl": played,
        "model.pt": books.finished,
        LEDGER: books.precad,
        "about.json": books.marked,
        MANIFEST: books.marked and books.finished,
    }
    for name, wanted in needed.items():
        if wanted and not books.is_there(name):
            books.differ(name, "is missing")
    if LEDGER in books.names and books.config is not None and not books.precad:
        books.differ(LEDGER, f"is there, although protocol {books.config.training.protocol.value} keeps none")
    seeded = books.config is not None and books.config.seed is not None
    if KEY in books.names and (books.finished or seeded):
        books.differ(KEY, "is there: whoever reads it can take the noise away, and a run that ends erases it")
    if not (books.finished or seeded or books.is_there(KEY) or books.is_there(MANIFEST)):  # the last is of the end
        books.differ(KEY, "is missing, without which the run cannot go on")
    for name in sorted(books.names & {*SQLITES}) if books.finished else ():
        books.differ(name, "is beside the ledger of a run that has ended, which leaves none")
    if LOCK in books.names and (books.folder / LOCK).stat().st_size:
        books.differ(LOCK, "is not empty")


def check_manifest(books: Books) -> None:
    """Every file is the one that the run left."""
    if books.manifest is None:
        if books.finished and not books.is_there(MANIFEST):
            books.unchecked.append(
                "test accuracies, seconds, versions and curves.png: an earlier version left no manifest.json"
            )
        return
    for name, digest in books.manifest.items():
        found = books.digests.get(name)
        if name not in (*COVERED, PAGE):
            books.differ(MANIFEST, f"names {name!r}, which is no file of a run")
        elif not books.is_there(name):
            books.differ(name, "is missing, and manifest.json names it")
        elif found not in (None, digest) and name != PAGE:
            books.differ(name, f"was changed: its digest is {found}, and manifest.json says {digest!r:.80}")
    for name in books.digests:
        if name not in books.manifest and name != PAGE:
            books.differ(MANIFEST, f"does not name {name}")


def check_facts(books: Books) -> None:
    """What several files say of the same thing."""
    config, about, summary, point, book = books.config, books.about, books.summary, books.checkpoint, books.ledger
    machine, private = books.machine, {line.private for line in books.rounds}
    known = config is not None and not books.own_data and ":" not in config.task.dataset
    books.agree(
        "the digest of the configuration",
        {
            "config.toml": None if books.text is None else config_digest(books.text),
            "machine.json": None if machine is None else str(machine.get("config")),
        },
    )
    books.agree(
        "the number of parameters",
        {
            "checkpoint.npz": point and point.theta.size,
            "about.json": about and about.parameters,
            LEDGER: book and book.terms.dim,
            "summary.json": summary and summary.parameters,
        },
    )
    books.agree(
        "the number of clients",
        {
            "config.toml": config.task.clients if known and config is not None else None,
            "about.json": None if about is None or about.clients is None else len(about.clients),
            "checkpoint.npz": point and point.participations.size,
            "summary.json": summary and summary.clients,
        },
    )
    books.agree(
        "whether nobody can take the noise away",
        {
            "config.toml": None if config is None else config.seed is None,
            "metrics.jsonl": None if not private else private.pop() if len(private) == 1 else "both",
            LEDGER: book and book.origin.private,
            "summary.json": None if summary is None else _SAID.get(summary.randomness, summary.randomness),
        },
    )
    if config is not None and summary is not None:
        said = (summary.protocol, summary.validation, summary.delta, summary.seed)
        training = config.training
        right = (training.protocol.value, training.validation.value, training.delta, config.seed)
        for name, one, other in zip(("protocol", "validation", "delta", "seed"), said, right, strict=True):
            books.expect("summary.json", name, one, other, "is in config.toml")
    if about is not None and summary is not None and about.version != summary.version:
        books.unchecked.append(
            f"which version it was: about.json says {about.version!r:.40}, and summary.json {summary.version!r:.40}"
        )


def check_ledger(books: Books) -> None:
    """The ledger is of this configuration: its terms, its unit, and the task that every link is bound to."""
    config, about, book, terms = books.config, books.about, books.claimed, books.terms
    if config is None or book is None or terms is None:
        return
    for name in ("sigma", "record_rate", "delta", "dim"):
        books.expect(LEDGER, name, getattr(book.terms, name), getattr(terms, name), "follows from config.toml")
    books.agree("the unit", {"config.toml": config.training.unit.value, LEDGER: book.origin.unit})
    if books.ledger is None:
        return
    if about is None or about.clients is None or about.records is None:
        books.unchecked.append("that the ledger's task is this configuration: an earlier version recorded no records")
        return
    if len(about.clients) != len(about.records):
        books.differ("about.json", f"names {len(about.clients)} clients, and the records of {len(about.records)}")
        return
    records = dict(zip(about.clients, about.records, strict=True))
    params = books.attempt("config.toml", lambda: config.training.params(terms.dim, len(records)))
    if params is not None:
        right = task_digest(config.training, params, records).hex()
        books.expect(LEDGER, "the digest of its task", book.task, right, "follows from config.toml and about.json")


def check_lines(books: Books) -> None:
    """Each line of the metrics against the round of the ledger; and where all of them end."""
    rounds, entries, point, summary = books.rounds, books.entries, books.checkpoint, books.summary
    last = len(rounds)
    if books.ledger is not None:
        for number, entry in enumerate(entries):
            if entry.round != number:
                books.differ(LEDGER, f"has round {entry.round + 1} in the place of round {number + 1}")
                return
        if len(entries) < last or (books.finished and len(entries) > last):
            books.differ(LEDGER, f"counts {len(entries)} rounds, and metrics.jsonl has {last} lines")
        names = set(books.about.clients) if books.about is not None and books.about.clients is not None else None
        for line, entry in zip(rounds, entries, strict=False):
            took_part = set(entry.participants)
            where = f"in line {line.round}"
            books.expect("metrics.jsonl", f"selected {where}", line.selected, len(took_part), "are in the ledger")
            if books.marked and (line.link is not None or (books.about is not None and books.about.format > 1)):
                books.expect("metrics.jsonl", f"link {where}", line.link, entry.link, "is the ledger's")
            if not set(line.rejected) <= took_part:
                books.differ("metrics.jsonl", f"names somebody as rejected {where} who is not in the ledger's round")
            if names is not None and not took_part <= names:
                books.differ(LEDGER, f"names somebody in round {entry.round + 1} who is no client of about.json")
    if books.config is not None and books.finished:
        for name, ended in (("metrics.jsonl", last), ("checkpoint.npz", point and point.round)):
            if ended is not None:
                books.expect(name, "the last round", ended, books.config.training.rounds, "is in config.toml")
    if point is not None and point.round > last:
        books.differ("checkpoint.npz", f"stands at round {point.round}, and metrics.jsonl has {last} lines")
    if books.finished and not (books.read("metrics.jsonl", read_text) or "\n").endswith("\n"):
        books.differ("metrics.jsonl", "ends in the middle of a line")
    _check_counts(books)
    if summary is not None:
        _check_summary(books)


def check_costs(books: Books) -> None:
    """T_i and ε after every evaluated round and at the end, against both adversaries, computed again."""
    config, summary = books.config, books.summary
    if config is None or books.terms is None:
        return
    training = config.training
    most, clients = books.most_exposed, 1 if books.checkpoint is None else books.checkpoint.participations.size
    paid = books.attempt("config.toml", lambda: training.most_participations(books.dim or 1, clients))
    if paid is not None and max(most.values(), default=0) > paid:
        books.differ(LEDGER, f"counts {max(most.values())} rounds of a client whose budget pays for {paid}")
    if training.protocol is Protocol.DDP and (
        training.client_rate < 1 or training.budget is not None or None in {line.noises for line in books.rounds}
    ):
        books.unchecked.append("ε of ddp, which depends on who took part in which round: that is not recorded")
        return
    for line in books.rounds:
        due = line.round % config.evaluate_every == 0 or line.round == training.rounds
        if line.evaluated and not due and not books.own_data:
            books.differ("metrics.jsonl", f"has figures in line {line.round}, and config.toml asks for none there")
        if (due and not books.own_data) or line.evaluated:
            _check_epsilon(books, "metrics.jsonl", line, most.get(line.round), f" in line {line.round}")
    if summary is not None:
        _check_epsilon(books, "summary.json", summary, most.get(summary.rounds))
        if summary.rounds in most:
            books.expect("summary.json", "participations", summary.participations, most[summary.rounds], _WHY)
    if books.ledger is None and any(line.evaluated and line.round not in most for line in books.rounds):
        why = "there is no ledger that holds" if books.precad else "only the rounds of protocol precad have a ledger"
        books.unchecked.append(f"ε before the end: {why}, which says who took part in which round")


def check_weights(books: Books) -> None:
    """The checkpoint is the model that the metrics name, and the model's file holds the same."""
    point = books.checkpoint
    if point is None:
        return
    if 0 < point.round <= len(books.rounds):
        named = books.rounds[point.round - 1].model
        if named is not None:
            right = model_digest(point.theta).hex()
            why = f"is that of checkpoint.npz, which stands at round {point.round}"
            books.expect("metrics.jsonl", f"model in line {point.round}", named, right, why)
        else:
            books.unchecked.append("that checkpoint.npz is the model of its round: an earlier version named no model")
    if books.read("model.pt", lambda path: holds(path, point.theta)) is False:
        books.differ("model.pt", "does not hold the parameters of checkpoint.npz")


def check_page(books: Books) -> None:
    """The page is what follows from the files. One that the run left, or an earlier version, may say it otherwise."""
    page = None if books.irregular else books.read(PAGE, read_text)
    if page is not None and books.ledger is None and books.is_there(LEDGER):
        books.unchecked.append("report.html: its ledger is not to be used")
        return
    right = None if page is None else books.attempt(PAGE, partial(_right_page, books, page))
    if page is None or right is None or page == right:
        return
    left = books.manifest is not None and books.manifest.get(PAGE) == books.digests.get(PAGE)
    version = None if books.summary is None else books.summary.version
    if not books.finished:
        books.unchecked.append(
            "report.html, which is not the page of the files as they are: it may be of earlier rounds"
        )
    elif _figures(page) == _figures(right) and (not books.marked or (left and version != __version__)):
        who = f"precad {version!r:.40}" if books.marked else "an earlier version"
        books.unchecked.append(f"the words of report.html, which {who} wrote; its figures are those of the files")
    elif left:
        books.differ(PAGE, "is the page that the run left, and not the page of the files as they are")
    else:
        pairs = enumerate(zip_longest(page.splitlines(), right.splitlines()), 1)
        line = next((number for number, (one, other) in pairs if one != other), 0)
        books.differ(PAGE, f"is not the page of these files: line {line} is not what `precad report` writes")


def _right_page(books: Books, page: str) -> str:
    """The page of the files: under the folder's name, or, if ``page`` is that, under the one that the run had."""
    run = read_run(books.folder)
    names = dict.fromkeys([run.name, *([] if run.summary is None else [run.summary.run])])
    pages = [render([replace(run, name=name)]) for name in names]
    return page if page in pages else pages[-1]


def _check_summary(books: Books) -> None:
    """What the summary repeats of the lines."""
    summary, rounds = books.summary, books.rounds
    if summary is None:
        return
    books.expect("summary.json", "rounds", summary.rounds, len(rounds), "lines are in metrics.jsonl")
    why = "follows from metrics.jsonl"
    if rounds:
        for name in ("test_accuracy", "test_loss"):
            books.expect("summary.json", name, getattr(summary, name), getattr(rounds[-1], name), why)
    seconds, rejected = Counter[str](), Counter[str]()
    for line in rounds:
        seconds.update(line.seconds)
        rejected.update(line.rejected.keys())
    said = {name: times.get("rejected") for name, times in summary.rejected.items()}
    books.expect("summary.json", "who was rejected how often", said, dict(sorted(rejected.items())), why)
    books.expect("summary.json", "the stages", sorted(summary.seconds), sorted(seconds), why)
    for stage in summary.seconds.keys() & seconds.keys():
        books.expect("summary.json", f"the seconds of {stage}", float(summary.seconds[stage]), seconds[stage], why)
    counts = Counter(name for entry in books.entries for name in entry.participants)
    if books.ledger is not None:
        sent = {name: times.get("sent") for name, times in summary.rejected.items()}
        right = {name: counts[name] for name in summary.rejected}
        books.expect("summary.json", "how often who was rejected sent", sent, right, "follows from the ledger")


def _check_counts(books: Books) -> None:
    """The checkpoint's T_i of every client: as many as rounds allow, and in the ledger."""
    point, about = books.checkpoint, books.about
    if point is None or not point.participations.size:
        return
    stored = point.participations.tolist()
    if not 0 <= min(stored) <= max(stored) <= point.round:
        books.differ("checkpoint.npz", f"counts participations outside the {point.round} rounds that it has")
    if books.ledger is None or point.round > len(books.entries):
        return
    counts = Counter(name for entry in books.entries[: point.round] for name in entry.participants)
    if about is None or about.clients is None or len(about.clients) != len(stored):
        if sorted(count for count in stored if count) != sorted(counts.values()):
            books.differ("checkpoint.npz", f"counts other participations than the ledger after round {point.round}")
        return
    for name, count in zip(about.clients, stored, strict=True):
        why = f"rounds of the first {point.round} are in the ledger"
        books.expect("checkpoint.npz", f"the participations of {name!r}", count, counts[name], why)


def _check_epsilon(books: Books, name: str, said: RoundFigures | Summary, most: int | None, where: str = "") -> None:
    rounds = said.round if isinstance(said, RoundFigures) else said.rounds
    for adversary in Adversary if most is not None else ():
        key = f"epsilon_{adversary.value}"
        books.expect(name, f"{key}{where}", getattr(said, key), books.cost(adversary, most or 0, rounds), _WHY)


def _figures(page: str) -> list[str]:
    """Every figure of a page, in order: exact, and as it is shown."""
    return re.findall(r"<data value='[^']*'>[^<]*</data>", page)
