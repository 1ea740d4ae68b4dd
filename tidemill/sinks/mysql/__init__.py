"""`mysql://`, `tidb://`: rows are applied to a MySQL, MariaDB or TiDB database, and DDLs are run there.

In a task (`task`): rows come as SQL literals (`kernels/sql`) and wait until a window is full. It is divided into groups that share no
value of a unique key (`kernels/apply`), which are written over several connections (`lanes`). What a transaction writes is decided in
`merge` and `statements`, without IO. The driver (`driver`) keeps the books (`bookkeeping`) and runs DDLs, as `dialect` rewrites them.

In: literals and hashes of rows, DDLs. Out: committed transactions. Read `task.py` first.
"""
