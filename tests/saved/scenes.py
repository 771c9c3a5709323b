"""Scenes of the saved work beside this file: states of losses, a training with its checkpoint, and a class index.

An earlier version wrote the files with these scenes, before its modules were rearranged. A later version has to read
them. They are not written anew when the code changes; a file is added when a version saves something else.
"""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmseg_nondecomp import (
    IoUAdaptiveSampler,
    LossMaxPooling,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    SMeasureLoss,
    SmoothTopKLoss,
    SoftIoULoss,
)

FOLDER = Path(__file__).resolve().parent
CLASSES = ('a', 'b', 'c')
SAVED_AT, END = 3, 5
CHECKPOINT, TRAINING, LOSSES = 'iter_3.pth', 'training.pth', 'losses.pth'

SETTINGS: dict[str, tuple[type, dict[str, Any]]] = {
    'Lovasz softmax, memory': (LovaszSoftmaxLoss, dict(memory=3, bins=16)),
    'Lovasz hinge, memory': (LovaszHingeLoss, dict(memory=2, bins=16)),
    'F_beta': (SMeasureLoss, dict(measure='f_beta', beta=2.0)),
    'recall at precision': (SMeasureLoss, dict(measure='recall_at_precision', target=0.7)),
    'area': (SMeasureLoss, dict(measure='auc_pr', anchors=3)),
    'F_beta per example': (SMeasureLoss, dict(measure='f_beta', per_example=True)),
    'precision at recall per example': (
        SMeasureLoss,
        dict(measure='precision_at_recall', target=0.9, per_example=True, proxy=True),
    ),
    'loss max-pooling': (LossMaxPooling, dict(class_weight=[1.0, 2.0, 0.5])),
    'soft IoU': (SoftIoULoss, dict(class_weight=[1.0, 2.0, 0.5])),
    'top-k': (SmoothTopKLoss, dict(k=2)),
}


def called(loss: torch.nn.Module, call: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the value of a call and the gradient of the scores, after a step of the variables of the loss."""
    pred = call['pred'].clone().requires_grad_()
    with_ids = {'ids': call['ids']} if getattr(loss, 'per_example', False) else {}
    value = loss(pred, call['target'], **with_ids)
    value.backward()
    if isinstance(loss, SMeasureLoss):
        loss.step()
    return torch.cat([value.detach().view(1), pred.grad.flatten()])


def copied(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: copied(value) for name, value in state.items()}
    return state.clone() if isinstance(state, torch.Tensor) else state


class Drawn:
    """Six images of three classes, with a record of the images that are read."""

    metainfo = dict(classes=CLASSES)

    def __init__(self) -> None:
        from mmengine.structures import PixelData
        from mmseg.structures import SegDataSample

        generator = torch.Generator().manual_seed(0)
        self.images = torch.randint(256, (6, 3, 16, 16), generator=generator, dtype=torch.uint8)
        labels = torch.randint(2, (6, 1, 16, 16), generator=generator)
        labels[:2, :, 5:] = 2
        labels[:, :, 0] = 255
        meta = dict(img_shape=(16, 16), ori_shape=(16, 16))
        self.samples = [SegDataSample(gt_sem_seg=PixelData(data=one), metainfo=meta) for one in labels]
        self.drawn: list[int] = []

    def __len__(self) -> int:
        return 6

    def __getitem__(self, image: int) -> dict[str, Any]:
        self.drawn.append(int(image))
        return dict(inputs=self.images[image], data_samples=self.samples[image])

    def get_cat_ids(self, image: int) -> list[int]:
        return [0, 1, 2] if image < 2 else [0, 1]


NORM = dict(norm_cfg=dict(type='BN'))
ONE_STAGE = dict(downsamples=(True,), dec_num_convs=(1,), dec_dilations=(1,))
TWO_STAGES = dict(num_stages=2, strides=(1, 1), enc_num_convs=(1, 1), enc_dilations=(1, 1))
LOVASZ = dict(type='LovaszSoftmaxLoss', memory=2, bins=16)
S_MEASURE = dict(type='SMeasureLoss', per_example=False, loss_weight=0.1)
MODEL = dict(
    type='mmseg.EncoderDecoder',
    data_preprocessor=dict(type='mmseg.SegDataPreProcessor', mean=[127.5] * 3, std=[127.5] * 3, size=(16, 16)),
    backbone=dict(type='mmseg.UNet', base_channels=4, **ONE_STAGE, **TWO_STAGES, **NORM),
    decode_head=dict(
        **dict(type='mmseg.FCNHead', in_channels=4, channels=4, num_convs=1, concat_input=False, num_classes=3, **NORM),
        **dict(dropout_ratio=0, loss_decode=[LOVASZ, S_MEASURE]),
    ),
    test_cfg=dict(mode='whole'),
)


def trained(folder: Path, checkpoint: Path | None = None) -> dict[str, Any]:
    """Return the losses, images and states of a training from ``SAVED_AT`` on, from scratch or from a checkpoint."""
    from mmengine.dataset import pseudo_collate
    from mmengine.hooks import Hook
    from mmengine.runner import Runner
    from mmseg.utils import register_all_modules
    from torch.utils.data import DataLoader

    class Shown(Hook):
        def __init__(self) -> None:
            self.losses: list[dict[str, float]] = []

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            self.losses.append({name: torch.as_tensor(value).item() for name, value in outputs.items()})

    register_all_modules(init_default_scope=True)
    data, shown = Drawn(), Shown()
    sampler = IoUAdaptiveSampler(data, seed=0)
    runner = Runner(
        model=copy.deepcopy(MODEL),
        work_dir=str(folder),
        train_dataloader=DataLoader(data, batch_size=2, sampler=sampler, collate_fn=pseudo_collate),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=END),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.05, momentum=0.9)),
        param_scheduler=dict(type='PolyLR', by_epoch=False, begin=0, end=END),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=SAVED_AT)),
        custom_hooks=[dict(type='TrainIoUHook', interval=1), shown],
        load_from=None if checkpoint is None else str(checkpoint),
        resume=checkpoint is not None,
        randomness=dict(seed=0),
        default_scope='mmseg',
        experiment_name='saved',
        log_level='ERROR',
    )
    runner.train()
    iou = runner.message_hub.get_info('mmseg_nondecomp/train_iou')
    # Stock MMEngine leads a resumed training through the images that it has seen.
    return dict(
        losses=shown.losses[SAVED_AT - END :],
        drawn=data.drawn[2 * (SAVED_AT - END) :],
        counts=iou['counts'],
        sampler=iou['samplers'][0],
        weights=copied(dict(runner.model.state_dict())),
    )


class LabelMaps:
    """A data set of label maps on a server, which a cached class index does not access."""

    metainfo = dict(classes=CLASSES)
    label_map = None
    reduce_zero_label = False
    ignore_index = 255
    backend_args = dict(backend='petrel')  # Nothing is asked of a file on it but its name.

    def __init__(self, load: Any) -> None:
        self.pipeline = self
        self.transforms = [load]

    def __len__(self) -> int:
        return 3

    def get_data_info(self, image: int) -> dict[str, Any]:
        return dict(seg_map_path=f'/labels/{image}.png', number=image)


class LoadAnnotations:
    def __call__(self, info: dict[str, Any]) -> dict[str, Any]:
        """Draw two classes in each image, with some ignored pixels."""
        labels = np.full((8, 8), 255, np.uint8)
        labels[2:], labels[6:] = info['number'], (info['number'] + 1) % 3
        return dict(gt_seg_map=labels)


LoadAnnotations.__module__ = 'saved'  # It is a part of the file's name.
