"""Predictions of the three toolboxes; samples of MMPretrain are dicts, since it is not in this environment."""

import pytest
import torch
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample
from torch.testing import assert_close

from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.evaluation._predictions import batches_of, stacked

LABELS, SCORES, LOGITS = InputSpec('labels'), InputSpec('scores'), InputSpec('logits')
MULTILABEL = InputSpec('labels', 'multilabel')
INSTANCES = InputSpec('instances')


def inputs(samples, *specs):
    [batch] = batches_of(samples, set(specs))
    assert batch.size == len(samples)
    return batch.inputs


class TestMMSegmentation:
    def sample(self, logits, labels, target):
        sample = SegDataSample(pred_sem_seg=PixelData(data=labels), gt_sem_seg=PixelData(data=target))
        sample.set_data(dict(seg_logits=PixelData(data=logits)))
        return sample.to_dict()

    def test_several_classes(self):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(2, 3, 4, 5, generator=generator)
        target = torch.randint(3, (2, 1, 4, 5), generator=generator)
        samples = [self.sample(z, z.argmax(0, keepdim=True), t) for z, t in zip(logits, target, strict=True)]
        decided = logits.argmax(1)
        found = inputs(samples, LABELS, SCORES, LOGITS)
        assert_close(found[LABELS], (decided, target.squeeze(1)))
        assert_close(found[SCORES], (logits.softmax(1), target.squeeze(1)))
        assert_close(found[LOGITS], (logits, target.squeeze(1)))
        [batch] = batches_of(samples, {LABELS, LOGITS})
        assert batch.first(1).size == 1
        expected = {LABELS: (decided[:1], target[:1, 0]), LOGITS: (logits[:1], target[:1, 0])}
        assert_close(batch.first(1).inputs, expected)
        with pytest.raises(ValueError, match=r'one class a pixel\. Found metrics of multilabel form'):
            inputs(samples, MULTILABEL)
        for sample in samples:
            del sample['seg_logits']  # not needed for labels
        assert set(inputs(samples, LABELS)) == {LABELS}

    def test_one_channel(self):
        """MMSegmentation returns sigmoids for one channel, and decides at its own threshold, 0.3."""
        p = torch.rand(1, 4, 5)
        target = (torch.rand(1, 4, 5) > 0.5).long()
        sample = self.sample(p, (p > 0.3).to(p), target)
        found = inputs([sample], InputSpec('labels', 'binary'), InputSpec('scores', 'binary'))
        assert_close(found[InputSpec('labels', 'binary')], ((p > 0.3).long(), target))
        assert_close(found[InputSpec('scores', 'binary')], (p, target))


class TestMMPretrain:
    def test_one_label(self):
        p = torch.rand(3, 4).softmax(1)
        samples = [dict(pred_score=p[i], pred_label=p[i].argmax()[None], gt_label=torch.tensor([i])) for i in range(3)]
        found = inputs(samples, LABELS, SCORES, LOGITS)
        assert_close(found[LABELS], (p.argmax(1), torch.arange(3)))
        assert_close(found[SCORES], (p, torch.arange(3)))
        assert_close(found[LOGITS], (p.log(), torch.arange(3)))

    def test_no_scores(self):
        samples = [dict(pred_label=torch.tensor([i]), gt_label=torch.tensor([2])) for i in range(3)]
        assert_close(inputs(samples, LABELS)[LABELS], (torch.arange(3), torch.full((3,), 2)))
        with pytest.raises(ValueError, match=r'hold none.* `pred_label` without `pred_score`'):
            inputs(samples, SCORES)
        with pytest.raises(ValueError, match='metrics need scores, but the data samples hold none'):
            inputs([dict(pred_label=torch.tensor([0, 1]), gt_label=torch.tensor([0, 3]))], MULTILABEL)

    def test_several_labels(self):
        p = torch.rand(2, 4)
        samples = [
            dict(pred_score=p[0], gt_label=torch.tensor([0, 3])),
            dict(pred_score=p[1], gt_score=torch.tensor([0.0, 1, 1, 0])),
        ]
        scores, target = inputs(samples, MULTILABEL)[MULTILABEL]
        assert_close(scores, p)
        assert target.tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]
        with pytest.raises(ValueError, match=r'one `gt_label` for each\. Found \[0, 3\]; .*`num_labels`'):
            inputs(samples, LABELS)

    def test_no_ground_truth(self):
        for spec in (LABELS, MULTILABEL):
            with pytest.raises(ValueError, match='`gt_label`'):
                inputs([dict(pred_score=torch.rand(3))], spec)


