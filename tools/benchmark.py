"""Speed of the losses against their peers, forward and backward, in one run: ``python tools/benchmark.py [NAME...]``.

Times of different machines and days do not compare; ratios within one run do. Each candidate is timed in turns with the
others, so that a busy machine slows all of them alike. Results go to ``benchmarks/<name>.json``.

Peers that are not installed are left out. Some would bring a torchvision or another torch along, of which their losses
need nothing: ``pip install --no-deps --target peers libauc`` and ``PYTHONPATH=peers`` are enough for LibAUC's.
"""

import argparse
import importlib
import itertools
import json
import pickle
import platform
import statistics
import sys
import tempfile
import time
import tracemalloc
import types
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from reproductions.ap_baselines import cell_by_cell, smooth_ap_loss
from reproductions.topk_algorithms import log_summation, loss_by, with_custom_backward
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from mmseg_nondecomp import (
    ClassIndex,
    HardTopKLoss,
    LossMaxPooling,
    LovaszSoftmaxLoss,
    SMeasureLoss,
    SmoothTopKLoss,
    SoftIoULoss,
)
from mmseg_nondecomp.class_index.class_index import ImageClasses
from mmseg_nondecomp.class_index.label_map import classes_of_label_map
from mmseg_nondecomp.functional import direct_ap_loss, loss_augmented_ranking, project_tau, soft_project_tau
from mmseg_nondecomp.functional.jaccard_counts import count_decisions

Step = Callable[[], Tensor]


def main() -> None:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help=f'which of {", ".join(BENCHMARKS)} (default: all)')
    parser.add_argument('--repeats', type=int, default=30)
    parser.add_argument('--threads', type=int, default=torch.get_num_threads())
    parser.add_argument('--out', type=Path, default=Path('benchmarks'))
    args = parser.parse_args()
    unknown = set(args.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f'no benchmark is called {", ".join(unknown)}')
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or BENCHMARKS:
        report = {'metadata': metadata(args), 'results': BENCHMARKS[name](args.repeats)}
        (args.out / f'{name}.json').write_text(json.dumps(report, indent=1) + '\n')
        print(f'{name}: {args.out / f"{name}.json"}\n\n{table(report["results"])}\n')


def metadata(args: argparse.Namespace) -> dict[str, Any]:
    """What one needs to know to read the numbers."""
    return {
        'torch': torch.__version__,
        'python': platform.python_version(),
        'machine': platform.machine(),
        'device': 'cpu',
        'threads': args.threads,
        'repeats': args.repeats,
    }


def lmp(repeats: int) -> list[dict[str, Any]]:
    """Loss max-pooling against the cross-entropy it contains and against sorting, as Algorithm 1 of the paper."""
    results = []
    for shape in ((2, 19, 256, 256), (2, 19, 512, 512), (2, 19, 1024, 1024), (2, 150, 256, 256)):
        generator = torch.Generator().manual_seed(0)
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
        # Half-trained logits: losses from 1e-5 to 10.
        logits = torch.randn(shape, generator=generator) + 6 * one_hot(target, shape[1])
        logits.requires_grad_()
        pooled, peaked = LossMaxPooling(), LossMaxPooling(p=1)
        candidates: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            'cross-entropy': F.cross_entropy,
            'loss max-pooling, p=1.3': pooled,
            'loss max-pooling, p=1': peaked,
            'sorted (Algorithm 1), p=1.3': sorted_max_pooling,
        }
        steps = {name: training_step(loss, logits, target) for name, loss in candidates.items()}
        results += compare(steps, 'x'.join(map(str, shape)), logits, repeats)
        # The pooling alone, without the cross-entropy that every candidate has to compute.
        losses = F.cross_entropy(logits, target, reduction='none').detach().flatten(1)
        steps = {
            'sorted weights (Algorithm 1)': lambda losses=losses: sorted_weights(losses, 1.3, 0.25),
            'weights without a sort': lambda losses=losses: unsorted_weights(losses, 1.3, 0.25),
        }
        results += compare(steps, f'{losses.shape[0]}x{losses.shape[1]} losses', losses, repeats)
    return results


