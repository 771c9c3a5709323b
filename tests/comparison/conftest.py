import numpy as np
import pytest
from comparison.results import Trained
from comparison.watch import LAST, PICTURES


@pytest.fixture
def write_training(tmp_path):
    """Write the files of a finished training, in the form that tools/compare.py reads."""

    def write(name, seed, areas, schedule='short', classes=('sky', 'bird'), lr=None):
        """Write a training whose `areas` are intersections and unions [images, 2, classes]."""
        areas = np.asarray(areas, float)
        n_images = len(areas)
        folder = tmp_path / schedule / name / f'seed{seed}'
        folder.mkdir(parents=True)
        index = 100 * areas[:, 0].sum(0) / areas[:, 1].sum(0)
        by_image = 100 * np.mean([np.mean([i / u for i, u in zip(*image, strict=True) if u]) for image in areas])
        pictures = np.random.default_rng(seed).integers(0, len(classes), (n_images, 8, 8, 5), np.uint8)
        np.savez(
            folder / LAST,
            areas=areas,
            pixels=areas[:, 1].sum(0),
            gallery=np.arange(n_images),
            thumbnails=pictures,
            shown=np.arange(min(2, n_images)),
            palette=np.array([[10, 20, 30], [200, 100, 0]], np.uint8),
        )
        np.savez(folder / PICTURES, **{'5': pictures[:2, :, :, 4], '10': pictures[:2, :, :, 3]})
        config = f'{name}.py'
        (folder / config).write_text(f"# {name}\nmodel = dict(type='<script>alert(1)</script>')\n")
        result = {
            'config': config,
            'name': name,
            'schedule': schedule,
            'seed': seed,
            'lr': lr,
            'starts': 1,
            'iterations': 10,
            'seconds': 3.0,
            'mIoU': float(index.mean()),
            'image mIoU': float(by_image),
            'IoU': dict(zip(classes, index.tolist(), strict=True)),
            'pixels': dict(zip(classes, areas[:, 1].sum(0).tolist(), strict=True)),
            'curve': [{'iteration': i, 'data set': 5.0 * i, 'image': 4.0 * i} for i in (5, 10)],
        }
        return Trained(result, folder)

    return write
