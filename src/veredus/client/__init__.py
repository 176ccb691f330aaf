"""The library: what applications publish and subscribe with, asyncio and blocking."""
