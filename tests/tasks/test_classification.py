from __future__ import annotations

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.tasks.classification import ClassificationConfig


def test_the_focal_loss_has_no_smoothing() -> None:
    with pytest.raises(UsageError, match=r"task.smoothing=0.1 with task.focal=2") as raised:
        ClassificationConfig.of({"focal": 2, "smoothing": 0.1})
    assert "task.smoothing=0" in raised.value.advice
    ClassificationConfig.of({"focal": 2})
    ClassificationConfig.of({"smoothing": 0.1})
