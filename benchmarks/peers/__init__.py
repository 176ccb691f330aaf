"""What a Python user would pick instead, each through its usual Python client."""
