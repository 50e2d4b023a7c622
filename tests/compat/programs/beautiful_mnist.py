# model based off https://medium.com/data-science/going-beyond-99-mnist-handwritten-digits-recognition-cfff96337392
from typing import Callable

from tinygrad import GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, getenv, trange
from tinygrad.nn.datasets import mnist


class Model:
    def __init__(self):
        self.layers: list[Callable[[Tensor], Tensor]] = [
            nn.Conv2d(1, 8, 5),
            Tensor.relu,
            nn.Conv2d(8, 8, 5),
            Tensor.relu,
            nn.BatchNorm(8),
            Tensor.max_pool2d,
            nn.Conv2d(8, 16, 3),
            Tensor.relu,
            nn.BatchNorm(16),
            Tensor.max_pool2d,
            lambda x: x.flatten(1),
            nn.Linear(256, 10),
        ]

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


if __name__ == "__main__":
    Tensor.manual_seed(1)
    X_train, Y_train, X_test, Y_test = mnist(fashion=bool(getenv("FASHION")))
    X_train, Y_train, X_test, Y_test = X_train[:1000], Y_train[:1000], X_test[:500], Y_test[:500]
    model = Model()
    opt = (nn.optim.Muon if getenv("MUON") else nn.optim.SGD if getenv("SGD") else nn.optim.Adam)(
        nn.state.get_parameters(model)
    )

    @TinyJit
    @Tensor.train()
    def train_step() -> Tensor:
        opt.zero_grad()
        samples = Tensor.randint(getenv("BS", 64), high=X_train.shape[0])
        loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
        return loss.realize(*opt.schedule_step())

    @TinyJit
    def get_test_acc() -> Tensor:
        return (model(X_test).argmax(axis=1) == Y_test).mean() * 100

    test_acc = float("nan")
    first = last = None
    for i in (t := trange(getenv("STEPS", 40))):
        GlobalCounters.reset()
        loss = train_step()
        if i % 20 == 19:
            test_acc = get_test_acc().item()
        last = loss.item()
        first = first or last
        t.set_description(f"loss: {last:6.2f} test_accuracy: {test_acc:5.2f}%")
    if target := getenv("TARGET_EVAL_ACC_PCT", 50.0):
        if test_acc >= target and test_acc != 100.0:
            print(colored(f"test_acc >= {target}", "green"))
        else:
            raise ValueError(colored(f"{test_acc=} < {target}", "red"))
    print(last < first)