def lovasz(repeats: int) -> list[dict[str, Any]]:
    """The Lovász-Softmax loss against cross-entropy and against the implementations of other libraries."""
    results = []
    for shape in ((2, 19, 512, 512), (4, 150, 128, 128), (8, 16, 64, 64)):
        generator = torch.Generator().manual_seed(0)
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
        logits = torch.randn(shape, generator=generator) + 6 * one_hot(target, shape[1])
        logits.requires_grad_()
        candidates: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            'cross-entropy': F.cross_entropy,
            'Lovász-Softmax, 1024 bins': LovaszSoftmaxLoss(),
            'Lovász-Softmax, sorted': LovaszSoftmaxLoss(bins=None),
            'soft IoU': SoftIoULoss(),
            **lovasz_peers(),
        }
        steps = {name: training_step(loss, logits, target) for name, loss in candidates.items()}
        rows = compare(steps, 'x'.join(map(str, shape)), logits, repeats)
        # A peer may be fast and wrong. Where every pixel is given to another class with certainty, the IoU is 0.
        wrong = 100 * one_hot((target + 1) % shape[1], shape[1])
        for row, loss in zip(rows, candidates.values(), strict=True):
            is_iou = row['candidate'] != 'cross-entropy'
            row['loss where all is wrong'] = round(loss(wrong, target).item(), 3) if is_iou else ''
        results += rows
    return results


