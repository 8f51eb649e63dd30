# Processes started by torch.multiprocessing.spawn, rendezvous over tcp, arguments in the main process.
import argparse
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class ToyModel(nn.Module):
    def __init__(self):
        super(ToyModel, self).__init__()
        self.net1 = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(32, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def main_worker(gpu, ngpus_per_node, args):
    args.gpu = gpu
    backend = args.dist_backend if torch.cuda.is_available() else 'gloo'
    dist.init_process_group(backend=backend, init_method=args.dist_url, world_size=ngpus_per_node, rank=gpu)
    torch.manual_seed(0)
    model = ToyModel()
    if torch.cuda.is_available():
        torch.cuda.set_device(args.gpu)
        model.cuda(args.gpu)
        model = DistributedDataParallel(model, device_ids=[args.gpu])
    else:
        model = DistributedDataParallel(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(100 + gpu)
    for step in range(args.steps):
        inputs = torch.randn(20, 10, generator=generator)
        labels = torch.randn(20, 5, generator=generator)
        if torch.cuda.is_available():
            inputs = inputs.cuda(args.gpu, non_blocking=True)
            labels = labels.cuda(args.gpu, non_blocking=True)
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), labels)
        loss.backward()
        optimizer.step()
        gathered = [torch.zeros_like(loss) for _ in range(ngpus_per_node)]
        dist.all_gather(gathered, loss.detach())
        if gpu == 0:
            print('step', step, ' '.join('loss {!r}'.format(x.item()) for x in gathered), flush=True)

    path = os.path.join(args.folder, 'model.checkpoint')
    if gpu == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    if torch.cuda.is_available():
        map_location = {'cuda:%d' % 0: 'cuda:%d' % gpu}
        state = torch.load(path, map_location=map_location)
        assert all(value.is_cuda and value.get_device() == gpu for value in state.values())
    else:
        state = torch.load(path)
    model.load_state_dict(state)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--world-size', default=2, type=int)
    parser.add_argument('--steps', default=5, type=int)
    parser.add_argument('--dist-backend', default='nccl', type=str)
    args = parser.parse_args()
    args.dist_url = 'tcp://127.0.0.1:{}'.format(free_port())
    with tempfile.TemporaryDirectory() as args.folder:
        mp.spawn(main_worker, nprocs=args.world_size, args=(args.world_size, args))


if __name__ == '__main__':
    main()
