"""Calls about files of a rank's host: read-files and write-files. They are a tar archive on the output or the input."""

from taco_launch.core.protocol.calls import Request, check_counts


class _Files(Request):
    name: str
    rank: int
    # absolute, or from the folder of the rank on
    path: str
    # how many bytes the archive may have
    most: int

    def check(self) -> None:
        """Check that the limit is one, and that the path is."""
        check_counts(most=self.most)
        if not self.path or "\0" in self.path:
            raise ValueError(f"path is {self.path!r:.80}")


class ReadFiles(_Files):
    """Return a file or a folder of a rank's host as an archive. Replies: Output, whose "err" are messages, and Exited."""

    op = "read-files"
    takes_input = True
    name: str
    rank: int
    path: str
    most: int


class WriteFiles(_Files):
    """Write a file or a folder of a rank's host out of an archive in the input. Replies as of ReadFiles."""

    op = "write-files"
    takes_input = True
    name: str
    rank: int
    path: str
    most: int
