"""Images with objects for detectors of MMDetection."""

import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

SIZE, N_CLASSES = 64, 3


def batch(model, n_objects):
    """Return images of noise with that many objects each, which are bright in the channel of their class."""
    generator = torch.Generator().manual_seed(0)
    images, samples = [], []
    for n in n_objects:
        image = torch.randint(0, 100, (3, SIZE, SIZE), generator=generator)
        corners = torch.randint(0, SIZE // 2, (n, 2), generator=generator)
        labels = torch.randint(0, N_CLASSES, (n,), generator=generator)
        for (x, y), label in zip(corners.tolist(), labels.tolist(), strict=True):
            image[label, y : y + 28, x : x + 28] = 250
        boxes = torch.cat([corners, corners + 28], 1).float()
        sample = DetDataSample(gt_instances=InstanceData(bboxes=boxes, labels=labels))
        shape = (SIZE, SIZE)
        sample.set_metainfo(dict(img_shape=shape, ori_shape=shape, batch_input_shape=shape, scale_factor=(1.0, 1.0)))
        images.append(image.to(torch.uint8))
        samples.append(sample)
    return model.data_preprocessor(dict(inputs=images, data_samples=samples), training=True)
