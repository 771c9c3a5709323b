import pytest
import written_training


@pytest.fixture
def write_training(tmp_path):

    def write(name, seed, areas, schedule='short', classes=('sky', 'bird'), lr=None):
        result = dict(config=f'{name}.py', name=name, schedule=schedule, seed=seed, lr=lr)
        config = f"# {name}\nmodel = dict(type='<script>alert(1)</script>')\n"
        return written_training.write_training(
            tmp_path / schedule / name / f'seed{seed}', areas, classes, result, config
        )

    return write
