from tests.engine.conftest import cloud as cloud
from tests.engine.test_audit_rows import run as run
