"""The metric's records of each sample, in a file next to the JSON result, for paired comparisons of runs: one number
per sample as CSV (:mod:`.rows`), all other records as arrays (:mod:`.arrays`).
"""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.pipeline.resume.records.file import Kept, RecordsFile
from utils.pipeline.resume.records.names import HASH, find_records, records_path
from utils.pipeline.resume.records.rows import RecordWriter, SampleRecord, SampleRecords, record_writer

__all__ = [
    "HASH",
    "Kept",
    "RecordWriter",
    "RecordsFile",
    "SampleRecord",
    "SampleRecords",
    "find_records",
    "record_writer",
    "records_path",
]
