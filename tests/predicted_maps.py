"""Label maps and scores as MMSegmentation predicts them, for tests."""

import torch

N_CLASSES = 7
NAMES = ('road', 'wall', 'pole', 'sign', 'sky', 'train', 'bike')
ABSENT = 5


class LabelMaps:
    """Images with ignored pixels; a class that is nowhere, and rare ones; most decisions are right."""

    metainfo = dict(classes=NAMES)

    def __init__(self, n, size=(20, 24)):
        self.n = n
        self.size = size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        frequency = torch.tensor([8, 4, 1, 0.2, 4, 0, 0.1])
        target = torch.multinomial(frequency, self.size[0] * self.size[1], True, generator=generator).view(
            1, *self.size
        )
        logits = torch.randn(N_CLASSES, *self.size, generator=generator)
        logits[ABSENT] = -9
        logits.scatter_add_(0, target, torch.full_like(target, 2, dtype=torch.float32))
        target[:, torch.rand(self.size, generator=generator) < 0.1] = 255
        return dict(
            pred_sem_seg=dict(data=logits.argmax(0, keepdim=True)),
            seg_logits=dict(data=logits),
            gt_sem_seg=dict(data=target),
        )


COUNT = dict(num_classes=N_CLASSES, ignore_index=255)
TORCHMETRICS = 'torchmetrics.classification.Multiclass'
OF_STOCK = dict(
    mIoU=dict(type=f'{TORCHMETRICS}JaccardIndex', **COUNT),
    mAcc=dict(type=f'{TORCHMETRICS}Accuracy', **COUNT),
    aAcc=dict(type=f'{TORCHMETRICS}Accuracy', average='micro', **COUNT),
    mDice=dict(type=f'{TORCHMETRICS}F1Score', **COUNT),
    mFscore=dict(type=f'{TORCHMETRICS}F1Score', **COUNT),
)
