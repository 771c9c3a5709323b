"""The loss for the Trainer of Transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

transformers = pytest.importorskip('transformers')

from mmseg_nondecomp import LovaszSoftmaxLoss, SoftIoULoss, SumOfLosses, metric_loss  # noqa: E402
from mmseg_nondecomp.adapters.transformers import TrainerLoss, semantic_scores  # noqa: E402

ROOT = Path(__file__).parents[2]
STAGES = ['stage1', 'stage2', 'stage3', 'stage4']
TINY = dict(depths=[1] * 4, hidden_sizes=[8] * 4)


pytestmark = pytest.mark.usefixtures('no_package_of_data_sets')


def segformer(**settings):
    heads = dict(num_attention_heads=[1] * 4, mlp_ratios=[1] * 4, decoder_hidden_size=8)
    no_dropout = dict(classifier_dropout_prob=0, drop_path_rate=0)
    config = transformers.SegformerConfig(**TINY, **heads, **no_dropout, **settings)
    return transformers.SegformerForSemanticSegmentation(config)


def upernet(**settings):
    backbone = transformers.ConvNextConfig(**TINY, out_features=STAGES)
    sizes = dict(hidden_size=8, auxiliary_channels=8, auxiliary_in_channels=8)
    config = transformers.UperNetConfig(backbone_config=backbone, **sizes, **settings)
    return transformers.UperNetForSemanticSegmentation(config)


def mask2former(**settings):
    backbone = dict(image_size=32, depths=[1] * 4, num_heads=[1] * 4, embed_dim=8, window_size=2, out_features=STAGES)
    sizes = dict(feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=8, dim_feedforward=8)
    layers = dict(encoder_layers=1, decoder_layers=2, num_attention_heads=1, num_queries=5, train_num_points=16)
    config = transformers.Mask2FormerConfig(
        backbone_config=transformers.SwinConfig(**backbone), **sizes, **layers, **settings
    )
    return transformers.Mask2FormerForUniversalSegmentation(config)


def scenes(n=4, n_classes=3):
    torch.manual_seed(0)
    labels = torch.randint(0, n_classes, (n, 32, 32))
    labels[:, :4] = 255
    return [dict(pixel_values=torch.randn(3, 32, 32), labels=label) for label in labels]


def with_masks(batch):
    """Collate the masks of the classes beside the label maps, as the image processors of mask models do."""
    labels = torch.stack([each['labels'] for each in batch])
    masks = [torch.stack([label == c for c in range(3)]).float() for label in labels]
    images = torch.stack([each['pixel_values'] for each in batch])
    return dict(pixel_values=images, labels=labels, mask_labels=masks, class_labels=[torch.arange(3)] * len(batch))


def trainer(model, folder, loss, data, collate=None, callbacks=None, **settings):
    settings = dict(max_steps=2, per_device_train_batch_size=2, learning_rate=0.01) | settings
    quiet = dict(use_cpu=True, report_to=[], disable_tqdm=True, save_strategy='no', dataloader_pin_memory=False)
    arguments = transformers.TrainingArguments(output_dir=str(folder), **quiet, **settings)
    of_data = dict(train_dataset=data, eval_dataset=data, data_collator=collate, callbacks=callbacks)
    return transformers.Trainer(model, arguments, compute_loss_func=loss, **of_data)


@pytest.mark.parametrize(
    ('build', 'weight'),
    [
        (segformer, 'decode_head.classifier.weight'),
        (upernet, 'decode_head.classifier.weight'),
        (mask2former, 'class_predictor.weight'),
    ],
)
def test_trains(tmp_path, build, weight):
    model = build(num_labels=3)
    head = dict(model.named_parameters())[weight]
    before = head.detach().clone()
    is_mask = build is mask2former
    settings = dict(collate=with_masks, remove_unused_columns=False) if is_mask else {}
    run = trainer(model, tmp_path, TrainerLoss('miou', config=model.config), scenes(), **settings)
    assert 0 < run.train().training_loss < 100
    assert not torch.equal(head, before)
    assert all(each.isfinite().all() for each in model.parameters())
    assert 0 < run.evaluate()['eval_loss'] < 100


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
def test_is_the_loss_of_resized_logits(dtype):
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 8, 8).to(dtype).requires_grad_()
    labels = torch.randint(0, 3, (2, 32, 32))
    labels[:, :5], labels[:, 5:9] = 255, -100
    value = TrainerLoss(LovaszSoftmaxLoss())({'logits': logits}, labels)
    resized = F.interpolate(logits.float(), (32, 32), mode='bilinear', align_corners=False)
    expected = LovaszSoftmaxLoss()(resized[:, :, 9:], labels[:, 9:])
    assert torch.allclose(value, expected, atol=1e-6)
    gradients = [torch.autograd.grad(each, logits)[0] for each in (value, expected)]
    assert torch.allclose(*gradients, atol=1e-6)
    assert gradients[0].abs().max() > 1e-5
    assert torch.equal(TrainerLoss(LovaszSoftmaxLoss())((logits, 'states'), labels), value)


def test_scores_of_a_classifier_are_not_resized():
    torch.manual_seed(0)
    logits, labels = torch.randn(8, 3), torch.randint(0, 3, (8,))
    assert torch.equal(TrainerLoss('accuracy')({'logits': logits}, labels), metric_loss('accuracy')(logits, labels))


@pytest.mark.parametrize('name', ['miou', 'dice'])
def test_all_ignored(name):
    logits = torch.randn(2, 3, 8, 8, requires_grad=True)
    value = TrainerLoss(name)({'logits': logits}, torch.full((2, 16, 16), -100), num_items_in_batch=torch.tensor(0))
    value.backward()
    assert value == 0
    assert (logits.grad == 0).all()


def test_masks_of_0_and_255_are_refused_unless_255_is_stated():
    logits, labels = torch.randn(2, 1, 8, 8), torch.randint(0, 2, (2, 8, 8))
    with pytest.raises(ValueError, match='255'):
        TrainerLoss('dice')(dict(logits=logits), 255 * labels)
    ignored = labels.masked_fill(labels == 0, 255)
    stated = TrainerLoss('dice', ignore_index=255)(dict(logits=logits), ignored)
    assert torch.equal(stated, TrainerLoss('dice')(dict(logits=logits), ignored.masked_fill(ignored == 255, -100)))


def test_255_is_ignored_also_where_it_could_be_a_class():
    logits, labels = torch.randn(2, 300, 8, 8), torch.randint(0, 300, (2, 8, 8))
    labels[:, 0], labels[:, 1] = 255, -100
    expected = SoftIoULoss(ignore_index=255)(logits, labels.masked_fill(labels == -100, 255))
    assert torch.equal(TrainerLoss(SoftIoULoss())(dict(logits=logits), labels), expected)


def test_which_label_is_ignored():
    config = transformers.SegformerConfig(semantic_loss_ignore_index=7)
    assert TrainerLoss('miou').ignore_index == 255
    assert TrainerLoss('miou', config=config).ignore_index == 7
    assert TrainerLoss('miou', config=transformers.UperNetConfig(loss_ignore_index=8)).ignore_index == 8
    assert TrainerLoss(SoftIoULoss(ignore_index=0), config=config).ignore_index == 0
    assert TrainerLoss(SoftIoULoss(ignore_index=0), config=config, ignore_index=1).ignore_index == 1
    assert TrainerLoss(torch.nn.CrossEntropyLoss(), config=config).ignore_index == 7
    assert TrainerLoss(SumOfLosses([SoftIoULoss(ignore_index=0)]), config=config).ignore_index == 0


def test_loss_of_torch():
    logits, labels = torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    labels[0, 0] = 255
    value = TrainerLoss(torch.nn.CrossEntropyLoss())({'logits': logits}, labels)
    assert torch.allclose(value, F.cross_entropy(logits, labels, ignore_index=255))


def test_one_label_is_binary(tmp_path):
    model = segformer(num_labels=1)
    loss = TrainerLoss('dice', config=model.config)
    logits, labels = torch.randn(2, 1, 32, 32), torch.randint(0, 2, (2, 32, 32))
    labels[0, 0] = 255
    expected = metric_loss('dice', mode='binary')(logits, labels)
    assert torch.allclose(loss({'logits': logits}, labels), expected, atol=1e-6)
    assert trainer(model, tmp_path, loss, scenes(n_classes=2)).train().training_loss > 0


@pytest.mark.parametrize('padded_rows', [0, 16])
def test_gradient_accumulation_is_the_weighted_mean(tmp_path, padded_rows):
    """Each of two batches of an optimizer step has the weight of its labels."""
    data, loss = scenes(2), LovaszSoftmaxLoss()
    data[0]['labels'][:padded_rows] = -100
    model = segformer(num_labels=3).train()
    classifier, expected = model.decode_head.classifier, 0
    before = classifier.weight.detach().clone()
    weights = torch.tensor([32 - padded_rows, 32]) / (64 - padded_rows)
    for each, weight in zip(data, weights, strict=True):
        logits = model(each['pixel_values'][None]).logits
        resized = F.interpolate(logits, (32, 32), mode='bilinear', align_corners=False)
        labels = each['labels'][None]
        value = loss(resized, labels.masked_fill(labels == 255, -100), ignore_index=-100)
        expected = expected + weight * torch.autograd.grad(value, classifier.weight)[0]
    sgd = dict(optim='sgd', learning_rate=1, max_grad_norm=0, lr_scheduler_type='constant', max_steps=1)
    two = dict(per_device_train_batch_size=1, gradient_accumulation_steps=2)
    trainer(model, tmp_path, TrainerLoss(loss), data, **sgd, **two).train()
    assert expected.abs().max() > 1e-4
    assert torch.allclose(before - classifier.weight, expected, atol=1e-6)


def test_several_processes():
    """Trainer multiplies by the number of processes, by whose number DDP divides the sum of the gradients."""
    torch.manual_seed(0)
    loss, plain = TrainerLoss(SoftIoULoss()), SoftIoULoss()
    calls = [[(torch.randn(2, 3, 8, 8), torch.randint(0, 3, (2, 8, 8))) for _ in range(3)] for _ in range(2)]
    calls[1][0][1][:, :6] = -100
    counts = torch.tensor([[(labels != -100).sum() for _, labels in of_process] for of_process in calls])
    total = counts.sum()
    step = sum(2 * sum(loss({'logits': x}, y, total) for x, y in of_process) for of_process in calls) / 2
    values = torch.stack([plain(x, y, ignore_index=-100) for of_process in calls for x, y in of_process])
    assert torch.allclose(step, (values * counts.flatten()).sum() / total)
    # `DataParallel`: one call with the outputs of both GPUs.
    x, y = calls[0][0]
    assert torch.allclose(2 * loss({'logits': x}, y, torch.full((2, 1), y.numel())), plain(x, y))


def test_scores_of_mask_models():
    torch.manual_seed(0)
    classes, masks = 3 * torch.randn(2, 5, 4), 3 * torch.randn(2, 5, 8, 8)
    products = torch.einsum('nqc,nqhw->nchw', classes.double().softmax(-1)[..., :-1], masks.double().sigmoid())
    assert torch.allclose(semantic_scores(classes, masks).double(), products.log(), atol=1e-5)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        assert torch.equal(semantic_scores(classes, masks), semantic_scores(classes.clone(), masks.clone()))
        assert torch.allclose(semantic_scores(classes, masks).double(), products.log(), atol=1e-5)


@pytest.mark.parametrize('size', [50, 300, 1e4])
def test_scores_of_certain_mask_models_are_finite(size):
    torch.manual_seed(0)
    classes, masks = torch.randn(2, 5, 4).mul(size).requires_grad_(), torch.randn(2, 5, 8, 8).mul(size).requires_grad_()
    value = TrainerLoss('miou')(
        {'class_queries_logits': classes, 'masks_queries_logits': masks}, torch.randint(0, 3, (2, 8, 8))
    )
    value.backward()
    assert value.isfinite()
    assert classes.grad.isfinite().all()
    assert masks.grad.isfinite().all()


def test_loss_of_mask_models():
    torch.manual_seed(0)
    masks = torch.randn(2, 5, 16, 16, requires_grad=True)
    outputs = {'class_queries_logits': torch.randn(2, 5, 4), 'masks_queries_logits': masks, 'loss': torch.tensor([2.0])}
    labels = torch.randint(0, 3, (2, 16, 16))
    labels[:, :8] = 255
    value = TrainerLoss(SoftIoULoss(), model_loss_weight=0)(outputs, labels)
    assert torch.allclose(TrainerLoss(SoftIoULoss(), model_loss_weight=0.5)(outputs, labels), value + 1)
    expected = SoftIoULoss()(semantic_scores(outputs['class_queries_logits'], masks), labels)
    assert torch.allclose(value, expected, atol=1e-6)
    gradient = torch.autograd.grad(value, masks)[0]
    assert (gradient[:, :, :8] == 0).all()
    assert (gradient[:, :, 8:] != 0).any()


def test_multipliers_follow_the_optimizer(tmp_path):
    loss = TrainerLoss('f_beta', config=transformers.SegformerConfig(num_labels=1))

    class Step(transformers.TrainerCallback):
        def on_optimizer_step(self, args, state, control, **kwargs):
            loss.loss.step()

    data = scenes(n_classes=2)
    trainer(segformer(num_labels=1), tmp_path, loss, data).train()
    before = loss.state_dict()['loss.losses.0._extra_state']['queries']['mu'].clone()
    trainer(segformer(num_labels=1), tmp_path, loss, data, callbacks=[Step()]).train()
    assert loss.state_dict()['loss.losses.0._extra_state']['queries']['mu'] != before


@pytest.mark.parametrize(
    ('settings', 'error', 'message'),
    [
        (dict(loss=3), TypeError, '`loss` should be a loss'),
        (dict(config=torch.nn.Linear(1, 1)), TypeError, '`config` should be `model.config`'),
        (dict(ignore_index='void'), TypeError, '`ignore_index`'),
        (dict(model_loss_weight=-1), ValueError, '`model_loss_weight`'),
    ],
)
def test_wrong_arguments(settings, error, message):
    with pytest.raises(error, match=message):
        TrainerLoss(**settings)


LOGITS = dict(logits=torch.zeros(2, 3, 8, 8))
ONE_CLASS = dict(class_queries_logits=torch.zeros(2, 5, 2), masks_queries_logits=torch.zeros(2, 5, 8, 8))


@pytest.mark.parametrize(
    ('outputs', 'labels', 'error', 'message'),
    [
        (LOGITS, [torch.zeros(8, 8)], TypeError, 'Found list'),
        (LOGITS, torch.zeros(8, 8), ValueError, r'of shape \(2, H, W\)'),
        (LOGITS, torch.zeros(2, 8, 8, 4), ValueError, r'Found \(2, 8, 8, 4\)'),
        (LOGITS, torch.zeros(1, 8, 8), ValueError, r'Found \(1, 8, 8\)'),
        (LOGITS, torch.full((2, 8, 8), 5), ValueError, r'labels in \[0, 2\].*Found 5'),
        (dict(last_hidden_state=LOGITS['logits']), torch.zeros(2, 8, 8), ValueError, r"logits.*'last_hidden_state'"),
        (dict(logits=torch.zeros(2, 9, 3)), torch.zeros(2, 8, 8), ValueError, r'Found \(2, 9, 3\)'),
        ((), torch.zeros(2, 8, 8), ValueError, '`outputs` should have `logits`'),
        (ONE_CLASS, torch.zeros(2, 8, 8), ValueError, '`num_labels` of a mask model'),
    ],
)
def test_wrong_calls(outputs, labels, error, message):
    with pytest.raises(error, match=message):
        TrainerLoss('miou')(outputs, labels)


def test_removed_labels_are_explained(tmp_path):
    """Trainer removes the key `labels` that the model does not take."""
    run = trainer(mask2former(num_labels=3), tmp_path, TrainerLoss('miou'), scenes())
    with pytest.raises(TypeError, match='remove_unused_columns=False'):
        run.train()


def test_does_not_import_transformers():
    program = 'import sys, mmseg_nondecomp.adapters.transformers; assert "transformers" not in sys.modules'
    subprocess.run([sys.executable, '-c', program], check=True, cwd=ROOT)


def test_tool(tmp_path):
    tool, out = ROOT / 'tools/adapters/long_tail_shapes_trainer.py', tmp_path / 'a.json'
    options = ['--steps', '2', '--seeds', '1', '--images', '4', '--out', str(out)]
    subprocess.run([sys.executable, str(tool), *options], check=True, cwd=ROOT, capture_output=True)
    table = json.loads(out.read_text())
    assert table['settings']['steps'] == 2
    assert [each['loss'] for each in table['table']] == ['cross-entropy', "metric_loss('miou')"]
    assert all(0 <= float(each['mIoU']) <= 100 for each in table['table'])
