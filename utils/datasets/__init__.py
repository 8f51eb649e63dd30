"""Data sets: the samples of a run, their order and their targets. Images are decoded later, by preprocess."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.datasets.base import Batch, Batches, Dataset, ListDataset, Rejected, Selection
from utils.datasets.loading import load_dataset
from utils.datasets.samples import Sample, TableDataset
from utils.datasets.sharding import rank_and_size, shard

__all__ = ["Batch", "Batches", "Dataset", "ListDataset", "Rejected", "Sample", "Selection", "TableDataset"]
__all__ += ["load_dataset", "rank_and_size", "shard"]
