"""What docs/results.md says of the attackers' steps: ``python scripts/attack_evidence.py step|sample|place``.

``step``: how far a replacement moves the model. ``sample``: whether a larger batch points elsewhere. ``place``: whether
a pattern further inside the image does better. Data from $PRECAD_DATA; minutes each.
"""

import argparse
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from precad.lab import malicious
from precad.lab.attacks import backdoor, data_poisoning
from precad.lab.attacks.backdoor import BackdoorAttack
from precad.lab.paper import plan
from precad.lab.paper.plan import Method
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer

Floats = NDArray[np.float64]
SEED = 1


def main() -> None:
    """Run one of the three."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["step", "sample", "place"])
    {"step": step, "sample": sample, "place": place}[parser.parse_args().what]()


def step() -> None:
    """‖θ* − θ_t‖ of four attackers in the non-private setting."""
    moved = list[float]()
    train = BackdoorAttack._train

    def watched(attack: BackdoorAttack, theta: Floats, rng: np.random.Generator) -> Floats:
        target = train(attack, theta, rng)
        moved.append(float(np.linalg.norm(target - theta)))
        return target

    with patch.object(BackdoorAttack, "_train", watched):
        trainer = _trainer(Method("plain"), 4)
        for _ in range(4):
            moved.clear()
            for _ in range(50):
                trainer.play()
            print(f"round {trainer.progress.round}: {len(moved)} attacks, mean step {np.mean(moved):.3f}")


def sample() -> None:
    """The cosine between the attacks of a batch of 64 and of 2,048, at models along a run of PRECAD."""
    attacks = list[BackdoorAttack]()
    train = BackdoorAttack._train

    def watched(attack: BackdoorAttack, theta: Floats, rng: np.random.Generator) -> Floats:
        attacks[:] = [attack]
        return train(attack, theta, rng)

    def direction(theta: Floats, batch: int) -> Floats:
        attack = attacks[0]
        images = replace(attack._backdoor, in_batch=batch // 2)
        with patch.object(backdoor, "BATCH", batch), patch.object(attack, "_backdoor", images):
            moved = train(attack, theta, np.random.default_rng(batch)) - theta
        return moved / np.linalg.norm(moved)

    with patch.object(BackdoorAttack, "_train", watched):
        trainer = _trainer(Method("precad"), 10)
        for number in (20, 100, 250):
            while trainer.progress.round < number:
                trainer.play()
            theta = trainer.progress.model.theta
            print(f"round {number}: cosine {direction(theta, 64) @ direction(theta, 2048):.2f}")


def place() -> None:
    """Backdoor accuracy of four attackers on LDP, with the pattern two pixels further inside."""

    def inside(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        marked = images.copy()
        marked[:, :, -4:-2, -4:-2] = 255
        return marked

    with patch.object(data_poisoning, "pixel_pattern", inside):
        trainer = _trainer(Method("ldp"), 4)
        for _ in range(7):
            for _ in range(250):
                trainer.play()
            print(f"round {trainer.progress.round}: backdoor {100 * (trainer.backdoor_score().accuracy or 0):.0f} %")


def _trainer(method: Method, attackers: int) -> Trainer:
    config = plan.attacked(plan.FULL, "mnist", method, attackers, SEED).config
    randomness = Randomness.repeatable(SEED)
    return Trainer(malicious.build(config, None, randomness), config.training, randomness, ideal=True)


if __name__ == "__main__":
    main()
