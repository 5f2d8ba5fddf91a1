"""Named configurations, as the tables of their files. No torch is needed to read them, so servers know them too."""

from collections.abc import Mapping

from precad.tables import Table

_PAPER_TRAINING: Table = {
    "rounds": 5000,
    "client_rate": 0.1,
    "record_rate": 0.05,
    "record_bound": 2.0,
    "client_bound": 30.0,
    "noise_multiplier": 1.0,
    "learning_rate": 0.1,
}
_SHARDS: Table = {"clients": 100, "split": "shards", "shards_per_client": 4}
_DIRICHLET: Table = {"clients": 100, "split": "dirichlet", "records_per_client": 500, "alpha": 0.5}

_RECOMMENDED: Table = {
    "rounds": 500,
    "client_rate": 1.0,
    "record_rate": 0.05,
    "record_bound": 0.5,
    "client_bound": 15.0,
    "noise_multiplier": 2.0,
    "learning_rate": 10.0,
    "final_learning_rate": 1.0,
}

_DIGITS: Table = {
    "task": {"dataset": "digits", "clients": 20, "split": "shards", "shards_per_client": 4},
    "training": {
        "rounds": 200,
        "client_rate": 1.0,
        "record_rate": 0.2,
        "record_bound": 1.0,
        "client_bound": 10.0,
        "noise_multiplier": 2.0,
        "learning_rate": 0.5,
    },
    "malicious": {"clients": 1, "boost": 10.0},
    "evaluate_every": 5,
}


def _certified(dataset: str, frequencies: int, clients: int, training: Table) -> Table:
    """Many clients, a small linear model, few rounds: it learns, and the robustness certificate means something.

    With q = 1 the clean and the attacked run are K·√T/σ̃ standard deviations apart, exactly. The noise in the mean
    update is σ̃·C/n, so with many clients σ̃ can be large. ``scripts/certified.py`` measures it.
    """
    return {
        "task": {
            "dataset": dataset,
            "model": "frequencies",
            "frequencies": frequencies,
            "clients": clients,
            "split": "iid",
        },
        "training": {
            "client_rate": 1.0,
            "record_rate": 1.0,
            "record_bound": training["client_bound"],
            "unit": "client",
            **training,
        },
        "evaluate_every": 1,
    }


_CERTIFIED: Table = {"rounds": 16, "client_bound": 1.0, "noise_multiplier": 150.0, "learning_rate": 12.0}
"""For MNIST: 10,000 clients share all 60,000 records."""
_CERTIFIED_DIGITS: Table = {"rounds": 10, "client_bound": 0.25, "noise_multiplier": 12.0, "learning_rate": 120.0}
"""For the 1,797 digits of scikit-learn: a client a record, a fifth of the records for the test."""


def _images(dataset: str, split: Table) -> dict[tuple[str, str], Table]:
    """The two presets of a set of images: the paper's, and ours."""
    task, ours = {"dataset": dataset, **split}, dict(_RECOMMENDED)
    if dataset == "cifar10":
        ours |= {"learning_rate": 4.0, "final_learning_rate": 0.4}
    return {
        (dataset, "paper"): {"task": task, "training": _PAPER_TRAINING, "evaluate_every": 200},
        (dataset, "recommended"): {"task": {**task, "activation": "tanh"}, "training": ours, "evaluate_every": 10},
    }


_TABLES: Mapping[tuple[str, str], Table] = {
    ("digits", "recommended"): _DIGITS,
    ("digits", "certified"): _certified("digits", 6, 1437, _CERTIFIED_DIGITS),
    ("mnist", "certified"): _certified("mnist", 8, 10_000, _CERTIFIED),
    **_images("mnist", _SHARDS),
    **_images("fashion", _SHARDS),
    **_images("cifar10", _DIRICHLET),
}
_OWN_TASK: Mapping[str, Table] = {"recommended": _RECOMMENDED, "paper": _PAPER_TRAINING}


def preset(dataset: str, name: str) -> Table:
    """A named configuration, as the tables of its file."""
    if not isinstance(dataset, str):
        raise ValueError(f"dataset must be text, got {dataset!r}")
    if (dataset, name) in _TABLES:
        return _TABLES[dataset, name]
    known = [preset for data, preset in _TABLES if data == dataset]
    if known:
        raise ValueError(f"{dataset} has no preset {name!r}; it has {', '.join(known)}")
    if ":" in dataset:
        if name not in _OWN_TASK:
            raise ValueError(f"a task of your own has no preset {name!r}; it has {', '.join(_OWN_TASK)}")
        return {"task": {"dataset": dataset}, "training": _OWN_TASK[name]}
    names = dict.fromkeys(data for data, _ in _TABLES)
    raise ValueError(f"the data set is {dataset!r}, expected {', '.join(names)}, or module:function")
