# lr scheduler like extra/lr_scheduler.py
import math
from tinygrad import Tensor, nn, dtypes, Context
from tinygrad.nn.optim import Optimizer, SGD
class LR_Scheduler:
  def __init__(self, optimizer: Optimizer):
    self.optimizer = optimizer
    self.epoch_counter = Tensor([0.0], requires_grad=False, device=self.optimizer.device)
  def get_lr(self): pass
  def schedule_step(self): return [self.epoch_counter.assign(self.epoch_counter + 1), self.optimizer.lr.assign(self.get_lr())]
  def step(self) -> None: Tensor.realize(*self.schedule_step())
class CosineAnnealingLR(LR_Scheduler):
  def __init__(self, optimizer, T_max, eta_min=0):
    super().__init__(optimizer)
    self.T_max, self.eta_min, self.eta_max = T_max, eta_min, optimizer.lr.numpy()[0]
  def get_lr(self): return self.eta_min + 0.5 * (self.eta_max - self.eta_min) * (1 + (self.epoch_counter/self.T_max * math.pi).cos())
w = Tensor([1.0]).contiguous()
opt = SGD([w], lr=0.1)
s = CosineAnnealingLR(opt, 4)
for i in range(4):
  with Context(TRAINING=1):
    opt.zero_grad(); (w*w).sum().backward(); opt.step()
  s.step()
  print(round(opt.lr.item(), 5), round(w.item(), 5))
