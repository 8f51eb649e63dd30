# A character language model: an LSTM whose state goes from batch to batch.
import argparse
import math

import torch
import torch.nn as nn

TEXT = """
The old harbour was quiet before dawn. Ropes creaked, gulls slept on the roofs, and the water lay as flat as slate.
A boy counted the boats, as he did every morning: nine with blue keels, four with red, and one that nobody had painted.
He knew which would leave first. The red ones went for mackerel, and mackerel do not wait for breakfast.
By noon the market would be loud with prices; by evening there would be only scales on the stones, and the smell.
""" * 4

parser = argparse.ArgumentParser(description='Character-level LSTM')
parser.add_argument('--emsize', type=int, default=24)
parser.add_argument('--nhid', type=int, default=48)
parser.add_argument('--nlayers', type=int, default=2)
parser.add_argument('--lr', type=float, default=2.0)
parser.add_argument('--clip', type=float, default=0.25)
parser.add_argument('--epochs', type=int, default=1)
parser.add_argument('--batch_size', type=int, default=8)
parser.add_argument('--bptt', type=int, default=20)
parser.add_argument('--dropout', type=float, default=0.2)
parser.add_argument('--seed', type=int, default=1111)
parser.add_argument('--cuda', action='store_true', default=torch.cuda.is_available())
args = parser.parse_args()

torch.manual_seed(args.seed)
if torch.cuda.is_available() and not args.cuda:
    print("WARNING: You have a CUDA device, so you should probably run with --cuda.")
device = torch.device("cuda" if args.cuda else "cpu")

letters = sorted(set(TEXT))
index = {c: i for i, c in enumerate(letters)}
ids = torch.tensor([index[c] for c in TEXT])


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout):
        super(RNNModel, self).__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nlayers, self.nhid = nlayers, nhid
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return self.decoder(self.drop(output)).view(-1, self.decoder.out_features), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


model = RNNModel(len(letters), args.emsize, args.nhid, args.nlayers, args.dropout).to(device)
if device.type == 'cuda':
    model.rnn.flatten_parameters()
criterion = nn.CrossEntropyLoss()
train_data = batchify(ids, args.batch_size)
for epoch in range(args.epochs):
    model.train()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        n = min(args.bptt, len(train_data) - 1 - i)
        data, targets = train_data[i:i + n], train_data[i + 1:i + 1 + n].view(-1)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-args.lr)
        print('| epoch {:3d} | batch {:3d} | loss {!r} | ppl {:8.2f}'.format(
            epoch, batch, loss.item(), math.exp(loss.item())))
with open('lstm_lm.pt', 'wb') as f:
    torch.save(model, f)
