"""What pods of other schedulers and job controllers say of their gangs, in one common description.

Adding a dialect: one module here, its line in the table, and one table-driven test.
"""
