"""PostgreSQL access: pools, migrations, and SQL read from files."""
