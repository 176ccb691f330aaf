"""Rules and tokens guard what Spark writes, and who lacks a right is told of the stream that the user named."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import veredus
from tests.system.serving import ServedNode
from veredus.client.blocking import Node
from veredus.runtime.security import add_token

from .conftest import SparkEnd, numbered

pytestmark = pytest.mark.spark

RULES = """
[security]
tokens = "{tokens}"

[[security.rules]]
principal = "operator"
may = ["*"]

[[security.rules]]
principal = "daily"
may = ["publish", "create", "describe", "subscribe"]
streams = ["daily", "daily.eu", "hourly"]
sinks = ["spark-batch/daily/*", "spark-batch/daily.eu/*"]

[[security.rules]]
principal = "query"
may = ["publish", "create", "describe", "subscribe"]
streams = ["daily", "copy"]
sinks = ["spark/*", "spark-place/*"]
"""


class Guarded(ServedNode):
    """A node with rules, and the tokens of its principals."""

    def __init__(self, directory: Path) -> None:
        self.tokens = {who: add_token(directory / "tokens", who)[0] for who in ("operator", "daily", "query")}
        settings = directory / "veredus.toml"
        settings.write_text(RULES.format(tokens=directory / "tokens"))
        super().__init__(directory / "journal", {"SETTINGS": str(settings)}, life_s=900)

    def connect(self, who: str) -> Node:
        """Connected as this principal."""
        return veredus.connect(self.address, token=self.tokens[who], timeout_s=20, refused_s=20)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    node = Guarded(tmp_path_factory.mktemp("guarded"))
    node.spawn()
    with node.connect("operator"):
        yield node
    node.kill()


@pytest.fixture
def end(spark: SparkSession, guarded: Guarded, tmp_path: Path) -> SparkEnd:
    """Spark's end of stream `daily`."""
    return SparkEnd(spark, guarded.address, "daily", tmp_path)


def heads(guarded: Guarded) -> dict[str, int]:
    with guarded.connect("operator") as node:
        return {stream["name"]: stream["head"] for stream in node.streams.list()}


def test_a_rule_permits_the_nameless_writes_of_one_stream_and_of_no_other(end: SparkEnd, guarded: Guarded) -> None:
    token = guarded.tokens["daily"]
    end.write(numbered(end, 10), token=token)
    end.write(numbered(end, 20), stream="daily.eu", token=token)
    for stream, sink in (("hourly", "spark-batch/hourly/"), ("daily", "spark-batch/report")):
        named = {"sink": "report", "commitId": 1} if sink == "spark-batch/report" else {}
        with pytest.raises(Exception, match=rf"(?s)stream '{stream}': daily may not publish on sink '?{sink}"):
            end.write(numbered(end, 10), stream=stream, token=token, **named)
    with pytest.raises(Exception, match=r"stream 'weekly': query may not publish"):
        end.write(numbered(end, 10), stream="weekly", token=guarded.tokens["query"])
    assert heads(guarded) == {"daily": 10, "daily.eu": 20}
    with guarded.connect("operator") as node:
        assert (node.sinks.list(), node.sinks.stages()) == ([], [])


def test_a_token_from_a_file_lets_a_query_write_and_stands_in_no_plan(
    end: SparkEnd, guarded: Guarded, tmp_path: Path
) -> None:
    given = tmp_path / "token"
    given.write_text(guarded.tokens["query"] + "\n")
    with guarded.connect("operator") as node, node.publisher("daily", source="desk") as publisher:
        publisher.publish_many(["k"] * 50, ["b"] * 50)
    before = heads(guarded)
    rows = end.read_stream("key string, body string", tokenFile=given)
    query = end.run(rows, to="copy", tokenFile=given)
    assert heads(guarded) == before | {"copy": before["daily"]}
    assert guarded.tokens["query"] not in str(query.explain(True))
    with pytest.raises(
        StreamingQueryException, match=r"(?s)stream 'daily.eu': query may not|may not .* stream '?daily.eu"
    ):
        end.run(rows, to="daily.eu", checkpoint="other", tokenFile=given)


def plans_of(end: SparkEnd) -> str:
    """What Spark keeps to show of the plans of all that it ran."""
    session = end.spark._jsparkSession  # type: ignore[attr-defined]
    ran = session.sharedState().statusStore().executionsList()
    return "\n".join(ran.apply(index).physicalPlanDescription() for index in range(ran.size()))


def test_a_token_that_is_an_option_of_a_batch_writer_stands_in_no_plan_and_no_error(
    end: SparkEnd, guarded: Guarded
) -> None:
    token = guarded.tokens["daily"]
    end.write(numbered(end, 10), token=token)
    with pytest.raises(Exception, match="may not publish") as caught:
        end.write(numbered(end, 10), stream="hourly", token=token)
    assert token not in str(caught.value)
    plans = plans_of(end)
    assert "veredus" in plans.lower()
    assert token not in plans


def test_a_token_that_is_an_option_of_a_stream_writer_stands_in_no_plan_and_no_error(
    end: SparkEnd, guarded: Guarded, capfd: pytest.CaptureFixture[str]
) -> None:
    token = guarded.tokens["query"]
    with guarded.connect("operator") as node, node.publisher("daily", source="teller") as publisher:
        publisher.publish_many(["k"] * 50, ["b"] * 50)
    rows = end.read_stream("key string, body string", token=token)
    query = end.run(rows, to="copy", checkpoint="by-option", token=token)
    capfd.readouterr()
    query.explain(extended=True)
    shown = capfd.readouterr().out
    assert "veredus" in shown.lower()
    with pytest.raises(StreamingQueryException) as caught:
        end.run(rows, to="daily.eu", checkpoint="by-option-in-vain", token=token)
    for text in (shown, str(caught.value), plans_of(end)):
        assert token not in text
