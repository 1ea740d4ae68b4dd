"""TiDB's types: bytes to values and values to text, one module a family. Each is the readable reference of a kernel."""
