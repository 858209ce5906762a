from __future__ import annotations

from tests.e2e.conftest import module_system, system

__all__ = ["module_system", "system"]
