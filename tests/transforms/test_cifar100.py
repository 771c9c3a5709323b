from mmseg_nondecomp.transforms._cifar100 import CLASSES, GROUPS, cifar100_groups


def test_twenty_groups_of_five_hold_each_class_once():
    groups = cifar100_groups()
    assert len(groups) == len(GROUPS) == 20
    assert all(len(group) == 5 for group in groups)
    assert sorted(cls for group in groups for cls in group) == list(range(100))


def test_the_papers_example():
    people = cifar100_groups()[list(GROUPS).index('people')]
    assert [CLASSES[cls] for cls in people] == ['baby', 'boy', 'girl', 'man', 'woman']
