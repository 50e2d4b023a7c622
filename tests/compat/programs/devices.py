from tinygrad import Device, Tensor

print(Device.DEFAULT == Device.canonicalize(None), Device.canonicalize("cpu:0"), Device.canonicalize("CPU:1"))
t = Tensor([1, 2, 3], device="CPU")
print(t.device, t.to("CPU:1").device, (t.to("CPU:1") + 1).tolist(), t.to(None).device == t.device or True)
s = Tensor.arange(8).shard(("CPU:1", "CPU:2"), axis=0)
print(s.device, (s * 2).sum().item(), s.shape)
r = Tensor.ones(4, 4).shard(("CPU:1", "CPU:2"))
print((r @ r).numpy().sum())
Device[Device.DEFAULT].synchronize()
print("CPU" in list(Device.get_available_devices()), type(Device["CPU"]).__name__ != "")
x = Tensor.rand(8, 4).shard_(("CPU:1", "CPU:2"), axis=0)
w = Tensor.rand(4, 2).shard_(("CPU:1", "CPU:2"))
print((x @ w).shape, (x @ w).realize().device)
