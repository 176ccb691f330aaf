"""The reader of PromQL finds every metric with its labels, and refuses what is none."""

import pytest

from tests.deploy.promql import Selector, read_promql


def test_metrics_labels_and_functions_are_found() -> None:
    read = read_promql('topk(3, rate(a_total{x="1", y=~"b|c"}[$__rate_interval])) / on (z) group_left b > 2e9')
    assert read.selectors == (
        Selector("a_total", ("x", "y"), ("topk", "rate"), True),
        Selector("b", (), (), False),
    )
    assert read.grouped == ("z",)
    assert read_promql("sum by (x) (a) and time() - b == 0").grouped == ("x",)
    assert read_promql('label_values(a{job="$job"}, instance)').grouped == ("instance",)


@pytest.mark.parametrize("text", ["", "rate(a", "a)", "a{x}", 'a{x="1"', "a # b", "rat(a[5m])", "a[5m"])
def test_what_is_no_promql_is_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        read_promql(text)
