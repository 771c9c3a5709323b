"""Compare the losses of nnUNetTrainer and nnUNetTrainerMIoU: ``python tools/adapters/nnunet_volume.py``.

Generates volumes with ellipsoids of three classes in noise, plans and preprocesses them with nnU-Net v2, trains both
trainers for the same number of steps from the same seeds, and writes the IoU of each foreground class over all test
volumes, by torchmetrics, to a JSON file. The small network runs on a CPU in about a minute for 200 steps.
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
SIZE, NOISE, N_TRAIN, N_TEST, FEATURES, EPOCHS = 40, 0.8, 12, 8, (6, 12, 24, 24), 10


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


def train(name: str, seed: int, steps: int, plans: dict[str, Any], data_set: dict[str, Any]) -> Any:
    """Return a trainer after its training."""
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    trainer_class = recursive_find_trainer_class_by_name(name)
    trainer = trainer_class(plans | dict(continue_training=False), '3d_fullres', 'all', data_set, torch.device('cpu'))
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
    parser.add_argument('--out', type=Path, default=Path('benchmarks/adapters-nnunet.json'))
    args = parser.parse_args()
    if args.steps < 1 or args.seeds < 1:
        parser.error('arguments --steps and --seeds: should be positive')
    start = time.time()
    generator = np.random.default_rng(0)
    cases = [draw(generator) for _ in range(N_TRAIN + N_TEST)]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'log.txt'
        with log.open('w') as file, redirect_stdout(file):
            plans, data_set = prepare(Path(folder), cases[:N_TRAIN])
        for seed in range(args.seeds):
            for name in COMPARED:
                with log.open('a') as file, redirect_stdout(file):
                    trainer = train(name, seed, args.steps, plans, data_set)
                    of_classes = test(trainer, cases[N_TRAIN:])
                runs.append(dict(trainer=name, seed=seed, miou=round(float(np.mean(of_classes)), 2), iou=of_classes))
                print(f'{name}, seed {seed}: mean IoU {runs[-1]["miou"]} of {of_classes}', flush=True)
    packages = ('torch', 'nnunetv2', 'torchmetrics', 'numpy')
    settings = dict(steps=args.steps, seeds=args.seeds, size=SIZE, noise=NOISE, radii=RADII, train=N_TRAIN, test=N_TEST)
    settings |= dict(patch=32, batch=2, features=FEATURES, epochs=EPOCHS)
    mean = {name: float(np.mean([run['miou'] for run in runs if run['trainer'] == name])) for name in COMPARED}
    metadata = {name: version(name) for name in packages} | dict(device='cpu', seconds=round(time.time() - start))
    report = dict(
        metadata=metadata, settings=settings, mean={name: round(of, 2) for name, of in mean.items()}, runs=runs
    )
    args.out.write_text(json.dumps(report, indent=1) + '\n')
    print(json.dumps(report['mean']))


if __name__ == '__main__':
    main()
