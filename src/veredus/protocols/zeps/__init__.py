"""ZEPS: version 1 as its grammar says, and version 2, the native protocol of Veredus."""
