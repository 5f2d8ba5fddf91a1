"""The malicious clients of a configuration: who they are, what they hold, what they send."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from precad.data import image_sets
from precad.data.image_sets import ImageData
from precad.data.records import ArrayRecords
from precad.gradients.engine import PerRecordGradients
from precad.lab.attacks import backdoor, data_poisoning, model_poisoning
from precad.settings import MaliciousConfig, RunConfig
from precad.simulation import known_problems
from precad.simulation.problem import Attack, Problem
from precad.simulation.randomness import Randomness
from precad.simulation.user_code import load_plugin

BACKDOOR, LABEL_FLIP = "backdoor", "label_flip"


def build(config: RunConfig, data: Path | None, randomness: Randomness) -> Problem:
    """The problem of a configuration, with its malicious clients: the last K turn malicious.

    Args:
        config: Which problem, and who cheats.
        data: Where the images are (see :func:`precad.data.image_sets.load`).
        randomness: The split, the first weights and the attackers' images come from it.
    """
    malicious = config.malicious
    if ":" in config.task.dataset:
        problem = known_problems.of_function(config.task, data, randomness)
        count = len(problem.clients)
        if malicious.clients >= count:
            raise ValueError(f"malicious clients must be fewer than all {count}, got {malicious.clients}")
        return replace(problem, attacks={**attackers(malicious, list(problem.clients)), **problem.attacks})
    images = image_sets.load(config.task.dataset, data)  # type: ignore[arg-type]  # load names what it knows
    without = {}
    if has_semantic_backdoor(malicious, images):
        walls = np.array([*data_poisoning.WALL_TRAIN, *data_poisoning.WALL_MORE])
        without = {"without_train": walls, "without_test": np.array(data_poisoning.WALL_TEST)}
    problem = known_problems.of_images(config.task, images, randomness, **without)
    return recruit(malicious, images, problem, randomness)


def has_semantic_backdoor(config: MaliciousConfig, images: ImageData) -> bool:
    """CIFAR-10's backdoor; all other data sets have the pixel pattern."""
    return config.attack == BACKDOOR and images.name == "cifar10"


def recruit(config: MaliciousConfig, images: ImageData, problem: Problem, randomness: Randomness) -> Problem:
    """The problem with its last K clients turned malicious; its records are of ``images``."""
    names = list(problem.clients)[len(problem.clients) - config.clients :]
    held = {name: records for name, records in problem.clients.items() if isinstance(records, ArrayRecords)}
    if config.attack == LABEL_FLIP:
        flipped = data_poisoning.label_flip(images.y_train, images.classes)
        relabelled = {name: replace(held[name], targets=flipped) for name in names}
        return replace(problem, clients={**problem.clients, **relabelled})
    if config.attack != BACKDOOR:
        return replace(problem, attacks=dict.fromkeys(names, _adapted(config, _untargeted(config))))
    rows = np.concatenate([np.empty(0, np.int64), *(held[name].rows for name in names)])
    transform = next(iter(held.values())).transform
    if has_semantic_backdoor(config, images):
        poisoned = backdoor.semantic(images, transform, randomness.generator("backdoor"))
    else:
        poisoned = backdoor.pixel_pattern(images, transform, rows)
    benign = ArrayRecords(images.x_train, images.y_train, rows, transform)
    attack = backdoor.BackdoorAttack(PerRecordGradients(problem.model, problem.loss), benign, poisoned)
    return replace(problem, attacks=dict.fromkeys(names, _adapted(config, attack)), backdoor=poisoned.test)


def attackers(config: MaliciousConfig, clients: list[str]) -> dict[str, Attack]:
    """The last K of the clients of a task whose data are not images of ours: they attack by their updates alone."""
    if config.clients == 0:
        return {}
    if config.attack in (LABEL_FLIP, BACKDOOR):
        raise ValueError(
            f"the attack {config.attack!r} needs a data set of precad's: put it into the task's own attacks"
        )
    return dict.fromkeys(clients[len(clients) - config.clients :], _adapted(config, _untargeted(config)))


def check_attack(name: str) -> None:
    """Refuse a name that no attack has."""
    known = (*model_poisoning.NAMES, LABEL_FLIP, BACKDOOR)
    if ":" in name:
        load_plugin("attack", name)
    elif name not in known:
        raise ValueError(f"the attack is {name!r}, expected one of {', '.join(known)}, or module:function")


def _untargeted(config: MaliciousConfig) -> Attack:
    if ":" in config.attack:
        attack: Attack = load_plugin("attack", config.attack)
        return attack
    check_attack(config.attack)
    return model_poisoning.named(config.attack, config.boost)


def _adapted(config: MaliciousConfig, attack: Attack) -> Attack:
    return model_poisoning.within_bound(attack) if config.within_bound else attack
