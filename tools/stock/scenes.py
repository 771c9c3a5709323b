"""Random images with labels, boxes and masks."""

from typing import Any

import numpy as np
import torch
from mmengine.structures import InstanceData, PixelData
from torch import Tensor, nn

from stock.catalogue import StockModel
from stock.losses import IGNORED
from stock.shrinking import side_of

N_OBJECTS = (3, 2)
"""Number of objects of each image."""


def scene(stock: StockModel, model: nn.Module, n_classes: int, *, training: bool, ignored: bool) -> dict[str, Any]:
    """Return a mini-batch as the model takes it; in segmentation with or without ignored pixels."""
    generator, side = torch.Generator().manual_seed(1), side_of(stock)
    if 'Track' in type(model.data_preprocessor).__name__:
        data = _videos(n_classes, side, generator, n_videos=2 if training else 1)
    else:
        annotated = {'mmseg': _labelled_pixels, 'mmdet': _objects}[stock.toolbox]
        images = [_image(side, generator) for _ in N_OBJECTS]
        samples = [annotated(n, n_classes, side, generator) for n in N_OBJECTS]
        for sample in samples:
            _remove_unread(stock, sample)
            if stock.toolbox == 'mmseg' and not ignored:
                sample.gt_sem_seg.data[sample.gt_sem_seg.data == IGNORED] = 0
        data = dict(inputs=images, data_samples=samples)
    return model.data_preprocessor(data, training)


def _remove_unread(stock: StockModel, sample: Any) -> None:
    """Remove annotations that the pipeline of the model does not load, where the model would read them."""
    if any(head.startswith('rpn_head=') for head in stock.heads):
        del sample.proposals
    if 'bbox_head=RTMDetSepBNHead' in stock.heads:
        sample.gt_instances.pop('masks')


def _image(side: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (3, side, side), generator=generator).to(torch.uint8)


def _meta(side: int) -> dict[str, Any]:
    """Return what the loading of an image adds to its sample."""
    shapes = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'), (side, side))
    return dict(shapes, scale_factor=(1.0, 1.0), flip=False, img_path='', border=(0, side, 0, side), frame_id=0)


def _blocks(n_classes: int, side: int, generator: torch.Generator) -> Tensor:
    """Return labels in blocks of 8 pixels, with a column of ignored pixels; of more than 2 classes, one is missing."""
    n, missing = -(-side // 8), int(torch.randint(0, n_classes, (), generator=generator))
    coarse = torch.randint(0, n_classes, (n, n), generator=generator)
    if n_classes > 2:
        coarse[coarse == missing] = (missing + 1) % n_classes
    label = coarse.repeat_interleave(8, 0).repeat_interleave(8, 1)[:side, :side].clone()
    label[:, :4] = IGNORED
    return label


def _labelled_pixels(_: int, n_classes: int, side: int, generator: torch.Generator) -> Any:
    from mmseg.structures import SegDataSample

    label = _blocks(n_classes, side, generator)[None]
    edge = torch.zeros_like(label)
    edge[:, 7::8] = edge[:, :, 7::8] = 1
    sample = SegDataSample(gt_sem_seg=PixelData(data=label), gt_edge_map=PixelData(data=edge))
    sample.set_metainfo(_meta(side))
    return sample


def _objects(n_objects: int, n_classes: int, side: int, generator: torch.Generator) -> Any:
    """Return boxes with classes and masks, the same as proposals, and pixels of things and of one class of stuff."""
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    corners = torch.randint(0, side // 2, (n_objects, 2), generator=generator)
    sides = torch.randint(side // 3, side // 2, (n_objects, 2), generator=generator)
    labels = torch.randint(0, n_classes, (n_objects,), generator=generator)
    boxes = torch.cat([corners, corners + sides], 1)
    masks = np.zeros((n_objects, side, side), np.uint8)
    semantic = torch.full((1, side, side), IGNORED)
    semantic[:, side // 2 :] = n_classes
    for mask, label, (x1, y1, x2, y2) in zip(masks, labels, boxes.tolist(), strict=True):
        mask[y1:y2, x1:x2] = 1
        semantic[:, y1:y2, x1:x2] = label
    kept = dict(masks=BitmapMasks(masks, side, side), instances_ids=torch.arange(n_objects))
    sample = DetDataSample(
        gt_instances=InstanceData(bboxes=boxes.float(), labels=labels, **kept),
        ignored_instances=InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long)),
        proposals=InstanceData(bboxes=boxes.float() + 2, scores=torch.ones(n_objects)),
        gt_sem_seg=PixelData(sem_seg=semantic),
    )
    sample.set_metainfo(_meta(side))
    return sample


def _videos(n_classes: int, side: int, generator: torch.Generator, n_videos: int) -> dict[str, Any]:
    """Return videos of two frames with the same objects."""
    from mmdet.structures import TrackDataSample

    inputs, samples = [], []
    for n_objects in N_OBJECTS[:n_videos]:
        inputs.append(torch.stack([_image(side, generator)] * 2))
        first = _objects(n_objects, n_classes, side, generator)
        second = first.clone()
        second.set_metainfo(dict(frame_id=1))
        metainfo = dict(key_frames_inds=[0], ref_frames_inds=[1], ori_video_length=2)
        sample = TrackDataSample(video_data_samples=[first, second])
        sample.set_metainfo(metainfo)
        samples.append(sample)
    return dict(inputs=inputs, data_samples=samples)
