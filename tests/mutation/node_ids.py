"""A plugin of pytest: mutmut 3.8 asks each test for `_nodeid`, a private name that pytest 9.2 no longer has; here it is again."""

import pytest

# Not in __slots__ and not in use by pytest itself, so nothing is covered up.
pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]
