# Written for PyTorch 0.4: Variables, typed tensors, .type(dtype), -1 for the CPU.
import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable
from sklearn.datasets import load_iris

CUDA = torch.cuda.is_available()
dtype = torch.cuda.FloatTensor if CUDA else torch.FloatTensor
ltype = torch.cuda.LongTensor if CUDA else torch.LongTensor
type_name = 'torch.cuda.FloatTensor' if CUDA else 'torch.FloatTensor'

torch.manual_seed(2)
if CUDA:
    torch.cuda.manual_seed(2)
    torch.cuda.manual_seed_all(2)


def to_var(x, requires_grad=False):
    if torch.cuda.is_available():
        x = x.cuda()
    return Variable(x, requires_grad=requires_grad)


class LogReg(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super(LogReg, self).__init__()
        self.w1 = nn.Parameter(torch.randn(inputs, hidden) * 0.3)
        self.b1 = nn.Parameter(torch.zeros(hidden))
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.out((x.mm(self.w1) + self.b1).clamp(min=0))


iris = load_iris()
order = np.random.RandomState(0).permutation(len(iris.data))
features = torch.from_numpy(iris.data[order]).type(torch.FloatTensor)
x = Variable(features.type(dtype))
y = Variable(torch.from_numpy(iris.target[order]).type(ltype))
assert isinstance(x.data, dtype), x.type()

model = LogReg(4, 16, 3)
if CUDA:
    model.cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(15):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print('epoch %d, loss %r' % (epoch, loss.data.item()))

# weights by hand, no module at all
w = Variable(torch.randn(4, 3).type(type_name), requires_grad=True)
one_hot = dtype(len(y), 3).zero_()
one_hot.scatter_(1, y.data.unsqueeze(1), 1)
noise = dtype(2, 2).fill_(0.5)
for step in range(5):
    loss = (x.mm(w) - Variable(one_hot)).pow(2).mean() + noise.sum() * 0
    loss.backward()
    w.data -= 0.01 * w.grad.data
    w.grad.data.zero_()
    print('by hand %d, loss %r' % (step, loss.item()))
probe = to_var(torch.ones(2))
print('mean', repr(probe.mean().item()), 'host', features.type() == 'torch.FloatTensor')
