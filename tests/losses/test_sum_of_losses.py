import pytest
import torch
from calls import assert_same

from mmseg_nondecomp import LossMaxPooling, LovaszSoftmaxLoss, SumOfLosses

LOGITS = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 4, (2, 5, 5), generator=torch.Generator().manual_seed(1)).masked_fill(LOGITS[:, 0] > 1, 255)


def test_the_value_is_the_sum_of_the_parts():
    parts = LossMaxPooling(), LovaszSoftmaxLoss(loss_weight=3.0)
    expected = sum(part(LOGITS, LABELS, ignore_index=255) for part in parts)
    assert_same([SumOfLosses(parts, loss_weight=0.5)(LOGITS, LABELS, weight=None, ignore_index=255)], [expected / 2])


def test_the_ignored_label_is_handed_on_to_losses_of_any_package():
    pytest.importorskip('mmseg')
    configs = [dict(type='mmseg.CrossEntropyLoss', avg_non_ignore=True), dict(type='LovaszSoftmaxLoss')]
    found = SumOfLosses(configs, ignore_index=255)(LOGITS, LABELS)
    expected = torch.nn.functional.cross_entropy(LOGITS, LABELS, ignore_index=255) + LovaszSoftmaxLoss()(LOGITS, LABELS)
    assert_same([found], [expected])


def test_the_parts_are_logged_while_a_runner_trains(hub):
    hub.update_info('iter', 0)
    SumOfLosses([LossMaxPooling(), LovaszSoftmaxLoss()])(LOGITS, LABELS)
    logged = {name: float(buffer.current()) for name, buffer in hub.log_scalars.items()}
    assert {'train/loss_sum_loss_lmp', 'train/loss_sum_loss_lovasz'} <= logged.keys()
    assert logged['train/loss_sum_loss_lovasz'] == pytest.approx(LovaszSoftmaxLoss()(LOGITS, LABELS).item())


@pytest.mark.parametrize('losses', [[], dict(type='LovaszSoftmaxLoss'), None])
def test_anything_but_a_list_of_losses_is_refused(losses):
    with pytest.raises(TypeError, match='`losses` should be a list of losses or their configs'):
        SumOfLosses(losses)
