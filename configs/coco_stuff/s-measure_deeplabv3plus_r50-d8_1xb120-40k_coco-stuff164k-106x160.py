_base_ = './ce_deeplabv3plus_r50-d8_1xb120-40k_coco-stuff164k-106x160.py'
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'], allow_failed_imports=False)
# F_1 of separating images of large objects from images of small ones, with the step sizes of the paper.
s_measure_head = dict(
    type='SMeasureHead',
    in_channels=2048,
    in_index=3,
    num_classes=171,
    group='majority',
    size_threshold=0.05,
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
