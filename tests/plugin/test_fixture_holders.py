"""What of a plugin is searched for fixtures: that of it which is one, also when it comes late, and nothing else."""

from __future__ import annotations

from types import ModuleType

import pytest

from rankdrill.plugin.fixture_holders import fixture_holder


@pytest.fixture
def mine() -> None: ...


KIND = type(mine)


class Plain:
    def hook(self) -> None: ...


class Holder(Plain):
    held = mine


class Inheriting(Holder): ...


class Wrapping:
    held = staticmethod(mine)


def module(**names: object) -> ModuleType:
    made = ModuleType("plugin")
    vars(made).update(names)
    return made


def names_in(holder: object) -> set[str]:
    return {name for name in dir(holder) if not name.startswith("__")}


def test_of_a_module_its_fixtures() -> None:
    holder = fixture_holder(module(mine=mine, hook=len, settings={}), KIND)
    assert names_in(holder) == {"mine"}
    assert vars(holder)["mine"] is mine


def test_of_a_module_without_any_nothing() -> None:
    assert fixture_holder(module(hook=len), KIND) is None


def test_a_fixture_that_a_module_gets_later_is_found() -> None:
    plugin = module(hook=len)
    assert fixture_holder(plugin, KIND) is None
    vars(plugin)["late"] = mine
    assert names_in(fixture_holder(plugin, KIND)) == {"late"}
    vars(plugin)["later"] = mine
    assert names_in(fixture_holder(plugin, KIND)) == {"late", "later"}
    del plugin.late, plugin.later
    assert fixture_holder(plugin, KIND) is None


def test_a_module_that_says_itself_what_it_has_is_searched_whole() -> None:
    plugin = module(hook=len, __dir__=lambda: ["made"], __getattr__=lambda name: mine)
    assert fixture_holder(plugin, KIND) is plugin


@pytest.mark.parametrize("owner", [Holder, Inheriting, Wrapping])
def test_an_object_whose_class_has_fixtures_is_searched_whole(owner: type) -> None:
    plugin = owner()
    assert fixture_holder(plugin, KIND) is plugin


def test_an_object_whose_class_has_none_is_not_searched() -> None:
    assert fixture_holder(Plain(), KIND) is None


def test_a_class_is_searched_whole() -> None:
    assert fixture_holder(Plain, KIND) is Plain
