"""Results of simulations as one page: plots, tables and the inputs. `writing.write_report` is the door."""
