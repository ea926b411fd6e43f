"""What can go wrong in `pliska.trainer.demo`.

DemoError
├── DemoUsageError       an option, or a combination of options, that cannot work
├── MissingExtraError    scikit-learn or matplotlib is not installed
├── DataFileError        a data file is missing
│   └── DataFormatError  a data file is damaged, or is not what its name says
├── ProcessError         a process of the demo could not start, or ended when it should not
├── DeadlineError        what the demo waited for did not happen in time
└── ClaimError           the run ended and a claim did not hold
"""


class DemoError(Exception):
    """Root of all errors of this package. `exit_code` is what the command ends with."""

    exit_code = 1


class DemoUsageError(DemoError, ValueError):
    """An option, or a combination of options, that cannot work."""

    exit_code = 2


class MissingExtraError(DemoError):
    """A library of the `demo` extra is not installed."""

    exit_code = 2

    def __init__(self, library: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {library}, which is not installed: pip install 'pliska[demo]'"
        )
        self.library = library


class DataFileError(DemoError):
    """A data file is missing."""

    exit_code = 3


class DataFormatError(DataFileError):
    """A data file is damaged, or is not what its name says."""

    exit_code = 5


class ProcessError(DemoError):
    """A process of the demo could not start, or ended when it should not have."""


class DeadlineError(DemoError):
    """What the demo waited for did not happen in time."""


class ClaimError(DemoError):
    """The run ended and a claim did not hold."""
