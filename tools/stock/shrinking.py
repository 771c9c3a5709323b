"""Tiny versions of stock models: widths divided by 8, few layers, queries and classes, no pretrained weights."""

from collections.abc import Callable
from typing import Any

from mmengine.config import ConfigDict

from stock.catalogue import StockModel, model_of

SCALE = 8
"""Divisor of all widths."""
SIDE = 64
"""Height and width of the images."""
SIDES = {'ddod': 384, 'mobilenet_v3': 416, 'ssd': 300}
"""The same of models that need larger images: for their levels, their pooling, their backbone."""
N_CLASSES = {'mmseg': 4, 'mmdet': 3}

WIDTHS = ('channels', 'channel', 'embed_dims', 'embed_dim', 'num_feats', 'out_dims', 'output_dims', 'filters')
"""Ends of the keys of widths."""
DIVIDED = ('num_groups', 'channel_per_group')
REMOVED = ('init_cfg', 'checkpoint', 'pretrained', 'teacher_ckpt', 'teacher_config', 'batch_augments', 'detector_ckpt')
CONSTANTS = {
    'stacked_convs': 1,
    'num_proposals': 10,
    'num_queries': 12,
    'num_matching_queries': 12,
    'num_things_classes': N_CLASSES['mmdet'],
    'img_size': (SIDE, SIDE),
    'pretrain_img_size': SIDE,
    'max_per_img': 10,
    'max_per_image': 10,
    'nms_pre': 100,
    'with_cp': False,
    'use_torchvision': False,
    'stage_channels': (32, 32, 48),
    'stage_blocks': (1, 1, 1),
    'downsample_times': 2,
    'num_points': 64,
    'sos_token_num': 12,
}
"""Values that replace any other; ``num_points`` where it counts points of masks, not those of an object."""
FIXED = {
    *('BiSeNetV2', 'CGNet', 'Darknet', 'ERFNet', 'FastSCNN', 'MobileNetV2', 'MobileNetV3', 'STDCContextPathNet'),
    *('SSDVGG', 'EfficientNet'),
}
"""Backbones whose widths are not those of the config: neither they nor their heads are scaled."""
RESNETS = {'ResNet', 'ResNetV1c', 'ResNetV1d', 'ResNeSt', 'TridentResNet', 'DetectoRS_ResNet', 'ResNeXt'}
OF_ONE_WIDTH = {'ConditionalDETR', 'DINO'}
"""Detectors whose positional encoding has 256 channels, whatever the config says."""
SIGNATURES = {
    **{f'{name}Head': dict(embed_dims=32) for name in ('DABDETR', 'DDQDETR', 'DETR', 'DeformableDETR')},
    'HourglassNet': dict(feat_channel=32),
    'QuasiDenseEmbedHead': dict(in_channels=32, conv_out_channels=32),
}
"""Widths that stock configs leave at their default."""


def shrunk(stock: StockModel) -> ConfigDict:
    """Return the tiny version of a stock model."""
    model = model_of(stock.toolbox, stock.config)
    fixed = (
        model.type in OF_ONE_WIDTH
        or model.get('backbone', {}).get('type') in FIXED
        or 'shared_head' in model.get('roi_head', {})
    )
    small = _walk('', model, 1 if fixed else SCALE, n_classes_of(stock))
    if stock.toolbox == 'mmseg':
        _predict_whole_images(small, side_of(stock))
    if small.get('backbone', {}).get('type', '').startswith('mmpretrain.'):
        _replace_backbone(small)
    for part in _parts(small):
        if part['type'] in SPECIAL and not (fixed and part['type'] in RESNETS):
            SPECIAL[part['type']](part)
    if model.type in WHOLE:
        WHOLE[model.type](small)
    return small


def n_classes_of(stock: StockModel) -> int:
    """Return the number of classes of the tiny model."""
    return 1 if stock.folder == 'crowddet' else N_CLASSES[stock.toolbox]


def side_of(stock: StockModel) -> int:
    """Return the height and width of the images for a model."""
    return SIDES.get(stock.folder, SIDE)


def _parts(config: Any) -> list[ConfigDict]:
    """Return the parts of a model that are built, outermost first."""
    if isinstance(config, dict):
        return ([config] if 'type' in config else []) + [part for value in config.values() for part in _parts(value)]
    return [part for value in config for part in _parts(value)] if isinstance(config, (list, tuple)) else []


