import contextlib
import io

from tinygrad.helpers import Timing, tqdm, trange

err = io.StringIO()
with contextlib.redirect_stderr(err):
    print(list(tqdm([1, 2, 3], desc="list")), sum(x for x in trange(4)), list(tqdm((c for c in "ab"), desc="gen")))
    bar = tqdm(total=10, desc="bytes", unit="B", unit_scale=True)
    bar.update(5)
    bar.set_description("half")
    bar.update(5)
    for i in (t := trange(3, desc="t")):
        t.set_description(f"step {i}")
    print([i for i in tqdm(range(3), disable=True)])
text = err.getvalue()
print("list:" in text, "100%" in text, "it/s" in text, "bytes:" in text)
out = io.StringIO()
with contextlib.redirect_stdout(out):
    with Timing("work: "):
        sum(range(10))
    with Timing("more: ", on_exit=lambda ns: f" {ns > 0}"):
        pass
    with Timing("silent", enabled=False):
        pass
print([line.split()[0] for line in out.getvalue().splitlines()], " ms" in out.getvalue(), out.getvalue().strip().endswith("True"))
