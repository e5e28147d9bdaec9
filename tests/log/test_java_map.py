"""The order of Java's HashMap. The orders expected here were printed by a JVM (17), not computed."""

from collections.abc import Callable

import pytest

from tidelog.log.java_map import JavaLongMap, computed_order, java_bucket
