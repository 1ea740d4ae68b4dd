"""The compiler of kernels: functions in a subset of Python → LLVM's text → machine code.

In: functions of integers and addresses. Out: object code, which `tidemill.kernels.cache` keeps. The subset is what kernels need: int64,
uint64, bool and double in variables, `if`, `while`, `for … in range`, calls, tuples as results. Read `translate.py`, then `machine.py`.
"""
