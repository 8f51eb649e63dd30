"""Recorded trainings: the calls of operators and the files (HDF5) they are stored in."""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.training.calls import (
        SCRATCH as SCRATCH,
        KeptTensor as KeptTensor,
        OpCall as OpCall,
        Recorded as Recorded,
        as_numbers as as_numbers,
        kept_tensor as kept_tensor,
    )
    from engine.training.dump import (
        TrainingDump as TrainingDump,
        TrainingDumpWriter as TrainingDumpWriter,
        open_training_dump as open_training_dump,
        read_call as read_call,
    )
    from engine.training.hdf5 import needed_h5py as needed_h5py

_HOMES = {
    "engine.training.calls": "SCRATCH KeptTensor OpCall Recorded as_numbers kept_tensor",
    "engine.training.dump": "TrainingDump TrainingDumpWriter open_training_dump read_call",
    "engine.training.hdf5": "needed_h5py",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
