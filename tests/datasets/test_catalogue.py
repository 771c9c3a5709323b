from mmseg_nondecomp.datasets._catalogue import CLASSES, FAMILIES, KINDS, LOOK_ALIKES, PALETTE, THINGS


def test_every_class_has_a_name_and_a_colour_of_its_own():
    assert len(set(CLASSES)) == len(CLASSES) == len(KINDS) >= 12
    assert len(set(PALETTE)) == len(CLASSES)


def test_look_alike_things_share_their_colours_and_differ_in_something_else():
    things = {thing.name: thing for thing in THINGS}
    for frequent, rare in LOOK_ALIKES:
        assert CLASSES.index(frequent) < CLASSES.index(rare)
        if frequent in things:
            first, second = things[frequent], things[rare]
            assert first.family == second.family
            assert first.family in FAMILIES
            looks = [(thing.outline, thing.degrees, thing.hatched, thing.home) for thing in (first, second)]
            assert looks[0] != looks[1]
