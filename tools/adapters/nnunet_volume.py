"""Compare the losses of nnUNetTrainer and nnUNetTrainerMIoU: ``python tools/adapters/nnunet_volume.py``.

Generates volumes with ellipsoids of three classes in noise, plans and preprocesses them with nnU-Net v2, and trains
both trainers for the same number of steps. The learning rate of each is the best one of a list on validation volumes,
with a seed of its own. Writes the mean IoU of the foreground classes over all test volumes, by torchmetrics, to a JSON
file. The small network runs on a CPU in about a minute for 200 steps.
"""

import argparse
import json
import os
import random
import tempfile
import time
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchmetrics.classification import MulticlassJaccardIndex

from mmseg_nondecomp.adapters.nnunet import TRAINERS

NAME = 'Dataset001_Ellipsoids'
COMPARED = ('nnUNetTrainer', 'nnUNetTrainerMIoU')
RADII = {1: (8, 11), 2: (3, 5), 3: (1.2, 2)}
"""Range of the semi-axes of each class, in voxels."""
SIZE, NOISE, N_TRAIN, N_VALIDATION, N_TEST, FEATURES, EPOCHS = 40, 0.8, 12, 6, 8, (6, 12, 24, 24), 10
LEARNING_RATES = (0.003, 0.01, 0.03, 0.1)
SEED_OF_VALIDATION = 100


def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return an image and its labels: one large, two middle and three small ellipsoids, brighter where smaller."""
    label = np.zeros((SIZE,) * 3, np.uint8)
    grid = np.stack(np.meshgrid(*[np.arange(SIZE)] * 3, indexing='ij'), -1)
    for number, (low, high) in RADII.items():
        for _ in range(number):
            axes = generator.uniform(low, high, 3)
            centre = generator.uniform(high, SIZE - high, 3)
            label[(((grid - centre) / axes) ** 2).sum(-1) <= 1] = number
    image = label + NOISE * generator.standard_normal(label.shape)
    return image.astype(np.float32), label


def write_data_set(folder: Path, cases: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Write training cases in the layout of nnU-Net."""
    import SimpleITK

    for name in ('imagesTr', 'labelsTr'):
        (folder / name).mkdir(parents=True)
    for number, (image, label) in enumerate(cases):
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(image), folder / 'imagesTr' / f'c{number:02}_0000.nii.gz')
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(label), folder / 'labelsTr' / f'c{number:02}.nii.gz')
    labels = dict(background=0, large=1, middle=2, small=3)
    description = dict(channel_names={'0': 'x'}, labels=labels, numTraining=len(cases), file_ending='.nii.gz')
    (folder / 'dataset.json').write_text(json.dumps(description))


