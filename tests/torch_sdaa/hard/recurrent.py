"""Recurrent networks: layers, packed sequences, cells."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.torch_sdaa.hard.check import agree, check

KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


def packed(kind: str, device: str) -> object:
    """Return outputs, last states and gradients of two bidirectional layers over three sequences."""
    layer = KINDS[kind](8, 16, 2, bidirectional=True).to(device)
    x = torch.randn(5, 3, 8).to(device)
    out, last = layer(pack_padded_sequence(x, torch.tensor([5, 3, 2])))
    padded, lengths = pad_packed_sequence(out)
    padded.sum().backward()
    return [padded, lengths, last, [p.grad for p in layer.parameters()]]


def plain(kind: str, device: str) -> object:
    """Return the same for a layer over sequences of one length, batch first, and for one in evaluation."""
    layer = KINDS[kind](4, 6, batch_first=True).to(device)
    x = torch.randn(2, 7, 4).to(device).requires_grad_()
    out, last = layer(x)
    out.square().sum().backward()
    with torch.no_grad():
        quiet = layer.eval()(x)
    return [out, last, x.grad, [p.grad for p in layer.parameters()], quiet]


def cell(kind: str, device: str) -> object:
    """Return three steps of a cell and its gradients."""
    layer = getattr(nn, f"{kind}Cell")(4, 6).to(device)
    x = torch.randn(3, 2, 4).to(device)
    held = layer(x[0])
    for step in x[1:]:
        held = layer(step, held)
    last = held[0] if isinstance(held, tuple) else held
    last.sum().backward()
    return [held, [p.grad for p in layer.parameters()]]


@check
def lstm_packed() -> None:
    agree(lambda device: packed("LSTM", device), "sdaa:0", "sdaa:2")


@check
def gru_packed() -> None:
    agree(lambda device: packed("GRU", device), "sdaa:0", "sdaa:2")


@check
def rnn_packed() -> None:
    agree(lambda device: packed("RNN", device), "sdaa:0", "sdaa:2")


@check
def lstm_plain() -> None:
    agree(lambda device: plain("LSTM", device))


@check
def gru_plain() -> None:
    agree(lambda device: plain("GRU", device))


@check
def rnn_plain() -> None:
    agree(lambda device: plain("RNN", device))


@check
def lstm_cell() -> None:
    agree(lambda device: cell("LSTM", device))


@check
def gru_cell() -> None:
    agree(lambda device: cell("GRU", device))


@check
def rnn_cell() -> None:
    agree(lambda device: cell("RNN", device))


@check
def lstm_with_projections_and_dropout() -> None:
    def work(device: str) -> object:
        layer = nn.LSTM(4, 6, 2, proj_size=3, dropout=0.3).to(device)
        x = torch.randn(5, 2, 4).to(device)
        torch.manual_seed(1)
        out, last = layer(x)
        out.sum().backward()
        return [out, last, [p.grad for p in layer.parameters()]]

    agree(work)