def _walk(key: str, value: Any, scale: int, n_classes: int) -> Any:
    """Return a part of a config with small numbers."""
    if key in CONSTANTS and value is not None and not (key == 'num_points' and value < 100):
        return CONSTANTS[key]
    if isinstance(value, dict):
        found = ConfigDict({k: _walk(k, v, scale, n_classes) for k, v in value.items() if k not in REMOVED})
        if found.get('type') == 'SyncBN':
            found.type = 'BN'
        if isinstance(found.get('class_weight'), list):
            if found.class_weight[-1] == 0.1:
                found.class_weight = [1.0] * n_classes + [0.1]
            else:  # stock cross-entropy with weights takes ignored labels for classes
                del found['class_weight']
        return found
    if isinstance(value, (list, tuple)):
        return type(value)(_walk(key, part, scale, n_classes) for part in value)
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if key == 'num_classes':
        return n_classes
    if key == 'num_stuff_classes':
        return min(value, 1)
    if key == 'num_layers':
        return min(value, 2)
    if (key.endswith(WIDTHS) and value >= 16) or key in DIVIDED:
        return max(value // scale, 1)
    return value


def _predict_whole_images(model: ConfigDict, side: int) -> None:
    preprocessor = model.data_preprocessor
    preprocessor.size = (side, side)
    preprocessor.pop('size_divisor', None)
    preprocessor.test_cfg = None
    model.test_cfg = ConfigDict(model.get('test_cfg') or {}, mode='whole')


def _small_resnet(backbone: ConfigDict) -> None:
    if 'base_channels' in backbone:
        return
    backbone.depth = min(backbone.depth, 50)
    backbone.base_channels = 64 // SCALE
    if backbone.type in ('ResNetV1c', 'ResNetV1d', 'ResNeSt'):
        backbone.stem_channels = 64 // SCALE
    if backbone.type == 'DetectoRS_ResNet':
        backbone.output_img = False


def _few_vit_layers(backbone: ConfigDict) -> None:
    """Keep the layers that the heads read."""
    indices = backbone.get('out_indices', -1)
    indices = (indices,) if isinstance(indices, int) else indices
    backbone.num_layers = max(len(indices), 2)
    backbone.out_indices = tuple(range(len(indices))) if len(indices) > 1 else (1,)


def _replace_backbone(model: ConfigDict) -> None:
    """Replace a backbone that is not installed by a ResNet with as many feature maps of similar widths."""
    reader = model.get('neck') or model.decode_head
    width = reader.in_channels[0]
    reader.in_channels = [width * 2**level for level in range(4)]
    model.backbone = ConfigDict(type='ResNet', depth=18, base_channels=width, out_indices=(0, 1, 2, 3))


def _narrow_csp(backbone: ConfigDict) -> None:
    backbone.widen_factor = backbone.get('widen_factor', 1.0) / SCALE
    backbone.deepen_factor = 1 / 3


def _add_widths(part: ConfigDict) -> None:
    for key, value in SIGNATURES[part.type].items():
        part.setdefault(key, value)


def _three_mask_layers(mask_head: ConfigDict) -> None:
    mask_head.num_layers = 3


def _one_class(head: ConfigDict) -> None:
    head.setdefault('num_classes', 1)


SPECIAL: dict[str, Callable[[ConfigDict], None]] = {
    **dict.fromkeys(RESNETS, _small_resnet),
    **dict.fromkeys(('VisionTransformer', 'BEiT', 'MAE'), _few_vit_layers),
    **dict.fromkeys(('CSPDarknet', 'CSPNeXt'), _narrow_csp),
    **dict.fromkeys(SIGNATURES, _add_widths),
    'CondInstMaskHead': _three_mask_layers,
    'BoxInstMaskHead': _three_mask_layers,
    'CascadeRPNHead': _one_class,
}
"""Changes of a part of a model, by its type."""


def _one_hourglass(model: ConfigDict) -> None:
    model.backbone.num_stacks = model.bbox_head.num_feat_levels = 1


def _with_small_teacher(model: ConfigDict) -> None:
    from stock.catalogue import StockModel

    teacher = shrunk(StockModel('mmdet', 'gfl', 'gfl/gfl_r50_fpn_1x_coco.py', ()))
    model.teacher_config = ConfigDict(model=teacher)


def _semantic_classes(model: ConfigDict) -> None:
    semantic = model.roi_head.get('semantic_head')
    if semantic is not None:
        semantic.num_classes = N_CLASSES['mmdet'] + 1


def _classes_of_masks(model: ConfigDict) -> None:
    head = model.panoptic_head
    head.loss_cls.class_weight = [1.0] * (head.num_things_classes + head.num_stuff_classes) + [0.1]


def _final_assigner(model: ConfigDict) -> None:
    """Skip the first epochs, in which other losses are computed."""
    model.train_cfg.initial_epoch = 0


def _objects_as_proposals(model: ConfigDict) -> None:
    """Train on the annotated boxes too: few random ones overlap with an object."""
    model.train_cfg.rcnn.sampler.add_gt_as_proposals = True


def _few_words(model: ConfigDict) -> None:
    words = [f'class {n}' for n in range(N_CLASSES['mmseg'])]
    model.text_encoder.update(dataset_name=None, vocabulary=words, templates=['a {}.'], num_heads=8)
    model.image_encoder.update(num_layers=9, out_indices=(2, 5, 8), img_size=(SIDE, SIDE))


WHOLE: dict[str, Callable[[ConfigDict], None]] = {
    'CornerNet': _one_hourglass,
    'HybridTaskCascade': _semantic_classes,
    'KnowledgeDistillationSingleStageDetector': _with_small_teacher,
    'Mask2Former': _classes_of_masks,
    'MaskFormer': _classes_of_masks,
    'MultimodalEncoderDecoder': _few_words,
    'SCNet': _semantic_classes,
    'TOOD': _final_assigner,
    'TridentFasterRCNN': _objects_as_proposals,
}
"""Changes of a whole model, by its type."""
