"""A data set for tests of sampling: image ``i`` holds the classes that are given for it."""


class Numbered:
    """Image ``i`` holds the classes that are given for it."""

    def __init__(self, *categories):
        self.categories = categories
        self.metainfo = dict(classes=('a', 'b', 'c'))

    def __len__(self):
        return len(self.categories)

    def __getitem__(self, image):
        return self.categories[image]

    def get_cat_ids(self, image):
        return self.categories[image]
