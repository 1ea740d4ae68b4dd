"""The SQL subset of the playground: statements to transactions of rows, meta keys and DDL jobs as TiDB writes them."""
