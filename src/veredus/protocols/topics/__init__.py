"""Topics: subscribe, unsubscribe, get and put, exactly once, through proxies. Source: seed 000."""
