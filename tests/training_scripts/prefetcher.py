"""The next batch is copied on a stream of its own while the card computes; events measure the step."""
import argparse

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class data_prefetcher():
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean = torch.tensor([0.305]).cuda().view(1, 1, 1, 1)
        self.std = torch.tensor([0.376]).cuda().view(1, 1, 1, 1)
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = None
            self.next_target = None
            return
        with torch.cuda.stream(self.stream):
            self.next_input = self.next_input.cuda(non_blocking=True)
            self.next_target = self.next_target.cuda(non_blocking=True)
            self.next_input = self.next_input.float()
            self.next_input = self.next_input.sub_(self.mean).div_(self.std)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        input = self.next_input
        target = self.next_target
        if input is not None:
            input.record_stream(torch.cuda.current_stream())
        if target is not None:
            target.record_stream(torch.cuda.current_stream())
        self.preload()
        return input, target


class plain_loader():
    """What the prefetcher is on a machine without a card."""

    def __init__(self, loader):
        self.loader = iter(loader)

    def next(self):
        input, target = next(self.loader, (None, None))
        return (input.float().sub_(torch.tensor(0.305)).div_(torch.tensor(0.376)), target) if input is not None else (None, None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--local_rank', default=0, type=int)
    parser.add_argument('--prof', action='store_true', help='mark ranges')
    args = parser.parse_args()
    torch.manual_seed(8)
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(args.local_rank)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).div(16).unsqueeze(1)
    train = TensorDataset(images[:1280], torch.tensor(digits.target[:1280]))
    loader = DataLoader(train, batch_size=256, shuffle=True, pin_memory=cuda)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))
    if cuda:
        model = model.cuda().to(memory_format=torch.channels_last)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    else:
        model = model.to(memory_format=torch.channels_last)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        prefetcher = data_prefetcher(loader) if cuda else plain_loader(loader)
        input, target = prefetcher.next()
        i = 0
        while input is not None:
            if args.prof:
                torch.cuda.nvtx.range_push("iteration {}".format(i))
            if cuda:
                begin.record()
            loss = criterion(model(input), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if cuda:
                end.record()
                end.synchronize()
                assert begin.elapsed_time(end) > 0
            if args.prof:
                torch.cuda.nvtx.range_pop()
            print('epoch', epoch, 'iteration', i, 'loss', repr(loss.item()))
            i += 1
            input, target = prefetcher.next()
    if cuda:
        torch.cuda.synchronize()


if __name__ == '__main__':
    main()
