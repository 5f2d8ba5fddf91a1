"""The malicious clients of a configuration: who they are, what they hold, what they send."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from precad.attacks import data_poisoning, strategies
from precad.attacks.strategies import Attack
from precad.learning import backdoor
from precad.learning.config import MaliciousConfig
from precad.learning.datasets import ImageData
from precad.learning.gradients import PerRecordGradients
from precad.learning.plugins import load_plugin
from precad.learning.randomness import Randomness
from precad.learning.records import ArrayRecords, Records

BACKDOOR, LABEL_FLIP = "backdoor", "label_flip"


@dataclass(frozen=True)
class Recruits:
    """What the malicious clients change of a task."""

    records: dict[str, ArrayRecords]
    """Of the malicious clients; of one whose name is not in ``attacks``, it follows the protocol with them."""
    attacks: dict[str, Attack]
    backdoor: Records | None


def kept_from_honest(config: MaliciousConfig, images: ImageData) -> NDArray[np.int64]:
    """Training images that honest clients must not hold: those of the semantic backdoor."""
    if not has_semantic_backdoor(config, images):
        return np.empty(0, np.int64)
    return np.array([*data_poisoning.WALL_TRAIN, *data_poisoning.WALL_MORE])


def has_semantic_backdoor(config: MaliciousConfig, images: ImageData) -> bool:
    """CIFAR-10's backdoor; all other data sets have the pixel pattern."""
    return config.attack == BACKDOOR and images.name == "cifar10"


def recruit(
    config: MaliciousConfig,
    images: ImageData,
    clients: dict[str, ArrayRecords],
    gradients: PerRecordGradients,
    randomness: Randomness,
) -> Recruits:
    """The last K of ``clients``, of ``images``, turn malicious; ``gradients`` are of the model that they attack."""
    malicious = dict(list(clients.items())[len(clients) - config.clients :])
    if config.attack == LABEL_FLIP:
        flipped = data_poisoning.label_flip(images.y_train, images.classes)
        return Recruits({name: replace(held, targets=flipped) for name, held in malicious.items()}, {}, None)
    poisoned = None
    attack: Attack
    if config.attack != BACKDOOR:
        attack = _untargeted(config)
    else:
        rows = np.concatenate([np.empty(0, np.int64), *(held.rows for held in malicious.values())])
        transform = next(iter(clients.values())).transform
        if has_semantic_backdoor(config, images):
            poisoned = backdoor.semantic(images, transform, randomness.generator("backdoor"))
        else:
            poisoned = backdoor.pixel_pattern(images, transform, rows)
        benign = ArrayRecords(images.x_train, images.y_train, rows, transform)
        attack = backdoor.BackdoorAttack(gradients, benign, poisoned)
    attack = _adapted(config, attack)
    return Recruits(malicious, dict.fromkeys(malicious, attack), None if poisoned is None else poisoned.test)


def attackers(config: MaliciousConfig, clients: list[str]) -> dict[str, Attack]:
    """The last K of the clients of a task whose data are not images of ours: they attack by their updates alone."""
    if config.clients == 0:
        return {}
    if config.attack in (LABEL_FLIP, BACKDOOR):
        raise ValueError(
            f"the attack {config.attack!r} needs a data set of precad's: put it into the task's own attacks"
        )
    attack = _adapted(config, _untargeted(config))
    return dict.fromkeys(clients[len(clients) - config.clients :], attack)


def check_attack(name: str) -> None:
    """Refuse a name that no attack has."""
    known = (*strategies.NAMES, LABEL_FLIP, BACKDOOR)
    if ":" in name:
        load_plugin("attack", name)
    elif name not in known:
        raise ValueError(f"the attack is {name!r}, expected one of {', '.join(known)}, or module:function")


def _untargeted(config: MaliciousConfig) -> Attack:
    if ":" in config.attack:
        attack: Attack = load_plugin("attack", config.attack)
        return attack
    check_attack(config.attack)
    return strategies.named(config.attack, config.boost)


def _adapted(config: MaliciousConfig, attack: Attack) -> Attack:
    return strategies.within_bound(attack) if config.within_bound else attack
