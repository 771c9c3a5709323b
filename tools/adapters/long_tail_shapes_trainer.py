"""Train a small SegFormer on LongTailShapes by Trainer, with cross-entropy and with the loss of mIoU; compare mIoU.

The learning rate of each loss is the best one of a list on validation images, with seeds of its own; the table has the
mIoU on test images. Needs transformers, accelerate and torchmetrics, and not OpenMMLab::

    python tools/adapters/long_tail_shapes_trainer.py --out benchmarks/trainings/transformers.json
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
import torchmetrics
import transformers
from torch.nn import functional as F
from torchmetrics.classification import MulticlassJaccardIndex

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mmseg_nondecomp.adapters.transformers import TrainerLoss  # noqa: E402

LOSSES = {'cross-entropy': None, "metric_loss('miou')": 'miou'}
LEARNING_RATES = [1e-3, 3e-3, 1e-2, 3e-2]
FIRST_SEED_OF_VALIDATION = 100
SIZE, BATCH = 64, 8


def scene_drawing() -> tuple[Any, tuple[str, ...]]:
    """Return the function that draws scenes, and the classes, without the data sets beside it, which need MMEngine."""
    package = ModuleType('mmseg_nondecomp.datasets')
    package.__path__ = [str(ROOT / 'mmseg_nondecomp' / 'datasets')]
    sys.modules.setdefault(package.__name__, package)
    from mmseg_nondecomp.datasets._catalogue import CLASSES
    from mmseg_nondecomp.datasets._scene import draw_scene

    return draw_scene, CLASSES


def draw(split: str, indices: range) -> list[dict[str, torch.Tensor]]:
    """Return scenes as items of a data set for Trainer."""
    draw_scene, _ = scene_drawing()
    items = []
    for index in indices:
        scene = draw_scene(0, split, index, SIZE)
        image = torch.from_numpy(scene.image).permute(2, 0, 1) / 127.5 - 1
        items.append(dict(pixel_values=image, labels=torch.from_numpy(scene.label).long()))
    return items


def build(n_classes: int) -> transformers.SegformerForSemanticSegmentation:
    """Return a SegFormer with random weights whose logits have half the size of the image."""
    config = transformers.SegformerConfig(
        num_labels=n_classes,
        depths=[1] * 4,
        hidden_sizes=[16, 32, 48, 64],
        num_attention_heads=[1, 2, 3, 4],
        strides=[2, 2, 2, 2],
        mlp_ratios=[2] * 4,
        decoder_hidden_size=32,
        drop_path_rate=0.0,
        classifier_dropout_prob=0.0,
    )
    return transformers.SegformerForSemanticSegmentation(config)


def train(loss: str | None, rate: float, seed: int, steps: int, data: list[dict[str, torch.Tensor]]) -> torch.nn.Module:
    """Return a model after a training with Trainer; without a loss, it is that of the model."""
    transformers.set_seed(seed)
    model = build(len(scene_drawing()[1]))
    with TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=rate,
            lr_scheduler_type='linear',
            warmup_steps=steps // 10,
            seed=seed,
            use_cpu=True,
            save_strategy='no',
            logging_strategy='no',
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        function = None if loss is None else TrainerLoss(loss, config=model.config)
        trainer = transformers.Trainer(model, arguments, train_dataset=data, compute_loss_func=function)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return model


@torch.no_grad()
def mean_iou(model: torch.nn.Module, data: list[dict[str, torch.Tensor]]) -> float:
    """Return the mIoU of a model on a data set, in percent."""
    index = MulticlassJaccardIndex(model.config.num_labels, ignore_index=255)
    for start in range(0, len(data), BATCH):
        images, labels = (torch.stack([each[key] for each in data[start : start + BATCH]]) for key in data[0])
        logits = F.interpolate(model.eval()(images).logits, labels.shape[-2:], mode='bilinear', align_corners=False)
        index.update(logits.argmax(1), labels)
    return round(100 * index.compute().item(), 2)


def main() -> None:
    """Choose learning rates, train with each seed, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--steps', type=int, default=200)
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds of the table')
    parser.add_argument('--images', type=int, default=240, help='number of images of training; half as many for tests')
    parser.add_argument('--out', type=Path, default=ROOT / 'benchmarks' / 'trainings' / 'transformers.json')
    args = parser.parse_args()
    torch.set_num_threads(1)
    half = max(1, args.images // 2)
    training, validation = draw('train', range(args.images)), draw('val', range(half))
    test = draw('val', range(half, 2 * half))
    start, table = time.monotonic(), []
    for name, loss in LOSSES.items():

        def run(rate: float, seed: int, data: list[Any], name: str = name, loss: str | None = loss) -> float:
            value = mean_iou(train(loss, rate, seed, args.steps, training), data)
            print(f'{time.monotonic() - start:.0f} s: {name}, rate {rate}, seed {seed}: {value}', flush=True)
            return value

        seeds = range(FIRST_SEED_OF_VALIDATION, FIRST_SEED_OF_VALIDATION + (args.seeds + 1) // 2)
        found = {rate: round(mean(run(rate, seed, validation) for seed in seeds), 2) for rate in LEARNING_RATES}
        best = max(LEARNING_RATES, key=found.__getitem__)
        values = [run(best, seed, test) for seed in range(args.seeds)]
        of_rates = ', '.join(f'{rate:g}: {value:.1f}' for rate, value in found.items())
        row = {'loss': name, 'validation, by learning rate': of_rates, 'learning rate': f'{best:g}'}
        row |= {f'seed {seed}': f'{value:.1f}' for seed, value in enumerate(values)}
        table.append(row | {'mIoU': f'{mean(values):.1f}'})
    versions = {each.__name__: each.__version__ for each in (torch, transformers, torchmetrics)}
    settings = dict(steps=args.steps, seeds=args.seeds, images=args.images, size=SIZE, batch=BATCH)
    settings |= dict(
        learning_rates=LEARNING_RATES, validation_seeds=list(seeds), measure='mIoU in percent, test images'
    )
    result = dict(versions=versions | dict(python=platform.python_version()), settings=settings, table=table)
    args.out.write_text(json.dumps(result, indent=1) + '\n')


if __name__ == '__main__':
    main()
