"""A tiny training with a decode head of MMSegmentation, for tests of hooks that read the inputs of its loss."""

from types import SimpleNamespace

import torch
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from mmengine.structures import PixelData
from mmseg.models.decode_heads import FCNHead
from mmseg.structures import SegDataSample
from torch import nn
from torch.utils.data import DataLoader

NAMES = ('a', 'b', 'c')
CROSS_ENTROPY = dict(type='mmseg.CrossEntropyLoss', avg_non_ignore=True)
LOVASZ = dict(type='LovaszSoftmaxLoss')
BINARY = dict(num_classes=2, out_channels=1, loss=dict(type='LossMaxPooling', pixel_loss='bce'))


def head(loss=CROSS_ENTROPY, **settings):
    """A decode head on the image itself, of three classes by default."""
    defaults = dict(in_channels=1, channels=4, num_convs=1, concat_input=False, num_classes=3, norm_cfg=None)
    return FCNHead(**(defaults | dict(dropout_ratio=0, loss_decode=loss) | settings))


def losses_of(decode_head, images, labels):
    """The losses of a head on label maps [N, 1, H, W]."""
    samples = [SegDataSample(gt_sem_seg=PixelData(data=one)) for one in labels]
    return decode_head.loss([images], samples, None)


class Pixels(BaseModel):
    """A head on the image itself. It records its forward passes and the inputs of its first loss."""

    def __init__(self, decode_head=None):
        super().__init__()
        self.decode_head = decode_head or head()
        self.seen, self.n_forward = [], 0
        last = self.decode_head[-1] if isinstance(self.decode_head, nn.ModuleList) else self.decode_head
        losses = last.loss_decode
        first = losses[0] if isinstance(losses, nn.ModuleList) else losses
        first.register_forward_pre_hook(lambda _, args: self.seen.append([a.detach().clone() for a in args]))
        last.conv_seg.register_forward_pre_hook(lambda *_: setattr(self, 'n_forward', self.n_forward + 1))

    def forward(self, image, label, mode):
        heads = self.decode_head if isinstance(self.decode_head, nn.ModuleList) else [self.decode_head]
        return {f'{i}.{k}': v for i, one in enumerate(heads) for k, v in losses_of(one, image, label).items()}


class Images:
    """Six images of three classes; class 2 is in two of them."""

    metainfo = dict(classes=NAMES)

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(6, 1, 8, 8, generator=generator)
        self.labels = torch.randint(2, (6, 1, 8, 8), generator=generator)
        self.labels[:2, :, 3:] = 2
        self.labels[:, :, 0] = 255

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return dict(image=self.images[i], label=self.labels[i])

    def get_cat_ids(self, i):
        return [0, 1, 2] if i < 2 else [0, 1]


def trained(folder, n_iters, hook, model=None, sampler=None, **settings):
    """The Runner after training with a hook, or without one if it is None."""
    torch.manual_seed(0)
    model = model or Pixels()
    runner = Runner(
        model=model,
        work_dir=str(folder),
        experiment_name=f'{folder.name} {n_iters} {sorted(settings)}',
        train_dataloader=DataLoader(Images(), batch_size=2, sampler=sampler),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=n_iters),
        optim_wrapper=OptimWrapper(torch.optim.SGD(model.parameters(), 0.1)),
        default_hooks=dict(
            logger=dict(type='LoggerHook', interval=1),
            checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=5),
        ),
        custom_hooks=hook and [hook],
        randomness=dict(seed=0),
        log_level='ERROR',
        **settings,
    )
    runner.train()
    return runner


def logged(runner, name):
    """The numbers in the log of a training under a name."""
    return runner.message_hub.get_scalar(f'train/train/{name}').data[0]


def hub(**infos):
    scalars = {}
    return SimpleNamespace(
        get_info=infos.get, update_info=infos.__setitem__, update_scalar=scalars.__setitem__, scalars=scalars
    )


def started(hook, model=None, sampler=None, data=None, message_hub=None):
    """The hook at the start of a training, without a Runner."""
    loader = SimpleNamespace(sampler=sampler, batch_sampler=None, dataset=data or Images())
    model = model or Pixels()
    hook.before_train(SimpleNamespace(model=model, train_dataloader=loader, message_hub=message_hub or hub()))
    return hook


def after_iteration(hook, i=0):
    runner = SimpleNamespace(iter=i, message_hub=hub())
    hook.after_train_iter(runner, i)
    return runner.message_hub.scalars


def random_batch(n=4, seed=0):
    """Logits [n, 3, 6, 6] and labels, some of which are ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits, labels = torch.randn(n, 3, 6, 6, generator=generator), torch.randint(3, (n, 6, 6), generator=generator)
    labels[:2][labels[:2] == 1] = 255
    return logits, labels
