"""One thread for each test process, and no test near the user's cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores of token ids go to a folder of this session, also in the processes that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
