"""The words of the house and the contract that every engine keeps."""
