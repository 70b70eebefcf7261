"""A disk that is full, for one module of ours."""

import errno
import os
from typing import Any


class FullDisk:
    """The module os, on a disk that has room for nothing but small files."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, file: int, data: bytes) -> int:
        if len(data) > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(file, data)
