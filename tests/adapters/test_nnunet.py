"""Trainers of nnU-Net v2 on a generated data set, which nnU-Net itself plans and preprocesses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip('nnunetv2')

from mmseg_nondecomp import LovaszSoftmaxLoss, SMeasureLoss
from mmseg_nondecomp.adapters.nnunet import TRAINERS, OutputLoss, SetLossTrainer

NAMES = ['nnUNetTrainerMIoU', 'nnUNetTrainerDice', 'nnUNetTrainerLovasz', 'nnUNetTrainerLossMaxPooling']
LABELS = {
    'labels': dict(background=0, organ=1, tumour=2),
    'ignore': dict(background=0, organ=1, tumour=2, ignore=3),
    'regions': dict(background=0, whole=[1, 2], tumour=2),
    'regions_ignore': dict(background=0, whole=[1, 2], tumour=2, ignore=3),
}
SHORT = """
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from mmseg_nondecomp import metric_loss
from mmseg_nondecomp.adapters.nnunet import SetLossTrainer

class nnUNetTrainerShort(SetLossTrainer, nnUNetTrainer):
    def __init__(self, plans, configuration, fold, dataset_json, device):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs, self.num_iterations_per_epoch, self.num_val_iterations_per_epoch = 1, 2, 1

    def build_set_loss(self, **layout):
        return metric_loss('miou', **layout)
