from tests.engine.conftest import cloud as cloud
