import pytest
from comparison.job import N_POINTS, Job

CONFIG = 'configs/long_tail_shapes/tiny-unet_ce_lts.py'


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch, pytestconfig):
    monkeypatch.chdir(pytestconfig.rootpath)


def test_a_training_of_other_settings_is_another_one(tmp_path):
    job = Job(CONFIG, 0, tmp_path)
    same = Job(CONFIG, 0, tmp_path / 'elsewhere')
    others = [
        Job(CONFIG, 1, tmp_path),
        Job(CONFIG, 0, tmp_path, 'long'),
        Job(CONFIG, 0, tmp_path, lr=0.1),
        Job(CONFIG, 0, tmp_path, options={'train_dataloader.batch_size': 3}),
        Job(CONFIG, 0, tmp_path, n_points=1),
        Job(CONFIG, 0, tmp_path, first_point=6),
        Job(CONFIG, 0, tmp_path, n_checkpoints=1),
    ]
    assert job.fingerprint() == same.fingerprint()
    assert len({job.fingerprint(), *(other.fingerprint() for other in others)}) == 1 + len(others)


def test_an_edited_config_is_another_one(tmp_path):
    config = tmp_path / 'mine.py'
    config.write_text("train_cfg = dict(max_iters=100)\nmodel = dict(type='A')\n")
    before = Job(str(config), 0, tmp_path).fingerprint()
    config.write_text("train_cfg = dict(max_iters=100)\nmodel = dict(type='B')\n")
    assert Job(str(config), 0, tmp_path).fingerprint() != before


def test_each_has_a_folder_of_its_own(tmp_path):
    jobs = [Job(CONFIG, seed, tmp_path, s, lr) for seed in (0, 1) for s in ('short', 'long') for lr in (None, 0.1)]
    assert len({job.work_dir for job in jobs}) == 8


def test_it_is_validated_at_ten_points_with_a_checkpoint_at_each(tmp_path):
    cfg = Job(CONFIG, 3, tmp_path, 'long').settings()
    assert cfg.train_cfg.max_iters == 2500
    assert cfg.train_cfg.val_interval == cfg.default_hooks.checkpoint.interval == 2500 // N_POINTS
    assert cfg.default_hooks.checkpoint.max_keep_ckpts == 2
    assert cfg.randomness.seed == 3


def test_it_is_validated_as_often_as_told_and_keeps_its_ten_checkpoints(tmp_path):
    cfg = Job(CONFIG, 3, tmp_path, n_points=1).settings()
    assert cfg.train_cfg.val_interval == cfg.train_cfg.max_iters == 500
    assert cfg.default_hooks.checkpoint.interval == 500 // N_POINTS
    assert Job(CONFIG, 3, tmp_path, n_checkpoints=1).settings().default_hooks.checkpoint.interval == 500


def test_the_first_validations_can_be_left_out(tmp_path):
    loop = Job(CONFIG, 3, tmp_path, first_point=6).settings().train_cfg
    validated = [i for i in range(1, loop.max_iters + 1) if i >= loop.val_begin and i % loop.val_interval == 0]
    assert validated == [300, 350, 400, 450, 500]


def test_a_config_without_a_checkpoint_hook_gets_one_that_counts_as_its_loop(tmp_path):
    config = tmp_path / 'mine.py'
    config.write_text("train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=4)\n")
    cfg = Job(str(config), 0, tmp_path).settings()
    assert cfg.default_hooks.checkpoint == dict(type='CheckpointHook', by_epoch=True, interval=1, max_keep_ckpts=2)
