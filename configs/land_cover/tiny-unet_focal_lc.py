# Sigmoid focal loss, summed over the classes as in the paper. The FocalLoss of MMSegmentation 1.2.2 fails on a CPU.
# With ratio=1.0 LossMaxPooling is the mean over all pixels that are not ignored.
# T.-Y. Lin, P. Goyal, R. Girshick, K. He, P. Dollar: Focal loss for dense object detection. ICCV 2017.
# https://arxiv.org/abs/1708.02002
_base_ = './tiny-unet_ce_lc.py'
model = dict(
    decode_head=dict(
        loss_decode=dict(
            _delete_=True,
            type='LossMaxPooling',
            pixel_loss='focal',
            ratio=1.0,
            scope='batch',
            loss_weight=17.0,  # the pixel loss is the mean over the 17 classes
            loss_name='loss_focal',
        )
    )
)