def topk(repeats: int) -> list[dict[str, Any]]:
    """The smooth top-k loss against cross-entropy and against the algorithms of its paper."""
    rows = []
    for n, k in ((100, 5), (1000, 5), (10_000, 5), (100_000, 5), (10_000, 2), (10_000, 10), (10_000, 20)):
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(256, n, generator=generator, requires_grad=True)
        target = torch.randint(0, n, (256,), generator=generator)
        candidates: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            'cross-entropy': F.cross_entropy,
            'smooth top-k': SmoothTopKLoss(k),
            'hard top-k': HardTopKLoss(k),
            **topk_peers(n, k),
        }
        steps = {name: training_step(loss, scores, target) for name, loss in candidates.items()}
        rows += compare(steps, f'256x{n}, k={k}', scores, min(repeats, max(3, 300_000 // n)))
    return rows


def topk_peers(n: int, k: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The algorithms of the paper, and the loss of difftopk where it is installed."""
    peers: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        'smooth top-k by Algorithms 1 and 2': partial(loss_by, with_custom_backward, k=k)
    }
    if n <= 1000:  # One step for each class: seconds beyond that.
        peers['smooth top-k by summation (Algorithm 3), differentiated'] = partial(loss_by, log_summation, k=k)
    return peers | difftopk_peer(n, k)


def difftopk_peer(n: int, k: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The loss of difftopk as its documentation has it, on the 16 highest scores; none where it is not installed."""
    if not find_spec('difftopk'):
        return {}
    from difftopk import TopKCrossEntropyLoss

    loss = TopKCrossEntropyLoss(
        diffsort_method='odd_even', inverse_temperature=2, p_k=[0.0] * (k - 1) + [1.0], n=n, m=16, distribution='cauchy'
    )
    return {'TopKCrossEntropyLoss of difftopk, m = 16': loss}


def ap(repeats: int) -> list[dict[str, Any]]:
    """Loss-augmented rankings against the paper's programme and against sorting, and a step of the loss."""
    rows = []

    def scores(n_pos: int, n_neg: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        pos, neg = (torch.randn(n, generator=generator).double() for n in (n_pos, n_neg))
        return (pos + 1).sort(descending=True).values, neg.sort(descending=True).values

    pos, neg = scores(128, 10_000)
    steps: dict[str, Callable[[], Any]] = {
        'cell by cell (NumPy)': lambda: cell_by_cell(pos.numpy(), neg.numpy(), -0.1),
        'negative update': lambda: loss_augmented_ranking(pos, neg, 0.1, 'negative'),
        'positive update': lambda: loss_augmented_ranking(pos, neg, 0.1),
    }
    rows += timed(steps, '128 x 10 000', min(repeats, 5))
    large_pos, large_neg = scores(512, 100_000)
    cells = torch.randn(512, 100_000, dtype=torch.float64)
    steps = {
        'cumulative sum and maximum of a table': lambda: (cells.cumsum(1), cells.cummax(1)),
        'negative update': lambda: loss_augmented_ranking(large_pos, large_neg, 0.1, 'negative'),
        'negative update, negatives on top': lambda: loss_augmented_ranking(large_pos - 9, large_neg, 0.1, 'negative'),
    }
    rows += with_memory(timed(steps, '512 x 100 000', min(repeats, 5)), steps)
    for n_neg in (10_000, 100_000, 1_000_000):
        many_pos, many_neg = scores(1000, n_neg)
        shuffled = many_neg[torch.randperm(n_neg)]
        steps = {
            'sort of the negatives': lambda x=shuffled: x.sort(descending=True),
            'positive update': lambda p=many_pos, x=shuffled: loss_augmented_ranking(p, x, 0.1),
        }
        rows += with_memory(timed(steps, f'1 000 x {n_neg:,}'.replace(',', ' '), min(repeats, 10)), steps)
    return rows + [row for n in (4096, 16_384, 65_536) for row in ap_steps(n, min(repeats, 10))]


def ap_steps(n: int, repeats: int) -> list[dict[str, Any]]:
    """A step of each loss of the average precision on n items, 2 percent of which are positives."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, generator=generator, requires_grad=True)
    target = (torch.rand(n, generator=generator) < 0.02).long()
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        'binary cross-entropy': lambda x, y: F.binary_cross_entropy_with_logits(x, y.to(x.dtype)),
        'direct AP loss, positive': direct_ap_loss,
        'direct AP loss, negative': partial(direct_ap_loss, mode='negative'),
        'smooth AP over pairs': smooth_ap_loss,
        **libauc_peer(n),
    }
    steps = {name: training_step(loss, x, target) for name, loss in losses.items()}
    return compare(steps, f'{n} items, 2 % positives', x, repeats)


def libauc_peer(n: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The average precision loss of LibAUC (SOAP) for a data set of n items; none where it is not installed."""
    if not find_spec('libauc'):
        return {}
    loss = imported_without('libauc.losses.auc', 'libauc', 'libauc.losses', 'libauc.utils').APLoss(data_len=n)
    return {'APLoss of LibAUC': lambda x, y: loss(x.sigmoid(), y, torch.arange(n))}


def s_measure(repeats: int) -> list[dict[str, Any]]:
    """Projections against a sort, S-measures of pixels against cross-entropy, and what their head adds to a step."""
    rows = []
    for dtype in (torch.float32, torch.float64):
        tau = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0)).to(dtype)
        eps = torch.tensor(1.0, dtype=dtype)
        steps: dict[str, Callable[[], Any]] = {
            'one sort of them': lambda tau=tau: tau.sort(descending=True),
            'project_tau': lambda tau=tau, eps=eps: project_tau(tau, eps),
            'soft_project_tau, temperature 0.1': lambda tau=tau, eps=eps: soft_project_tau(tau, eps, 0.1),
        }
        rows += timed(steps, f'1 000 000 τ, {str(dtype).removeprefix("torch.")}', repeats)
    binary: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        'binary cross-entropy': lambda x, y: F.binary_cross_entropy_with_logits(x, y.unsqueeze(1).to(x.dtype)),
        'F_1': stepping(SMeasureLoss()),
        'F_1, hinge': stepping(SMeasureLoss(surrogate='hinge')),
        'precision at recall 0.9': stepping(SMeasureLoss('precision_at_recall', target=0.9)),
        'area under ROC, 10 anchors': stepping(SMeasureLoss('auc_roc')),
    }
    several: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        'cross-entropy': F.cross_entropy,
        'F_1 of each class': stepping(SMeasureLoss()),
    }
    for n_channels, candidates in ((1, binary), (19, several)):
        generator = torch.Generator().manual_seed(0)
        target = torch.randint(0, max(2, n_channels), (2, 512, 512), generator=generator)
        logits = torch.randn(2, n_channels, 512, 512, generator=generator, requires_grad=True)
        steps = {name: training_step(loss, logits, target) for name, loss in candidates.items()}
        rows += compare(steps, 'x'.join(map(str, logits.shape)), logits, min(repeats, 10))
    return rows + s_measure_heads(repeats)


def stepping(loss: SMeasureLoss) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss with its own step after the last call, as in a training."""

    def value(logits: Tensor, target: Tensor) -> Tensor:
        loss.step()
        return loss(logits, target)

    return value


def s_measure_heads(repeats: int) -> list[dict[str, Any]]:
    """Whole training steps of the U-Net of LongTailShapes, and a head that regularises its features."""
    n, plain = 100_000, 'cross-entropy'
    steps = {plain: unet_step(None, False)[0]}
    steps['with F_1 of big and small images'] = unet_step(dict(type='SMeasureLoss', loss_weight=1e-2), True)[0]
    settings = dict(type='SMeasureLoss', loss_weight=1e-2, per_example=True)
    for when, ascend in (('in each iteration', True), ('once an epoch', False)):
        step, loss = unet_step(settings, ascend)
        fill_examples(loss, n)
        steps[f'with a τ for each of 100 000 images, projected {when}'] = step
    rows = timed(steps, 'a training step of the U-Net of LongTailShapes, 8x3x64x64', repeats)
    scores = torch.randn(n, dtype=torch.float64)
    once: dict[str, Callable[[], Any]] = {
        'one sort of their scores': lambda: scores.sort(descending=True),
        'all seen in one call, and the projection of an epoch': lambda: fill_examples(loss, n),
    }
    return rows + timed(once, '100 000 examples with a τ of their own', min(repeats, 5))


def fill_examples(loss: SMeasureLoss, n: int) -> None:
    """Have the loss see n examples, a tenth of them positives."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(n, generator=generator) < 0.1).long()
    loss(torch.randn(n, 1, generator=generator, requires_grad=True), target, ids=torch.arange(n))
    loss.step()


def unet_step(of_head: dict[str, Any] | None, ascend: bool) -> tuple[Callable[[], Any], Any]:
    """A training step of the stock model, with a head that has the loss of these settings; and that loss."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    import mmseg_nondecomp.heads  # noqa: F401  registers the head

    root = Path(__file__).parents[1]
    init_default_scope('mmseg')
    cfg = Config.fromfile(root / 'configs' / 'long_tail_shapes' / 'tiny-unet_ce_lts.py').model
    if of_head is not None:
        cfg.auxiliary_head = dict(
            type='SMeasureHead', in_channels=64, in_index=0, num_classes=16, group='majority', loss_decode=of_head
        )
    torch.manual_seed(0)
    model = MODELS.build(cfg).train()
    loss = None if of_head is None else model.auxiliary_head.loss_decode
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    inputs = torch.randn(8, 3, 64, 64)
    coarse = torch.randint(0, 16, (8, 1, 4, 4)).float()
    labels = F.interpolate(coarse, size=(64, 64)).long()
    samples = []
    for i, label in enumerate(labels):
        sample = SegDataSample(metainfo=dict(img_path=f'{i}.png', img_shape=(64, 64), ori_shape=(64, 64)))
        sample.gt_sem_seg = PixelData(data=label)
        samples.append(sample)

    def step() -> None:
        total, _ = model.parse_losses(model(inputs, samples, mode='loss'))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if loss is not None:
            loss.step(ascend=ascend)

    return step, loss


def metrics(repeats: int) -> list[dict[str, Any]]:
    """Evaluators on 500 label maps: MMSegmentation's, ours with torchmetrics' metrics, and these on their own."""
    from mmseg.evaluation import IoUMetric
    from torchmetrics import MetricCollection

    from mmseg_nondecomp.evaluation import TorchMetricsEvaluator
    from mmseg_nondecomp.evaluation.build import build_metrics

    count = dict(num_classes=19, ignore_index=255)
    accuracy, f_score = (
        {'type': f'torchmetrics.classification.Multiclass{x}', **count} for x in ('Accuracy', 'F1Score')
    )
    iou = dict(mIoU=dict(type='torchmetrics.classification.MulticlassJaccardIndex', **count))
    three = dict(**iou, mAcc=accuracy, aAcc=dict(average='micro', **accuracy))
    evaluators: dict[str, Any] = {
        'IoUMetric (mIoU, mAcc, aAcc)': IoUMetric(prefix='stock'),
        'TorchMetricsEvaluator: mIoU': TorchMetricsEvaluator(iou),
        'TorchMetricsEvaluator: mIoU, mAcc, aAcc': TorchMetricsEvaluator(three),
        'TorchMetricsEvaluator: these, mDice, mFscore': TorchMetricsEvaluator(
            dict(**three, mDice=f_score, mFscore=f_score)
        ),
    }
    collection = MetricCollection(build_metrics(three))
    samples = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        target = torch.randint(19, (1, 16, 32), generator=generator).repeat_interleave(32, 1).repeat_interleave(32, 2)
        samples.append(dict(pred_sem_seg=dict(data=target.roll((5, 9), (1, 2))), gt_sem_seg=dict(data=target.clone())))
        samples[-1]['gt_sem_seg']['data'][:, :20] = 255

    def process(evaluator: Any) -> Callable[[], Any]:
        images = itertools.cycle(samples)
        evaluator.dataset_meta = dict(classes=[str(c) for c in range(19)])
        return lambda: evaluator.process(None, [next(images)])

    steps = {name: process(evaluator) for name, evaluator in evaluators.items()}
    pairs = itertools.cycle((sample['pred_sem_seg']['data'], sample['gt_sem_seg']['data']) for sample in samples)
    steps['MetricCollection: mIoU, mAcc, aAcc'] = lambda: collection.update(*next(pairs))
    case = '500 images of 512x1024'
    for step in [*steps.values()] * 2:  # the first batch is validated
        step()

    def held() -> list[int]:
        stock, *others = evaluators.values()
        return [len(pickle.dumps(stock.results)), *(len(pickle.dumps(each.metric_set.state())) for each in others)]

    before = held()
    rows = timed(steps, case, 500)
    growth = [*(after - first for first, after in zip(before, held(), strict=True)), '']
    return [{**row, 'growth in bytes': bytes_more} for row, bytes_more in zip(rows, growth, strict=True)]


def sampling(repeats: int) -> list[dict[str, Any]]:
    """Counting classes against reading the labels alone, a large index, and what the IoU of training costs."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        rows += counting(Path(folder), repeats)
        rows += large_index(Path(folder), repeats)
    for shape in ((2, 19, 512, 512), (4, 150, 128, 128)):
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]))
        logits = torch.randn(shape, requires_grad=True)
        steps: dict[str, Step] = {
            'cross-entropy': training_step(F.cross_entropy, logits, target),
            'IoU of its decisions': lambda x=logits, y=target: count_decisions(x.max(1).indices, y, x.shape[1]),
        }
        rows += compare(steps, 'x'.join(map(str, shape)), logits, repeats)
    return rows