class TestMMDetection:
    def sample(self, n_ignored=1):
        def instances(n, **more):
            return InstanceData(bboxes=torch.rand(n, 4), labels=torch.arange(n), **more)

        sample = SegDataSample()  # any data element
        sample.pred_instances = instances(3, scores=torch.rand(3))
        sample.gt_instances = instances(2)
        sample.ignored_instances = instances(n_ignored)
        return sample.to_dict()

    @pytest.mark.parametrize('n_ignored', [0, 2])
    def test_boxes(self, n_ignored):
        """Boxes that do not count are crowds, as in COCO."""
        sample = self.sample(n_ignored)
        [preds], [target] = inputs([sample], INSTANCES)[INSTANCES]
        found, true, ignored = (sample[f'{key}_instances'] for key in ('pred', 'gt', 'ignored'))
        assert_close(preds, dict(boxes=found['bboxes'], labels=found['labels'], scores=found['scores']))
        assert_close(target['boxes'], torch.cat([true['bboxes'], ignored['bboxes']]))
        assert target['labels'].tolist() == [0, 1, *range(n_ignored)]
        assert target['iscrowd'].tolist() == [0, 0, *[1] * n_ignored]

    @pytest.mark.parametrize(
        ('spec', 'missing', 'message'),
        [
            (LABELS, (), r'boxes.*MeanAveragePrecision.* Found metrics that need labels'),
            (SCORES, (), r'boxes, which are right or wrong\. Found metrics of classes form'),
            (INSTANCES, ('gt_instances',), r'`gt_instances`.*LoadAnnotations'),
        ],
        ids=['labels', 'scores', 'no ground truth'],
    )
    def test_inputs_that_boxes_do_not_have(self, spec, missing, message):
        sample = {key: value for key, value in self.sample().items() if key not in missing}
        with pytest.raises(ValueError, match=message):
            inputs([sample], spec)

    def test_scores_of_right_and_wrong_boxes(self):
        """The second box has the object of the first; the third lies in an ignored region, the fourth on no object."""
        box = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
        sample = SegDataSample()
        sample.pred_instances = InstanceData(
            bboxes=torch.cat([box, box, box + 10, box + 50]),
            labels=torch.tensor([1, 1, 2, 2]),
            scores=torch.tensor([0.9, 0.8, 0.7, 0.6]),
        )
        sample.gt_instances = InstanceData(bboxes=box, labels=torch.tensor([1]))
        sample.ignored_instances = InstanceData(bboxes=box + 11, labels=torch.tensor([2]))
        specs = InputSpec('scores', 'binary'), InputSpec('logits', 'channel'), INSTANCES
        found = inputs([sample.to_dict()], *specs)
        scores, is_hit = found[specs[0]]
        assert_close(scores, torch.tensor([0.9, 0.8, 0.6]))
        assert is_hit.tolist() == [1, 0, 0]
        assert_close(found[specs[1]][0], torch.tensor([0.9, 0.8, 0.6]).logit().unsqueeze(1))
        assert len(found[INSTANCES][0]) == 1

    def test_images_of_boxes_are_batches_of_their_own(self):
        batches = batches_of([self.sample(), self.sample()], {InputSpec('scores', 'binary')})
        assert [batch.size for batch in batches] == [1, 1]
        assert all(batch.first(1) is batch for batch in batches)


def test_nothing_has_no_batches_and_a_single_map_is_not_copied():
    assert batches_of([], {LABELS}) == []
    a, b = torch.rand(2, 3), torch.rand(2, 3)
    assert_close(stacked([a, b]), torch.stack([a, b]))
    assert_close(stacked([a]), a[None])
    assert stacked([a]).data_ptr() == a.data_ptr()
