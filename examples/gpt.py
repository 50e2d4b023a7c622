"""Teach a small transformer to write plays, letter by letter: `python examples/gpt.py`.

Blocks of causal attention and a two-layer network, each behind a layer norm, trained with AdamW, a
warm-up and gradients of bounded norm; after training it writes a few lines of its own.
`--steps 50 --width 32` is a quick look.
"""

from __future__ import annotations

import argparse
import math
import time

from kernelet import Tensor, TinyJit, dtypes, nn

SHOW_EVERY = 20
WARM_UP = 20
WEIGHT_DECAY, MOST_NORM = 0.1, 1.0
TEMPERATURE = 0.8


class Block:
    """Attention to the letters before, then a network for each letter by itself."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.norms = [nn.LayerNorm(width), nn.LayerNorm(width)]
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.join = nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norms[0](x))
        return x + self.narrow(self.widen(self.norms[1](x)).gelu())

    def attend(self, x: Tensor) -> Tensor:
        """Each letter's mean of what the letters up to it have to say."""
        projected = self.project(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # (batch, heads, time, width / heads)
        found = query.scaled_dot_product_attention(key, value, is_causal=True)
        return self.join(found.transpose(1, 2).flatten(2))  # (batch, time, width)


class Network:
    """From letters to scores for the next letter at each place."""

    def __init__(self, letters: int, context: int, width: int, layers: int, heads: int) -> None:
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(context, width)
        for table in (self.letters, self.places):
            table.weight.assign(table.weight * 0.02)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        x = self.letters(tokens) + self.places(Tensor.arange(tokens.shape[1]))
        return self.head(self.norm(x.sequential(self.blocks)))  # (batch, time, letters)


class Trainer:
    """A network, its optimizer, and the functions that are captured and replayed."""

    def __init__(self, text: str, options: argparse.Namespace) -> None:
        self.alphabet = "".join(sorted(set(text)))
        place = {letter: at for at, letter in enumerate(self.alphabet)}
        tokens = bytes(place[letter] for letter in text)
        border = len(tokens) * 9 // 10
        self.parts = [Tensor(each, dtype="uint8") for each in (tokens[:border], tokens[border:])]
        self.batch, self.context = options.batch, options.context
        sizes = (options.width, options.layers, options.heads)
        self.network = Network(len(self.alphabet), self.context, *sizes)
        parameters = nn.state.get_parameters(self.network)
        self.size = sum(math.prod(each.shape) for each in parameters)
        self.optimizer = nn.optim.AdamW(
            parameters, options.rate, 0.9, 0.95, weight_decay=WEIGHT_DECAY
        )
        schedules = nn.optim.lr_scheduler
        warm_up = schedules.LinearLR(self.optimizer, 0.05, 1.0, WARM_UP)
        cosine = schedules.CosineAnnealingLR(self.optimizer, options.steps, options.rate / 10)
        self.scheduler = schedules.ChainedScheduler([cosine, warm_up])
        self.step, self.check = TinyJit(self.learn), TinyJit(self.measure)
        self.extend = TinyJit(self.write_letter)

    def loss(self, tokens: Tensor) -> Tensor:
        """The mean loss on random pieces of the text, and the letters after them."""
        starts = Tensor.randint(self.batch, 1, high=len(tokens) - self.context)
        pieces = tokens[starts + Tensor.arange(self.context + 1)].cast(dtypes.int32)
        scores = self.network(pieces[:, :-1])
        return scores.flatten(0, 1).sparse_categorical_crossentropy(pieces[:, 1:].flatten())

    def learn(self) -> Tensor:
        """One step; the loss before it."""
        with Tensor.train():
            self.optimizer.zero_grad()
            loss = self.loss(self.parts[0]).backward()
            nn.optim.clip_grad_norm_(self.optimizer.params, MOST_NORM)
            steps = self.optimizer.schedule_step() + self.scheduler.schedule_step()
            return loss.realize(*steps)

    def measure(self) -> Tensor:
        """The loss on text that is not trained on."""
        return self.loss(self.parts[1]).realize()

    def write_letter(self, tokens: Tensor) -> Tensor:
        """The tokens without the first, and one more."""
        scores = self.network(tokens)[:, -1] / TEMPERATURE
        letter = scores.softmax().multinomial().cast(tokens.dtype)
        return tokens[:, 1:].cat(letter, dim=1).realize()

    def written(self, count: int) -> str:
        """So many letters by the network, after a line's end."""
        tokens = Tensor.full((1, self.context), self.alphabet.index("\n")).contiguous().realize()
        text = ""
        for _ in range(count):
            tokens = self.extend(tokens)
            text += self.alphabet[tokens[0, -1].item()]
        return text


def main() -> None:
    """Train, tell the loss on the last tenth of the text, and write."""
    parser = argparse.ArgumentParser(description="Train a character-level GPT on Shakespeare.")
    for name, default in {"steps": 300, "batch": 32, "context": 64, "width": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"layers": 3, "heads": 4, "letters": 300, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=3e-3, help="the highest learning rate")
    options = parser.parse_args()
    Tensor.manual_seed(options.seed)

    trainer = Trainer(nn.datasets.tiny_shakespeare(), options)
    print(f"{trainer.size} parameters, {len(trainer.alphabet)} letters", flush=True)
    start = time.perf_counter()
    for at in range(1, options.steps + 1):
        loss = trainer.step()
        if at % SHOW_EVERY == 0 or at in (1, options.steps):
            rate = at / (time.perf_counter() - start)
            print(
                f"step {at}/{options.steps}  loss {loss.item():.4f}  {rate:.1f} steps/s", flush=True
            )
    seconds = time.perf_counter() - start
    held_back = sum(trainer.check().item() for _ in range(8)) / 8
    print(f"loss {held_back:.4f} on text held back, after {seconds:.1f} s of training\n")
    print(trainer.written(options.letters))


if __name__ == "__main__":
    main()