"""


def write_data_set(folder: Path) -> None:
    import SimpleITK

    for name in ('imagesTr', 'labelsTr'):
        (folder / name).mkdir(parents=True)
    generator = np.random.default_rng(0)
    for case in range(5):
        label = np.zeros((16, 16, 16), np.uint8)
        label[3:12, 3:12, 3:12], label[5:8, 5:8, 5:8] = 1, 2
        image = (label + 0.3 * generator.standard_normal(label.shape)).astype(np.float32)
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(image), folder / 'imagesTr' / f'c{case}_0000.nii.gz')
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(label), folder / 'labelsTr' / f'c{case}.nii.gz')
    description = dict(channel_names={'0': 'x'}, labels=LABELS['labels'], numTraining=5, file_ending='.nii.gz')
    (folder / 'dataset.json').write_text(json.dumps(description))


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    """The folder of the data set, planned and preprocessed by nnU-Net, with a tiny network in its plans."""
    root = tmp_path_factory.mktemp('nnunet')
    (root / 'own').mkdir()
    (root / 'own' / 'short_trainers.py').write_text(SHORT)
    with pytest.MonkeyPatch.context() as patch:
        for name in ('raw', 'preprocessed', 'results'):
            patch.setenv(f'nnUNet_{name}', str(root / name))
        patch.setenv('nnUNet_extTrainer', f'{TRAINERS}{os.pathsep}{root / "own"}')
        patch.setenv('nnUNet_n_proc_DA', '1')  # planning does not accept 0
        patch.setenv('nnUNet_def_n_proc', '1')
        from nnunetv2.experiment_planning import plan_and_preprocess_api as api

        write_data_set(root / 'raw' / 'Dataset001_Cubes')
        api.extract_fingerprints([1], num_processes=1, show_progress_bar=False)
        api.plan_experiments([1])
        file = root / 'preprocessed' / 'Dataset001_Cubes' / 'nnUNetPlans.json'
        plans = json.loads(file.read_text())
        for name, n_dims in (('2d', 2), ('3d_fullres', 3)):
            plans['configurations'][name]['architecture']['arch_kwargs'].update(
                n_stages=4,
                features_per_stage=[4] * 4,
                kernel_sizes=[[3] * n_dims] * 4,
                strides=[[1] * n_dims] + [[2] * n_dims] * 3,
                n_conv_per_stage=[1] * 4,
                n_conv_per_stage_decoder=[1] * 3,
            )
            plans['configurations'][name].update(patch_size=[16] * n_dims, batch_size=2)
        file.write_text(json.dumps(plans))
        api.preprocess([1], configurations=['2d', '3d_fullres'], num_processes=[1, 1], show_progress_bar=False)
        patch.setenv('nnUNet_n_proc_DA', '0')
        yield file.parent


def find(name):
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    return recursive_find_trainer_class_by_name(name)


def build(prepared, trainer, labels='labels', configuration='3d_fullres', batch_dice=False):
    """A trainer of nnU-Net, ready for `train_step`."""
    torch.manual_seed(0)
    plans = json.loads((prepared / 'nnUNetPlans.json').read_text()) | dict(continue_training=False)
    plans['configurations'][configuration]['batch_dice'] = batch_dice
    data_set = json.loads((prepared / 'dataset.json').read_text())
    data_set |= dict(labels=LABELS[labels], regions_class_order=[1, 2])
    trainer = find(trainer) if isinstance(trainer, str) else trainer
    trainer = trainer(plans, configuration, 0, data_set, torch.device('cpu'))
    trainer.initialize()
    return trainer


def batch(trainer, labels=None):
    """A mini-batch with the transforms of nnU-Net: one target, or one for each scale."""
    manager, size = trainer.label_manager, trainer.configuration_manager.patch_size
    highest = max(manager.all_labels) + manager.has_ignore_label
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 1, *size, generator=generator)
    if labels is None:
        labels = torch.randint(0, highest + 1, (2, 1, *size), generator=generator)
    regions = manager.foreground_regions if manager.has_regions else None
    transforms = trainer.get_validation_transforms(
        trainer._get_deep_supervision_scales(), regions=regions, ignore_label=manager.ignore_label
    )
    items = [transforms(image=i, segmentation=s.short()) for i, s in zip(images, labels, strict=True)]
    targets = [item['segmentation'] for item in items]
    if trainer.enable_deep_supervision:
        return dict(data=images, target=[torch.stack(scale) for scale in zip(*targets, strict=True)])
    return dict(data=images, target=torch.stack(targets))


def direct(loss, manager, logits, target):
    """The loss, called as docs/layouts.md describes."""
    if not manager.has_regions:
        return loss(logits, target[:, 0].long(), ignore_index=manager.ignore_label)
    if not manager.has_ignore_label:
        return loss(logits, target.double())
    return loss(logits, target[:, :2].double(), weight=(~target[:, 2]).double())


@pytest.mark.parametrize('configuration', ['2d', '3d_fullres'])
@pytest.mark.parametrize('labels', LABELS)
@pytest.mark.parametrize('name', NAMES)
def test_two_train_steps(prepared, name, labels, configuration):
    trainer = build(prepared, name, labels, configuration)
    before = [p.detach().clone() for p in trainer.network.parameters()]
    losses = [trainer.train_step(batch(trainer))['loss'] for _ in range(2)]
    assert np.isfinite(losses).all()
    assert losses[1] < losses[0]
    assert sum(not torch.equal(a, b) for a, b in zip(before, trainer.network.parameters(), strict=True)) > 5
    assert np.isfinite(trainer.validation_step(batch(trainer))['loss'])


@pytest.mark.parametrize('deep', [True, False])
@pytest.mark.parametrize('batch_dice', [True, False])
@pytest.mark.parametrize('labels', LABELS)
def test_value_and_gradient_of_the_direct_call(prepared, labels, batch_dice, deep):
    bases = [find('nnUNetTrainerLovasz')] + ([] if deep else [find('nnUNetTrainerNoDeepSupervision')])
    trainer = build(prepared, type('nnUNetTrainerTested', tuple(bases), {}), labels, batch_dice=batch_dice)
    assert trainer.enable_deep_supervision == deep
    mini_batch = batch(trainer)
    outputs = trainer.network(mini_batch['data'])
    manager = trainer.label_manager
    loss = LovaszSoftmaxLoss(
        mode='multilabel' if manager.has_regions else 'multiclass', scope='batch' if batch_dice else 'image'
    )
    if deep:
        scales = list(zip(outputs, mini_batch['target'], strict=True))
        assert len(scales) == 3
        expected = sum(w * direct(loss, manager, *scale) for w, scale in zip((2 / 3, 1 / 3), scales, strict=False))
    else:
        expected = direct(loss, manager, outputs, mini_batch['target'])
    ours = trainer.loss(outputs, mini_batch['target'])
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=0)
    outputs = outputs[:2] if deep else outputs  # the scale with the lowest resolution has weight 0
    gradients = [torch.autograd.grad(value, outputs, retain_graph=True) for value in (ours, expected)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize('batch_dice', [True, False])
@pytest.mark.parametrize('labels', ['labels', 'ignore', 'regions'])
def test_dice_is_the_stock_loss_without_smoothing(prepared, labels, batch_dice):
    ours, stock = (build(prepared, n, labels, batch_dice=batch_dice) for n in ('nnUNetTrainerDice', 'nnUNetTrainer'))
    mini_batch = batch(ours)
    outputs = ours.network(mini_batch['data'])
    values = [trainer.loss(outputs, mini_batch['target']) for trainer in (ours, stock)]
    torch.testing.assert_close(values[0], values[1] + 1, atol=1e-5, rtol=0)
    gradients = [torch.autograd.grad(v, outputs[0], retain_graph=True)[0] for v in values]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize('name', NAMES)
def test_all_ignored_one_class_and_half_precision(prepared, name):
    trainer = build(prepared, name, 'ignore')
    ignored, tumour = (batch(trainer, torch.full((2, 1, 16, 16, 16), label)) for label in (3, 2))
    outputs = trainer.network(ignored['data'])
    nothing = trainer.loss(outputs, ignored['target'])
    assert nothing.item() == 0
    assert torch.autograd.grad(nothing, outputs[0], retain_graph=True)[0].abs().max() == 0
    value = trainer.loss(outputs, tumour['target'])
    assert 0.1 < value.item() < 10
    half = trainer.loss([output.half() for output in outputs], tumour['target'])
    torch.testing.assert_close(half, value, atol=1e-2, rtol=0)
    assert half.dtype == torch.float32


def test_deep_supervision_of_several_gpus_and_compiled_losses(prepared, monkeypatch):
    trainer, stock = (build(prepared, name) for name in ('nnUNetTrainerMIoU', 'nnUNetTrainer'))
    mini_batch = batch(trainer)
    outputs = trainer.network(mini_batch['data'])
    expected = trainer.loss(outputs, mini_batch['target'])
    trainer.is_ddp = stock.is_ddp = True
    factors = trainer._build_loss().weight_factors
    assert factors == stock._build_loss().weight_factors
    assert 0 < factors[-1] < 1e-5  # DDP needs a gradient of each parameter
    trainer.is_ddp = False
    monkeypatch.setattr(trainer, '_do_i_compile', lambda: True)
    assert trainer._build_loss()(outputs, mini_batch['target']) == expected


def test_names_are_not_those_of_nnunet(monkeypatch):
    monkeypatch.delenv('nnUNet_extTrainer', raising=False)
    for name in NAMES:
        with pytest.raises(RuntimeError, match='Could not find requested nnunet trainer'):
            find(name)


def test_command_prints_the_folder_alone():
    command = [sys.executable, '-m', 'mmseg_nondecomp.adapters.nnunet']
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == f'{TRAINERS}\n'
    assert [file.name for file in Path(printed.strip()).glob('*.py')] == ['mmseg_nondecomp_trainers.py']


def test_training_and_prediction_by_name(prepared):
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
    from nnunetv2.run.run_training import run_training

    run_training('1', '3d_fullres', 0, 'nnUNetTrainerShort', device=torch.device('cpu'))
    folder = prepared.parents[1] / 'results' / 'Dataset001_Cubes' / 'nnUNetTrainerShort__nnUNetPlans__3d_fullres'
    assert 'foreground_mean' in json.loads((folder / 'fold_0' / 'validation' / 'summary.json').read_text())
    predictor = nnUNetPredictor(device=torch.device('cpu'), allow_tqdm=False, perform_everything_on_device=False)
    predictor.initialize_from_trained_model_folder(str(folder), (0,))
    assert predictor.trainer_name == 'nnUNetTrainerShort'
    image = np.zeros((1, 16, 16, 16), np.float32)
    predicted = predictor.predict_single_npy_array(image, dict(spacing=[1, 1, 1]), None, None, False)
    assert predicted.shape == (16, 16, 16)


def test_wrong_order_of_bases():
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    with pytest.raises(TypeError, match=r'`SetLossTrainer` before nnUNetTrainer'):
        type('Wrong', (nnUNetTrainer, SetLossTrainer), {})


@pytest.mark.parametrize('loss', [SMeasureLoss(measure='f_beta'), LovaszSoftmaxLoss(memory=2)])
def test_loss_with_state(loss):
    with pytest.raises(ValueError, match=r'should have no state: .*_extra_state'):
        OutputLoss(loss)
    OutputLoss(torch.nn.CrossEntropyLoss(weight=torch.ones(3)))  # constants are no state


def test_no_loss(prepared):
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    with pytest.raises(NotImplementedError, match='Empty should define `build_set_loss`'):
        build(prepared, type('Empty', (SetLossTrainer, nnUNetTrainer), {}))
    with pytest.raises(TypeError, match='`loss` should be a loss'):
        build(prepared, type('NoLoss', (SetLossTrainer, nnUNetTrainer), dict(build_set_loss=lambda self, **_: None)))


@pytest.mark.parametrize(
    ('regions', 'ignores', 'target', 'message'),
    [
        (False, False, (2, 3, 4, 4), r'\[b, 1, \*\]: class indices. Found \(2, 3, 4, 4\)'),
        (False, False, (2, 4, 4), r'\[b, 1, \*\]'),
        (True, False, (2, 1, 4, 4), r'\[b, 3, \*\]: 3 regions, 0 of ignored'),
        (True, True, (2, 3, 4, 4), r'\[b, 4, \*\]: 3 regions, 1 of ignored'),
    ],
)
def test_wrong_target(regions, ignores, target, message):
    with pytest.raises(ValueError, match=message):
        OutputLoss(LovaszSoftmaxLoss(), regions, ignores)(torch.randn(2, 3, 4, 4), torch.zeros(target))