def counting(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Label maps of 512 x 1024 like those of streets: ellipses on a ground, and the same with specks."""
    import cv2
    from mmseg.datasets.transforms import LoadAnnotations

    rows = []
    for case, n_specks in (('regions', 0), ('regions with 2000 ignored specks', 2000)):
        generator = np.random.default_rng(0)
        labels = np.repeat(generator.integers(0, 19, 4), 128)[:, None].repeat(1024, 1).astype(np.uint8)
        for c in generator.integers(0, 19, 60).tolist():
            center, axes = generator.integers((0, 0), (1024, 512)), generator.integers(3, 80, 2)
            cv2.ellipse(labels, center.tolist(), axes.tolist(), 0, 0, 360, c, -1)
        labels[generator.integers(0, 512, n_specks), generator.integers(0, 1024, n_specks)] = 255
        file = str(folder / 'labels.png')
        cv2.imwrite(file, labels)
        load = LoadAnnotations()

        def read(file: str = file, load: Any = load) -> Any:
            results = dict(seg_map_path=file, reduce_zero_label=False, label_map=None, seg_fields=[])
            return load(results)['gt_seg_map']

        steps: dict[str, Callable[[], Any]] = {
            'reading (LoadAnnotations)': read,
            'reading and counting, with places': lambda read=read: classes_of_label_map(read(), 19, 255, 4),
            'reading and numpy.unique': lambda read=read: np.unique(read(), return_counts=True),
        }
        timed_rows = timed(steps, f'512x1024 {case}', max(repeats, 100))
        rows += [{**row, 'images per second': round(1e3 / row['median ms'])} for row in timed_rows]
    return rows


def large_index(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """An index of 100 000 images with 10 of 150 classes each."""
    generator = np.random.default_rng(0)
    image = ImageClasses(np.arange(0, 150, 15), generator.integers(1, 1000, 10), 2**18, generator.random((10, 4, 2)))
    file = folder / 'index.npz'
    ClassIndex.from_images([image] * 100_000, [str(c) for c in range(150)], 4).save(file)
    tracemalloc.start()
    index = ClassIndex.load(file)
    for c in index.present_classes:
        index.images_of(c)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    row = timed({'loading it': lambda: ClassIndex.load(file)}, '100 000 images', repeats)[0]
    return [{**row, 'peak MB with what sampling needs': round(peak / 1e6), 'MB on disk': file.stat().st_size // 10**6}]


def lovasz_peers() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The losses of other libraries, those that are installed."""
    peers: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    if find_spec('mmseg'):
        from mmseg.models.losses import LovaszLoss

        of_mmseg = LovaszLoss(reduction='none')
        peers['Lovász-Softmax of mmsegmentation'] = lambda x, y: of_mmseg(x, y, ignore_index=255)
    if find_spec('segmentation_models_pytorch'):
        peers['Lovász-Softmax of segmentation-models-pytorch'] = losses_of_smp().LovaszLoss('multiclass')
    if find_spec('kornia'):
        from kornia.losses import lovasz_softmax_loss

        peers['Lovász-Softmax of kornia'] = lovasz_softmax_loss
    return peers


def losses_of_smp() -> Any:
    """The losses of segmentation-models-pytorch without its encoders, which need torchvision and timm."""
    return imported_without('segmentation_models_pytorch.losses', 'segmentation_models_pytorch')


def imported_without(module: str, *packages: str) -> Any:
    """A module without what these packages, outer ones first, import when they are imported themselves."""
    for name in packages:
        if name not in sys.modules:
            spec = find_spec(name)
            package = types.ModuleType(name)
            package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations)
            sys.modules[name] = package
    return importlib.import_module(module)


