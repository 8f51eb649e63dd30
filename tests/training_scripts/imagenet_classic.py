'''Image classification, in the style of the scripts of 2018: one file, global best_acc, meters, -a ARCH, --gpu.'''
import argparse
import os
import random
import shutil
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.parallel
import torch.backends.cudnn as cudnn
import torch.optim
import torch.utils.data
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description='PyTorch digits training')
parser.add_argument('-a', '--arch', default='small', choices=['small', 'wide'])
parser.add_argument('-j', '--workers', default=0, type=int)
parser.add_argument('--epochs', default=2, type=int)
parser.add_argument('--start-epoch', default=0, type=int)
parser.add_argument('-b', '--batch-size', default=128, type=int)
parser.add_argument('--lr', '--learning-rate', default=0.05, type=float, dest='lr')
parser.add_argument('--momentum', default=0.9, type=float)
parser.add_argument('--wd', default=1e-4, type=float)
parser.add_argument('-p', '--print-freq', default=5, type=int)
parser.add_argument('--resume', default='', type=str)
parser.add_argument('--out', default='.', type=str)
parser.add_argument('-e', '--evaluate', action='store_true')
parser.add_argument('--seed', default=0, type=int)
parser.add_argument('--gpu', default=0, type=int, help='GPU id to use')
best_acc1 = 0


def conv(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Net(nn.Module):
    def __init__(self, width):
        super(Net, self).__init__()
        self.features = nn.Sequential(conv(1, width), conv(width, width * 2, 2), conv(width * 2, width * 4, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width * 4, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.features(x)), 1))


def main():
    global best_acc1
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(args.seed)
        torch.cuda.set_device(args.gpu)
        print('Use GPU: {} for training'.format(args.gpu))
    cudnn.deterministic = True
    cudnn.benchmark = False

    model = Net({'small': 8, 'wide': 16}[args.arch])
    criterion = nn.CrossEntropyLoss()
    if torch.cuda.is_available():
        model = model.cuda(args.gpu)
        criterion = criterion.cuda(args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.wd)

    if args.resume:
        if not os.path.isfile(args.resume):
            print("=> no checkpoint found at '{}'".format(args.resume))
        elif not torch.cuda.is_available():
            checkpoint = torch.load(args.resume, map_location='cpu')
        else:
            loc = 'cuda:{}'.format(args.gpu)
            checkpoint = torch.load(args.resume, map_location=loc)
        args.start_epoch = checkpoint['epoch']
        best_acc1 = checkpoint['best_acc1']
        model.load_state_dict(checkpoint['state_dict'])
        optimizer.load_state_dict(checkpoint['optimizer'])
        print("=> loaded checkpoint '{}' (epoch {})".format(args.resume, checkpoint['epoch']))

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1).div_(16).sub_(0.3)
    labels = torch.from_numpy(digits.target).long()
    train_set = torch.utils.data.TensorDataset(images[:1280], labels[:1280])
    val_set = torch.utils.data.TensorDataset(images[1280:], labels[1280:])
    train_loader = torch.utils.data.DataLoader(
        train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
        pin_memory=torch.cuda.is_available())
    val_loader = torch.utils.data.DataLoader(val_set, batch_size=args.batch_size, num_workers=args.workers)

    if args.evaluate:
        validate(val_loader, model, criterion, args)
        return
    for epoch in range(args.start_epoch, args.epochs):
        adjust_learning_rate(optimizer, epoch, args)
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, criterion, args)
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint({'epoch': epoch + 1, 'arch': args.arch, 'state_dict': model.state_dict(),
                         'best_acc1': best_acc1, 'optimizer': optimizer.state_dict()}, is_best, args.out)


def train(train_loader, model, criterion, optimizer, epoch, args):
    batch_time, losses, top1 = AverageMeter('Time'), AverageMeter('Loss'), AverageMeter('Acc@1')
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        if torch.cuda.is_available():
            images = images.cuda(args.gpu, non_blocking=True)
            target = target.cuda(args.gpu, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1[0].item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        print('Epoch: [{}][{}] loss {!r}'.format(epoch, i, losses.val))


def validate(val_loader, model, criterion, args):
    losses, top1 = AverageMeter('Loss'), AverageMeter('Acc@1')
    model.eval()
    with torch.no_grad():
        for images, target in val_loader:
            if torch.cuda.is_available():
                images, target = images.cuda(args.gpu), target.cuda(args.gpu)
            output = model(images)
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(accuracy(output, target)[0][0].item(), images.size(0))
    print(' * Acc@1 {!r} loss {!r}'.format(top1.avg, losses.avg))
    return top1.avg


def save_checkpoint(state, is_best, folder, filename='checkpoint.pth.tar'):
    torch.save(state, os.path.join(folder, filename))
    if is_best:
        shutil.copyfile(os.path.join(folder, filename), os.path.join(folder, 'model_best.pth.tar'))


class AverageMeter(object):
    def __init__(self, name):
        self.name, self.val, self.avg, self.sum, self.count = name, 0, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def adjust_learning_rate(optimizer, epoch, args):
    for param_group in optimizer.param_groups:
        param_group['lr'] = args.lr * (0.1 ** (epoch // 30))


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand(max(topk), -1))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


if __name__ == '__main__':
    main()
