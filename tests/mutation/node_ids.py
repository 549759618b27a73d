"""A pytest plugin: mutmut 3.8 reads `_nodeid` of each test, a private attribute that pytest 9.2 no longer has; this restores it."""

import pytest

# Neither in __slots__ nor used by pytest itself: nothing is overridden.
pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]
