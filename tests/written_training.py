"""The files of a finished training, in the form that tools/compare.py reads."""

import numpy as np
from comparison.results import Trained
from comparison.watch import LAST, PICTURES


def write_training(folder, areas, classes, result, config):
    """Write a training, with its `areas` (intersections, unions and labelled pixels, which may be missing) and config.

    The shape of `areas` is [images, 2 or 3, classes].
    """
    folder.mkdir(parents=True)
    areas = np.asarray(areas, float)
    n_images, pixels, index = len(areas), areas[:, 1].sum(0), 100 * areas[:, 0].sum(0) / areas[:, 1].sum(0)
    by_image = 100 * np.mean([np.mean([i / u for i, u in zip(*image[:2], strict=True) if u]) for image in areas])
    pictures = np.random.default_rng(n_images).integers(0, len(classes), (n_images, 8, 8, 5), np.uint8)
    palette = np.array([[10, 20, 30], [200, 100, 0]], np.uint8)
    shown = dict(gallery=np.arange(n_images), thumbnails=pictures, shown=np.arange(min(2, n_images)), palette=palette)
    np.savez(folder / LAST, areas=areas, pixels=pixels, **shown)
    np.savez(folder / PICTURES, **{'5': pictures[:2, :, :, 4], '10': pictures[:2, :, :, 3]})
    (folder / result['config']).write_text(config, errors='replace')
    measured = {
        **dict(schedule='short', seed=0, lr=None, starts=1, iterations=10, seconds=3.0),
        'mIoU': float(index.mean()),
        'image mIoU': float(by_image),
        'IoU': dict(zip(classes, index.tolist(), strict=True)),
        'pixels': dict(zip(classes, pixels.tolist(), strict=True)),
        'curve': [{'iteration': i, 'data set': 5.0 * i, 'image': 4.0 * i} for i in (5, 10)],
    }
    return Trained(measured | result, folder)