def one_hot(target: Tensor, n_classes: int) -> Tensor:
    """The labels [N, *] as floats [N, C, *]."""
    return F.one_hot(target, n_classes).movedim(-1, 1).float()


def sorted_max_pooling(logits: Tensor, target: Tensor) -> Tensor:
    """Loss max-pooling by Algorithm 1 of the paper, in vectorised PyTorch: the peer that a user would write."""
    losses = F.cross_entropy(logits, target, reduction='none').flatten(1)
    return (sorted_weights(losses.detach(), 1.3, 0.25) * losses).sum(1).mean()


def sorted_weights(losses: Tensor, p: float, ratio: float) -> Tensor:
    """The maximisers of each row by sorting."""
    q = p / (p - 1)
    n = losses.shape[1]
    m = ratio * n
    ascending, _ = losses.sort(1)
    largest = ascending[:, -1:]
    powers = (ascending / largest).pow(q)
    below = powers.cumsum(1)
    count = torch.arange(1, n + 1) + (m - n)
    in_support = count * powers > below
    n_full = in_support.sum(1, keepdim=True)
    n_below = n - n_full
    alpha = largest * (below.gather(1, (n_below - 1).clamp(min=0)) / (m - n_full)).pow(1 / q)
    return n ** (-1 / q) * m ** (-1 / p) * (losses / alpha).clamp(max=1).pow(q - 1)


