collect_ignore = ['dying_rank.py', 'killed_training.py']
"""Programs that tests start, and their modules: they have no examples."""
