_base_ = './ce_deeplabv3plus_r50-d8_1xb120-40k_coco-stuff164k-106x160.py'
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'], allow_failed_imports=False)
# Decision for images with sky whether the sky is large; class 145 is `sky-other`.
s_measure_head = dict(
    type='SMeasureHead',
    in_channels=2048,
    in_index=3,
    num_classes=171,
    group='size',
    of_class=145,
    size_threshold='mean',
    loss_decode=dict(
        type='SMeasureLoss',
        measure='f_beta',
        per_example=True,
        eta_lambda=1e-3,
        eta_mu=1e-5,
        loss_weight=1e-2,
    ),
)
model = dict(auxiliary_head=[{{_base_.model.auxiliary_head}}, s_measure_head])
# One projection and one dual step per epoch, as in Algorithm 1.
custom_hooks = [dict(type='DualAscentHook', interval=1, by_epoch=True)]
