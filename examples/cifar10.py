"""Teach a residual network to tell ten kinds of photographs: `python examples/cifar10.py`.

Three stages of convolutions with batch norm, each with a residual block, trained with SGD, label
smoothing and one cycle of the learning rate; pictures are flipped and shifted at random. The
training step and the evaluation are captured once and replayed. `--limit 1000` is a quick look.
"""

from __future__ import annotations

import argparse
import time

from kernelet import Tensor, TinyJit, nn

MEAN, DEVIATION = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of each color, over the data set
SHOW_EVERY = 10
SHIFT = 2  # pictures are moved by at most so many pixels


class Block:
    """A convolution, batch norm and ReLU."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        self.convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)

    def __call__(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x)).relu()


class Stage:
    """Half the size and more channels, then what two further blocks add to it."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        self.widen = Block(channels_in, channels_out)
        self.first = Block(channels_out, channels_out)
        self.second = Block(channels_out, channels_out)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.widen(x).max_pool2d(2)
        return x + self.second(self.first(x))


class Network:
    """From bytes of images to one score for each class."""

    def __init__(self, width: int) -> None:
        self.start = Block(3, width)
        self.stages = [Stage(width << at, width << (at + 1)) for at in range(3)]
        self.head = nn.Linear(width << 3, 10, bias=False)

    def __call__(self, images: Tensor) -> Tensor:
        x = self.start(images)  # (batch, width, 32, 32)
        for stage in self.stages:
            x = stage(x)  # (batch, 2 * width, 16, 16) and so on
        return self.head(x.max(axis=(2, 3))) / 4  # (batch, 10)


def normalized(images: Tensor) -> Tensor:
    """Bytes with mean 0 and deviation 1 in each color."""
    mean, deviation = (Tensor(each).reshape(1, 3, 1, 1) for each in (MEAN, DEVIATION))
    return (images.float() - mean) / deviation


def disturbed(images: Tensor) -> Tensor:
    """Each picture flipped or not; all of a batch moved by the same random amount."""
    flips = Tensor.rand(images.shape[0], 1, 1, 1) < 0.5
    images = flips.where(images.flip(3), images)
    padded = images.pad((SHIFT,) * 4, mode="reflect")
    places = Tensor.arange(32).unsqueeze(0) + Tensor.randint(2, 1, high=2 * SHIFT + 1)  # (2, 32)
    return padded[:, :, places[0].unsqueeze(1), places[1]]


class Trainer:
    """A network, its optimizer, and the two functions that are captured and replayed."""

    def __init__(self, width: int, rate: float, steps: int) -> None:
        self.network = Network(width)
        parameters = nn.state.get_parameters(self.network)
        self.optimizer = nn.optim.SGD(parameters, rate, 0.9, weight_decay=5e-4, nesterov=True)
        self.scheduler = nn.optim.lr_scheduler.OneCycleLR(
            self.optimizer, rate, steps, 0.25, "linear"
        )
        self.step = TinyJit(self.learn)
        self.count_right = TinyJit(self.compare)

    def learn(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step; the loss before it."""
        with Tensor.train():
            self.optimizer.zero_grad()
            scores = self.network(disturbed(normalized(images)))
            loss = scores.sparse_categorical_crossentropy(labels, label_smoothing=0.1).backward()
            steps = self.optimizer.schedule_step() + self.scheduler.schedule_step()
            return loss.realize(*steps)

    def compare(self, images: Tensor, labels: Tensor) -> Tensor:
        """How many of the images are told correctly."""
        return (self.network(normalized(images)).argmax(1) == labels).sum().realize()

    def accuracy(self, data: nn.DataLoader) -> float:
        """The share of the images that are told correctly."""
        right = [self.count_right(images, labels) for images, labels in data]
        return sum(each.item() for each in right) / data.count


def main() -> None:
    """Train, and after each epoch count how many pictures of the test set are told correctly."""
    parser = argparse.ArgumentParser(description="Train a residual network on CIFAR-10.")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--rate", type=float, default=0.1, help="the highest learning rate")
    parser.add_argument("--limit", type=int, default=50000, help="use this many images at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    Tensor.manual_seed(options.seed)

    images, labels, *test = (each[: options.limit] for each in nn.datasets.cifar())
    training = nn.DataLoader(images, labels, batch_size=options.batch, shuffle=True, drop_last=True)
    held_back = nn.DataLoader(*test, batch_size=options.batch)
    trainer = Trainer(options.width, options.rate, options.epochs * len(training))
    seconds = 0.0
    for epoch in range(options.epochs):
        start = time.perf_counter()
        for at, batch in enumerate(training, 1):
            loss = trainer.step(*batch)
            if at % SHOW_EVERY == 0 or at == len(training):
                shown = f"epoch {epoch + 1}/{options.epochs}  step {at}/{len(training)}"
                rate = at / (time.perf_counter() - start)
                print(f"{shown}  loss {loss.item():.4f}  {rate:.1f} steps/s", flush=True)
        seconds += time.perf_counter() - start
        accuracy = 100 * trainer.accuracy(held_back)
        print(f"test accuracy {accuracy:.2f} % after {seconds:.1f} s of training", flush=True)


if __name__ == "__main__":
    main()
