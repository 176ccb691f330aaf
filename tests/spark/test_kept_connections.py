"""A worker keeps its connection from task to task, and the file of its token changes meanwhile."""

from pathlib import Path

import pytest

from tests.system.secured import Secured, ended_code
from veredus.kernel.errors import Refused
from veredus.runtime.security import add_token, remove_token
from veredus.spark.connections import node_of, patiently
from veredus.spark.options import NodeOptions


def test_a_connection_whose_token_was_replaced_in_its_file_is_made_anew(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    token, line = add_token(secured.tokens, "query")
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    options = NodeOptions((secured.served.address,), "s", None, str(file), None, 20)
    secured.start()
    try:
        assert patiently(options, lambda node: node.streams.list()) == []
        remove_token(secured.tokens, line.id)
        assert ended_code(node_of(options)) == "revoked"
        with pytest.raises(Refused) as refused:
            patiently(options, lambda node: node.streams.list())
        assert refused.value.code == "unauthenticated"
        file.write_text(add_token(secured.tokens, "query")[0])
        assert patiently(options, lambda node: node.streams.list()) == []
    finally:
        secured.served.kill()
