"""Fine-tuning of a network that was trained with cross-entropy: its configs, starting networks and runs."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from comparison.job import N_POINTS, Job
from comparison.pool import train_missing
from comparison.results import N_LATE, Trained
from comparison.search import FIRST_RATES, Searched, search_rates
from comparison.statistics import class_image_iou, value_of
from mmengine.config import Config
from whole_file import whole_file

from mmseg_nondecomp.checkpoints import load_from_local

OUT = Path('work_dirs/fine-tuning')
START_ITERATIONS, ITERATIONS = 1000, 200
SEARCH_SEED = 100
OPTIONS: dict[str, Any] = {}
"""Options of all runs."""
IN_ONE_PROCESS = {
    f'{part}_dataloader.{name}': value
    for part in ('train', 'val')
    for name, value in (('num_workers', 0), ('persistent_workers', False))
}
HEAD = 'decode_head.conv_seg'
Key = TypeVar('Key')


class Data(NamedTuple):
    """Data set and its shipped configs."""

    config: str
    """Path of the config of a way."""
    classes: tuple[str, ...]
    """Classes that are told from the rest: two that occur in about half of the images and that the start finds."""
    test: dict[str, Any]
    """Options of the test images."""


DATA = {
    'LandCover': Data(
        'configs/land_cover/tiny-unet_{way}_lc.py',
        ('evergreen broadleaf forest', 'barren'),
        {'val_dataloader.dataset.split': 'test'},
    ),
    'LongTailShapes': Data(
        'configs/long_tail_shapes/tiny-unet_{way}_lts.py',
        ('columns', 'checks'),
        {'val_dataloader.dataset.split': 'test', 'val_dataloader.dataset.num_images': 120},
    ),
}


class Way(NamedTuple):
    """Loss and sampling of all classes, by the shipped configs that have them."""

    title: str
    loss: str = 'ce'
    sampling: str = 'ce'


WAYS = {
    'ce': Way('cross-entropy'),
    'ce-iou': Way('cross-entropy, sampling by IoU', sampling='lmp-iou'),
    'ce-equibatch': Way('cross-entropy, equibatch', sampling='ce-equibatch'),
    'imf': Way('inverse median frequency', 'imf'),
    'ohem': Way('online bootstrapping', 'ohem'),
    'lmp': Way('loss max-pooling', 'lmp'),
    'lmp-iou': Way('loss max-pooling, sampling by IoU', 'lmp', 'lmp-iou'),
    'lovasz': Way('Lovász-Softmax', 'lovasz'),
    'lovasz-equibatch': Way('Lovász-Softmax, equibatch', 'lovasz', 'ce-equibatch'),
    'metric': Way("metric_loss('miou')", 'metric'),
}
ONE_CLASS_LOSSES: dict[str, dict[str, Any]] = {
    'cross-entropy': dict(type='CrossEntropyLoss', use_sigmoid=True),
    'hinge': dict(type='MeanHingeLoss'),
    'Lovász hinge': dict(type='LovaszHingeLoss', scope='image'),
    'Rahman-Wang': dict(type='SoftIoULoss'),
}


class Tuning(NamedTuple):
    """Fine-tuning in a way of `WAYS`, or of one class with a loss of `ONE_CLASS_LOSSES`."""

    data: str
    way: str
    cls: str | None = None

    def config(self) -> Config:
        """Return the config, without the starting weights and the learning rate."""
        return fine_tuned(of_all_classes(self.data, WAYS[self.way]) if self.cls is None else of_one_class(*self))

    def write_config(self) -> str:
        """Write the config to a file and return its path."""
        path = OUT / 'configs' / f'{"_".join(filter(None, self))}.py'.replace(' ', '-')
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(self.config().pretty_text, encoding='utf-8')
        return str(path)


def of_all_classes(data: str, way: Way) -> Config:
    """Return the shipped config with the loss of one way and the sampling of another."""
    cfg, of_loss = (Config.fromfile(DATA[data].config.format(way=name)) for name in (way.sampling, way.loss))
    cfg.model = of_loss.model
    return cfg


def of_one_class(data: str, loss: str, cls: str) -> Config:
    """Return the config of one class against the rest. As in the paper, half of the crops show the class."""
    cfg = of_all_classes(data, Way('', sampling='ce-equibatch'))
    metainfo = dict(classes=('rest', cls), palette=[[40, 40, 40], [255, 240, 90]])
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.dataset.metainfo = metainfo
    head = cfg.model.decode_head
    head.update(num_classes=2, out_channels=1, threshold=0.5)
    head.loss_decode = dict(ONE_CLASS_LOSSES[loss])  # `update` would merge it with the other loss
    cfg.custom_imports.imports.append('reproductions.hinge_loss')
    return cfg


def fine_tuned(cfg: Config) -> Config:
    """Return a config trained as in the papers: SGD, polynomial decay of the learning rate, scale jitter."""
    optimizer = dict(type='SGD', lr=FIRST_RATES[0], momentum=0.9, weight_decay=5e-4)
    cfg.optim_wrapper = dict(type='OptimWrapper', optimizer=optimizer)
    cfg.param_scheduler = [dict(type='PolyLR', eta_min=0.0, power=0.9, begin=0, end=ITERATIONS, by_epoch=False)]
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=ITERATIONS, val_interval=ITERATIONS)
    jitter = dict(type='RandomResize', scale=(128, 128), ratio_range=(0.5, 1.5), keep_ratio=True)
    cfg.train_dataloader.dataset.pipeline.insert(2, jitter)  # after the image and its labels are loaded
    return cfg


def start_job(data: str, seed: int) -> Job:
    """Return the run of the network to start from, measured on the test images."""
    options = {'train_cfg.max_iters': START_ITERATIONS, 'param_scheduler.0.end': START_ITERATIONS}
    options |= IN_ONE_PROCESS | DATA[data].test | OPTIONS
    return Job(DATA[data].config.format(way='ce'), seed, OUT / 'start', options=options, n_points=1, n_checkpoints=1)


def start_of_one_class(start: Trained, cls: str) -> Path:
    """Write the starting weights of one class: its channel of the last layer, minus the mean of the others.

    The difference does not depend on a shift of all scores of a pixel, which leaves a softmax unchanged.
    """
    c, path = list(start['IoU']).index(cls), start.work_dir / f'{cls}.pth'
    weights = load_from_local(str(start.checkpoint), map_location='cpu')['state_dict']
    for name in (f'{HEAD}.weight', f'{HEAD}.bias'):
        others = torch.cat([weights[name][:c], weights[name][c + 1 :]])
        weights[name] = weights[name][c : c + 1] - others.mean(0, keepdim=True)
    with whole_file(path) as partial:
        torch.save({'state_dict': weights}, partial)
    return path


class Tuned(NamedTuple):
    """All runs."""

    starts: dict[str, list[Trained]]
    """Starting networks of each data set, in the order of the seeds, measured on the test images."""
    searched: dict[Tuning, Searched]
    """Learning rates, searched on the validation images."""
    runs: dict[Tuning, list[Trained]]
    """Fine-tuned networks, in the order of the seeds, measured on the test images."""


def tune(tunings: Sequence[Tuning], seeds: Sequence[int]) -> Tuned:
    """Train the starting networks, search the learning rates and fine-tune; finished runs are not repeated.

    With one class against the rest, a loss has the same learning rate for all classes.
    """
    configs = {tuning: tuning.write_config() for tuning in tunings}
    data = dict.fromkeys(tuning.data for tuning in tunings)
    starts = train({(name, seed): start_job(name, seed) for seed in (SEARCH_SEED, *seeds) for name in data})

    def job(tuning: Tuning, seed: int, rate: float, **settings: Any) -> Job:
        options = {**IN_ONE_PROCESS, **settings.pop('options', {}), **OPTIONS}
        options |= start_options(tuning, starts[tuning.data, seed])
        return Job(configs[tuning], seed, OUT, 'short', rate, options, n_checkpoints=1, **settings)

    groups: dict[Tuning, list[Tuning]] = {}
    for tuning in tunings:
        groups.setdefault(tuning._replace(cls=None), []).append(tuning)

    def search_jobs(key: Tuning, rate: float) -> list[Job]:
        return [job(tuning, SEARCH_SEED, rate, n_points=1) for tuning in groups[key]]

    searched = search_rates(groups, search_jobs, os.cpu_count() or 1, own_measure)
    jobs = {}
    for seed, tuning in itertools.product(seeds, tunings):
        rate = searched[tuning._replace(cls=None)].rate
        points = dict(first_point=N_POINTS - N_LATE + 1) if tuning.cls is None else dict(n_points=1)
        jobs[tuning, seed] = job(tuning, seed, rate, options=DATA[tuning.data].test, **points)
    runs = train(jobs)
    return Tuned(
        {name: [starts[name, seed] for seed in seeds] for name in data},
        searched,
        {tuning: [runs[tuning, seed] for seed in seeds] for tuning in tunings},
    )


def start_options(tuning: Tuning, start: Trained) -> dict[str, str]:
    """Return the options that name the starting weights and the settings of the run that they come from."""
    weights = start.checkpoint if tuning.cls is None else start_of_one_class(start, tuning.cls)
    return {'load_from': str(weights), 'started_from': start['fingerprint']}


def own_measure(trained: Trained) -> float:
    """Return the measure by which learning rates are chosen: mIoU, or the image IoU of one class against the rest."""
    return trained['mIoU'] if len(trained['IoU']) > 2 else value_of(class_image_iou, trained.areas[:, :, 1:])


def train(jobs: Mapping[Key, Job]) -> dict[Key, Trained]:
    """Return the runs of jobs."""
    results = train_missing(list(jobs.values()), os.cpu_count() or 1)
    return {key: Trained(result, job.work_dir) for (key, job), result in zip(jobs.items(), results, strict=True)}
