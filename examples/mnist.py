"""Train a convolutional network on handwritten digits: `python examples/mnist.py`.

In:  MNIST, downloaded at the first run.
Out: progress lines, and the accuracy on the test set.

EPOCHS, BATCH and LIMIT (digits to train on; 0: all) are read from the environment.
"""

import os
import random
import time

from kernelet import Tensor, TinyJit, nn

EPOCHS = int(os.environ.get("EPOCHS", "2"))
BATCH = int(os.environ.get("BATCH", "128"))
LIMIT = int(os.environ.get("LIMIT", "0"))
SHOW_EVERY = 50
TEST_BATCH = 500


class Network:
    """Two blocks of convolution, batch norm and max pool, then a linear layer."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 16, 5, padding=2, bias=False)
        self.first_norm = nn.BatchNorm(16)
        self.second = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm(32)
        self.classify = nn.Linear(32 * 7 * 7, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.first_norm(self.first(x)).relu().max_pool2d(2)  # (batch, 16, 14, 14)
        x = self.second_norm(self.second(x)).relu().max_pool2d(2)  # (batch, 32, 7, 7)
        return self.classify(x.flatten(1))  # (batch, 10)


def pixels(images: Tensor) -> Tensor:
    """Bytes as numbers with about mean 0 and deviation 1."""
    return (images.float() / 255 - 0.13) / 0.31


def rate_at(done: float) -> float:
    """The learning rate: up in the first tenth of the run, then down to almost nothing."""
    return 0.004 * min(done / 0.1 + 0.02, (1 - done) / 0.9 + 0.002)


def main() -> None:
    """Train, then count what is right."""
    Tensor.manual_seed(7)
    random.seed(7)
    images, labels, test_images, test_labels = nn.datasets.mnist()
    if LIMIT:
        images, labels = images[:LIMIT], labels[:LIMIT]
    network = Network()
    optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=rate_at(0))

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = network(pixels(x)).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    @TinyJit
    def right_answers(x: Tensor, y: Tensor) -> Tensor:
        return (network(pixels(x)).argmax(1) == y).sum().realize()

    count = len(images) // BATCH
    total = count * EPOCHS
    start = shown = time.perf_counter()
    for epoch in range(EPOCHS):
        # A batch is a slice of the data set, so it is copied nowhere; their order is shuffled.
        order = random.sample(range(count), count)
        for number, batch in enumerate(order):
            rows = slice(batch * BATCH, (batch + 1) * BATCH)
            optimizer.lr = rate_at((epoch * count + number) / total)
            with Tensor.train():
                loss = step(images[rows], labels[rows])
            if number % SHOW_EVERY == SHOW_EVERY - 1 or number == count - 1:
                now = time.perf_counter()
                speed = (number % SHOW_EVERY + 1) / (now - shown)
                print(
                    f"epoch {epoch + 1}/{EPOCHS}  step {number + 1}/{count}  "
                    f"loss {loss.item():.4f}  {speed:.1f} steps/s",
                    flush=True,
                )
                shown = now
    trained = time.perf_counter()
    right = sum(
        int(
            right_answers(
                test_images[at : at + TEST_BATCH], test_labels[at : at + TEST_BATCH]
            ).item()
        )
        for at in range(0, len(test_images), TEST_BATCH)
    )
    print(f"trained for {trained - start:.1f} s")
    print(f"test accuracy {100 * right / len(test_images):.2f} %")


if __name__ == "__main__":
    main()
