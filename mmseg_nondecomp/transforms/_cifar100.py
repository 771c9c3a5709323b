"""The coarse classes of CIFAR-100: 20 groups of five classes each.

The table has names. CIFAR-100 numbers its classes in alphabetical order, so the numbers follow from them.

Reference:
    A. Krizhevsky: Learning multiple layers of features from tiny images. Technical report, 2009.
"""

GROUPS: dict[str, str] = {
    'aquatic mammals': 'beaver dolphin otter seal whale',
    'fish': 'aquarium_fish flatfish ray shark trout',
    'flowers': 'orchid poppy rose sunflower tulip',
    'food containers': 'bottle bowl can cup plate',
    'fruit and vegetables': 'apple mushroom orange pear sweet_pepper',
    'household electrical devices': 'clock keyboard lamp telephone television',
    'household furniture': 'bed chair couch table wardrobe',
    'insects': 'bee beetle butterfly caterpillar cockroach',
    'large carnivores': 'bear leopard lion tiger wolf',
    'large man-made outdoor things': 'bridge castle house road skyscraper',
    'large natural outdoor scenes': 'cloud forest mountain plain sea',
    'large omnivores and herbivores': 'camel cattle chimpanzee elephant kangaroo',
    'medium-sized mammals': 'fox porcupine possum raccoon skunk',
    'non-insect invertebrates': 'crab lobster snail spider worm',
    'people': 'baby boy girl man woman',
    'reptiles': 'crocodile dinosaur lizard snake turtle',
    'small mammals': 'hamster mouse rabbit shrew squirrel',
    'trees': 'maple_tree oak_tree palm_tree pine_tree willow_tree',
    'vehicles 1': 'bicycle bus motorcycle pickup_truck train',
    'vehicles 2': 'lawn_mower rocket streetcar tank tractor',
}
"""The names of the classes of each coarse class."""

CLASSES: tuple[str, ...] = tuple(sorted(' '.join(GROUPS.values()).split()))
"""The names of the 100 classes in the order of their numbers."""


def cifar100_groups() -> list[list[int]]:
    """Return the numbers of the classes of each coarse class; ``[2, 11, 35, 46, 98]`` for people."""
    return [[CLASSES.index(name) for name in names.split()] for names in GROUPS.values()]
