"""The gathers people write by hand, in a plain rendering of our own: what each costs, not what each gets wrong.

Every one of them needs the default group, a barrier's worth of luck and peers that do not fail.
"""