def unsorted_weights(losses: Tensor, p: float, ratio: float) -> Tensor:
    """The maximisers of each row as the package computes them."""
    from mmseg_nondecomp.functional.max_pooling import pooled_items, pooling_weights

    valid = torch.ones_like(losses, dtype=torch.bool)
    return pooling_weights(losses, valid, p, pooled_items(valid, ratio)).weights


def training_step(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Step:
    """Forward and backward pass down to the logits."""

    def step() -> Tensor:
        value = loss(logits, target)
        value.backward()
        logits.grad = None
        return value

    return step


def compare(steps: dict[str, Step], case: str, data: Tensor, repeats: int) -> list[dict[str, Any]]:
    """Time in milliseconds (median, interquartile range) and peak memory over that of ``data``, in turns."""
    size = data.numel() * data.element_size()
    rows = timed(steps, case, repeats)
    return [{**row, 'peak memory / input': round(peak_memory(steps[row['candidate']]) / size, 2)} for row in rows]


def timed(steps: Mapping[str, Callable[[], Any]], case: str, repeats: int) -> list[dict[str, Any]]:
    """Time in milliseconds (median, interquartile range), in turns."""
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(1e3 * (time.perf_counter() - start))
    first = next(iter(steps))
    rows = []
    for name in steps:
        low, median, high = statistics.quantiles(times[name], n=4)
        ratios = [t / reference for t, reference in zip(times[name], times[first], strict=True)]
        rows.append(
            {
                'case': case,
                'candidate': name,
                'median ms': round(median, 3),
                'IQR ms': round(high - low, 3),
                f'time against {first}': round(statistics.median(ratios), 3),
            }
        )
    return rows


def with_memory(rows: list[dict[str, Any]], steps: dict[str, Callable[[], Any]]) -> list[dict[str, Any]]:
    """The rows of candidates with the memory that they take."""
    return [{**row, 'peak MiB': round(peak_memory(steps[row['candidate']]) / 2**20, 1)} for row in rows]


def peak_memory(step: Step) -> int:
    """The most bytes that tensors allocated during a step held at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    held = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == '[memory]':
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def table(results: list[dict[str, Any]]) -> str:
    """The results in Markdown, one table for each set of columns."""
    blocks, columns = [], None
    for row in results:
        if columns != list(row):
            columns = list(row)
            blocks += ['', f'| {" | ".join(columns)} |', f'|{"---|" * len(columns)}']
        blocks.append(f'| {" | ".join(str(value) for value in row.values())} |')
    return '\n'.join(blocks).strip()


BENCHMARKS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    'ap': ap,
    'lmp': lmp,
    'lovasz': lovasz,
    'metrics': metrics,
    's-measure': s_measure,
    'sampling': sampling,
    'topk': topk,
}

if __name__ == '__main__':
    main()
