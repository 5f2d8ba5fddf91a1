"""The last parts of a page: what the run was, and what the page does not show."""

from html import escape

from precad.report import formatting as fmt
from precad.report.run import Run


def configuration(run: Run) -> str:
    """Every parameter, the versions, where the randomness came from."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, key, value in run.settings.entries:
        groups.setdefault(name, []).append((key, value))
    seed = run.settings.seed
    made = [("precad", run.about.version or "not recorded"), *run.about.versions]
    made.append(("randomness", "the operating system" if seed is None else f"seed {seed}: not private"))
    groups["versions and randomness"] = made
    digests = [("configuration", run.config_digest or "not recorded")]
    if run.ledger is not None:
        digests.append(("last link of the ledger", run.ledger.last_link or "none: no round was counted"))
    tables = "".join(_small_table(name, rows) for name, rows in groups.items())
    listed = "".join(f"<li>{escape(name)} <code>{escape(value)}</code></li>" for name, value in digests)
    audit = f"<h3>Digests</h3><ul>{listed}</ul>"
    return fmt.section("configuration", "Configuration", f"<div class='config'>{tables}</div>{audit}")


def limits(run: Run) -> str:
    """What the page does not show."""
    lines = [
        "The accuracy is that of one run on one test set. Other randomness gives other figures, and choosing "
        "parameters by looking at results costs privacy that is not counted here.",
        "ε holds if the two servers do not work together, and for a client up to the number of rounds that it took "
        "part in. An ε is an upper bound on what can be learnt, not a measure of what was.",
        "Clients and servers shared one machine: the times are not those of a deployment, where nobody sees how long a "
        "client computed."
        if run.simulated
        else "It is what one server of the task knows; the other one's log must agree with its own (`precad audit`).",
        "The signal is estimated from the norm of the opened sums, which the servers see anyway; nothing else on this "
        "page but the test figures depends on what the clients' data are.",
        "The certificate is about expectations over the randomness of training, not about this one model.",
    ]
    if run.settings.seed is not None:
        seeded = (
            "The noise came from a seed: whoever knows it can take the noise away. The ε above are those of the same "
        )
        lines.insert(0, f"{seeded}run with secret noise.")
    return fmt.section("limits", "What this page does not show", fmt.bullets(lines))


def _small_table(name: str, rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><th scope='row'>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in rows)
    return f"<div><h3>{escape(name)}</h3><table>{lines}</table></div>"
