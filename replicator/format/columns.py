"""Arrays with a row for each of many batches, frames or records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def bytes_at(data: Bytes, places: Numbers, size: int) -> Bytes:
    """So many bytes from each of these places on."""
    found: Bytes = np.lib.stride_tricks.sliding_window_view(data, size)[places]
    return found
