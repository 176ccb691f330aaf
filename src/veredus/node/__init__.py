"""The join: routes between the parts, and owns no protocol state."""