def prepare(root: Path, cases: list[tuple[np.ndarray, np.ndarray]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan and preprocess the cases; return the plans, with a small network, and the description of the data set."""
    for name in ('raw', 'preprocessed', 'results'):
        os.environ[f'nnUNet_{name}'] = str(root / name)
    os.environ |= dict(nnUNet_extTrainer=str(TRAINERS), nnUNet_def_n_proc='1', nnUNet_n_proc_DA='1')
    from nnunetv2.experiment_planning import plan_and_preprocess_api as api

    write_data_set(root / 'raw' / NAME, cases)
    api.extract_fingerprints([1], num_processes=1, show_progress_bar=False)
    api.plan_experiments([1])
    folder = root / 'preprocessed' / NAME
    plans = json.loads((folder / 'nnUNetPlans.json').read_text())
    settings = plans['configurations']['3d_fullres']
    stages = len(FEATURES)
    settings |= dict(patch_size=[32] * 3, batch_size=2)
    settings['architecture']['arch_kwargs'] |= dict(
        n_stages=stages,
        features_per_stage=FEATURES,
        kernel_sizes=[[3] * 3] * stages,
        strides=[[1] * 3] + [[2] * 3] * (stages - 1),
        n_conv_per_stage=[1] * stages,
        n_conv_per_stage_decoder=[1] * (stages - 1),
    )
    (folder / 'nnUNetPlans.json').write_text(json.dumps(plans))
    api.preprocess([1], configurations=['3d_fullres'], num_processes=[1], show_progress_bar=False)
    os.environ |= dict(nnUNet_n_proc_DA='0')  # augmentation in this process, so that seeds determine it
    return plans, json.loads((folder / 'dataset.json').read_text())


def train(name: str, rate: float, seed: int, steps: int, plans: dict[str, Any], data_set: dict[str, Any]) -> Any:
    """Return a trainer after its training."""
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    trainer_class = recursive_find_trainer_class_by_name(name)
    trainer = trainer_class(plans | dict(continue_training=False), '3d_fullres', 'all', data_set, torch.device('cpu'))
    trainer.initial_lr = rate
    trainer.num_epochs = min(EPOCHS, steps)
    trainer.num_iterations_per_epoch = steps // trainer.num_epochs
    trainer.num_val_iterations_per_epoch = 1
    trainer.disable_checkpointing = True
    trainer.run_training()
    return trainer


def test(trainer: Any, cases: list[tuple[np.ndarray, np.ndarray]]) -> list[float]:
    """Return the IoU of each foreground class over all test volumes, as a percentage."""
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    trainer.set_deep_supervision_enabled(False)
    predictor = nnUNetPredictor(
        device=trainer.device, perform_everything_on_device=False, use_mirroring=False, allow_tqdm=False
    )
    predictor.manual_initialization(
        trainer.network,
        trainer.plans_manager,
        trainer.configuration_manager,
        [trainer.network.state_dict()],
        trainer.dataset_json,
        type(trainer).__name__,
        None,
    )
    index = MulticlassJaccardIndex(len(RADII) + 1, average='none')
    for image, label in cases:
        predicted = predictor.predict_single_npy_array(image[None], dict(spacing=[1, 1, 1]), None, None, False)
        index.update(torch.as_tensor(predicted.astype(np.int64)), torch.as_tensor(label.astype(np.int64)))
    return [round(100 * value, 2) for value in index.compute()[1:].tolist()]


def main() -> None:
    """Train and test both trainers with each seed; write and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--steps', type=int, default=200)
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds')
    parser.add_argument('--out', type=Path, default=Path('benchmarks/trainings/nnunet.json'))
    args = parser.parse_args()
    if args.steps < 1 or args.seeds < 1:
        parser.error('arguments --steps and --seeds: should be positive')
    start, table = time.time(), []
    generator = np.random.default_rng(0)
    cases = [draw(generator) for _ in range(N_TRAIN + N_VALIDATION + N_TEST)]
    training, validation, tests = cases[:N_TRAIN], cases[N_TRAIN:-N_TEST], cases[-N_TEST:]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'log.txt'
        with log.open('w') as file, redirect_stdout(file):
            plans, data_set = prepare(Path(folder), training)

        def run(name: str, rate: float, seed: int, volumes: list[tuple[np.ndarray, np.ndarray]]) -> float:
            with log.open('a') as file, redirect_stdout(file):
                of_classes = test(train(name, rate, seed, args.steps, plans, data_set), volumes)
            print(f'{time.time() - start:.0f} s: {name}, rate {rate}, seed {seed}: {of_classes}', flush=True)
            return round(float(np.mean(of_classes)), 2)

        for name in COMPARED:
            found = {rate: run(name, rate, SEED_OF_VALIDATION, validation) for rate in LEARNING_RATES}
            best = max(found, key=found.__getitem__)
            values = [run(name, best, seed, tests) for seed in range(args.seeds)]
            of_rates = ', '.join(f'{rate:g}: {value:.1f}' for rate, value in found.items())
            row = {'trainer': name, 'validation, by learning rate': of_rates, 'learning rate': f'{best:g}'}
            row |= {f'seed {seed}': f'{value:.1f}' for seed, value in enumerate(values)}
            table.append(row | {'mean IoU': f'{np.mean(values):.1f}'})
    packages = ('torch', 'nnunetv2', 'torchmetrics', 'numpy')
    metadata = {name: version(name) for name in packages} | dict(device='cpu', seconds=round(time.time() - start))
    settings = dict(steps=args.steps, size=SIZE, noise=NOISE, radii=RADII, patch=32, batch=2, features=FEATURES)
    settings |= dict(volumes=[N_TRAIN, N_VALIDATION, N_TEST], epochs=EPOCHS, measure='mean IoU of three classes, %')
    args.out.write_text(json.dumps(dict(metadata=metadata, settings=settings, table=table), indent=1) + '\n')


if __name__ == '__main__':
    main()
