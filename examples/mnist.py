"""Teach a small convolutional network to read digits: `python examples/mnist.py`.

Two blocks of convolution, batch norm, ReLU and max pool, then one linear layer, trained with Adam
in a step that is captured once and replayed. `--limit 2000 --epochs 1` is a quick look.
"""

from __future__ import annotations

import argparse
import sys
import time

from kernelet import Tensor, TinyJit, nn

TEST_BATCH = 500
FIRST_RATE = 3e-3
RATE_DECAY = 0.3  # the learning rate is multiplied by it after each epoch
SHOW_EVERY = 20


class Network:
    """From bytes of images to one score for each digit."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm(16)
        self.second = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm(32)
        self.head = nn.Linear(32 * 7 * 7, 10)

    def __call__(self, images: Tensor) -> Tensor:
        x = images.float() / 255  # (batch, 1, 28, 28)
        x = self.first_norm(self.first(x)).relu().max_pool2d(2)  # (batch, 16, 14, 14)
        x = self.second_norm(self.second(x)).relu().max_pool2d(2)  # (batch, 32, 7, 7)
        return self.head(x.flatten(1))  # (batch, 10)


class Trainer:
    """A network, its optimizer, and the two functions that are captured and replayed."""

    def __init__(self) -> None:
        self.network = Network()
        self.optimizer = nn.optim.Adam(nn.state.get_parameters(self.network))
        self.step = TinyJit(self.learn)
        self.count_right = TinyJit(self.compare)

    def learn(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step; the loss before it."""
        with Tensor.train():
            self.optimizer.zero_grad()
            loss = self.network(images).sparse_categorical_crossentropy(labels).backward()
            return loss.realize(*self.optimizer.schedule_step())

    def compare(self, images: Tensor, labels: Tensor) -> Tensor:
        """How many of the images are read correctly."""
        return (self.network(images).argmax(1) == labels).sum().realize()

    def accuracy(self, data: nn.DataLoader) -> float:
        """The share of images that are read correctly."""
        right = [self.count_right(images, labels) for images, labels in data]
        return sum(each.item() for each in right) / data.count

    def epoch(self, data: nn.DataLoader, title: str) -> None:
        """One pass over the images in random order, in whole batches."""
        start = time.perf_counter()
        for at, batch in enumerate(data, 1):
            loss = self.step(*batch)
            if at % SHOW_EVERY == 0 or at == len(data):
                rate = at / (time.perf_counter() - start)
                shown = f"{title}  step {at}/{len(data)}  loss {loss.item():.4f}"
                progress(f"{shown}  {rate:.1f} steps/s", last=at == len(data))


def progress(line: str, last: bool) -> None:
    """Show a line; in a terminal the next one overwrites it."""
    in_place = sys.stdout.isatty() and not last
    print(
        f"\r{line:<72}" if sys.stdout.isatty() else line, end="" if in_place else "\n", flush=True
    )


def main() -> None:
    """Train, and after each epoch count how many digits of the test set are read correctly."""
    parser = argparse.ArgumentParser(description="Train a convolutional network on MNIST.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--limit", type=int, default=60000, help="use this many images at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    Tensor.manual_seed(options.seed)

    images, labels, *rest = (each[: options.limit] for each in nn.datasets.mnist())
    training = nn.DataLoader(
        *(images, labels),
        batch_size=min(options.batch, len(images)),
        shuffle=True,
        seed=options.seed,
        drop_last=True,
    )
    test = nn.DataLoader(*rest, batch_size=TEST_BATCH)
    trainer = Trainer()
    seconds = 0.0
    for epoch in range(options.epochs):
        trainer.optimizer.lr = FIRST_RATE * RATE_DECAY**epoch
        start = time.perf_counter()
        title = f"epoch {epoch + 1}/{options.epochs}"
        trainer.epoch(training, title)
        seconds += time.perf_counter() - start
        accuracy = 100 * trainer.accuracy(test)
        print(f"test accuracy {accuracy:.2f} % after {seconds:.1f} s of training", flush=True)


if __name__ == "__main__":
    main()
